//! The body of a message as it is printed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// A body as text, and as it is if that is no text.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Body {
    /// Bytes that are no UTF-8 are replaced.
    body: String,
    /// Only of a body that is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        let is_text = std::str::from_utf8(bytes).is_ok();
        let body = String::from_utf8_lossy(bytes).into_owned();
        Self { body, body_base64: (!is_text).then(|| STANDARD.encode(bytes)) }
    }
}

impl Body {
    /// For people.
    pub(crate) fn text(&self) -> String {
        match &self.body_base64 {
            None => self.body.clone(),
            Some(_) => format!("{}\n           (not UTF-8: --output json has all its bytes, as bodyBase64)", self.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told_and_kept() {
        let json = |bytes: &[u8]| serde_json::to_value(Body::from(bytes)).unwrap_or_default();
        assert_eq!(json("héllo".as_bytes()), serde_json::json!({"body": "héllo"}));
        assert_eq!(json(b"a\xffb"), serde_json::json!({"body": "a\u{fffd}b", "bodyBase64": "Yf9i"}));
        assert_eq!(Body::from(&b"plain"[..]).text(), "plain");
        assert!(Body::from(&b"a\xffb"[..]).text().contains("not UTF-8"));
    }
}
