//! Leases of many callers gather while requests are under way, and go to each broker as it can take them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::sync::Semaphore;
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::remoting::{
    BatchAckBody, BatchChangeInvisibleBody, Command, EntryCode, EntryCodes, JsonBody,
    codes::{request, response},
};
use waybill_sidecar::{
    backend::{BackendError, BackendMetrics, MessageService, Transport},
    config::Config,
};

use crate::{
    leases::{change, changed, changed_batch},
    scripted::{Answer, Scripted, cluster, lease, ok, refuse, route, service, two_brokers},
    soon,
};

pub(crate) fn both(config: &mut Config) {
    config.enable_batch_ack = true;
    config.enable_batch_change_invisible_time = true;
}

/// How a broker that takes everything answers.
pub(crate) fn willing(command: &Command) -> Answer {
    match command.code {
        request::GET_ROUTEINFO_BY_TOPIC => route(&["a", "b"], 4),
        request::GET_BROKER_CLUSTER_INFO => cluster(&["a", "b"]),
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => changed_batch(command),
        request::CHANGE_MESSAGE_INVISIBLETIME => Ok(changed()),
        request::BATCH_ACK_MESSAGE => {
            let body = BatchAckBody::from_json(&command.body).expect("acks");
            let entries = body.acks.iter().map(|_| EntryCode { code: 0 }).collect();
            Ok(ok().with_body(EntryCodes { entries }.to_json()))
        }
        _ => Ok(ok()),
    }
}

fn is_about_leases(code: i32) -> bool {
    [
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME,
        request::CHANGE_MESSAGE_INVISIBLETIME,
        request::BATCH_ACK_MESSAGE,
        request::ACK_MESSAGE,
    ]
    .contains(&code)
}

/// Broker `a` answers what is about leases only when it is let; `b` answers at once.
fn gated() -> (Arc<Scripted>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let transport = {
        let gate = Arc::clone(&gate);
        Scripted::waiting(move |address, command| {
            let gate = Arc::clone(&gate);
            async move {
                if address.starts_with('a') && is_about_leases(command.code) {
                    gate.acquire().await.expect("open").forget();
                }
                willing(&command)
            }
            .boxed()
        })
    };
    (transport, gate)
}

/// Lets all tasks that can run do so.
pub(crate) async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn offsets(command: &Command) -> Vec<i64> {
    match command.code {
        request::BATCH_ACK_MESSAGE => {
            let body = BatchAckBody::from_json(&command.body).expect("acks");
            body.acks.iter().flat_map(|ack| ack.offsets().collect::<Vec<_>>()).collect()
        }
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => {
            let body = BatchChangeInvisibleBody::from_json(&command.body).expect("a batch");
            body.entries.iter().map(|entry| entry.offset).collect()
        }
        _ => vec![command.ext.get("offset").and_then(|text| text.parse().ok()).expect("an offset")],
    }
}

#[tokio::test]
async fn acks_and_changes_of_many_callers_gather_while_requests_are_under_way() {
    for (single, batch) in [
        (request::ACK_MESSAGE, request::BATCH_ACK_MESSAGE),
        (request::CHANGE_MESSAGE_INVISIBLETIME, request::BATCH_CHANGE_MESSAGE_INVISIBLETIME),
    ] {
        let (transport, gate) = gated();
        let service = service(transport.clone(), both).service;
        let callers = (0..100_i64).map(|n| {
            // None ends in 7, which the broker would call stale.
            let (service, offset) = (service.clone(), n * 10);
            tokio::spawn(async move {
                match single {
                    request::ACK_MESSAGE => service.ack(vec![lease("a", offset)]).await.iter().all(Result::is_ok),
                    _ => service.change_invisible(vec![change(offset)]).await.iter().all(Result::is_ok),
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        settled().await;
        assert_eq!((transport.count(single), transport.count(batch)), (4, 0), "at once, while there is nothing to do");
        gate.add_permits(1_000);
        for caller in callers {
            assert!(soon(caller).await.expect("no panic"));
        }
        assert_eq!((transport.count(single), transport.count(batch)), (4, 1), "the others together");
        let (_, command) = transport.asked(batch).remove(0);
        assert_eq!(offsets(&command), (4..100).map(|n| n * 10).collect::<Vec<_>>(), "in order");
    }
}

#[tokio::test]
async fn what_was_handed_over_is_sent_though_its_caller_is_gone() {
    let (transport, gate) = gated();
    let service = service(transport.clone(), both).service;
    let held: Vec<_> = (0..4)
        .map(|offset| {
            tokio::spawn({
                let service = service.clone();
                async move { service.ack(vec![lease("a", offset)]).await }
            })
        })
        .collect();
    settled().await;
    let mut gone = Box::pin(service.ack(vec![lease("a", 50), lease("a", 51)]));
    assert!(futures::poll!(gone.as_mut()).is_pending());
    drop(gone);
    gate.add_permits(1_000);
    for caller in held {
        soon(caller).await.expect("no panic");
    }
    soon(async {
        while transport.count(request::BATCH_ACK_MESSAGE) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(offsets(&transport.asked(request::BATCH_ACK_MESSAGE)[0].1), [50, 51]);
}

#[tokio::test]
async fn one_slow_broker_holds_up_no_other_and_there_is_an_end_to_what_waits() {
    let (transport, _gate) = gated();
    let metrics = BackendMetrics::default();
    let mut config = Config { namesrv_addr: "ns:9876".into(), ..Config::default() };
    both(&mut config);
    config.backend_request_timeout_ms = 600_000;
    let shared: Arc<dyn Transport> = transport.clone();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let service = MessageService::new(shared, Arc::new(Live::fixed(config)), clock, metrics.clone());
    // Four batches are under way, 65,536 leases wait, and for 368 there is no room.
    let mut slow = Vec::new();
    for count in [4 * 1_024, 65_536 + 368] {
        let service = service.clone();
        slow.push(tokio::spawn(
            async move { service.ack((0..count).map(|offset| lease("a", offset)).collect()).await },
        ));
        settled().await;
    }
    assert_eq!(transport.count(request::BATCH_ACK_MESSAGE), 4);
    let quick = service.ack((0..10).map(|offset| lease("b", offset)).collect());
    assert!(soon(quick).await.iter().all(Result::is_ok), "at the other broker");
    let refused = soon(service.ack(vec![lease("a", 1)])).await;
    assert!(matches!(refused.as_slice(), [Err(BackendError::Busy(_))]), "{refused:?}");
    assert!(slow.iter().all(|caller| !caller.is_finished()));
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("encodes");
    let line = "waybill_sidecar_lease_entries_total{kind=\"Ack\",caller=\"Client\",outcome=\"Full\"} 369";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("waybill_sidecar_leases_waiting 65536"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_for_a_request_to_begin_than_for_its_answer() {
    let (transport, _gate) = gated();
    let service = service(transport.clone(), both).service;
    let began = tokio::time::Instant::now();
    let results = service.ack((0..6_000).map(|offset| lease("a", offset)).collect()).await;
    assert!(results[..4_096].iter().all(|result| *result == Err(BackendError::Timeout)));
    // These were not yet late when the first request ended without an answer, at the very time-out.
    assert!(results[4_096..].iter().all(|result| matches!(result, Err(BackendError::Timeout | BackendError::Busy(_)))));
    assert!(began.elapsed() <= Duration::from_secs(4), "twice the time-out: {:?}", began.elapsed());
    let late = join_all((0..3).map(|_| service.ack((0..6_000).map(|offset| lease("a", offset)).collect()))).await;
    assert!(began.elapsed() <= Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(late.iter().flatten().any(|result| matches!(result, Err(BackendError::Busy(_)))));
}

#[tokio::test]
async fn a_broker_that_takes_smaller_batches_gets_smaller_ones() {
    let transport = two_brokers(|_, command| match command.code {
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME if offsets(command).len() > 100 => {
            refuse(response::MESSAGE_ILLEGAL, "too many")
        }
        _ => willing(command),
    });
    let service = service(transport.clone(), both).service;
    let thousand = || (0..1_000).map(|n| change(n * 10)).collect::<Vec<_>>();
    let results = service.change_invisible(thousand()).await;
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result.as_ref().map(|handle| handle.offset), Ok(n as i64 * 10));
    }
    let taken = || {
        let batches = transport.asked(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME);
        batches.into_iter().map(|(_, command)| offsets(&command)).filter(|offsets| offsets.len() <= 100)
    };
    let mut changed: Vec<i64> = taken().flatten().collect();
    changed.sort_unstable();
    assert_eq!(changed, (0..1_000).map(|n| n * 10).collect::<Vec<_>>(), "each once");
    let before = transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME);
    assert!(service.change_invisible(thousand()).await.iter().all(Result::is_ok));
    let again = transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME) - before;
    assert_eq!(again, 1_000_usize.div_ceil(62), "it has been learnt: 1,000, 500, 250 and 125 were refused");
    assert_eq!(transport.count(request::CHANGE_MESSAGE_INVISIBLETIME), 0);
}

#[tokio::test]
async fn an_entry_for_which_all_are_refused_fails_alone() {
    let transport = two_brokers(|_, command| match is_about_leases(command.code) && offsets(command).contains(&130) {
        true => refuse(response::INVALID_PARAMETER, "offended"),
        false => willing(command),
    });
    let service = service(transport.clone(), both).service;
    let results = service.change_invisible((0..20).map(|n| change(n * 10)).collect()).await;
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result.is_ok(), n != 13, "{n}: {result:?}");
    }
    assert_eq!(results[13], Err(BackendError::Illegal("offended".into())));
}

#[tokio::test(start_paused = true)]
async fn what_a_broker_lacks_is_asked_again_over_a_new_connection() {
    let transport = two_brokers(|_, command| match command.code {
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME | request::BATCH_ACK_MESSAGE => {
            refuse(response::REQUEST_CODE_NOT_SUPPORTED, "no")
        }
        _ => willing(command),
    });
    let service = service(transport.clone(), both).service;
    let batches =
        || transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME) + transport.count(request::BATCH_ACK_MESSAGE);
    let ask = async || {
        let changes = service.change_invisible((0..10).map(change).collect()).await;
        let acks = service.ack((0..10).map(|offset| lease("a", offset)).collect()).await;
        assert!(changes.iter().all(Result::is_ok) && acks.iter().all(Result::is_ok));
    };
    ask().await;
    ask().await;
    assert_eq!(batches(), 2);
    transport.connection.store(2, Ordering::Relaxed);
    ask().await;
    ask().await;
    assert_eq!(batches(), 4, "once more each");
}

#[tokio::test]
async fn singles_to_one_broker_are_limited_whoever_sends_them() {
    let (transport, gate) = gated();
    let service = service(transport.clone(), |config| config.backend_fallback_concurrency = 8).service;
    let callers: Vec<_> = (0..20)
        .map(|n| {
            tokio::spawn({
                let service = service.clone();
                async move { service.ack(vec![lease("a", 2 * n), lease("a", 2 * n + 1)]).await }
            })
        })
        .collect();
    settled().await;
    assert_eq!(transport.count(request::ACK_MESSAGE), 8);
    gate.add_permits(1_000);
    for caller in callers {
        assert!(soon(caller).await.expect("no panic").iter().all(Result::is_ok));
    }
    assert_eq!(transport.count(request::ACK_MESSAGE), 40);
}

#[tokio::test]
async fn handles_that_name_no_delivery_are_answered_here_without_their_neighbours() {
    let transport = two_brokers(|_, command| willing(command));
    let service = service(transport.clone(), both).service;
    let mut entries: Vec<_> = (0..5).map(|n| change(n * 10)).collect();
    entries[1].lease.handle.queue_id = -1;
    entries[2].lease.handle.offset = -7;
    entries[3].lease.handle.pop_time = 0;
    let results = service.change_invisible(entries).await;
    let good: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, false, false, true]);
    assert!(results[1..4].iter().all(|result| matches!(result, Err(BackendError::InvalidReceiptHandle(_)))));
    let batches = transport.asked(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME);
    assert_eq!(batches.iter().map(|(_, command)| offsets(command)).collect::<Vec<_>>(), [[0, 40]]);
}

#[tokio::test]
async fn an_ack_that_no_bit_can_tell_goes_alone() {
    let transport = two_brokers(|_, command| willing(command));
    let service = service(transport.clone(), both).service;
    let mut far = lease("a", 100_000);
    far.handle.start_offset = 1;
    let results = service.ack(vec![lease("a", 1), lease("a", 2), far, lease("a", 3), lease("a", 4)]).await;
    assert!(results.iter().all(Result::is_ok));
    let batches = transport.asked(request::BATCH_ACK_MESSAGE);
    assert_eq!(batches.iter().map(|(_, command)| offsets(command)).collect::<Vec<_>>(), [[1, 2], [3, 4]]);
    assert_eq!(offsets(&transport.asked(request::ACK_MESSAGE)[0].1), [100_000]);
}
