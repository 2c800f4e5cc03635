//! Leases: finished, changed, given back, one by one and many at once.

use std::time::Duration;

use tokio::time::advance;
use waybill_protocol::remoting::{
    BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleResult, BatchChangeInvisibleResultEntry, Command,
    EntryCode, EntryCodes, JsonBody,
    codes::{request, response},
};
use waybill_sidecar::{
    backend::{BackendError, ChangeEntry, ForwardRequest, TransportError},
    batching::Caller,
    receipts::{Change, Changer},
};

use crate::scripted::{Answer, handle, java, lease, ok, refuse, service, two_brokers};

pub(crate) fn change(offset: i64) -> ChangeEntry {
    ChangeEntry { lease: lease("a", offset), invisible_ms: 30_000, suspend: false }
}

/// The answer to a change of one lease.
pub(crate) fn changed() -> Command {
    let mut answer = ok();
    for (name, value) in [("popTime", "990500"), ("invisibleTime", "30000"), ("reviveQid", "9")] {
        answer.ext.set(name, value);
    }
    answer
}

/// The answer of a broker that takes batches of changes: an entry at an offset that ends in 7 is stale.
pub(crate) fn changed_batch(command: &Command) -> Answer {
    let body = BatchChangeInvisibleBody::from_json(&command.body).expect("a batch");
    let entry = |offset: i64| match offset % 10 {
        7 => BatchChangeInvisibleResultEntry { code: response::NO_MESSAGE, ..Default::default() },
        _ => BatchChangeInvisibleResultEntry { code: 0, pop_time: 990_500, invisible_time: 30_000, revive_qid: 9 },
    };
    let result = BatchChangeInvisibleResult { entries: body.entries.iter().map(|e| entry(e.offset)).collect() };
    Ok(ok().with_body(result.to_json()))
}

#[tokio::test]
async fn acks_are_answered_one_by_one_in_order() {
    let transport = two_brokers(|address, command| match (address, command.ext.get("offset")) {
        (_, Some("3")) => refuse(response::NO_MESSAGE, "stale"),
        ("b:10911", Some("4")) => Err(TransportError::Timeout),
        (_, Some("5")) => refuse(response::SYSTEM_BUSY, "later"),
        _ => Ok(ok()),
    });
    let setup = service(transport.clone(), |_| {});
    let mut retried = lease("a", 6);
    retried.handle = "6 990000 60000 0 2 a 0 6 4711".parse().expect("a handle");
    let leases =
        vec![lease("b", 1), lease("a", 3), lease("b", 4), lease("a", 5), retried, lease("x", 1), lease("a", 2)];
    let results = setup.service.ack(leases).await;
    assert_eq!(
        results,
        [
            Ok(()),
            Err(BackendError::InvalidReceiptHandle("stale".into())),
            Err(BackendError::Timeout),
            Err(BackendError::Busy("later".into())),
            Ok(()),
            Err(BackendError::InvalidReceiptHandle("no broker is named x".into())),
            Ok(()),
        ]
    );
    let acks = transport.asked(request::ACK_MESSAGE);
    let of = |offset| acks.iter().find(|(_, ack)| ack.ext.get("offset") == Some(offset)).map(|(_, ack)| ack.clone());
    let retried = of("6").expect("asked");
    assert_eq!(retried.ext.get("topic"), Some("%RETRY%G+T"), "the topic it lies in");
    assert_eq!(retried.ext.get("extraInfo"), Some("6 990000 60000 0 2 a 0 6 4711"));
    assert_eq!(of("2").expect("asked").ext.get("topic"), Some("T"));
    assert_eq!(setup.service.ack(Vec::new()).await, []);
}

#[tokio::test]
async fn a_lease_that_is_over_is_refused_where_the_broker_would_say_ok() {
    let apache = two_brokers(|_, _| Ok(java(ok())));
    let setup = service(apache.clone(), |_| {});
    // The handle ends at 1,050,000.
    setup.clock.set(1_050_600);
    let refused = |results: Vec<Result<(), BackendError>>| {
        assert!(matches!(results.as_slice(), [Err(BackendError::InvalidReceiptHandle(_))]), "{results:?}");
    };
    refused(setup.service.ack(vec![lease("a", 1)]).await);
    assert_eq!(apache.count(request::ACK_MESSAGE), 1, "it was not known yet that this is Apache");
    refused(setup.service.ack(vec![lease("a", 1)]).await);
    assert_eq!(apache.count(request::ACK_MESSAGE), 1);
    let changed = setup.service.change_invisible(vec![change(1)]).await;
    assert!(matches!(changed.as_slice(), [Err(BackendError::InvalidReceiptHandle(_))]));
    assert_eq!(apache.count(request::CHANGE_MESSAGE_INVISIBLETIME), 0);
    setup.clock.set(1_050_400);
    assert_eq!(setup.service.ack(vec![lease("a", 1)]).await, [Ok(())], "clocks differ a little");

    let waybill = two_brokers(|_, _| Ok(ok()));
    let setup = service(waybill, |_| {});
    setup.clock.set(9_000_000);
    // The lease may have been extended by another sidecar: the handle stays the same, and the broker knows.
    for _ in 0..2 {
        assert_eq!(setup.service.ack(vec![lease("a", 1)]).await, [Ok(())]);
    }
}

#[tokio::test]
async fn a_change_gives_the_next_handle() {
    let transport = two_brokers(|_, command| match command.ext.get("offset") {
        Some("2") => {
            let mut gone = ok();
            for name in ["popTime", "invisibleTime", "reviveQid"] {
                gone.ext.set(name, "0");
            }
            Ok(gone)
        }
        Some("3") => refuse(response::NO_MESSAGE, "stale"),
        _ => Ok(changed()),
    });
    let setup = service(transport.clone(), |_| {});
    let suspended = ChangeEntry { suspend: true, ..change(4) };
    let results = setup.service.change_invisible(vec![change(1), change(2), change(3), suspended]).await;
    let texts: Vec<_> = results.into_iter().map(|result| result.map(|handle| handle.to_string())).collect();
    assert_eq!(texts[0], Ok("1 990500 30000 9 0 a 0 1 4711".into()));
    assert!(matches!(&texts[1], Err(BackendError::InvalidReceiptHandle(_))), "zeros mean that it is gone");
    assert_eq!(texts[2], Err(BackendError::InvalidReceiptHandle("stale".into())));
    assert!(texts[3].is_ok());
    let asked = transport.asked(request::CHANGE_MESSAGE_INVISIBLETIME);
    let said = |offset: &str, name: &str| {
        asked
            .iter()
            .find(|(_, change)| change.ext.get("offset") == Some(offset))
            .and_then(|(_, change)| change.ext.get(name).map(str::to_owned))
    };
    assert_eq!(said("1", "invisibleTime").as_deref(), Some("30000"));
    assert_eq!(said("1", "suspend").as_deref(), Some("false"));
    assert_eq!(said("4", "suspend").as_deref(), Some("true"));
}

#[tokio::test]
async fn in_front_of_apache_every_handle_of_a_lease_leads_to_the_newest() {
    let transport =
        two_brokers(|_, command| Ok(java(if command.code == request::ACK_MESSAGE { ok() } else { changed() })));
    let setup = service(transport.clone(), |_| {});
    let newest = setup.service.change_invisible(vec![change(1)]).await.remove(0).expect("changed");
    assert_ne!(newest.pop_time, lease("a", 1).handle.pop_time);
    // The client acks with the handle it got first.
    assert_eq!(setup.service.ack(vec![lease("a", 1), lease("a", 2)]).await, [Ok(()), Ok(())]);
    let sent = |offset| {
        let acks = transport.asked(request::ACK_MESSAGE);
        let ack = acks.iter().rev().find(|(_, ack)| ack.ext.get("offset") == Some(offset));
        ack.and_then(|(_, ack)| ack.ext.get("extraInfo").map(str::to_owned))
    };
    assert_eq!(sent("1"), Some(newest.to_string()));
    assert_eq!(sent("2"), Some(lease("a", 2).handle.to_string()));
    assert_eq!(setup.service.ack(vec![lease("a", 1)]).await, [Ok(())]);
    assert_eq!(sent("1"), Some(lease("a", 1).handle.to_string()), "finished, so forgotten");
}

#[tokio::test]
async fn a_batch_of_changes_costs_as_few_requests_as_the_limit_allows() {
    let transport = two_brokers(|_, command| changed_batch(command));
    let setup = service(transport.clone(), |config| {
        config.enable_batch_change_invisible_time = true;
        config.batch_change_invisible_time_max_num = 256;
    });
    let results = setup.service.change_invisible((0..1_000).map(change).collect()).await;
    assert_eq!(transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME), 4);
    assert_eq!(transport.count(request::CHANGE_MESSAGE_INVISIBLETIME), 0);
    for (offset, result) in results.iter().enumerate() {
        match (offset % 10, result) {
            (7, Err(BackendError::InvalidReceiptHandle(_))) => {}
            (7, other) => panic!("{offset}: {other:?}"),
            (_, result) => assert_eq!(result.as_ref().map(|handle| handle.offset), Ok(offset as i64)),
        }
    }
    let (_, first) = transport.asked(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME).remove(0);
    assert_eq!((first.ext.get("consumerGroup"), first.ext.get("topic")), (Some("G"), Some("T")));
    let body = BatchChangeInvisibleBody::from_json(&first.body).expect("a batch");
    let entry = &body.entries[1];
    assert_eq!((entry.offset, entry.invisible_time, entry.suspend), (1, 30_000, false));
    assert_eq!(entry.extra_info, handle("a", 1).to_string());
}

/// `waybill lease list` tells why a lease ends when it does.
#[tokio::test]
async fn changes_say_on_whose_behalf_they_are() {
    for batches in [false, true] {
        let transport = two_brokers(|_, command| match command.code {
            request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => changed_batch(command),
            _ => Ok(changed()),
        });
        let setup = service(transport.clone(), |config| config.enable_batch_change_invisible_time = batches);
        let by =
            |offset, caller| Change { handle: lease("a", offset).handle, invisible_ms: 30_000, suspend: false, caller };
        let callers = [Caller::Renewal, Caller::Client, Caller::Disconnect, Caller::Undelivered, Caller::Extension];
        let changes = (1..).zip(callers).map(|(offset, caller)| by(offset, caller)).collect();
        let results = Changer::change_invisible(&setup.service, &"G".into(), &"T".into(), changes).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let mut said: Vec<(i64, Option<String>)> = transport
            .asked(request::CHANGE_MESSAGE_INVISIBLETIME)
            .iter()
            .map(|(_, command)| {
                let offset = command.ext.get("offset").and_then(|offset| offset.parse().ok());
                (offset.expect("an offset"), command.ext.get("changedBy").map(str::to_owned))
            })
            .collect();
        for (_, command) in transport.asked(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME) {
            let body = BatchChangeInvisibleBody::from_json(&command.body).expect("a batch");
            said.extend(body.entries.into_iter().map(|entry| (entry.offset, entry.changed_by)));
        }
        said.sort();
        let words = ["renewal", "client", "return", "return", "extension"].map(|word| Some(word.to_owned()));
        assert_eq!(said, (1..).zip(words).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn batches_are_split_by_broker_and_by_the_topic_the_messages_lie_in() {
    let transport = two_brokers(|_, command| changed_batch(command));
    let setup = service(transport.clone(), |config| config.enable_batch_change_invisible_time = true);
    let mut entries: Vec<ChangeEntry> = (0..6).map(change).collect();
    for entry in &mut entries[2..4] {
        entry.lease.handle.broker_name = "b".into();
    }
    for entry in &mut entries[4..6] {
        entry.lease.handle.topic_type = waybill_protocol::handle::TopicType::RetryV2;
    }
    let results = setup.service.change_invisible(entries).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let mut batches: Vec<(String, String)> = transport
        .asked(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
        .into_iter()
        .map(|(address, command)| (address, command.ext.get("topic").unwrap_or_default().to_owned()))
        .collect();
    batches.sort();
    let expected = [("a:10911", "%RETRY%G+T"), ("a:10911", "T"), ("b:10911", "T")];
    assert_eq!(batches, expected.map(|(address, topic)| (address.to_owned(), topic.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_batches_is_asked_one_by_one_and_tried_again_later() {
    let transport = two_brokers(|_, command| match command.code {
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => refuse(response::REQUEST_CODE_NOT_SUPPORTED, "no"),
        _ => Ok(changed()),
    });
    let setup = service(transport.clone(), |config| {
        config.enable_batch_change_invisible_time = true;
        config.batch_probe_interval_ms = 600_000;
    });
    let batches = || transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME);
    let ten = || (0..10).map(change).collect::<Vec<_>>();
    for _ in 0..3 {
        assert!(setup.service.change_invisible(ten()).await.iter().all(Result::is_ok));
    }
    assert_eq!(batches(), 1, "remembered");
    assert_eq!(transport.count(request::CHANGE_MESSAGE_INVISIBLETIME), 30);
    advance(Duration::from_millis(599_999)).await;
    setup.service.change_invisible(ten()).await;
    assert_eq!(batches(), 1);
    advance(Duration::from_millis(1)).await;
    setup.service.change_invisible(ten()).await;
    assert_eq!(batches(), 2, "asked again");
}

#[tokio::test]
async fn a_batch_that_fails_as_a_whole() {
    let refused_with = |answer: fn() -> Answer| {
        two_brokers(move |_, command| match command.code {
            request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => answer(),
            _ => Ok(changed()),
        })
    };
    let enable = |config: &mut waybill_sidecar::config::Config| config.enable_batch_change_invisible_time = true;
    let three = || (0..3).map(change).collect::<Vec<_>>();

    let too_large = refused_with(|| refuse(response::MESSAGE_ILLEGAL, "too many"));
    let results = service(too_large, enable).service.change_invisible(three()).await;
    assert!(results.iter().all(Result::is_ok), "each gets its own answer: {results:?}");

    let busy = refused_with(|| refuse(response::SYSTEM_BUSY, "later"));
    let results = service(busy.clone(), enable).service.change_invisible(three()).await;
    assert!(results.iter().all(|result| *result == Err(BackendError::Busy("later".into()))), "{results:?}");
    assert_eq!(busy.count(request::CHANGE_MESSAGE_INVISIBLETIME), 0, "a busy broker is not asked three times more");

    let short = refused_with(|| {
        let entry = BatchChangeInvisibleResultEntry { pop_time: 990_500, ..Default::default() };
        Ok(ok().with_body(BatchChangeInvisibleResult { entries: vec![entry] }.to_json()))
    });
    let results = service(short, enable).service.change_invisible(three()).await;
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false], "{results:?}");
}

#[tokio::test]
async fn batch_acks_are_used_where_they_say_what_became_of_each() {
    let waybill = two_brokers(|_, command| match command.code {
        request::BATCH_ACK_MESSAGE if command.ext.get("entryResults") == Some("true") => {
            let body = BatchAckBody::from_json(&command.body).expect("acks");
            let code = |offset: i64| if offset == 7 { response::NO_MESSAGE } else { 0 };
            let entries = body.acks.iter().flat_map(|ack| ack.offsets().map(code).collect::<Vec<_>>());
            let codes = EntryCodes { entries: entries.map(|code| EntryCode { code }).collect() };
            Ok(ok().with_body(codes.to_json()))
        }
        _ => panic!("{command:?}"),
    });
    let setup = service(waybill.clone(), |config| config.enable_batch_ack = true);
    // A copy, a stale one, and not in the order of offsets.
    let leases = [9, 7, 3, 9].map(|offset| lease("a", offset)).to_vec();
    let results = setup.service.ack(leases).await;
    let stale = BackendError::InvalidReceiptHandle("it names no living delivery".into());
    assert_eq!(results, [Ok(()), Err(stale), Ok(()), Ok(())]);
    assert_eq!(waybill.count(request::BATCH_ACK_MESSAGE), 1);

    let apache = two_brokers(|_, command| match (command.code, command.ext.get("offset")) {
        (request::ACK_MESSAGE, Some("7")) => refuse(response::NO_MESSAGE, "no").map(java),
        _ => Ok(java(ok())),
    });
    let setup = service(apache.clone(), |config| config.enable_batch_ack = true);
    for _ in 0..2 {
        let results = setup.service.ack([9, 7, 3].map(|offset| lease("a", offset)).to_vec()).await;
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    }
    assert_eq!(apache.count(request::BATCH_ACK_MESSAGE), 1, "it does not say what became of each");
    assert_eq!(apache.count(request::ACK_MESSAGE), 6);
}

#[tokio::test]
async fn a_dead_letter_is_copied_and_then_acked() {
    let forward = |offset: i64, handle: &str| {
        let mut lease = lease("a", offset);
        lease.handle = handle.parse().expect("a handle");
        ForwardRequest { lease, message_id: "id".into(), timeout: Duration::from_secs(2) }
    };
    let transport = two_brokers(|_, command| match command.code {
        request::ACK_MESSAGE => refuse(response::NO_MESSAGE, "done together with the copy"),
        _ => Ok(ok()),
    });
    let setup = service(transport.clone(), |_| {});
    let good = "1 990000 60000 0 1 a 0 1 4711";
    assert_eq!(setup.service.forward_to_dlq(forward(1, good)).await, Ok(()));
    let (_, command) = transport.asked(request::CONSUMER_SEND_MSG_BACK).remove(0);
    for (name, value) in [
        ("offset", "4711"),
        ("group", "G"),
        ("delayLevel", "-1"),
        ("originMsgId", "id"),
        ("originTopic", "%RETRY%G_T"),
        ("maxReconsumeTimes", "0"),
        ("extraInfo", good),
    ] {
        assert_eq!(command.ext.get(name), Some(value), "{name}");
    }
    assert_eq!(transport.count(request::ACK_MESSAGE), 1);

    let without_place = setup.service.forward_to_dlq(forward(1, "1 990000 60000 0 0 a 0 1")).await;
    assert!(matches!(without_place, Err(BackendError::InvalidReceiptHandle(_))));
    let nowhere = setup.service.forward_to_dlq(forward(1, "1 990000 60000 0 0 x 0 1 4711")).await;
    assert!(matches!(nowhere, Err(BackendError::InvalidReceiptHandle(_))));
    assert_eq!(transport.count(request::CONSUMER_SEND_MSG_BACK), 1);

    let failing = two_brokers(|_, _| refuse(response::SYSTEM_ERROR, "disk"));
    let setup = service(failing.clone(), |_| {});
    assert!(setup.service.forward_to_dlq(forward(1, good)).await.is_err());
    assert_eq!(failing.count(request::ACK_MESSAGE), 0, "not copied, so not acked");
}
