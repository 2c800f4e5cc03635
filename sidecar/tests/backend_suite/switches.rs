//! Switches that are flipped while acks are under way.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::remoting::{
    Command, EntryCode, EntryCodes, JsonBody,
    codes::{request, response},
};
use waybill_sidecar::{
    backend::{BackendError, BackendMetrics, MessageService},
    config::Config,
};

use crate::{
    batches::{offsets, settled, willing},
    leases::{change, changed},
    scripted::{Answer, Scripted, lease, ok, refuse, service, two_brokers},
};

/// An ack of an offset that ends in 7 is stale, however it comes.
fn code_of(offset: i64) -> i32 {
    if offset % 10 == 7 { response::NO_MESSAGE } else { response::SUCCESS }
}

fn answer(command: &Command) -> Answer {
    match command.code {
        request::BATCH_ACK_MESSAGE => {
            let entries = offsets(command).into_iter().map(|offset| EntryCode { code: code_of(offset) }).collect();
            Ok(ok().with_body(EntryCodes { entries }.to_json()))
        }
        request::ACK_MESSAGE if code_of(offsets(command)[0]) != response::SUCCESS => refuse(response::NO_MESSAGE, ""),
        _ => willing(command),
    }
}

/// A broker that answers acks only when it is let.
fn gated() -> (Arc<Scripted>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let transport = Scripted::waiting(move |_, command| {
        let gate = Arc::clone(&held);
        async move {
            if [request::ACK_MESSAGE, request::BATCH_ACK_MESSAGE].contains(&command.code) {
                gate.acquire().await.expect("open").forget();
            }
            answer(&command)
        }
        .boxed()
    });
    (transport, gate)
}

fn write(path: &Path, batches: bool) {
    let next = path.with_extension("next");
    let text = format!("namesrvAddr: ns:9876\nbackendRequestTimeoutMillis: 600000\nenableBatchAck: {batches}\n");
    std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, path)).expect("write");
}

type Caller = (i64, JoinHandle<Vec<Result<(), BackendError>>>);

/// So many callers, each with one ack.
async fn acks(service: &MessageService, offsets: Range<i64>) -> Vec<Caller> {
    let callers = offsets.map(|offset| {
        let service = service.clone();
        (offset, tokio::spawn(async move { service.ack(vec![lease("a", offset)]).await }))
    });
    let callers = callers.collect();
    settled().await;
    callers
}

#[tokio::test(start_paused = true)]
async fn switches_take_effect_at_the_next_request_and_no_ack_is_lost_or_sent_twice() {
    const HALF: i64 = 60;
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("sidecar.yaml");
    write(&path, false);
    let live = Arc::new(Live::<Config>::load(&path).expect("valid"));
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&live).watch(stop.clone()));
    let (transport, gate) = gated();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let service = MessageService::new(transport.clone(), Arc::clone(&live), clock, BackendMetrics::default());
    let sent = || [request::ACK_MESSAGE, request::BATCH_ACK_MESSAGE].map(|code| transport.count(code));
    let mut next = 0;
    for batches in [true, false, true, false] {
        // Some are at the broker and the others wait for their turn when the switch is flipped.
        let mut callers = acks(&service, next..next + HALF).await;
        let before = sent();
        write(&path, batches);
        while live.get().enable_batch_ack != batches {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        callers.extend(acks(&service, next + HALF..next + 2 * HALF).await);
        assert!(callers.iter().all(|(_, caller)| !caller.is_finished()), "the broker has not answered yet");
        gate.add_permits(1_000);
        for (offset, caller) in callers {
            let results = caller.await.expect("no panic");
            match (code_of(offset), results.as_slice()) {
                (response::SUCCESS, [Ok(())]) => {}
                (response::NO_MESSAGE, [Err(BackendError::InvalidReceiptHandle(_))]) => {}
                _ => panic!("{offset}: {results:?}"),
            }
        }
        gate.forget_permits(usize::MAX);
        let [singles, together] = sent();
        if batches {
            assert!(together > before[1], "what comes to its turn now goes together");
            assert!(singles - before[0] < HALF as usize, "only what was alone: {before:?}, then {singles}");
        } else {
            assert_eq!(together, before[1], "no batch any more, also not of those that waited");
            assert!(singles - before[0] > HALF as usize, "all of those that came, and those that waited");
        }
        next += 2 * HALF;
    }
    let mut times: BTreeMap<i64, usize> = (0..next).map(|offset| (offset, 0)).collect();
    for code in [request::ACK_MESSAGE, request::BATCH_ACK_MESSAGE] {
        for offset in transport.asked(code).iter().flat_map(|(_, command)| offsets(command)) {
            *times.entry(offset).or_default() += 1;
        }
    }
    assert!(times.len() == next as usize && times.values().all(|times| *times == 1), "each once: {times:?}");
    stop.cancel();
    watching.await.expect("no panic");
}

#[tokio::test]
async fn switches_are_off_by_default() {
    let transport = two_brokers(|_, command| match command.code {
        request::CHANGE_MESSAGE_INVISIBLETIME => Ok(changed()),
        _ => Ok(ok()),
    });
    let setup = service(transport.clone(), |_| {});
    setup.service.change_invisible((0..3).map(change).collect()).await;
    setup.service.ack((0..3).map(|offset| lease("a", offset)).collect()).await;
    assert_eq!(transport.count(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME), 0);
    assert_eq!(transport.count(request::BATCH_ACK_MESSAGE), 0);
}
