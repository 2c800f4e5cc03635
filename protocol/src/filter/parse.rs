//! Reads an expression. Words are read in any case, as SQL does; names of properties and texts are not.

use winnow::ascii::multispace0;
use winnow::combinator::{alt, cut_err, delimited, eof, not, opt, preceded, repeat, separated, terminated};
use winnow::error::{AddContext, ContextError, ErrMode, ModalResult, StrContext, StrContextValue};
use winnow::stream::Stream;
use winnow::token::{literal, one_of, take_while};
use winnow::{LocatingSlice, Parser};

use super::{Comparison, DEPTH_MAX, EXPRESSION_BYTES_MAX, Node, OPERANDS_MAX, Operand};

type Input<'a> = LocatingSlice<&'a str>;

/// Words that are no names of properties.
const WORDS: [&str; 9] = ["AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"];

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// More than [`EXPRESSION_BYTES_MAX`].
    #[error("the expression has {0} bytes, allowed are {EXPRESSION_BYTES_MAX}")]
    TooLong(usize),
    /// More than [`OPERANDS_MAX`].
    #[error("the expression has {0} operands, allowed are {OPERANDS_MAX}")]
    TooMany(usize),
    /// Something else was expected.
    #[error("the expression cannot be read from character {at} on: expected {expected}")]
    Syntax {
        /// Characters before it, plus one.
        at: usize,
        /// What would have been right there.
        expected: String,
    },
}

pub(super) fn condition(expression: &str) -> Result<Node, FilterError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(FilterError::TooLong(expression.len()));
    }
    let whole = |input: &mut Input<'_>| any_of(input, DEPTH_MAX);
    let end = expecting(eof, "an operator, AND, OR or the end");
    terminated(preceded(multispace0, whole), cut_err(end)).parse(LocatingSlice::new(expression)).map_err(|error| {
        let expected = error.inner().context().find_map(|context| match context {
            StrContext::Expected(value) => Some(value.to_string()),
            _ => None,
        });
        let at = expression.get(..error.offset()).map_or(0, |before| before.chars().count()) + 1;
        FilterError::Syntax { at, expected: expected.unwrap_or_else(|| "a condition".to_owned()) }
    })
}

/// Says what was expected where `parser` finds something else.
fn expecting<'a, O>(
    parser: impl Parser<Input<'a>, O, ErrMode<ContextError>>,
    what: &'static str,
) -> impl Parser<Input<'a>, O, ErrMode<ContextError>> {
    parser.context(StrContext::Expected(StrContextValue::Description(what)))
}

fn any_of(input: &mut Input<'_>, depth: usize) -> ModalResult<Node> {
    joined(input, "OR", |input| all_of(input, depth), Node::Any)
}

fn all_of(input: &mut Input<'_>, depth: usize) -> ModalResult<Node> {
    joined(input, "AND", |input| negated(input, depth), Node::All)
}

/// One part, or several with a word between them. After the word there must be another.
fn joined<'a>(
    input: &mut Input<'a>,
    by: &'static str,
    mut part: impl FnMut(&mut Input<'a>) -> ModalResult<Node>,
    many: impl FnOnce(Vec<Node>) -> Node,
) -> ModalResult<Node> {
    let first = part(input)?;
    let mut parts: Vec<Node> = repeat(0.., preceded(word(by), cut_err(&mut part))).parse_next(input)?;
    if parts.is_empty() {
        return Ok(first);
    }
    parts.insert(0, first);
    Ok(many(parts))
}

fn negated(input: &mut Input<'_>, depth: usize) -> ModalResult<Node> {
    if opt(word("NOT")).parse_next(input)?.is_none() {
        return simple(input, depth);
    }
    let deeper = below(input, depth)?;
    cut_err(|input: &mut Input<'_>| negated(input, deeper)).map(|part| Node::Not(Box::new(part))).parse_next(input)
}

/// The depth within; an error when there is none left.
fn below(input: &mut Input<'_>, depth: usize) -> ModalResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        let context = StrContext::Expected(StrContextValue::Description("fewer conditions within each other"));
        ErrMode::Cut(ContextError::new().add_context(input, &input.checkpoint(), context))
    })
}

fn simple(input: &mut Input<'_>, depth: usize) -> ModalResult<Node> {
    if opt(symbol("(")).parse_next(input)?.is_some() {
        let deeper = below(input, depth)?;
        let within = |input: &mut Input<'_>| any_of(input, deeper);
        return cut_err(terminated(within, expecting(symbol(")"), "an operator, AND, OR or )"))).parse_next(input);
    }
    let left = expecting(operand, "a property, a text, a number, TRUE, FALSE, NOT or (").parse_next(input)?;
    if let Some(by) = opt(comparison).parse_next(input)? {
        let right = if matches!(by, Comparison::Equal | Comparison::NotEqual) {
            cut_err(expecting(operand, "a property, a text, a number, TRUE or FALSE")).parse_next(input)?
        } else if is_ordered(&left) {
            cut_err(expecting(operand.verify(is_ordered), "a property or a number")).parse_next(input)?
        } else {
            return cut_err(expecting(not_there, "= or <> after a text or a boolean")).parse_next(input);
        };
        return Ok(Node::Compare { left, by, right });
    }
    let negated = opt(word("NOT")).parse_next(input)?.is_some();
    let node = if opt(word("BETWEEN")).parse_next(input)?.is_some() {
        cut_err(|input: &mut Input<'_>| between(input, left.clone())).parse_next(input)?
    } else if let Operand::Property(name) = &left
        && opt(word("IN")).parse_next(input)?.is_some()
    {
        let values = delimited(symbol("("), separated(1.., text, symbol(",")), symbol(")"));
        let values = cut_err(expecting(values, "texts in parentheses")).parse_next(input)?;
        Node::In { property: name.clone(), values }
    } else if negated {
        return cut_err(expecting(not_there, "BETWEEN or IN")).parse_next(input);
    } else if let Operand::Property(name) = &left
        && opt(word("IS")).parse_next(input)?.is_some()
    {
        let there = opt(word("NOT")).parse_next(input)?.is_some();
        cut_err(expecting(word("NULL"), "NULL or NOT NULL")).parse_next(input)?;
        return Ok(negate_if(there, Node::IsNull(name.clone())));
    } else {
        Node::Itself(left)
    };
    Ok(negate_if(negated, node))
}

fn between(input: &mut Input<'_>, value: Operand) -> ModalResult<Node> {
    let bound = || expecting(operand.verify(is_ordered), "a property or a number");
    let low = bound().parse_next(input)?;
    expecting(word("AND"), "AND").parse_next(input)?;
    let high = bound().parse_next(input)?;
    Ok(Node::Between { value, low, high })
}

fn not_there(_: &mut Input<'_>) -> ModalResult<Node> {
    Err(ErrMode::Backtrack(ContextError::new()))
}

fn negate_if(negated: bool, node: Node) -> Node {
    if negated { Node::Not(Box::new(node)) } else { node }
}

fn is_ordered(operand: &Operand) -> bool {
    matches!(operand, Operand::Property(_) | Operand::Integer(_) | Operand::Real(_))
}

fn comparison(input: &mut Input<'_>) -> ModalResult<Comparison> {
    alt((
        symbol("<>").value(Comparison::NotEqual),
        symbol("<=").value(Comparison::LessOrEqual),
        symbol(">=").value(Comparison::GreaterOrEqual),
        symbol("=").value(Comparison::Equal),
        symbol("<").value(Comparison::Less),
        symbol(">").value(Comparison::Greater),
    ))
    .parse_next(input)
}

fn operand(input: &mut Input<'_>) -> ModalResult<Operand> {
    alt((
        text.map(Operand::Text),
        number,
        word("TRUE").value(Operand::Flag(true)),
        word("FALSE").value(Operand::Flag(false)),
        name.map(Operand::Property),
    ))
    .parse_next(input)
}

/// A text in quotes; a quote in it is written twice.
fn text(input: &mut Input<'_>) -> ModalResult<String> {
    let piece = alt((take_while(1.., |c| c != '\''), literal("''").value("'")));
    let pieces = repeat(0.., piece).fold(String::new, |mut whole, piece: &str| {
        whole.push_str(piece);
        whole
    });
    let end = cut_err(expecting(symbol("'"), "the closing quote of a text"));
    delimited("'", pieces, end).parse_next(input)
}

fn number(input: &mut Input<'_>) -> ModalResult<Operand> {
    let digits = || take_while(1.., '0'..='9');
    let fraction = (".", opt(digits()));
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digits());
    let written = alt((
        (opt(one_of(['+', '-'])), digits(), opt(fraction), opt(exponent)).take(),
        (opt(one_of(['+', '-'])), ".", digits()).take(),
    ));
    // 5L is how Java writes a long.
    let (written, _) =
        terminated((written, opt(one_of(['l', 'L']))), (not(one_of(is_in_name)), multispace0)).parse_next(input)?;
    let real = || written.parse::<f64>().ok().filter(|number| number.is_finite()).map(Operand::Real);
    written
        .parse::<i64>()
        .ok()
        .map(Operand::Integer)
        .or_else(real)
        .ok_or_else(|| ErrMode::Backtrack(ContextError::new()))
}

fn name(input: &mut Input<'_>) -> ModalResult<String> {
    let whole = (one_of(begins_name), take_while(0.., is_in_name)).take();
    let property = whole.verify(|name: &str| !WORDS.iter().any(|word| word.eq_ignore_ascii_case(name)));
    terminated(property, multispace0).map(str::to_owned).parse_next(input)
}

fn begins_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == '$'
}

fn is_in_name(c: char) -> bool {
    begins_name(c) || c.is_ascii_digit()
}

/// A word of the language, and the space after it.
fn word<'a>(word: &'static str) -> impl Parser<Input<'a>, &'a str, ErrMode<ContextError>> {
    let whole = take_while(1.., is_in_name).verify(move |found: &str| found.eq_ignore_ascii_case(word));
    terminated(whole, multispace0)
}

fn symbol<'a>(symbol: &'static str) -> impl Parser<Input<'a>, &'a str, ErrMode<ContextError>> {
    terminated(literal(symbol), multispace0)
}
