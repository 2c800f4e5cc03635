//! Amounts as Kubernetes writes them: `500m`, `1Gi`, `2e3`.

/// The amount in thousandths. None: it is no amount, or one that nobody has.
#[must_use]
pub fn parse(text: &str) -> Option<i128> {
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+')).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split)?;
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    // Thousandths of thousandths of thousandths, so that every part that may be written is exact.
    let scale = 10_i128.checked_pow(9_u32.checked_sub(u32::try_from(part.len()).ok()?)?)?;
    let number: i128 = format!("{whole}{part}").parse().ok()?;
    let nano = number.checked_mul(scale)?;
    let thousandths = match unit {
        "n" => nano / 1_000_000,
        "u" => nano / 1_000,
        "m" => nano,
        other => nano.checked_mul(factor(other)?)?.checked_mul(1_000)?,
    };
    (thousandths / 1_000_000_000).checked_mul(sign)
}

fn factor(unit: &str) -> Option<i128> {
    let decimal = |power| 10_i128.checked_pow(power);
    match unit {
        "" => Some(1),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        "Ti" => Some(1 << 40),
        "Pi" => Some(1 << 50),
        "Ei" => Some(1 << 60),
        exponent => decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|power| *power <= 18)?),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn amounts_are_what_kubernetes_means_by_them() {
        for (text, thousandths) in [
            ("1", 1_000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("1k", 1_000_000),
            ("2e3", 2_000_000),
            ("2E3", 2_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("1000000n", 1),
            ("1000u", 1),
            ("-1", -1_000),
            ("+1", 1_000),
        ] {
            assert_eq!(parse(text), Some(thousandths), "{text}");
        }
        assert_eq!(parse("1024Mi"), parse("1Gi"));
        assert_eq!(parse("1000m"), parse("1"));
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for text in [
            "",
            "abc",
            "1.2.3",
            "1gi",
            "1 Gi",
            "Gi",
            "--1",
            "1e",
            "1e99",
            ".",
            "99999999999999999999999999999999999999Ei",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
