//! What is asked of brokers besides pops, and what is made of their answers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::FutureExt;
use parking_lot::Mutex;
use waybill_protocol::{
    message::decode_batch,
    remoting::{
        Command, JsonBody, SubscriptionGroupConfig, TopicConfig, VouchAnswer, VouchBody,
        codes::{own, request, response},
    },
};
use waybill_sidecar::backend::{
    BackendError, LocalTransport, OutgoingMessage, SendRequest, SendStatus, TransportError, Voucher,
};
use waybill_sidecar::session::{Vouch, Words};

use crate::scripted::{Scripted, ok, refuse, route, service, two_brokers};

pub(crate) fn send_request(messages: usize) -> SendRequest {
    let message = |n: usize| OutgoingMessage {
        body: format!("body {n}").into(),
        properties: format!("UNIQ_KEY\u{1}id-{n}\u{2}TAGS\u{1}tag\u{2}"),
    };
    SendRequest {
        topic: "T".into(),
        messages: (0..messages).map(message).collect(),
        sys_flag: 0x1,
        born_timestamp: 77,
        message_group: None,
        timeout: Duration::from_secs(2),
    }
}

/// The answer to a send of so many messages.
pub(crate) fn sent(messages: usize) -> Command {
    let ids: Vec<String> = (0..messages).map(|n| format!("ID{n}")).collect();
    let mut answer = ok();
    for (name, value) in [
        ("msgId", ids.join(",").as_str()),
        ("queueId", "2"),
        ("queueOffset", "41"),
        ("transactionId", "id-0"),
        ("recallHandle", "recall"),
    ] {
        answer.ext.set(name, value);
    }
    answer
}

#[tokio::test]
async fn one_message_is_sent_as_it_is() {
    let transport = two_brokers(|_, _| Ok(sent(1)));
    let result = service(transport.clone(), |_| {}).service.send(send_request(1)).await.expect("stored");
    assert_eq!((result.status, result.queue_id, result.queue_offset), (SendStatus::Ok, 2, 41));
    assert_eq!(result.offset_msg_ids, ["ID0"]);
    assert_eq!((result.transaction_id.as_deref(), result.recall_handle.as_deref()), (Some("id-0"), Some("recall")));
    let (_, command) = transport.asked(request::SEND_MESSAGE_V2).remove(0);
    assert_eq!(command.body, "body 0");
    for (name, value) in [
        ("a", "T"),
        ("b", "T"),
        ("c", "TBW102"),
        ("d", "1024"),
        ("f", "1"),
        ("g", "77"),
        ("h", "0"),
        ("i", "UNIQ_KEY\u{1}id-0\u{2}TAGS\u{1}tag\u{2}"),
        ("m", "false"),
    ] {
        assert_eq!(command.ext.get(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn many_messages_are_one_batch_in_one_queue() {
    let transport = two_brokers(|_, _| Ok(sent(3)));
    let result = service(transport.clone(), |_| {}).service.send(send_request(3)).await.expect("stored");
    assert_eq!(result.offset_msg_ids, ["ID0", "ID1", "ID2"]);
    let (_, command) = transport.asked(request::SEND_BATCH_MESSAGE).remove(0);
    assert_eq!(command.ext.get("m"), Some("true"));
    let items = decode_batch(command.body).expect("a batch");
    assert_eq!(items.len(), 3);
    assert_eq!(
        (items[2].body.as_ref(), items[2].properties.as_str()),
        (&b"body 2"[..], "UNIQ_KEY\u{1}id-2\u{2}TAGS\u{1}tag\u{2}")
    );
}

#[tokio::test]
async fn queues_take_turns_but_a_message_group_keeps_its_queue() {
    let transport = two_brokers(|_, _| Ok(sent(1)));
    let setup = service(transport.clone(), |_| {});
    for _ in 0..16 {
        setup.service.send(send_request(1)).await.expect("stored");
    }
    let mut used: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (address, command) in transport.asked(request::SEND_MESSAGE_V2) {
        *used.entry((address, command.ext.get("e").expect("a queue").to_owned())).or_default() += 1;
    }
    assert_eq!(used.len(), 8);
    assert!(used.values().all(|count| *count == 2), "{used:?}");

    for _ in 0..16 {
        let request = SendRequest { message_group: Some("order-4711".into()), ..send_request(1) };
        setup.service.send(request).await.expect("stored");
    }
    let grouped = &transport.asked(request::SEND_MESSAGE_V2)[16..];
    let first = (&grouped[0].0, grouped[0].1.ext.get("e"));
    assert!(grouped.iter().all(|(address, command)| (address, command.ext.get("e")) == first));
}

#[tokio::test]
async fn stored_messages_have_a_status_and_refusals_an_error() {
    for (code, status) in [
        (response::FLUSH_DISK_TIMEOUT, SendStatus::FlushDiskTimeout),
        (response::FLUSH_SLAVE_TIMEOUT, SendStatus::FlushSlaveTimeout),
        (response::SLAVE_NOT_AVAILABLE, SendStatus::SlaveNotAvailable),
    ] {
        let transport = two_brokers(move |_, _| Ok(Command { code, ..sent(1) }));
        let result = service(transport, |_| {}).service.send(send_request(1)).await;
        assert_eq!(result.map(|result| result.status), Ok(status));
    }
    for (code, error) in [
        (response::MESSAGE_ILLEGAL, BackendError::Illegal("why".into())),
        (response::TOPIC_NOT_EXIST, BackendError::TopicNotFound("T".into())),
        (response::NO_PERMISSION, BackendError::NoPermission("why".into())),
        (response::SYSTEM_BUSY, BackendError::Busy("why".into())),
    ] {
        let transport = two_brokers(move |_, _| refuse(code, "why"));
        assert_eq!(service(transport, |_| {}).service.send(send_request(1)).await.err(), Some(error));
    }
    let transport = two_brokers(|_, _| Ok(ok()));
    let unreadable = service(transport.clone(), |_| {}).service.send(send_request(1)).await;
    assert!(matches!(unreadable, Err(BackendError::Other { .. })), "success without its fields: {unreadable:?}");
    let nothing = service(transport, |_| {}).service.send(send_request(0)).await;
    assert!(matches!(nothing, Err(BackendError::Illegal(_))));
}

#[tokio::test]
async fn settings_are_asked_once_and_remembered() {
    let transport =
        two_brokers(|_, command| match (command.code, command.ext.get("topic"), command.ext.get("group")) {
            (request::GET_TOPIC_CONFIG, Some("T"), _) => {
                let attributes = [("message.type".to_owned(), "FIFO".to_owned())].into();
                Ok(ok().with_body(TopicConfig { topic_name: "T".into(), attributes, ..Default::default() }.to_json()))
            }
            (request::GET_SUBSCRIPTIONGROUP_CONFIG, _, Some("G")) => {
                let config = SubscriptionGroupConfig {
                    group_name: "G".into(),
                    consume_message_orderly: true,
                    ..Default::default()
                };
                Ok(ok().with_body(config.to_json()))
            }
            (request::GET_SUBSCRIPTIONGROUP_CONFIG, ..) => refuse(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no"),
            _ => refuse(response::TOPIC_NOT_EXIST, "no"),
        });
    let setup = service(transport.clone(), |_| {});
    for _ in 0..3 {
        let topic = setup.service.topic_config("T").await.expect("settings");
        assert_eq!(topic.attributes.get("message.type").map(String::as_str), Some("FIFO"));
        assert!(setup.service.group_config("G", Some("T")).await.expect("settings").consume_message_orderly);
    }
    assert_eq!(transport.count(request::GET_TOPIC_CONFIG), 1);
    assert_eq!(transport.count(request::GET_SUBSCRIPTIONGROUP_CONFIG), 1);
    assert_eq!(setup.service.topic_config("U").await.err(), Some(BackendError::TopicNotFound("U".into())));
    let missing = setup.service.group_config("H", Some("T")).await.err();
    assert_eq!(missing, Some(BackendError::GroupNotFound("H".into())));
    assert_eq!(transport.count(request::GET_SUBSCRIPTIONGROUP_CONFIG), 3, "one broker after the other");
    // Without a topic the brokers of the cluster are asked.
    let setup = service(transport.clone(), |_| {});
    assert!(setup.service.group_config("G", None).await.is_ok());
    assert_eq!(transport.count(request::GET_BROKER_CLUSTER_INFO), 1);
}

#[tokio::test]
async fn a_group_is_found_though_a_broker_is_down() {
    let transport = two_brokers(|address, _| match address {
        "a:10911" => Err(TransportError::Unreachable("down".into())),
        _ => Ok(ok().with_body(SubscriptionGroupConfig::default().to_json())),
    });
    assert!(service(transport, |_| {}).service.group_config("G", Some("T")).await.is_ok());
    let transport = two_brokers(|address, _| match address {
        "a:10911" => Err(TransportError::Unreachable("down".into())),
        _ => refuse(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no"),
    });
    let result = service(transport, |_| {}).service.group_config("G", Some("T")).await;
    assert!(matches!(result, Err(BackendError::Unavailable(_))), "the other one may know it: {result:?}");
}

#[tokio::test]
async fn every_broker_hears_who_is_alive_and_the_most_impatient_one_counts() {
    let transport = two_brokers(|address, command| match (address, command.code) {
        ("a:10911", own::VOUCH_FOR_CLIENTS) => Ok(Command::response(response::REQUEST_CODE_NOT_SUPPORTED, "what?")),
        (_, own::VOUCH_FOR_CLIENTS) => Ok(ok().with_json(&VouchAnswer {
            elsewhere: vec!["moved".into()],
            client_gone_after: if address == "b:10911" { 6_000 } else { 30_000 },
        })),
        _ => Ok(ok()),
    });
    let setup = service(transport.clone(), |_| {});
    setup.service.route("T").await.expect("a route");
    let voucher = Voucher::new(setup.service.clone());
    let words = Words { alive: vec!["here".into()], gone: vec!["moved".into(), "dead".into()], left: vec![] };
    let heard = voucher.vouch(words.clone()).await;
    assert_eq!(heard.elsewhere, ["moved".to_owned()].into());
    assert!(heard.silent.is_empty(), "who does not watch clients has said so");
    assert_eq!(heard.gone_after_ms, Some(6_000));
    let asked = transport.asked(own::VOUCH_FOR_CLIENTS);
    assert_eq!(asked.len(), 4, "two lists to each of two brokers");
    let bodies: Vec<VouchBody> =
        asked.iter().map(|(_, asked)| VouchBody::from_json(&asked.body).expect("a body")).collect();
    assert!(bodies.iter().all(|body| !body.sidecar_id.is_empty() && body.sidecar_id == bodies[0].sidecar_id));
    assert!(bodies.iter().any(|body| body.alive == words.alive) && bodies.iter().any(|body| body.gone == words.gone));
    voucher.vouch(words).await;
    let asked = transport.asked(own::VOUCH_FOR_CLIENTS);
    assert!(asked.len() == 6 && asked[4..].iter().all(|(address, _)| address == "b:10911"), "a does not know of it");
}

/// Found by the simulation: while one broker was silent, another did not hear of clients for 3 s, and returned what they held.
#[tokio::test(start_paused = true)]
async fn a_silent_source_of_routes_does_not_keep_known_brokers_from_hearing_who_is_alive() {
    let transport = Scripted::waiting(|_, command| match command.code {
        request::GET_BROKER_CLUSTER_INFO => std::future::pending().boxed(),
        request::GET_ROUTEINFO_BY_TOPIC => std::future::ready(Ok(route(&["a"], 1).expect("a route"))).boxed(),
        _ => std::future::ready(Ok(ok().with_json(&VouchAnswer::default()))).boxed(),
    });
    let setup = service(transport.clone(), |_| {});
    setup.service.route("T").await.expect("a route");
    let began = tokio::time::Instant::now();
    Voucher::new(setup.service.clone()).vouch(Words { alive: vec!["here".into()], ..Words::default() }).await;
    assert_eq!(transport.count(own::VOUCH_FOR_CLIENTS), 1);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_broker_in_this_process_is_asked_by_a_call() {
    let seen: Arc<Mutex<Vec<i32>>> = Arc::default();
    let log = Arc::clone(&seen);
    let local = LocalTransport::new(move |command| {
        log.lock().push(command.opaque);
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => route(&["a"], 1).expect("a route"),
            _ => sent(1),
        };
        std::future::ready(answer.reply_to(&command)).boxed()
    });
    let setup = service(Arc::new(local), |_| {});
    setup.service.send(send_request(1)).await.expect("stored");
    let seen = seen.lock().clone();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0], seen[1], "each has its own number");
}
