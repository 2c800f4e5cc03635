//! Pops: what Apache really answered, and every rule of how handles come about.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::BytesMut;
use futures::FutureExt;
use tokio::sync::{Notify, Semaphore};
use waybill_protocol::remoting::{
    Command, DEFAULT_MAX_FRAME,
    codes::{request, response},
    decode,
};
use waybill_sidecar::backend::{BackendError, Filter, FilterKind, PopRequest, PopStatus, TransportError};

use crate::scripted::{Scripted, ok, popped, refuse, route, service, stored, two_brokers};
use crate::soon;

fn pop_request() -> PopRequest {
    PopRequest {
        client_id: "client-1".into(),
        group: "G".into(),
        topic: "T".into(),
        broker_name: Some("a".into()),
        max_messages: 32,
        invisible_ms: 60_000,
        poll_ms: 5_000,
        filter: Filter { kind: FilterKind::Tag, expression: "A||B".into() },
        fifo: false,
        attempt_id: None,
        subscribed_topics: None,
    }
}

/// A whole frame that Apache RocketMQ 5.5.0 sent.
fn golden(name: &str) -> Command {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/golden").join(name);
    let bytes = std::fs::read(&path).expect("golden bytes");
    decode(&mut BytesMut::from(&bytes[..]), DEFAULT_MAX_FRAME).expect("a frame").expect("a whole frame")
}

async fn pop_answered_by(answer: Command) -> Result<Vec<(String, String, i32)>, BackendError> {
    let transport = two_brokers(move |_, _| Ok(answer.clone()));
    let result = service(transport, |_| {}).service.pop(pop_request()).await?;
    assert_eq!(result.status == PopStatus::Found, !result.messages.is_empty());
    assert!(result.messages.iter().all(|popped| popped.message.topic == "T"), "never the retry topic");
    Ok(result
        .messages
        .into_iter()
        .map(|popped| (popped.handle.to_string(), popped.message_id, popped.message.reconsume_times))
        .collect())
}

#[tokio::test]
async fn apaches_answer_gives_nine_field_handles() {
    let found = pop_answered_by(golden("json-pop-message.response.bin")).await.expect("found");
    let handles: Vec<String> = found.iter().map(|(handle, ..)| handle.clone()).collect();
    let physical: Vec<i64> = {
        let answer = golden("json-pop-message.response.bin");
        let messages = waybill_protocol::message::StoredMessage::decode_all(answer.body).expect("messages");
        messages.iter().map(|message| message.physical_offset).collect()
    };
    let expected: Vec<String> = physical
        .iter()
        .enumerate()
        .map(|(n, physical)| format!("0 1796017995585 60000 2 0 a 0 {n} {physical}"))
        .collect();
    assert_eq!(handles, expected);
}

#[tokio::test]
async fn apaches_redelivery_brings_its_handle_with_it() {
    let found = pop_answered_by(golden("json-pop-message-retry.response.bin")).await.expect("found");
    let expected = ("0 1796017998737 60000 3 1 broker-a 0 0 3723", "01AABBCCDDEEFF00010000000000000004", 1);
    assert_eq!(found, [(expected.0.to_owned(), expected.1.to_owned(), expected.2)]);
}

#[tokio::test]
async fn apaches_empty_answer_is_no_error() {
    assert_eq!(pop_answered_by(golden("json-pop-message-none.response.bin")).await, Ok(Vec::new()));
}

#[tokio::test]
async fn handles_come_from_the_lists_queue_by_queue() {
    let messages = [
        stored("T", 0, 12, "UNIQ_KEY\u{1}m0\u{2}"),
        stored("T", 1, 7, "UNIQ_KEY\u{1}m1\u{2}"),
        stored("T", 0, 10, "UNIQ_KEY\u{1}m2\u{2}"),
        stored("%RETRY%G+T", 0, 3, "UNIQ_KEY\u{1}m3\u{2}"),
        stored("%RETRY%G_T", 0, 4, ""),
    ];
    let lists = [("startOffsetInfo", "0 0 10;0 1 5;2 0 1;1 0 4"), ("msgOffsetInfo", "0 0 10,12;0 1 7;2 0 3;1 0 4")];
    let found = pop_answered_by(popped(&messages, &lists)).await.expect("found");
    let handles: Vec<&str> = found.iter().map(|(handle, ..)| handle.as_str()).collect();
    let expected = [
        "10 990000 60000 3 0 a 0 12 5012",
        "5 990000 60000 3 0 a 1 7 5007",
        "10 990000 60000 3 0 a 0 10 5010",
        "1 990000 60000 3 2 a 0 3 5003",
        "4 990000 60000 3 1 a 0 4 5004",
    ];
    assert_eq!(handles, expected);
    let ids: Vec<&str> = found.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(
        ids,
        ["m0", "m1", "m2", "m3", "7F00000100002A9F000000000000138C"],
        "the broker's id where there is no other"
    );
}

#[tokio::test]
async fn a_moved_queue_counts_by_place_and_without_starts_by_the_first_message() {
    // The broker's own offsets differ from the queue's: the list says 100 and 101.
    let messages = [stored("T", 0, 2, ""), stored("T", 0, 1, "")];
    let found = pop_answered_by(popped(&messages, &[("msgOffsetInfo", "0 0 100,101")])).await.expect("found");
    let handles: Vec<&str> = found.iter().map(|(handle, ..)| handle.as_str()).collect();
    assert_eq!(handles, ["2 990000 60000 3 0 a 0 101 5002", "2 990000 60000 3 0 a 0 100 5001"]);
}

#[tokio::test]
async fn fifo_counts_come_from_the_answer() {
    let messages = [stored("T", 0, 5, ""), stored("T", 0, 6, ""), stored("T", 1, 9, "")];
    let lists = [
        ("startOffsetInfo", "0 0 5;0 1 9"),
        ("msgOffsetInfo", "0 0 5,6;0 1 9"),
        ("orderCountInfo", "0 qo0%5 4;0 0 0;0 1 2"),
    ];
    let found = pop_answered_by(popped(&messages, &lists)).await.expect("found");
    let counts: Vec<i32> = found.iter().map(|(.., count)| *count).collect();
    assert_eq!(counts, [4, 0, 2]);
}

#[tokio::test]
async fn a_message_without_a_handle_is_not_delivered_and_the_others_are() {
    let messages = [stored("T", 0, 5, ""), stored("T", 3, 5, ""), stored("T", 0, 6, "POP_CK\u{1}nonsense\u{2}")];
    let lists = [("startOffsetInfo", "0 0 5"), ("msgOffsetInfo", "0 0 5,6")];
    let found = pop_answered_by(popped(&messages, &lists)).await.expect("found");
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn nonsense_is_an_error_and_not_a_panic() {
    let good = popped(&[stored("T", 0, 5, "")], &[("startOffsetInfo", "0 0 5"), ("msgOffsetInfo", "0 0 5")]);
    let mut cut = good.clone();
    cut.body = cut.body.slice(..cut.body.len() - 1);
    let mut lists = good.clone();
    lists.ext.set("msgOffsetInfo", "0 0");
    let mut number = good.clone();
    number.ext.set("popTime", "soon");
    let mut headless = good.clone();
    headless.ext = Command::request(0).ext;
    for answer in [cut, lists, number, headless] {
        let result = pop_answered_by(answer).await;
        assert!(matches!(result, Err(BackendError::Other { .. })), "{result:?}");
    }
    assert_eq!(pop_answered_by(ok()).await, Ok(Vec::new()), "success without messages");
}

#[tokio::test]
async fn the_request_says_who_wants_what() {
    let transport = two_brokers(|_, _| refuse(response::POLLING_TIMEOUT, ""));
    let fifo = PopRequest { fifo: true, attempt_id: Some("attempt".into()), ..pop_request() };
    service(transport.clone(), |_| {}).service.pop(fifo).await.expect("no error");
    let (address, command) = transport.asked(request::POP_MESSAGE).remove(0);
    assert_eq!(address, "a:10911");
    for (name, value) in [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("maxMsgNums", "32"),
        ("invisibleTime", "60000"),
        ("pollTime", "5000"),
        ("bornTime", "0"),
        ("initMode", "1"),
        ("expType", "TAG"),
        ("exp", "A||B"),
        ("order", "true"),
        ("attemptId", "attempt"),
        ("clientId", "client-1"),
    ] {
        assert_eq!(command.ext.get(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn every_code_has_its_meaning() {
    let other = |code| BackendError::Other { code, remark: "why".into() };
    for (code, expected) in [
        (response::POLLING_FULL, Ok(PopStatus::PollingFull)),
        (response::POLLING_TIMEOUT, Ok(PopStatus::NoNewMessage)),
        (response::PULL_NOT_FOUND, Ok(PopStatus::NoNewMessage)),
        (response::TOPIC_NOT_EXIST, Err(BackendError::TopicNotFound("T".into()))),
        (response::SUBSCRIPTION_GROUP_NOT_EXIST, Err(BackendError::GroupNotFound("G".into()))),
        (response::NO_PERMISSION, Err(BackendError::NoPermission("why".into()))),
        (response::SUBSCRIPTION_PARSE_FAILED, Err(BackendError::IllegalFilter("why".into()))),
        (response::INVALID_PARAMETER, Err(BackendError::Illegal("why".into()))),
        (response::SYSTEM_BUSY, Err(BackendError::Busy("why".into()))),
        (response::FLOW_CONTROL, Err(BackendError::Busy("why".into()))),
        (response::REQUEST_CODE_NOT_SUPPORTED, Err(BackendError::NotSupported)),
        (response::SERVICE_NOT_AVAILABLE, Err(BackendError::Unavailable("why".into()))),
        (response::GO_AWAY, Err(BackendError::Unavailable("why".into()))),
        (response::SYSTEM_ERROR, Err(other(response::SYSTEM_ERROR))),
        (response::NO_MESSAGE, Err(other(response::NO_MESSAGE))),
        (12_345, Err(other(12_345))),
    ] {
        let transport = two_brokers(move |_, _| refuse(code, "why"));
        let result = service(transport, |_| {}).service.pop(pop_request()).await;
        assert_eq!(result.map(|result| result.status), expected, "{code}");
    }
}

#[tokio::test]
async fn without_a_broker_they_take_turns_and_the_unreachable_is_passed_over() {
    let transport = two_brokers(|_, _| refuse(response::POLLING_TIMEOUT, ""));
    let setup = service(transport.clone(), |_| {});
    for name in [None, Some("nobody")] {
        for _ in 0..4 {
            let request = PopRequest { broker_name: name.map(str::to_owned), ..pop_request() };
            setup.service.pop(request).await.expect("no error");
        }
    }
    let at_a = transport.asked(request::POP_MESSAGE).iter().filter(|(address, _)| address == "a:10911").count();
    assert_eq!(at_a, 4, "half of eight");

    let transport = two_brokers(|address, _| match address {
        "a:10911" => Err(TransportError::Unreachable("down".into())),
        _ => refuse(response::POLLING_TIMEOUT, ""),
    });
    let setup = service(transport, |_| {});
    for _ in 0..4 {
        let request = PopRequest { broker_name: None, ..pop_request() };
        assert!(setup.service.pop(request).await.is_ok());
    }
    let result = setup.service.pop(pop_request()).await;
    assert!(matches!(result, Err(BackendError::Unavailable(_))), "the one that was asked for: {result:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_answer_is_the_poll_and_a_margin() {
    let transport = Scripted::waiting(|_, command| match command.code {
        request::GET_ROUTEINFO_BY_TOPIC => std::future::ready(route(&["a"], 1)).boxed(),
        _ => async {
            tokio::time::sleep(Duration::from_millis(6_900)).await;
            refuse(response::POLLING_TIMEOUT, "")
        }
        .boxed(),
    });
    let setup = service(transport, |config| config.backend_request_timeout_ms = 2_000);
    let result = setup.service.pop(pop_request()).await;
    assert_eq!(result.map(|result| result.status), Ok(PopStatus::NoNewMessage), "5 s and 2 s are not over");
    let short = PopRequest { poll_ms: 4_000, ..pop_request() };
    assert_eq!(setup.service.pop(short).await.err(), Some(BackendError::Timeout));
}

/// A broker that answers a pop only when it is told to, with two messages.
struct SlowBroker {
    transport: Arc<Scripted>,
    asked: Arc<Notify>,
    go: Arc<Notify>,
    returned: Arc<Semaphore>,
}

impl SlowBroker {
    fn new() -> Self {
        let (asked, go, returned) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (said, wait, back) = (Arc::clone(&asked), Arc::clone(&go), Arc::clone(&returned));
        let transport = Scripted::waiting(move |_, command| {
            let (said, wait, back) = (Arc::clone(&said), Arc::clone(&wait), Arc::clone(&back));
            async move {
                match command.code {
                    request::GET_ROUTEINFO_BY_TOPIC => route(&["a"], 1),
                    request::POP_MESSAGE => {
                        said.notify_one();
                        wait.notified().await;
                        let messages = [stored("T", 0, 5, ""), stored("T", 0, 6, "")];
                        Ok(popped(&messages, &[("startOffsetInfo", "0 0 5"), ("msgOffsetInfo", "0 0 5,6")]))
                    }
                    _ => {
                        back.add_permits(1);
                        refuse(response::NO_MESSAGE, "")
                    }
                }
            }
            .boxed()
        });
        Self { transport, asked, go, returned }
    }

    /// Lets the pop be answered; both messages must come back, visible at once and not counted.
    async fn answer_and_get_both_back(&self) {
        self.go.notify_one();
        let _both = soon(self.returned.acquire_many(2)).await.expect("open");
        let changes = self.transport.asked(request::CHANGE_MESSAGE_INVISIBLETIME);
        let said: Vec<_> = changes
            .iter()
            .map(|(_, change)| {
                ["offset", "invisibleTime", "suspend"].map(|name| change.ext.get(name).unwrap_or_default().to_owned())
            })
            .collect();
        assert_eq!(said, [["5", "0", "true"], ["6", "0", "true"]]);
    }
}

#[tokio::test]
async fn messages_for_a_client_that_has_gone_are_given_back() {
    let broker = SlowBroker::new();
    let setup = service(broker.transport.clone(), |_| {});
    {
        let pop = setup.service.pop(pop_request());
        tokio::select! {
            _ = pop => panic!("nothing is there yet"),
            () = broker.asked.notified() => {}
        }
    }
    broker.answer_and_get_both_back().await;
}

/// A broker that stood still: the client was told that it is late, and its messages must not stay hidden for their whole lease.
#[tokio::test(start_paused = true)]
async fn messages_of_an_answer_that_comes_too_late_are_given_back() {
    let broker = SlowBroker::new();
    let setup = service(broker.transport.clone(), |_| {});
    let late = setup.service.pop(pop_request()).await;
    assert!(matches!(late, Err(BackendError::Timeout)), "{late:?}");
    broker.answer_and_get_both_back().await;
}
