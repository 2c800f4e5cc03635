//! SQL92 filters as RocketMQ documents them.

use proptest::prelude::*;
use waybill_protocol::filter::{Condition, DEPTH_MAX, EXPRESSION_BYTES_MAX, FilterError, OPERANDS_MAX};

/// Whether a message with these properties, written `name=value`, is wanted.
fn wants(expression: &str, properties: &[&str]) -> bool {
    let condition = Condition::parse(expression);
    assert!(condition.is_ok(), "{expression}: {condition:?}");
    let Ok(condition) = condition else { return false };
    condition.matches(properties.iter().filter_map(|property| property.split_once('=')))
}

#[test]
fn what_is_documented_is_understood() {
    for (expression, properties, wanted) in [
        ("a > 5", &["a=6"][..], true),
        ("a > 5", &["a=5"], false),
        ("a>=5", &["a=5"], true),
        ("a < 5.5", &["a=5"], true),
        ("a <= -1", &["a=-2"], true),
        ("a = 5", &["a=5.0"], true),
        ("a = 5L", &["a=5"], true),
        ("a = 1e3", &["a=1000"], true),
        ("a <> 5", &["a=6"], true),
        ("a = 'x'", &["a=x"], true),
        ("a = 'x'", &["a=X"], false),
        ("a <> 'x'", &["a=y"], true),
        ("a = 'it''s'", &["a=it's"], true),
        ("a = 'grün'", &["a=grün"], true),
        ("a BETWEEN 0 AND 3", &["a=3"], true),
        ("a BETWEEN 0 AND 3", &["a=3.1"], false),
        ("a NOT BETWEEN 0 AND 3", &["a=4"], true),
        ("a IN ('x', 'y')", &["a=y"], true),
        ("a IN ('x', 'y')", &["a=z"], false),
        ("a NOT IN ('x', 'y')", &["a=z"], true),
        ("a IS NULL", &[], true),
        ("a IS NULL", &["a="], false),
        ("a IS NOT NULL", &["a=1"], true),
        ("a = TRUE", &["a=true"], true),
        ("a = false", &["a=FALSE"], true),
        ("a = TRUE", &["a=1"], false),
        ("a AND b", &["a=true", "b=True"], true),
        ("TRUE", &[], true),
        ("FALSE OR TRUE AND FALSE", &[], false),
        ("NOT a = 1 AND b = 2", &["a=3", "b=2"], true),
        ("NOT (a = 1 AND b = 2)", &["a=1", "b=3"], true),
        ("a = 1 OR b = 2 AND c = 3", &["a=1"], true),
        ("(a = 1 OR b = 2) AND c = 3", &["a=1"], false),
        (
            "(TAGS is not null and TAGS in ('A', 'B')) and (a is not null and a between 0 and 3)",
            &["TAGS=B", "a=2"],
            true,
        ),
        ("a = b", &["a=x", "b=x"], true),
        ("a < b", &["a=9", "b=10"], true),
        ("  a   =\n'x'  ", &["a=x"], true),
        ("$a_1 = 1", &["$a_1=1"], true),
        ("ORDER = 1 AND INNER = 2", &["ORDER=1", "INNER=2"], true),
        ("9223372036854775807 = a", &["a=9223372036854775807"], true),
        ("9223372036854775807 = a", &["a=9223372036854775806"], false),
    ] {
        assert_eq!(wants(expression, properties), wanted, "{expression} on {properties:?}");
    }
}

#[test]
fn a_missing_property_is_neither_true_nor_false() {
    for expression in [
        "a = 1",
        "a <> 1",
        "NOT a = 1",
        "a > 1",
        "a BETWEEN 1 AND 2",
        "a NOT BETWEEN 1 AND 2",
        "a IN ('x')",
        "a NOT IN ('x')",
        "a",
        "NOT a",
    ] {
        assert!(!wants(expression, &[]), "{expression}");
    }
    // But it does not decide what the rest decides.
    assert!(wants("a = 1 OR b = 2", &["b=2"]));
    assert!(!wants("a = 1 AND b = 2", &["b=2"]));
    assert!(wants("NOT (a = 1 AND b = 2)", &["b=3"]));
    assert!(wants("a NOT BETWEEN b AND 3", &["a=4"]));
}

#[test]
fn what_cannot_be_compared_is_false_and_not_null() {
    assert!(!wants("a > 5", &["a=tall"]));
    assert!(wants("NOT a > 5", &["a=tall"]));
    assert!(wants("a <> 5", &["a=tall"]));
    assert!(!wants("a = 5", &["a=NaN"]));
    assert!(!wants("a > 5", &["a=inf"]));
    assert!(!wants("a < b", &["a=x", "b=y"]));
}

#[test]
fn a_mistake_is_told_with_its_place() {
    for (expression, place, expected) in [
        ("a >>> 5", 4, "a property or a number"),
        ("", 1, "a property, a text"),
        ("a = ", 5, "a property, a text"),
        ("a = 'x", 7, "closing quote"),
        ("a = 1 b = 2", 7, "AND, OR or the end"),
        ("(a = 1", 7, ")"),
        ("a = 1)", 6, "the end"),
        ("a IN (1)", 7, "texts in parentheses"),
        ("a IN ()", 7, "texts in parentheses"),
        ("a BETWEEN 1 OR 2", 13, "AND"),
        ("a BETWEEN 'x' AND 'y'", 11, "a property or a number"),
        ("a > 'x'", 5, "a property or a number"),
        ("'x' < a", 7, "= or <>"),
        ("a IS 5", 6, "NULL"),
        ("a NOT 5", 7, "BETWEEN or IN"),
        ("AND", 1, "a property, a text"),
        ("a = 1 AND", 10, "a property, a text"),
        ("ü = 1", 1, "a property, a text"),
        ("a = 'ü' ü", 9, "the end"),
        ("a = 5x", 5, "a property, a text"),
    ] {
        match Condition::parse(expression) {
            Err(FilterError::Syntax { at, expected: told }) => {
                assert!(told.contains(expected), "{expression}: told {told:?} at {at}");
                assert_eq!(at, place, "{expression}: told {told:?}");
            }
            other => assert!(other.is_err(), "{expression}: {other:?}"),
        }
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |depth| format!("{}a = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Condition::parse(&nested(DEPTH_MAX)).is_ok());
    assert!(
        matches!(Condition::parse(&nested(DEPTH_MAX + 1)), Err(FilterError::Syntax { expected, .. }) if expected.contains("fewer"))
    );
    assert!(Condition::parse(&format!("{}a = 1", "NOT ".repeat(DEPTH_MAX + 1))).is_err());
    let long = format!("a = '{}'", "x".repeat(EXPRESSION_BYTES_MAX));
    assert_eq!(Condition::parse(&long), Err(FilterError::TooLong(long.len())));
    assert!(Condition::parse(&format!("{}a = 1", "(".repeat(EXPRESSION_BYTES_MAX - 5))).is_err());
}

/// A scan judges hundreds of messages in one go, each with up to 32 KiB of properties.
#[test]
fn what_a_message_costs_is_bounded() {
    let terms = |count: usize| vec!["a > 1"; count].join(" OR ");
    assert!(Condition::parse(&terms(OPERANDS_MAX / 2)).is_ok());
    assert_eq!(Condition::parse(&terms(OPERANDS_MAX / 2 + 1)), Err(FilterError::TooMany(OPERANDS_MAX + 2)));
    let texts = vec!["'x'"; OPERANDS_MAX].join(",");
    assert_eq!(Condition::parse(&format!("a IN ({texts})")), Err(FilterError::TooMany(OPERANDS_MAX + 1)));
    // Properties are read once, whatever asks for them.
    let condition = Condition::parse(&terms(OPERANDS_MAX / 2)).expect("a condition");
    let reads = std::cell::Cell::new(0);
    let properties = (0..100).map(|_| ("b", "5")).inspect(|_| reads.set(reads.get() + 1));
    assert!(!condition.matches(properties));
    assert_eq!(reads.get(), 100);
    // A long text is no number, and nobody looks for one in it.
    assert!(!wants("a > 1", &[&format!("a={}", "9".repeat(65))]));
    assert!(wants("a > 1", &[&format!("a={}", "9".repeat(64))]));
    assert!(wants("a = 2", &["a=1", "a=2"]), "the last counts");
}

/// A condition as text, and what it is for a message that has a = `a` and lacks b.
fn conditions() -> impl Strategy<Value = (String, i64, Option<bool>)> {
    let leaf = (any::<bool>(), -3..3_i64, -3..3_i64).prop_map(|(known, a, than)| {
        if known { (format!("a < {than}"), a, Some(a < than)) } else { (format!("b < {than}"), a, None) }
    });
    leaf.prop_recursive(6, 40, 2, |inner| {
        let of = |a: i64, text: String, value: Option<bool>| (text, a, value);
        prop_oneof![
            inner.clone().prop_map(move |(text, a, value)| of(a, format!("NOT ({text})"), value.map(|v| !v))),
            (inner.clone(), inner, any::<bool>()).prop_filter_map(
                "one message",
                move |((left, a, l), (right, b, r), and)| {
                    let end = !and;
                    let value = if l == Some(end) || r == Some(end) { Some(end) } else { l.and(r).map(|_| and) };
                    (a == b).then(|| of(a, format!("({left}) {} ({right})", if and { "AND" } else { "oR" }), value))
                }
            ),
        ]
    })
}

proptest! {
    #[test]
    fn conditions_are_three_valued((text, a, value) in conditions()) {
        prop_assert_eq!(wants(&text, &[&format!("a={a}")]), value == Some(true));
        prop_assert_eq!(wants(&format!("NOT ({text})"), &[&format!("a={a}")]), value == Some(false));
    }

    #[test]
    fn anything_is_read_or_refused(text in "(a|b|1|'|''|\\(|\\)| |AND|or|NOT|<|=|>|IS|NULL|IN|,|between|\\PC){0,40}") {
        if let Ok(condition) = Condition::parse(&text) {
            condition.matches([("a", "1"), ("b", "1")]);
        }
    }
}
