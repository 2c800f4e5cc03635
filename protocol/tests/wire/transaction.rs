//! Transaction ids.

use base64::Engine;
use proptest::prelude::*;
use waybill_protocol::transaction::{TransactionId, TransactionIdError};

fn id() -> TransactionId {
    TransactionId {
        commit_log_offset: 4711,
        tran_state_table_offset: 3,
        broker_name: "broker-a".into(),
        topic: "orders".into(),
    }
}

#[test]
fn five_words() {
    // printf 't1 4711 3 broker-a orders' | basenc --base64url
    let text = "dDEgNDcxMSAzIGJyb2tlci1hIG9yZGVycw";
    assert_eq!(id().to_string(), text);
    assert_eq!(text.parse(), Ok(id()));
}

#[test]
fn what_is_no_id() {
    let read = |plain: &str| {
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(plain).parse::<TransactionId>().expect_err(plain)
    };
    assert_eq!("".parse::<TransactionId>(), Err(TransactionIdError::Version));
    assert_eq!("01C02A3B4D5E6F".parse::<TransactionId>(), Err(TransactionIdError::NotText), "an id of a message");
    assert_eq!("a".repeat(1_025).parse::<TransactionId>(), Err(TransactionIdError::TooLong(1_025)));
    assert_eq!(read("t2 1 2 b t"), TransactionIdError::Version);
    for words in ["t1", "t1 1 2 b", "t1 1 2 b t x", "t1 1 2  t", "t1 1 2 b "] {
        assert_eq!(read(words), TransactionIdError::Words, "{words}");
    }
    for numbers in ["t1 x 2 b t", "t1 1 -2 b t", "t1 1 99999999999999999999 b t"] {
        assert_eq!(read(numbers), TransactionIdError::Number, "{numbers}");
    }
}

proptest! {
    #[test]
    fn there_and_back(position in 0..i64::MAX, place in 0..i64::MAX, broker_name in "[a-zA-Z0-9._-]{1,127}", topic in "[%|a-zA-Z0-9_-]{1,127}") {
        let id = TransactionId { commit_log_offset: position, tran_state_table_offset: place, broker_name, topic };
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn any_text_is_survived(text: String) {
        let _ = text.parse::<TransactionId>();
    }
}
