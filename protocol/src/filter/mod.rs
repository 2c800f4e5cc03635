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

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition(Node);

impl Condition {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is wrong with it and where; also when it is longer than [`EXPRESSION_BYTES_MAX`] or deeper than [`DEPTH_MAX`].
    pub fn parse(expression: &str) -> Result<Self, FilterError> {
        parse::condition(expression).map(Self)
    }

    /// Whether the condition is true for a message whose properties `property` looks up by name.
    pub fn matches<'a>(&'a self, property: impl Fn(&str) -> Option<&'a str>) -> bool {
        evaluate::node(&self.0, &property) == Some(true)
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
