//! What the properties of a message say about its delivery.

use waybill_protocol::message::properties::{
    self, DELAY, TIMER_DELAY_LEVEL, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_OUT_MS,
};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// How long each level of delay is, in milliseconds; the first is level 1.
pub const LEVELS_MS: [i64; 18] = [
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    3 * MINUTE,
    4 * MINUTE,
    5 * MINUTE,
    6 * MINUTE,
    7 * MINUTE,
    8 * MINUTE,
    9 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
];

/// How long a level of delay is, in milliseconds; one above the last is the last, and level 0 is none.
#[must_use]
pub fn level_ms(level: u32) -> i64 {
    let last = LEVELS_MS.len();
    let index = usize::try_from(level).unwrap_or(usize::MAX).min(last).checked_sub(1);
    index.and_then(|index| LEVELS_MS.get(index)).copied().unwrap_or(0)
}

/// A message is to be delivered later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// When, milliseconds since 1970; after the time it was asked at.
    pub due_ms: u64,
    /// The properties with which it is delivered then: a client that sends them again does not ask for the same delay once more, and
    /// sees when it was due.
    pub properties: String,
}

/// Why a wish for a later delivery is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// A property that should be a number is none.
    #[error("{name} is {value:?}, no whole number")]
    NoNumber {
        /// The property.
        name: &'static str,
        /// What it says, cut short.
        value: String,
    },
    /// Later than this broker keeps messages.
    #[error(
        "timer message illegal: it is due {delay_ms} ms from now, and messages are delayed for at most {max_ms} ms (timerMaxDelaySec)"
    )]
    TooLate {
        /// What was asked for.
        delay_ms: i64,
        /// What may be.
        max_ms: i64,
    },
}

/// What the properties ask for; `None` is delivery at once, also for a time that is past. A level of delay goes before all else; of the
/// others the first counts: TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS. A level above the last is the last. Levels are not held
/// against `max_delay_ms`.
///
/// # Errors
/// What is no number, and what is more than `max_delay_ms` away.
pub fn ask(raw: &str, now_ms: i64, max_delay_ms: i64) -> Result<Option<Ask>, AskError> {
    // Part of each of the names: most messages have none of them, and this is quicker than to look for each.
    if !raw.contains("DEL") {
        return Ok(None);
    }
    let said = Said::read(raw);
    let level = number(DELAY, said.level)?.unwrap_or(0);
    if level > 0 {
        let level = u32::try_from(level).unwrap_or(u32::MAX).min(LEVELS_MS.len() as u32);
        return Ok(Some(leveled(raw, level, now_ms.saturating_add(level_ms(level)))));
    }
    let due_ms = if let Some(seconds) = number(TIMER_DELAY_SEC, said.seconds)? {
        now_ms.saturating_add(seconds.saturating_mul(SECOND))
    } else if let Some(ms) = number(TIMER_DELAY_MS, said.ms)? {
        now_ms.saturating_add(ms)
    } else if let Some(at) = number(TIMER_DELIVER_MS, said.at)? {
        at
    } else {
        return Ok(None);
    };
    if due_ms <= now_ms {
        return Ok(None);
    }
    let delay_ms = due_ms.saturating_sub(now_ms);
    if delay_ms > max_delay_ms {
        return Err(AskError::TooLate { delay_ms, max_ms: max_delay_ms });
    }
    let names: &[&str] = match (said.seconds, said.ms, said.out) {
        (None, None, false) => &[],
        _ => &[TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS],
    };
    let properties = delivered(raw, names, &[(TIMER_OUT_MS, due_ms)]);
    Ok(Some(Ask { due_ms: due_ms.unsigned_abs(), properties }))
}

fn leveled(raw: &str, level: u32, due_ms: i64) -> Ask {
    let names = [DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DELAY_LEVEL, TIMER_OUT_MS];
    let properties = delivered(raw, &names, &[(TIMER_DELAY_LEVEL, level.into()), (TIMER_OUT_MS, due_ms)]);
    Ask { due_ms: due_ms.max(0).unsigned_abs(), properties }
}

/// The properties without these names, and with these numbers.
fn delivered(raw: &str, names: &[&str], numbers: &[(&str, i64)]) -> String {
    // Room for names and numbers, and what separates them.
    let mut properties = String::with_capacity(raw.len() + 48 * numbers.len());
    properties.push_str(raw);
    for name in names {
        properties::remove(&mut properties, name);
    }
    for (name, number) in numbers {
        properties::add(&mut properties, name, &number.to_string());
    }
    properties
}

/// What the properties say of a delay; of each the last that is said.
#[derive(Default)]
struct Said<'a> {
    level: Option<&'a str>,
    seconds: Option<&'a str>,
    ms: Option<&'a str>,
    at: Option<&'a str>,
    /// It was delayed before.
    out: bool,
}

impl<'a> Said<'a> {
    fn read(raw: &'a str) -> Self {
        let mut said = Self::default();
        for (name, value) in properties::iter(raw) {
            let of = match name {
                DELAY => &mut said.level,
                TIMER_DELAY_SEC => &mut said.seconds,
                TIMER_DELAY_MS => &mut said.ms,
                TIMER_DELIVER_MS => &mut said.at,
                TIMER_OUT_MS => {
                    said.out = true;
                    continue;
                }
                _ => continue,
            };
            *of = Some(value);
        }
        said
    }
}

fn number(name: &'static str, said: Option<&str>) -> Result<Option<i64>, AskError> {
    let Some(text) = said else { return Ok(None) };
    let value = || text.chars().take(32).collect();
    text.trim().parse().map(Some).map_err(|_| AskError::NoNumber { name, value: value() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const MAX: i64 = 24 * HOUR;

    fn raw(pairs: &[(&str, &str)]) -> String {
        properties::encode(pairs.iter().copied()).expect("properties")
    }

    fn due(pairs: &[(&str, &str)]) -> Option<i64> {
        ask(&raw(pairs), NOW, MAX).expect("it may be asked").map(|ask| ask.due_ms.cast_signed() - NOW)
    }

    #[test]
    fn all_levels() {
        let minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120];
        let expected: Vec<i64> = [1, 5, 10, 30]
            .into_iter()
            .chain(minutes.map(|minutes| minutes * 60))
            .map(|seconds| seconds * 1_000)
            .collect();
        assert_eq!(expected.len(), 18);
        for (level, expected) in (1..).zip(expected) {
            let asked =
                ask(&raw(&[("a", "b"), ("DELAY", &level.to_string())]), NOW, 1).expect("any level may be asked");
            let asked = asked.expect("it is delayed");
            assert_eq!(asked.due_ms.cast_signed() - NOW, expected, "level {level}");
            let due = asked.due_ms.to_string();
            let delivered = raw(&[("a", "b"), ("TIMER_DELAY_LEVEL", &level.to_string()), ("TIMER_OUT_MS", &due)]);
            assert_eq!(asked.properties, delivered);
        }
        assert_eq!(due(&[("DELAY", "19")]), Some(2 * HOUR));
        assert_eq!(due(&[("DELAY", &i64::MAX.to_string())]), Some(2 * HOUR));
        assert_eq!(due(&[("DELAY", "0")]), None);
        assert_eq!(due(&[("DELAY", "-3")]), None);
    }

    #[test]
    fn which_property_counts() {
        let at = (NOW + 3_000).to_string();
        assert_eq!(due(&[("TIMER_DELIVER_MS", &at)]), Some(3_000));
        assert_eq!(due(&[("TIMER_DELIVER_MS", &at), ("TIMER_DELAY_MS", "2000")]), Some(2_000));
        assert_eq!(
            due(&[("TIMER_DELIVER_MS", &at), ("TIMER_DELAY_MS", "2000"), ("TIMER_DELAY_SEC", "1")]),
            Some(1_000)
        );
        assert_eq!(due(&[("TIMER_DELAY_SEC", "1"), ("DELAY", "2")]), Some(5_000));
        assert_eq!(due(&[("TIMER_DELAY_SEC", "1"), ("DELAY", "0")]), Some(1_000));
        assert_eq!(due(&[]), None);
        let asked = ask(&raw(&[("TIMER_DELIVER_MS", &at), ("x", "y")]), NOW, MAX).expect("allowed").expect("delayed");
        assert_eq!(asked.properties, raw(&[("TIMER_DELIVER_MS", &at), ("x", "y"), ("TIMER_OUT_MS", &at)]));
        for (name, value) in [("TIMER_DELAY_MS", "3000"), ("TIMER_DELAY_SEC", "3")] {
            let asked = ask(&raw(&[(name, value), ("x", "y")]), NOW, MAX).expect("allowed").expect("delayed");
            assert_eq!(asked.properties, raw(&[("x", "y"), ("TIMER_OUT_MS", &at)]));
            assert_eq!(ask(&asked.properties, NOW + 3_000, MAX), Ok(None), "sent again as it was received");
        }
    }

    #[test]
    fn limits() {
        let ask =
            |name: &str, value: i64| ask(&raw(&[(name, &value.to_string())]), NOW, MAX).map(|asked| asked.is_some());
        for (name, now) in [("TIMER_DELIVER_MS", NOW), ("TIMER_DELAY_MS", 0)] {
            assert_eq!(ask(name, now), Ok(false), "now");
            assert_eq!(ask(name, now - 1), Ok(false), "past");
            assert_eq!(ask(name, i64::MIN), Ok(false), "long past");
            assert_eq!(ask(name, now + 1), Ok(true));
            assert_eq!(ask(name, now + MAX), Ok(true), "the most");
            assert_eq!(ask(name, now + MAX + 1), Err(AskError::TooLate { delay_ms: MAX + 1, max_ms: MAX }));
            assert!(ask(name, i64::MAX).is_err(), "no overflow");
        }
        assert_eq!(ask("TIMER_DELAY_SEC", i64::MAX).map_err(|_| ()), Err(()));
        assert_eq!(ask("TIMER_DELAY_SEC", i64::MIN), Ok(false));
        assert_eq!(ask("TIMER_DELIVER_MS", 253_402_300_799_999).map_err(|_| ()), Err(()), "the year 9999");
    }

    #[test]
    fn what_is_no_number() {
        for name in ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"] {
            let refused = ask(&raw(&[(name, "soon")]), NOW, MAX);
            assert!(matches!(refused, Err(AskError::NoNumber { name: said, .. }) if said == name), "{refused:?}");
        }
    }
}
