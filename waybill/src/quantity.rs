//! Durations and sizes as people write them.

use std::time::Duration;

/// Reads `500ms`, `30s`, `5m`, `2h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no duration: write 500ms, 30s, 5m or 2h");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _other => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_not_a_number| wrong())?;
    count.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Reads `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _other => Err(format!("\"{text}\" is no property: write KEY=VALUE")),
    }
}

/// Writes milliseconds the way they are read: `1.5s`, `2m`, `250ms`.
pub(crate) fn millis(ms: i64) -> String {
    match ms {
        ms if ms.unsigned_abs() < 1_000 => format!("{ms}ms"),
        ms if ms.unsigned_abs() < 120_000 => format!("{:.1}s", ms as f64 / 1e3).replace(".0s", "s"),
        ms if ms.unsigned_abs() < 7_200_000 => format!("{:.1}m", ms as f64 / 6e4).replace(".0m", "m"),
        ms => format!("{:.1}h", ms as f64 / 3.6e6).replace(".0h", "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "s", "5", "-5s", "1.5s", "5 s", "5d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(wrong).is_err_and(|e| e.contains("30s")), "{wrong}");
        }
    }

    #[test]
    fn reads_pairs() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("=b").is_err());
        assert!(pair("a").is_err());
    }

    #[test]
    fn writes_durations() {
        let all = [0, 250, 1_000, 1_500, 60_000, 300_000, 7_200_000, -30_000].map(millis);
        assert_eq!(all, ["0ms", "250ms", "1s", "1.5s", "60s", "5m", "2h", "-30s"]);
    }
}
