//! What a condition is for one message: true, false or, as `None`, neither.

use std::cmp::Ordering;

use super::{Comparison, Node, Operand};

/// A property that is longer is no number.
const NUMBER_BYTES_MAX: usize = 64;

/// What an operand is for one message.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Null,
    /// Of a property: it may stand for a number or a boolean.
    Loose(&'a str),
    Text(&'a str),
    Integer(i64),
    Real(f64),
    Flag(bool),
}

pub(super) fn node<'a>(condition: &'a Node, property: &impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    match condition {
        Node::Any(parts) => unless(true, parts, property),
        Node::All(parts) => unless(false, parts, property),
        Node::Not(part) => node(part, property).map(|known| !known),
        Node::Compare { left, by, right } => compare(value(left, property), *by, value(right, property)),
        Node::Between { value: between, low, high } => {
            let between = value(between, property);
            let above = compare(between, Comparison::GreaterOrEqual, value(low, property));
            both(above, compare(between, Comparison::LessOrEqual, value(high, property)))
        }
        Node::In { property: name, values } => property(name).map(|found| values.iter().any(|wanted| wanted == found)),
        Node::IsNull(name) => Some(property(name).is_none()),
        Node::Itself(operand) => match value(operand, property) {
            Value::Null => None,
            Value::Flag(flag) => Some(flag),
            Value::Loose(text) => Some(flag_of(text) == Some(true)),
            Value::Text(_) | Value::Integer(_) | Value::Real(_) => Some(false),
        },
    }
}

/// `end` if one of the parts is, else NULL if one of them is, else the opposite.
fn unless<'a>(end: bool, parts: &'a [Node], property: &impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    let mut result = Some(!end);
    for part in parts {
        match node(part, property) {
            Some(known) if known == end => return Some(end),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn value<'a>(operand: &'a Operand, property: &impl Fn(&str) -> Option<&'a str>) -> Value<'a> {
    match operand {
        Operand::Property(name) => property(name).map_or(Value::Null, Value::Loose),
        Operand::Text(text) => Value::Text(text),
        Operand::Integer(number) => Value::Integer(*number),
        Operand::Real(number) => Value::Real(*number),
        Operand::Flag(flag) => Value::Flag(*flag),
    }
}

fn compare(left: Value<'_>, by: Comparison, right: Value<'_>) -> Option<bool> {
    if matches!(left, Value::Null) || matches!(right, Value::Null) {
        return None;
    }
    let equal = || equal(left, right);
    let order = || order(left, right);
    Some(match by {
        Comparison::Equal => equal(),
        Comparison::NotEqual => !equal(),
        Comparison::Less => order() == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order(), Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order() == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order(), Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn equal(left: Value<'_>, right: Value<'_>) -> bool {
    match (left, right) {
        (Value::Text(left) | Value::Loose(left), Value::Text(right)) | (Value::Text(left), Value::Loose(right)) => {
            left == right
        }
        (Value::Loose(one), Value::Loose(other)) => one == other || order(left, right) == Some(Ordering::Equal),
        (Value::Flag(left), Value::Flag(right)) => left == right,
        (Value::Flag(flag), Value::Loose(text)) | (Value::Loose(text), Value::Flag(flag)) => {
            flag_of(text) == Some(flag)
        }
        _ => order(left, right) == Some(Ordering::Equal),
    }
}

/// How two numbers are ordered; `None` if one is none.
fn order(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    match (number(left)?, number(right)?) {
        (Number::Integer(left), Number::Integer(right)) => Some(left.cmp(&right)),
        (left, right) => left.real().partial_cmp(&right.real()),
    }
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
}

impl Number {
    #[allow(clippy::cast_precision_loss, reason = "a fraction is compared with the nearest number, as everywhere")]
    fn real(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Real(number) => number,
        }
    }
}

fn number(value: Value<'_>) -> Option<Number> {
    match value {
        Value::Integer(number) => Some(Number::Integer(number)),
        Value::Real(number) => Some(Number::Real(number)),
        // No number is so long, and a long text is not to be read for each comparison.
        Value::Loose(text) if text.len() > NUMBER_BYTES_MAX => None,
        Value::Loose(text) => {
            let text = text.trim();
            let real = || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Number::Real);
            text.parse::<i64>().ok().map(Number::Integer).or_else(real)
        }
        Value::Null | Value::Text(_) | Value::Flag(_) => None,
    }
}

fn flag_of(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}
