//! What commands print: text for people, JSON for programs.

use std::io::Write;

use serde::Serialize;

use crate::exit::Failure;

/// How a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Prints `value` as JSON, or `text` of it.
pub(crate) fn print<T: Serialize>(format: Format, value: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    let mut out = match format {
        Format::Text => text(value),
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| Failure::failed(error.to_string()))?,
    };
    if !out.ends_with('\n') {
        out.push('\n');
    }
    write(&out)
}

/// Writes to standard output. A reader that has had enough (`| head`) is no failure.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write the result: {error}")))
        }
        _written => Ok(()),
    }
}

/// Says on standard error what takes long. Programs that read JSON are spared.
pub(crate) fn progress(format: Format, text: &str) {
    if format == Format::Text {
        eprintln!("{text}");
    }
}

/// So many of something: `1 message`, `2 messages`.
pub(crate) fn counted(count: impl Into<i128>, one: &str, more: &str) -> String {
    let count = count.into();
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Rows in columns as wide as they need to be; the first row is the heading.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        let all = [0_u64, 1, 2].map(|count| counted(count, "retry", "retries"));
        assert_eq!(all, ["0 retries", "1 retry", "2 retries"]);
    }

    #[test]
    fn columns_are_as_wide_as_needed() {
        let rows = [["orders".to_owned(), "8".to_owned()], ["naïve-topic".to_owned(), "16".to_owned()]];
        assert_eq!(table(["TOPIC", "QUEUES"], rows), "TOPIC        QUEUES\norders       8\nnaïve-topic  16\n");
        assert_eq!(table(["TOPIC"], []), "TOPIC\n");
    }
}
