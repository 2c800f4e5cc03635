//! Receipt handles.

use proptest::prelude::*;
use waybill_protocol::handle::{HandleError, ReceiptHandle, TopicType};

use crate::support::seeds;

fn read(text: &str) -> Result<ReceiptHandle, HandleError> {
    text.parse()
}

#[test]
fn eight_words_nine_words_and_more() {
    let nine = seeds::handle();
    assert_eq!(nine.to_string(), "0 1796017995585 60000 2 2 broker-a 1 77 863");
    let eight = ReceiptHandle { commit_log_offset: None, ..nine.clone() };
    assert_eq!(eight.to_string(), "0 1796017995585 60000 2 2 broker-a 1 77");
    assert_eq!(read(&eight.to_string()), Ok(eight.clone()));
    assert_eq!(read(&nine.to_string()), Ok(nine.clone()));
    assert_eq!(read(&format!("{nine} whatever comes")), Ok(nine));
    for unknown in ["-1", "x", "", "99999999999999999999"] {
        assert_eq!(read(&format!("{eight} {unknown}")), Ok(eight.clone()), "{unknown}");
    }
}

#[test]
fn what_is_no_handle() {
    assert_eq!(read(""), Err(HandleError::TooShort(1)));
    assert_eq!(read("0 1 2 3 0 b 1"), Err(HandleError::TooShort(7)));
    for (text, word) in [
        ("x 1 2 3 0 b 1 7", "start offset"),
        ("0 1.5 2 3 0 b 1 7", "pop time"),
        ("0 1 99999999999999999999 3 0 b 1 7", "invisible time"),
        ("0 1 2 2147483648 0 b 1 7", "revive queue id"),
        ("0 1 2 3 3 b 1 7", "topic type"),
        ("0 1 2 3 0  1 7", "broker name"),
        ("0 1 2 3 0 b  7", "queue id"),
        ("0 1 2 3 0 b 1 7\n", "offset"),
    ] {
        assert_eq!(read(text), Err(HandleError::Malformed(word)), "{text:?}");
    }
}

#[test]
fn the_end_of_a_lease_does_not_overflow() {
    let handle = ReceiptHandle { pop_time: i64::MAX, invisible_time: 1, ..seeds::handle() };
    assert_eq!(handle.next_visible_time(), i64::MAX);
    assert_eq!(seeds::handle().next_visible_time(), 1_796_018_055_585);
}

#[test]
fn real_topics() {
    let of = |topic_type| ReceiptHandle { topic_type, ..seeds::handle() }.real_topic("g", "t");
    assert_eq!(of(TopicType::Normal), "t");
    assert_eq!(of(TopicType::RetryV1), "%RETRY%g_t");
    assert_eq!(of(TopicType::RetryV2), "%RETRY%g+t");
    for kind in [TopicType::Normal, TopicType::RetryV1, TopicType::RetryV2] {
        assert_eq!(TopicType::of(&kind.real_topic("g", "t")), kind);
    }
    assert_eq!(TopicType::of("%DLQ%g"), TopicType::Normal);
    assert_eq!(TopicType::of("a+b"), TopicType::Normal);
}

proptest! {
    #[test]
    fn handles_go_there_and_back(
        longs in any::<(i64, i64, i64, i64)>(), ints in any::<(i32, i32)>(), kind in 0usize..3, broker in "[^ ]+",
        log in proptest::option::of(0..i64::MAX),
    ) {
        let handle = ReceiptHandle {
            start_offset: longs.0, pop_time: longs.1, invisible_time: longs.2, offset: longs.3, revive_queue_id: ints.0,
            queue_id: ints.1, topic_type: [TopicType::Normal, TopicType::RetryV1, TopicType::RetryV2][kind],
            broker_name: broker, commit_log_offset: log,
        };
        prop_assert_eq!(handle.to_string().parse::<ReceiptHandle>(), Ok(handle));
    }

    #[test]
    fn any_text_is_survived(text in "([0-9a-z -]{1,5} ){0,10}.*") {
        let _ = text.parse::<ReceiptHandle>();
    }
}
