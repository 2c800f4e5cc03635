//! JSON bodies. What is read may lack keys (their default is taken), have more keys (ignored) or `null` values (default); map
//! keys that are numbers may come without quotes, as Java's fastjson writes them. What is written is standard JSON without nulls.

mod batch;
mod bits;
mod bodies;
mod client;
mod group;
mod left;
pub mod overrides;
mod retry;
mod route;
mod topic;

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

pub use batch::*;
pub use bits::{BitSet, BitSetError};
pub use client::*;
pub use group::*;
pub use left::*;
pub use overrides::{GroupOverrides, OverrideError};
pub use retry::RetrySchedule;
pub use route::*;
pub use topic::*;

/// A body that is not the JSON that was expected.
#[derive(Debug, thiserror::Error)]
#[error("malformed body: {0}")]
pub struct BodyError(#[from] serde_json::Error);

/// A body that travels as JSON.
pub trait JsonBody: Serialize + DeserializeOwned {
    /// Reads a body. No more memory is taken than the text justifies.
    ///
    /// # Errors
    /// The text is not JSON, or a value is of another type than expected.
    fn from_json(text: &[u8]) -> Result<Self, BodyError> {
        // Left alone, serde would read an array as the values of the fields in their order.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(BodyError(serde::de::Error::custom("a body is an object")));
        }
        let error = match serde_json::from_slice(text) {
            Ok(body) => return Ok(body),
            Err(error) => error,
        };
        match quote_numeric_keys(text) {
            Cow::Owned(standard) => Ok(serde_json::from_slice(&standard)?),
            Cow::Borrowed(_) => Err(error.into()),
        }
    }

    /// Writes a body. (Writing JSON to memory fails only for map keys that are neither text nor numbers; no body has such.)
    fn to_json(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Reads `null` as the default of the type.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Puts quotes around map keys that are bare numbers, `{0:"a"}`. Borrowed if there are none.
fn quote_numeric_keys(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at),
            b'{' | b',' => {
                let start = at + text.iter().skip(at).take_while(|b| b.is_ascii_whitespace()).count();
                let digits = text.iter().skip(start).take_while(|b| b.is_ascii_digit() || **b == b'-').count();
                let end = start + digits;
                let colon = text.iter().skip(end).find(|b| !b.is_ascii_whitespace());
                if digits > 0 && colon == Some(&b':') {
                    out.extend_from_slice(text.get(copied..start).unwrap_or_default());
                    out.push(b'"');
                    out.extend_from_slice(text.get(start..end).unwrap_or_default());
                    out.push(b'"');
                    copied = end;
                    at = end;
                }
            }
            _ => {}
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// The position behind the closing quote of a string whose text starts at `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'\\' => 2,
            b'"' => return at + 1,
            _ => 1,
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        String::from_utf8(quote_numeric_keys(text.as_bytes()).into_owned()).unwrap_or_default()
    }

    #[test]
    fn only_bare_numeric_keys_are_quoted() {
        assert_eq!(quoted(r#"{0:"a", 12 : "b",-1:{7:[1,2]}}"#), r#"{"0":"a", "12" : "b","-1":{"7":[1,2]}}"#);
        for standard in [r#"{"0":"{1:2}","a\"{1:":[1,2,{"x":3}]}"#, "[1,2,3]", "", "{", "{1", "\"", "\"\\"] {
            assert_eq!(quoted(standard), standard);
            assert!(matches!(quote_numeric_keys(standard.as_bytes()), Cow::Borrowed(_)));
        }
    }
}
