//! Moments as people write them: `2026-11-30T16:00:00Z`, milliseconds since 1970, or how long ago.

use waybill_ops::clock;

use crate::quantity;

const DAY_MS: i64 = 24 * 3_600_000;

/// Reads a moment, in milliseconds since 1970: RFC 3339, a number of milliseconds, or a duration for so long ago.
///
/// # Errors
/// Says what is taken.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    parse_at(text, clock::now_ms())
}

fn parse_at(text: &str, now_ms: i64) -> Result<i64, String> {
    let wrong = || {
        format!(
            "\"{text}\" is no time: write 2026-11-30T16:00:00Z, milliseconds since 1970, or 500ms, 30s, 5m, 2h for so long ago"
        )
    };
    if let Ok(ms) = text.parse::<u64>() {
        return i64::try_from(ms).map_err(|_too_large| wrong());
    }
    if let Ok(ago) = quantity::duration(text) {
        let ago = i64::try_from(ago.as_millis()).map_err(|_too_long| wrong())?;
        return Ok(now_ms.saturating_sub(ago).max(0));
    }
    rfc3339(text).ok_or_else(wrong)
}

fn rfc3339(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>, allowed: std::ops::RangeInclusive<i64>| -> Option<i64> {
        let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse().ok().filter(|number| allowed.contains(number))
    };
    let is = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|byte| wanted.contains(byte));
    let marks = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (year, month) = (number(0..4, 1970..=9999)?, number(5..7, 1..=12)?);
    let day = number(8..10, 1..=days_of(year, month)).filter(|_| marks)?;
    let (hour, minute, second) = (number(11..13, 0..=23)?, number(14..16, 0..=59)?, number(17..19, 0..=59)?);
    let mut rest = text.get(19..)?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let (read, behind) = fraction.split_at_checked(digits).filter(|_| (1..=9).contains(&digits))?;
        ms = format!("{read:0<3}").get(..3)?.parse().ok()?;
        rest = behind;
    }
    let offset_minutes = match rest {
        "Z" | "z" => 0,
        _ => {
            let (sign, rest) = rest.split_at_checked(1)?;
            let (hours, minutes) =
                rest.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)?;
            let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
            match sign {
                "+" => hours * 60 + minutes,
                "-" => -(hours * 60 + minutes),
                _other => return None,
            }
        }
    };
    let seconds = (hour * 60 + minute - offset_minutes) * 60 + second;
    Some(days_before(year, month, day) * DAY_MS + seconds * 1_000 + ms)
}

/// Writes milliseconds since 1970 the way they are read: `2026-11-30T16:00:00.000Z`.
pub(crate) fn text(ms: i64) -> String {
    let (mut day, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    if !(0..=2_932_896).contains(&day) {
        return format!("{ms}ms");
    }
    let mut year = 1970;
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    while day >= days_of(year, month) {
        day -= days_of(year, month);
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", day + 1, of_day % 1_000)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 = (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum();
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_moments() {
        let at = |text| parse_at(text, 10_000_000);
        assert_eq!(at("1796054451000"), Ok(1_796_054_451_000));
        assert_eq!(at("0"), Ok(0));
        assert_eq!(at("2h"), Ok(10_000_000 - 7_200_000));
        assert_eq!(at("3h"), Ok(0), "not before 1970");
        assert_eq!(at("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(at("2026-11-30T16:20:51Z"), Ok(1_796_055_651_000));
        assert_eq!(at("2026-11-30t16:20:51.5z"), Ok(1_796_055_651_500));
        assert_eq!(at("2026-11-30 18:20:51.123456+02:00"), Ok(1_796_055_651_123));
        assert_eq!(at("2026-11-30T10:50:51-05:30"), Ok(1_796_055_651_000));
        assert_eq!(at("2024-02-29T00:00:00Z"), Ok(1_709_164_800_000));
        for wrong in [
            "",
            "-1",
            "now",
            "2026-11-30",
            "2026-11-30T16:20:51",
            "2026-13-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T16:20:51.Z",
            "2026-11-30T16:20:51+2:00",
            "2026/11/30T16:20:51Z",
            "2026-11-3éT16:20:51Z",
            "99999999999999999999",
        ] {
            assert!(at(wrong).is_err_and(|said| said.contains("2026-11-30T16:00:00Z")), "{wrong}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for ms in [0, 951_782_400_000, 1_709_164_800_000, 1_796_055_651_123, 4_107_542_399_999, 253_402_300_799_999] {
            assert_eq!(parse_at(&text(ms), 0), Ok(ms), "{}", text(ms));
        }
        assert_eq!(text(1_796_055_651_123), "2026-11-30T16:20:51.123Z");
        assert_eq!(text(-1), "-1ms");
        assert_eq!(text(i64::MAX), format!("{}ms", i64::MAX));
    }
}
