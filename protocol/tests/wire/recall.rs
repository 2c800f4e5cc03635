//! Recall handles.

use proptest::prelude::*;
use waybill_protocol::recall::{RecallHandle, RecallHandleError};

fn handle() -> RecallHandle {
    RecallHandle {
        topic: "delay-topic".into(),
        broker_name: "broker-a".into(),
        time_ms: 1_800_000_003_000,
        message_id: "01AB".into(),
        position: Some(4711),
    }
}

#[test]
fn five_words_and_six() {
    // printf 'v1 delay-topic broker-a 1800000003000 01AB 4711' | basenc --base64url
    let text = "djEgZGVsYXktdG9waWMgYnJva2VyLWEgMTgwMDAwMDAwMzAwMCAwMUFCIDQ3MTE=";
    assert_eq!(handle().to_string(), text);
    assert_eq!(text.parse(), Ok(handle()));
    // printf 'v1 delay-topic broker-a 1800000003000 01AB' | basenc --base64url
    let five = "djEgZGVsYXktdG9waWMgYnJva2VyLWEgMTgwMDAwMDAwMzAwMCAwMUFC";
    assert_eq!(five.parse(), Ok(RecallHandle { position: None, ..handle() }));
    assert_eq!(RecallHandle { position: None, ..handle() }.to_string(), five);
}

#[test]
fn what_is_no_handle() {
    use base64::Engine;
    let read = |plain: &str| base64::engine::general_purpose::URL_SAFE.encode(plain).parse::<RecallHandle>();
    assert_eq!("".parse::<RecallHandle>(), Err(RecallHandleError::Version));
    assert_eq!("+/".parse::<RecallHandle>(), Err(RecallHandleError::NotText));
    assert_eq!("a".repeat(5_000).parse::<RecallHandle>(), Err(RecallHandleError::TooLong(5_000)));
    assert_eq!(read("v2 t b 1 id"), Err(RecallHandleError::Version));
    assert_eq!(read("v1 t b"), Err(RecallHandleError::Missing("time")));
    assert_eq!(read("v1  b 1 id"), Err(RecallHandleError::Missing("topic")));
    assert_eq!(read("v1 t b 1"), Err(RecallHandleError::Missing("message id")));
    assert_eq!(read("v1 t b soon id"), Err(RecallHandleError::Time));
    assert_eq!(read("v1 t b 99999999999999999999 id"), Err(RecallHandleError::Time));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        topic in "[a-z%|_-]{1,20}",
        broker in "[a-z0-9.-]{1,20}",
        time_ms: i64,
        id in "[^ ]{1,30}( [^ 0-9]{1,9})?",
        position: u64,
    ) {
        let handle = RecallHandle { topic, broker_name: broker, time_ms, message_id: id, position: Some(position) };
        prop_assert_eq!(handle.to_string().parse(), Ok(handle));
    }

    #[test]
    fn nothing_that_is_said_does_harm(text in ".{0,200}") {
        let _refused_or_not = text.parse::<RecallHandle>();
    }
}
