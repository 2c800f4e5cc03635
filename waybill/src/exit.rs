//! How a command fails: what it says, what to do about it, and its exit code.

use std::process::ExitCode;

use serde_json::json;

use crate::output::Format;
use crate::peer::Protocol;

/// Explained in `--help` of the program.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   refused by the server, or failed
  2   wrong usage
  64  the configuration file is wrong
  69  no server of the right kind can be reached, or it does not answer in time";

/// Which exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The server refused, or the command did not do what was asked.
    Failed = 1,
    /// The arguments make no sense together.
    Usage = 2,
    /// The configuration file cannot be put in force.
    Config = 64,
    /// Nobody answers.
    Unavailable = 69,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Config => "config",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// Where who was looked for, as far as that can be the reason.
    looked_for: Option<(String, Protocol)>,
}

impl Failure {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, looked_for: None }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }

    /// What the person can do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the command tried to speak with at `address`. It matters only if nobody of that kind answered.
    pub(crate) fn looking_for(mut self, address: &str, protocol: Protocol) -> Self {
        if self.kind == Kind::Unavailable {
            self.looked_for = Some((address.to_owned(), protocol));
        }
        self
    }

    pub(crate) fn looked_for(&self) -> Option<(&str, Protocol)> {
        self.looked_for.as_ref().map(|(address, protocol)| (address.as_str(), *protocol))
    }

    /// Says it on standard error, in the format that was asked for, and gives the exit code.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        eprint!("{}", self.render(format));
        ExitCode::from(self.kind as u8)
    }

    fn render(&self, format: Format) -> String {
        match (format, &self.hint) {
            (Format::Json, hint) => {
                let error = json!({"kind": self.kind.name(), "message": self.message, "hint": hint});
                format!("{}\n", json!({ "error": error }))
            }
            (Format::Text, Some(hint)) => format!("error: {}\n  try: {hint}\n", self.message),
            (Format::Text, None) => format!("error: {}\n", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_and_what_to_do() {
        let failure = Failure::unavailable("nobody answers").hint("waybill standalone");
        assert_eq!(failure.render(Format::Text), "error: nobody answers\n  try: waybill standalone\n");
        let json: serde_json::Value = serde_json::from_str(&failure.render(Format::Json)).expect("JSON");
        assert_eq!(
            json,
            json!({"error": {"kind": "unavailable", "message": "nobody answers", "hint": "waybill standalone"}})
        );
        assert_eq!(Failure::failed("no").render(Format::Text), "error: no\n");
    }

    #[test]
    fn every_kind_has_a_documented_code() {
        for kind in [Kind::Failed, Kind::Usage, Kind::Config, Kind::Unavailable] {
            let code = format!("\n  {:<4}", kind as u8);
            assert!(EXIT_CODES.contains(&code), "{code:?} is not documented");
        }
    }
}
