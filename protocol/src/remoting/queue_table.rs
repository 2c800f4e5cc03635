//! Tables by queue. Upstream writes them as objects whose keys are objects, `{"offsetTable":{{"brokerName":"b",…}:7}}`, which is no
//! JSON and all that its tools read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::body::BodyError;

/// Names one queue of one topic at one broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueue {
    /// The broker.
    pub broker_name: String,
    /// The queue.
    pub queue_id: i32,
    /// The topic.
    pub topic: String,
}

/// Writes a body whose field `name` is a table by queue; `more` are further fields with their values as JSON.
///
/// # Errors
/// A value that cannot be written as JSON.
pub fn write<V: Serialize>(name: &str, rows: &[(MessageQueue, V)], more: &[(&str, &str)]) -> Result<String, BodyError> {
    let mut out = String::from("{");
    for (name, value) in more {
        out.push_str(&format!("\"{name}\":{value},"));
    }
    out.push_str(&format!("\"{name}\":{{"));
    for (number, (queue, value)) in rows.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(&serde_json::to_string(queue)?);
        out.push(':');
        out.push_str(&serde_json::to_string(value)?);
    }
    out.push_str("}}");
    Ok(out)
}

/// Reads the table by queue in the field `name` of a body, in the order of its queues; empty if there is none.
///
/// # Errors
/// The body is neither JSON nor what upstream writes in its place, or a value is of another type.
pub fn read<V: DeserializeOwned>(name: &str, body: &[u8]) -> Result<Vec<(MessageQueue, V)>, BodyError> {
    let mut fields: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&quote_object_keys(body))?;
    let Some(table) = fields.remove(name) else { return Ok(Vec::new()) };
    let table: BTreeMap<String, V> = serde_json::from_value(table)?;
    let row = |(key, value): (String, V)| Ok((serde_json::from_str::<MessageQueue>(&key)?, value));
    let mut rows = table.into_iter().map(row).collect::<Result<Vec<_>, serde_json::Error>>()?;
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(rows)
}

/// Makes text of keys that are objects. Borrowed if there are none.
fn quote_object_keys(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte == b'"' {
            at = string_end(text, at);
        }
        if byte != b'{' && byte != b',' {
            continue;
        }
        let start = at + text.iter().skip(at).take_while(|byte| byte.is_ascii_whitespace()).count();
        let Some(end) = flat_object_end(text, start) else { continue };
        let behind = text.iter().skip(end).find(|byte| !byte.is_ascii_whitespace());
        let key = text.get(start..end).and_then(|key| std::str::from_utf8(key).ok());
        if let (Some(b':'), Some(key)) = (behind, key) {
            out.extend_from_slice(text.get(copied..start).unwrap_or_default());
            out.extend_from_slice(serde_json::Value::from(key).to_string().as_bytes());
            (copied, at) = (end, end);
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// The end of an object that starts at `at` and has no other in it.
fn flat_object_end(text: &[u8], mut at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            b'"' => at = string_end(text, at),
            b'}' => return Some(at),
            b'{' | b'[' => return None,
            _ => {}
        }
    }
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

    fn queue(topic: &str, queue_id: i32) -> MessageQueue {
        MessageQueue { broker_name: "b".into(), queue_id, topic: topic.into() }
    }

    #[test]
    fn is_written_as_upstream_writes_it() {
        let text = write("offsetTable", &[(queue("t", 0), 7), (queue("t", 1), -1)], &[("consumeTps", "0.0")]);
        let expected = r#"{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7,{"brokerName":"b","queueId":1,"topic":"t"}:-1}}"#;
        assert_eq!(text.ok().as_deref(), Some(expected));
    }

    #[test]
    fn what_is_written_is_read() {
        let rows = [(queue("t,{\"", 0), vec![1]), (queue("u:{}", 3), vec![])];
        let text = write("x", &rows, &[("other", r#"[{"a":1},{"b":{}}]"#)]).unwrap_or_default();
        assert_eq!(read::<Vec<i32>>("x", text.as_bytes()).ok().as_deref(), Some(&rows[..]));
        assert_eq!(read::<Vec<i32>>("y", text.as_bytes()).ok(), Some(Vec::new()));
        let spaced = br#"{ "x" : { {"queueId":2 , "brokerName":"b","topic":"t"} : 5 , {"queueId":1,"brokerName":"b","topic":"t"}:4}}"#;
        let rows = [(queue("t", 1), 4), (queue("t", 2), 5)];
        assert_eq!(read::<i32>("x", spaced).ok().as_deref(), Some(&rows[..]));
        assert_eq!(read::<i32>("x", br#"{"x":{}}"#).ok(), Some(Vec::new()));
    }

    #[test]
    fn anything_else_is_refused_without_harm() {
        for text in ["", "{", "{{", "{{}:", "{\"x\":{{\"a", "{\"x\":{{}:1}", "[]", "{\"x\":{{\"queueId\":\"a\"}:1}}"] {
            assert!(read::<i32>("x", text.as_bytes()).is_err(), "{text}");
        }
    }
}
