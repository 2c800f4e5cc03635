//! How long the messages of a topic are kept: a time of its own, or as long as its broker keeps messages.

use std::collections::BTreeMap;

/// The topic attribute that holds it, in hours; absent or -1: as long as the broker keeps messages.
const RESERVE_TIME: &str = "reserve.time";
/// Leaves it to the broker.
const DEFAULT: &str = "default";
/// What brokers take, in hours.
const HOURS_MAX: i64 = 876_000;

/// What is asked for: hours, or None for the broker's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retention(Option<i64>);

/// Reads `12h`, `3d` or `default`.
///
/// # Errors
/// Says what is taken.
pub(super) fn parse(text: &str) -> Result<Retention, String> {
    if text == DEFAULT {
        return Ok(Retention(None));
    }
    let counted = |unit, hours| text.strip_suffix(unit)?.parse::<u32>().ok().map(|count| i64::from(count) * hours);
    match counted('h', 1).or_else(|| counted('d', 24)).filter(|hours| (1..=HOURS_MAX).contains(hours)) {
        Some(hours) => Ok(Retention(Some(hours))),
        None => Err(format!("\"{text}\" is no such time: write hours or days, 12h or 3d, or default")),
    }
}

/// Writes hours the way they are read.
pub(super) fn text(hours: i64) -> String {
    if hours % 24 == 0 { format!("{}d", hours / 24) } else { format!("{hours}h") }
}

/// The hours that a topic's attributes say, if it has a time of its own.
pub(super) fn of(attributes: &BTreeMap<String, String>) -> Option<i64> {
    attributes.get(RESERVE_TIME)?.parse().ok().filter(|hours| *hours > 0)
}

impl Retention {
    /// Puts it among the attributes of a topic.
    pub(super) fn set(self, attributes: &mut BTreeMap<String, String>) {
        match self.0 {
            Some(hours) => attributes.insert(RESERVE_TIME.to_owned(), hours.to_string()),
            None => attributes.remove(RESERVE_TIME),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_hours_and_days() {
        for (said, hours, written) in
            [("1h", 1, "1h"), ("36h", 36, "36h"), ("72h", 72, "3d"), ("3d", 72, "3d"), ("36500d", HOURS_MAX, "36500d")]
        {
            assert_eq!(parse(said), Ok(Retention(Some(hours))), "{said}");
            assert_eq!(text(hours), written);
        }
        assert_eq!(parse("default"), Ok(Retention(None)));
        for wrong in ["", "0h", "3", "h", "90m", "1.5d", "-1h", "36501d", "99999999999d", "3 d", "3dd"] {
            assert!(parse(wrong).is_err_and(|said| said.contains("12h or 3d")), "{wrong}");
        }
    }

    #[test]
    fn an_attribute_that_is_no_time_is_none() {
        let with = |value: &str| BTreeMap::from([(RESERVE_TIME.to_owned(), value.to_owned())]);
        assert_eq!(
            (of(&with("12")), of(&with("-1")), of(&with("soon")), of(&BTreeMap::new())),
            (Some(12), None, None, None)
        );
        let mut attributes = with("12");
        Retention(Some(5)).set(&mut attributes);
        assert_eq!(of(&attributes), Some(5));
        Retention(None).set(&mut attributes);
        assert_eq!(attributes, BTreeMap::new());
    }
}
