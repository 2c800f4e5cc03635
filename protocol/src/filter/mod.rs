//! Filters on the properties of messages, in the SQL92 subset that RocketMQ documents.
//!
//! `=`, `<>`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `IS NULL`, `AND`, `OR`, `NOT`, strings, numbers and booleans; names are properties
//! of the message, and a property that a message lacks is NULL. Conditions are three-valued as in SQL: what is neither true nor false
//! is not delivered. Values that cannot be compared, text with a number say, are not equal and not ordered: false, not NULL, as upstream.

mod evaluate;
mod parse;

pub use parse::FilterError;

/// Bytes of one expression.
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Parentheses and `NOT`s within each other.
pub const DEPTH_MAX: usize = 64;

/// Names of properties, texts, numbers and booleans in one expression. Judging a message costs so much at most.
pub const OPERANDS_MAX: usize = 1_024;

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    node: Node,
    /// The properties it asks for, sorted.
    names: Vec<String>,
}

impl Condition {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is wrong with it and where; also when it is longer than [`EXPRESSION_BYTES_MAX`], deeper than [`DEPTH_MAX`] or has more
    /// operands than [`OPERANDS_MAX`].
    pub fn parse(expression: &str) -> Result<Self, FilterError> {
        let node = parse::condition(expression)?;
        let mut names = Vec::new();
        let operands = node.collect(&mut names);
        if operands > OPERANDS_MAX {
            return Err(FilterError::TooMany(operands));
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self { node, names })
    }

    /// Whether the condition is true for a message with these properties. Of a name that occurs twice, the last counts.
    pub fn matches<'a>(&'a self, properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        // Each property is looked up once, however often it is named: messages may have many, and long ones.
        let at = |name: &str| self.names.binary_search_by(|known| known.as_str().cmp(name)).ok();
        let mut values = vec![None; self.names.len()];
        for (name, value) in properties {
            if let Some(place) = at(name).and_then(|at| values.get_mut(at)) {
                *place = Some(value);
            }
        }
        evaluate::node(&self.node, &|name| *values.get(at(name)?)?) == Some(true)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Compare {
        left: Operand,
        by: Comparison,
        right: Operand,
    },
    Between {
        value: Operand,
        low: Operand,
        high: Operand,
    },
    In {
        property: String,
        values: Vec<String>,
    },
    IsNull(String),
    /// A property or a constant as a condition of its own.
    Itself(Operand),
}

impl Node {
    /// Adds the properties it names, once for each time; answers how many operands it has.
    fn collect(&self, names: &mut Vec<String>) -> usize {
        let mut operands = |all: &[&Operand]| {
            names.extend(all.iter().filter_map(|operand| match operand {
                Operand::Property(name) => Some(name.clone()),
                _ => None,
            }));
            all.len()
        };
        match self {
            Self::Any(parts) | Self::All(parts) => parts.iter().map(|part| part.collect(names)).sum(),
            Self::Not(part) => part.collect(names),
            Self::Compare { left, right, .. } => operands(&[left, right]),
            Self::Between { value, low, high } => operands(&[value, low, high]),
            Self::Itself(operand) => operands(&[operand]),
            Self::In { property, values } => {
                names.push(property.clone());
                1 + values.len()
            }
            Self::IsNull(property) => {
                names.push(property.clone());
                1
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Property(String),
    Text(String),
    Integer(i64),
    Real(f64),
    Flag(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
