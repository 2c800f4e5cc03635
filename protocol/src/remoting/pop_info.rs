//! The three lists in the answer to a pop: entries of three words, separated by `;`.

use std::fmt::Write;

use crate::handle::TopicType;

/// A list that does not have the form it must have. Holds the entry, cut to its first 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed entry in the answer to a pop: {0:?}")]
pub struct PopInfoError(pub String);

/// An entry of `startOffsetInfo`: where the pop began in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartOffset {
    /// Which topic the queue is of.
    pub kind: TopicType,
    /// The queue.
    pub queue_id: i32,
    /// First field of the receipt handles.
    pub offset: i64,
}

/// An entry of `msgOffsetInfo`: the messages of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MsgOffsets {
    /// Which topic the queue is of.
    pub kind: TopicType,
    /// The queue.
    pub queue_id: i32,
    /// Queue offsets, ascending.
    pub offsets: Vec<i64>,
}

/// An entry of `orderCountInfo`: how often messages were delivered before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderCount {
    /// Which topic the queue is of.
    pub kind: TopicType,
    /// The queue.
    pub queue_id: i32,
    /// The message, or `None`: all messages of the queue that have no entry of their own.
    pub offset: Option<i64>,
    /// Deliveries before this one.
    pub count: i32,
}

/// Writes `startOffsetInfo`.
pub fn encode_start_offsets(entries: &[StartOffset]) -> String {
    join(entries, |e, out| write!(out, "{} {} {}", e.kind.marker(), e.queue_id, e.offset))
}

/// Reads `startOffsetInfo`.
///
/// # Errors
/// An entry does not have three words or a word is no number.
pub fn decode_start_offsets(text: &str) -> Result<Vec<StartOffset>, PopInfoError> {
    entries(text, |[kind, queue, offset]| {
        Some(StartOffset {
            kind: TopicType::from_marker(kind)?,
            queue_id: queue.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    })
}

/// Writes `msgOffsetInfo`.
pub fn encode_msg_offsets(entries: &[MsgOffsets]) -> String {
    join(entries, |e, out| {
        write!(out, "{} {} ", e.kind.marker(), e.queue_id)?;
        for (position, offset) in e.offsets.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(out, "{comma}{offset}")?;
        }
        Ok(())
    })
}

/// Reads `msgOffsetInfo`.
///
/// # Errors
/// An entry does not have three words or a word is no number.
pub fn decode_msg_offsets(text: &str) -> Result<Vec<MsgOffsets>, PopInfoError> {
    entries(text, |[kind, queue, offsets]| {
        Some(MsgOffsets {
            kind: TopicType::from_marker(kind)?,
            queue_id: queue.parse().ok()?,
            offsets: offsets.split(',').map(|o| o.parse().ok()).collect::<Option<_>>()?,
        })
    })
}

/// Writes `orderCountInfo`.
pub fn encode_order_counts(entries: &[OrderCount]) -> String {
    join(entries, |e, out| match e.offset {
        Some(offset) => write!(out, "{} qo{}%{} {}", e.kind.marker(), e.queue_id, offset, e.count),
        None => write!(out, "{} {} {}", e.kind.marker(), e.queue_id, e.count),
    })
}

/// Reads `orderCountInfo`.
///
/// # Errors
/// An entry does not have three words or a word is no number.
pub fn decode_order_counts(text: &str) -> Result<Vec<OrderCount>, PopInfoError> {
    entries(text, |[kind, place, count]| {
        let (queue, offset) = match place.strip_prefix("qo") {
            Some(place) => {
                let (queue, offset) = place.split_once('%')?;
                (queue, Some(offset.parse().ok()?))
            }
            None => (place, None),
        };
        Some(OrderCount {
            kind: TopicType::from_marker(kind)?,
            queue_id: queue.parse().ok()?,
            offset,
            count: count.parse().ok()?,
        })
    })
}

fn join<E>(entries: &[E], write: impl Fn(&E, &mut String) -> std::fmt::Result) -> String {
    let mut out = String::with_capacity(entries.len() * 16);
    for entry in entries {
        if !out.is_empty() {
            out.push(';');
        }
        // Writing to a String cannot fail.
        let _ = write(entry, &mut out);
    }
    out
}

fn entries<E>(text: &str, parse: impl Fn([&str; 3]) -> Option<E>) -> Result<Vec<E>, PopInfoError> {
    let entry = |entry: &str| {
        let mut words = entry.split(' ');
        let three = [words.next()?, words.next()?, words.next()?];
        if words.next().is_some() { None } else { parse(three) }
    };
    text.split(';')
        .filter(|e| !e.is_empty())
        .map(|e| entry(e).ok_or_else(|| PopInfoError(e.chars().take(64).collect())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use TopicType::{Normal, RetryV1, RetryV2};

    #[test]
    fn start_offsets() {
        let list = [
            StartOffset { kind: Normal, queue_id: 0, offset: 7 },
            StartOffset { kind: RetryV2, queue_id: 3, offset: i64::MAX },
        ];
        assert_eq!(encode_start_offsets(&list), "0 0 7;2 3 9223372036854775807");
        assert_eq!(decode_start_offsets("0 0 7;2 3 9223372036854775807").as_deref(), Ok(&list[..]));
        assert_eq!(decode_start_offsets(""), Ok(vec![]));
    }

    #[test]
    fn msg_offsets() {
        let list = [
            MsgOffsets { kind: RetryV1, queue_id: 0, offsets: vec![1, 2, 5] },
            MsgOffsets { kind: Normal, queue_id: 1, offsets: vec![9] },
        ];
        assert_eq!(encode_msg_offsets(&list), "1 0 1,2,5;0 1 9");
        assert_eq!(decode_msg_offsets("1 0 1,2,5;0 1 9").as_deref(), Ok(&list[..]));
    }

    #[test]
    fn order_counts() {
        let list = [
            OrderCount { kind: Normal, queue_id: 2, offset: Some(11), count: 3 },
            OrderCount { kind: Normal, queue_id: 2, offset: None, count: 0 },
        ];
        assert_eq!(encode_order_counts(&list), "0 qo2%11 3;0 2 0");
        assert_eq!(decode_order_counts("0 qo2%11 3;0 2 0").as_deref(), Ok(&list[..]));
    }

    #[test]
    fn malformed_entries_are_named() {
        for bad in ["0 0", "0 0 1 2", "3 0 1", "0 x 1", "0 0 1,", "0 0 99999999999999999999", "0  0 1"] {
            assert_eq!(decode_msg_offsets(&format!("0 0 1;{bad}")), Err(PopInfoError(bad.to_owned())));
        }
        assert!(decode_start_offsets("0 0 1,2").is_err());
        assert!(decode_order_counts("0 qo1 1").is_err());
    }
}
