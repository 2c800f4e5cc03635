//! Bad bodies of batch requests through the listener, one after the other over one connection: each gets a clear code, none
//! changes anything, and the connection goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::sync::Arc;

use process::Client;
use support::{Got, LIMIT, Rig};
use tokio_util::sync::CancellationToken;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
    BatchChangeInvisibleTimeRequestHeader, BitSet, Command, JsonBody, QueueRequestHeader,
};

#[tokio::test]
async fn bad_bodies_get_a_clear_code_and_the_connection_goes_on() {
    let (rig, got) = Rig::with_messages(1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (broker, stop) = (Arc::clone(&rig.broker), stop.clone());
        async move { broker.serve(listener, stop).await }
    });
    let client = Client::connect(address).await;
    let records = rig.broker.core().store().stats().records;
    let mut tried = 0;
    for (kind, good) in [(Kind::Change, change_body(&got[0], 0, 1)), (Kind::Ack, ack_body(&got[0], 1))] {
        for (what, body) in broken(kind, std::str::from_utf8(&good).unwrap(), &got[0]) {
            let answer = ask(&client, kind.command(body)).await;
            assert_eq!(answer.code, response::MESSAGE_ILLEGAL, "{kind:?} {what}: {:?}", answer.remark);
            assert!(answer.remark.is_some_and(|remark| !remark.is_empty()), "{kind:?} {what} is explained");
            let header = QueueRequestHeader { topic: "t".into(), queue_id: 0 };
            let answer = ask(&client, Command::request(request::GET_MAX_OFFSET).with_header(&header)).await;
            assert_eq!((answer.code, answer.ext.get("offset")), (response::SUCCESS, Some("1")), "after {what}");
            tried += 1;
        }
    }
    assert!(tried >= 38, "{tried} bodies");
    assert_eq!(rig.broker.core().store().stats().records, records, "nothing was written");
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty(), "the lease is as it was");

    // The same connection, and what the bodies were made of.
    let answer = ask(&client, Kind::Change.command(change_body(&got[0], 90_000, 1))).await;
    let changed: BatchChangeInvisibleResult = answer.json().unwrap();
    assert_eq!(changed.entries[0].code, response::SUCCESS);
    let answer = ask(&client, Kind::Ack.command(ack_body(&got[0], 1))).await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    rig.clock.advance(90_000);
    assert!(rig.drain_ids("g", "t").await.is_empty(), "acknowledged");
    drop(client);
    stop.cancel();
    tokio::time::timeout(LIMIT, serving).await.expect("it stops").unwrap();
}

async fn ask(client: &Client, command: Command) -> Command {
    tokio::time::timeout(LIMIT, client.call(command)).await.expect("in time").expect("the connection is there")
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Change,
    Ack,
}

impl Kind {
    fn command(self, body: Vec<u8>) -> Command {
        let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() };
        match self {
            Self::Change => Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME).with_header(&header),
            Self::Ack => Command::request(request::BATCH_ACK_MESSAGE),
        }
        .with_body(body)
    }
}

fn change_body(got: &Got, invisible_time: i64, entries: usize) -> Vec<u8> {
    let entry = BatchChangeInvisibleEntry {
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time,
        ..Default::default()
    };
    BatchChangeInvisibleBody { entries: vec![entry; entries] }.to_json().to_vec()
}

/// The ack of as many messages, of which only the first is there.
fn ack_body(got: &Got, messages: usize) -> Vec<u8> {
    let mut bit_set = BitSet::new();
    for bit in 0..messages {
        bit_set.set(bit).unwrap();
    }
    let ack = BatchAck {
        consumer_group: "g".into(),
        topic: "t".into(),
        start_offset: got.handle.start_offset,
        queue_id: got.handle.queue_id,
        pop_time: got.handle.pop_time,
        invisible_time: got.handle.invisible_time,
        bit_set,
        ..BatchAck::default()
    };
    BatchAckBody { broker_name: "broker-a".into(), acks: vec![ack] }.to_json().to_vec()
}

/// What is wrong, and a body with it, made of a good one.
fn broken(kind: Kind, good: &str, got: &Got) -> Vec<(&'static str, Vec<u8>)> {
    // Names of the list, of a 32-bit number, of a 64-bit number and of a text.
    let (list, int, long, text) = match kind {
        Kind::Change => ("entries", "queueId", "invisibleTime", "extraInfo"),
        Kind::Ack => ("acks", "q", "pt", "c"),
    };
    let set = |name: &str, value: &str| {
        let start = good.find(&format!("\"{name}\":")).expect("it is there") + name.len() + 3;
        let len = match good.as_bytes()[start] {
            b'"' => good[start + 1..].find('"').unwrap() + 2,
            _ => good[start..].find([',', '}']).unwrap(),
        };
        format!("{}{value}{}", &good[..start], &good[start + len..]).into_bytes()
    };
    let too_many = match kind {
        Kind::Change => change_body(got, 0, 1_025),
        Kind::Ack => ack_body(got, 1_025),
    };
    let deep = format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    let mut not_text = good.as_bytes().to_vec();
    let at = good.find(&format!("\"{text}\":\"")).unwrap() + text.len() + 4;
    not_text[at] = 0xff;
    vec![
        ("empty", Vec::new()),
        ("cut after a quarter", good.as_bytes()[..good.len() / 4].to_vec()),
        ("cut in the middle", good.as_bytes()[..good.len() / 2].to_vec()),
        ("without its last byte", good.as_bytes()[..good.len() - 1].to_vec()),
        ("with something behind it", format!("{good}]").into_bytes()),
        ("no JSON", b"entries=1".to_vec()),
        ("a list", b"[]".to_vec()),
        ("a number for the list", format!("{{\"{list}\":7}}").into_bytes()),
        ("only openings", vec![b'['; 100_000]),
        ("openings where the list is", format!("{{\"{list}\":{}", "[".repeat(100_000)).into_bytes()),
        ("nested deeply", format!("{{\"{list}\":{deep}}}").into_bytes()),
        ("no UTF-8", not_text),
        ("half a surrogate", set(text, "\"\\ud800\"")),
        ("a control character", set(text, "\"\u{0}\"")),
        ("too large for 32 bits", set(int, "2147483648")),
        ("too large for 64 bits", set(long, "9223372036854775808")),
        ("larger than any number", set(long, "1e99")),
        ("an object for a number", set(int, "{}")),
        ("a number for a text", set(text, "7")),
        ("more entries than allowed", too_many),
        ("more bytes than allowed", format!("{good}{}", " ".repeat(4 << 20)).into_bytes()),
    ]
}
