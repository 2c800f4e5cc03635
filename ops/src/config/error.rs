//! What is wrong with a configuration file, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use super::nearest::nearest;

/// A value that has the right type and is wrong all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The key as written in the file, with dots between levels: `store.segmentBytes`.
    pub key: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Invalid {
    /// `key` with dots between levels; `reason` says what is wrong and what would be right.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

/// Why a configuration file cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    /// Counted from 1.
    line: Option<usize>,
    key: Option<String>,
    reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, " line {line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", {key}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// The file itself is at fault: missing, unreadable, too long.
    pub(super) fn file(path: &Path, reason: String) -> Self {
        Self { file: path.to_owned(), line: None, key: None, reason }
    }

    /// The parser's word.
    pub(super) fn syntax(path: &Path, text: &str, error: &serde_yaml::Error) -> Self {
        let error = error.without_snippet();
        let said = error.to_string();
        let at = error.location().filter(|location| location.line() > 0);
        // The parser appends the place in its own words; it is told once, before the key.
        let place = at.map(|at| format!(" at line {}, column {}", at.line(), at.column())).unwrap_or_default();
        let reason = said.strip_suffix(&place).unwrap_or(&said).to_owned();
        let line = at.and_then(|at| usize::try_from(at.line()).ok());
        // For an unknown key the parser tells where the surrounding level begins: the key is there or below.
        let line = line.map(|line| unknown_field(&reason).and_then(|key| line_from(text, line, key)).unwrap_or(line));
        let reason = unknown_field(&reason).map(|key| unknown(key, &reason)).unwrap_or(reason);
        Self { file: path.to_owned(), line, key: line.and_then(|line| key_at(text, line)), reason }
    }

    /// The parser's word, which comes without a place; `key` as far as it is known.
    pub(super) fn value(path: &Path, text: &str, key: Option<String>, error: &serde_yaml::Error) -> Self {
        let said = error.to_string();
        let reason = match said.as_str() {
            "invalid socket address syntax" => "an address is wanted with its port, such as 0.0.0.0:8082".to_owned(),
            "invalid IP address syntax" => "an address is wanted, such as 0.0.0.0".to_owned(),
            _other => said,
        };
        Self { file: path.to_owned(), line: key.as_deref().and_then(|key| line_of(text, key)), key, reason }
    }

    /// The parser's word about a file that holds secrets, without what is written there.
    pub(super) fn of_secrets(path: &Path, error: &serde_yaml::Error) -> Self {
        let said = error.without_snippet().to_string();
        // The name of the field comes from the program.
        let missing = said.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
        let reason = match missing {
            Some((field, _place)) => format!("{field} is missing"),
            None => "what is written there is not what belongs there (and not repeated here: the file holds secrets)"
                .to_owned(),
        };
        let line = error.location().filter(|at| at.line() > 0).and_then(|at| usize::try_from(at.line()).ok());
        Self { file: path.to_owned(), line, key: None, reason }
    }

    /// The owner's check failed.
    pub(super) fn invalid(path: &Path, text: &str, invalid: Invalid) -> Self {
        let line = line_of(text, &invalid.key);
        Self { file: path.to_owned(), line, key: Some(invalid.key), reason: invalid.reason }
    }

    /// The line of the mistake, counted from 1, where one is known.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key of the mistake, with dots between levels, where one is known.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

/// The key that a line of block YAML, or of JSON printed one key a line, sets; with the column it starts at.
fn key_of(line: &str) -> Option<(usize, &str)> {
    let trimmed = line.trim_start_matches([' ', '\t', '-', '{']);
    let column = line.len() - trimmed.len();
    let (key, _value) = trimmed.split_once(':')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-.*/%".contains(c));
    is_key.then_some((column, key))
}

/// The keys from the outermost one to that of `line` (counted from 1), with dots between them.
fn key_at(text: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let mut path: Vec<&str> = Vec::new();
    let mut within = usize::MAX;
    for (column, key) in lines.iter().rev().filter_map(|line| key_of(line)) {
        if column < within {
            path.push(key);
            within = column;
        }
        if column == 0 {
            break;
        }
    }
    path.reverse();
    (!path.is_empty()).then(|| path.join("."))
}

/// The key in serde's words for one that a structure does not have.
fn unknown_field(reason: &str) -> Option<&str> {
    reason.strip_prefix("unknown field `")?.split('`').next()
}

/// What to say of a key that a structure does not have: serde's words list all it has, which may be a hundred.
fn unknown(key: &str, reason: &str) -> String {
    let known = reason.split_once("expected one of ").map_or("", |(_, known)| known).split(", ");
    match nearest(key, known) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None => "unknown key".to_owned(),
    }
}

/// The first line from `start` on (both counted from 1) that sets a key of this name.
fn line_from(text: &str, start: usize, name: &str) -> Option<usize> {
    let mut lines = text.lines().enumerate().skip(start.saturating_sub(1));
    lines.find_map(|(index, line)| (key_of(line)?.1 == name).then_some(index + 1))
}

/// The line (counted from 1) that sets `key`, or the nearest of the keys above it that is there.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let mut wanted = key;
    loop {
        let found = text.lines().enumerate().find_map(|(index, line)| {
            let (_column, last) = key_of(line)?;
            (wanted.rsplit('.').next() == Some(last) && key_at(text, index + 1).as_deref() == Some(wanted))
                .then_some(index + 1)
        });
        if found.is_some() {
            return found;
        }
        wanted = wanted.rsplit_once('.')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
# a comment: not a key, it has spaces
flush: sync
store:
  dir: /data
  limits:
    - name: first
      max: 3
listen: 127.0.0.1:8081
";

    #[test]
    fn finds_the_key_of_a_line() {
        assert_eq!(key_at(YAML, 2).as_deref(), Some("flush"));
        assert_eq!(key_at(YAML, 4).as_deref(), Some("store.dir"));
        assert_eq!(key_at(YAML, 6).as_deref(), Some("store.limits.name"));
        assert_eq!(key_at(YAML, 7).as_deref(), Some("store.limits.max"));
        assert_eq!(key_at(YAML, 8).as_deref(), Some("listen"));
        assert_eq!(key_at("", 1), None);
        let json = "{\n  \"store\": {\n    \"dir\": 1\n  }\n}\n";
        assert_eq!(key_at(json, 3).as_deref(), Some("store.dir"));
    }

    #[test]
    fn finds_the_line_of_a_key() {
        assert_eq!(line_of(YAML, "store.dir"), Some(4));
        assert_eq!(line_of(YAML, "listen"), Some(8));
        assert_eq!(line_of(YAML, "store.flush"), Some(3), "not set: the level above it");
        assert_eq!(line_of(YAML, "absent"), None);
    }
}
