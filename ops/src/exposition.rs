//! Metrics of several parts of a process in one text, as OpenMetrics wants it: each family once, with all its samples.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// The metrics of one part, as text without its end mark.
pub(crate) fn of(registry: &Registry) -> Result<String, fmt::Error> {
    let mut body = String::new();
    text::encode_registry(&mut body, registry)?;
    Ok(body)
}

/// A family: its lines of description, and its samples.
struct Family<'a> {
    name: &'a str,
    about: Vec<&'a str>,
    samples: Vec<String>,
}

/// Puts parts together. Families that several parts have become one; each sample tells its part with the label `part`.
pub(crate) fn joined(parts: &[(&str, String)]) -> String {
    let mut families: Vec<Family<'_>> = Vec::new();
    for (part, body) in parts {
        // Families up to here are known from other parts, which have described them.
        let known = families.len();
        let mut current = 0;
        for line in body.lines() {
            if let Some(description) = line.strip_prefix("# ") {
                let name = description.split(' ').nth(1).unwrap_or_default();
                current = families.iter().position(|family| family.name == name).unwrap_or(families.len());
                if current == families.len() {
                    families.push(Family { name, about: Vec::new(), samples: Vec::new() });
                }
            }
            let Some(family) = families.get_mut(current) else { continue };
            match line.starts_with("# ") {
                false => family.samples.push(labelled(line, part)),
                true if current >= known => family.about.push(line),
                true => {}
            }
        }
    }
    let mut text = String::new();
    for family in &families {
        let lines = family.about.iter().copied().chain(family.samples.iter().map(String::as_str));
        lines.for_each(|line| text.extend([line, "\n"]));
    }
    text
}

/// The sample with the label `part` before its others. A name holds neither space nor brace.
fn labelled(sample: &str, part: &str) -> String {
    let Some((name, rest)) = sample.find(['{', ' ']).and_then(|end| sample.split_at_checked(end)) else {
        return sample.to_owned();
    };
    match (rest.strip_prefix("{}"), rest.strip_prefix('{')) {
        (Some(value), _) => format!("{name}{{part=\"{part}\"}}{value}"),
        (None, Some(labels)) => format!("{name}{{part=\"{part}\",{labels}"),
        (None, None) => format!("{name}{{part=\"{part}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_whole_and_samples_tell_their_part() {
        let broker = "\
# HELP in Messages in.
# TYPE in counter
in_total{topic=\"a {b\"} 1
# HELP size Size.
# TYPE size gauge
# UNIT size bytes
size_bytes 7
";
        let sidecar = "\
# HELP in Messages in!
# TYPE in counter
in_total{topic=\"c\"} 2
in_total{} 3
# HELP up Up.
# TYPE up gauge
up 1
";
        let text = joined(&[("broker", broker.to_owned()), ("sidecar", sidecar.to_owned())]);
        let wanted = "\
# HELP in Messages in.
# TYPE in counter
in_total{part=\"broker\",topic=\"a {b\"} 1
in_total{part=\"sidecar\",topic=\"c\"} 2
in_total{part=\"sidecar\"} 3
# HELP size Size.
# TYPE size gauge
# UNIT size bytes
size_bytes{part=\"broker\"} 7
# HELP up Up.
# TYPE up gauge
up{part=\"sidecar\"} 1
";
        assert_eq!(text, wanted);
    }
}
