//! Of several operators one works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waybill_operator::leader::{Election, Lost, Timing};
use waybill_ops::clock::{Clock, ManualClock};

use crate::fake_api::{FakeApi, Fault};
use crate::rig::START_MS;

/// Operators that want to lead, and how many of them do.
struct Candidates {
    api: FakeApi,
    leading: Arc<AtomicUsize>,
    led: Arc<Notify>,
    began: Instant,
}

/// Goes with the time that the tests' runtime moves.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now_ms(&self) -> i64 {
        START_MS + i64::try_from(self.0.elapsed().as_millis()).expect("not so long")
    }
}

struct Candidate {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Lost>>,
}

/// Counts itself as long as it is not dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(leading: &Arc<AtomicUsize>) -> Self {
        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        Self(leading.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Candidates {
    fn new() -> Self {
        let api = FakeApi::new(Arc::new(ManualClock::new(START_MS)));
        Self { api, leading: Arc::default(), led: Arc::default(), began: Instant::now() }
    }

    fn start(&self, name: &str) -> Candidate {
        let clock = Arc::new(PausedClock(self.began));
        let election = Election::new(self.api.client(), "default", name.to_owned(), clock, Timing::default());
        let (stop, leading, led) = (CancellationToken::new(), self.leading.clone(), self.led.clone());
        let stopping = stop.clone();
        let task = tokio::spawn(async move {
            let work = |stop: CancellationToken| async move {
                let _counted = Counted::new(&leading);
                led.notify_one();
                stop.cancelled().await;
            };
            election.lead(&stopping, work).await
        });
        Candidate { stop, task }
    }

    fn lease(&self) -> Value {
        self.api.get("leases", "waybill-operator").expect("it is there")["spec"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_another_takes_its_place_when_it_stops() {
    let all = Candidates::new();
    let first = all.start("one");
    all.led.notified().await;
    assert_eq!(all.lease()["holderIdentity"], "one");
    let second = all.start("two");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((all.lease()["holderIdentity"].clone(), all.leading.load(Ordering::SeqCst)), (json!("one"), 1));
    first.stop.cancel();
    assert_eq!(first.task.await.expect("it ends"), Ok(()));
    // It gave the lease up, so nobody waits for its end.
    tokio::time::timeout(Duration::from_secs(5), all.led.notified()).await.expect("the other one leads");
    assert_eq!((&all.lease()["holderIdentity"], &all.lease()["leaseTransitions"]), (&json!("two"), &json!(1)));
    second.stop.cancel();
    assert_eq!(second.task.await.expect("it ends"), Ok(()));
    assert_eq!(all.lease()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_is_taken_and_no_sooner() {
    let all = Candidates::new();
    let first = all.start("one");
    all.led.notified().await;
    first.task.abort();
    let second = all.start("two");
    assert!(tokio::time::timeout(Duration::from_secs(14), all.led.notified()).await.is_err(), "too early");
    tokio::time::timeout(Duration::from_secs(10), all.led.notified()).await.expect("it leads");
    second.stop.cancel();
    assert_eq!(second.task.await.expect("it ends"), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn one_of_the_name_from_before_goes_on_at_once() {
    let all = Candidates::new();
    let first = all.start("one");
    all.led.notified().await;
    first.task.abort();
    let again = all.start("one");
    tokio::time::timeout(Duration::from_secs(1), all.led.notified()).await.expect("it leads");
    again.stop.cancel();
    assert_eq!(again.task.await.expect("it ends"), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_stops_before_another_may_begin() {
    let all = Candidates::new();
    let first = all.start("one");
    all.led.notified().await;
    // Two failures are no loss.
    all.api.fail(Fault { method: "PATCH", path: "/leases", code: 500, times: 1 });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(all.leading.load(Ordering::SeqCst), 1);
    all.api.fail(Fault { method: "PATCH", path: "/leases", code: 500, times: 1_000 });
    let lost = tokio::time::timeout(Duration::from_secs(15), first.task).await.expect("before the lease has run out");
    assert_eq!(lost.expect("it ends"), Err(Lost));
    assert_eq!(all.leading.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn who_may_have_lost_the_lease_writes_nothing_more() {
    let api = FakeApi::new(Arc::new(ManualClock::new(START_MS)));
    let clock = Arc::new(ManualClock::new(START_MS));
    let election = Election::new(api.client(), "default", "one".to_owned(), clock.clone(), Timing::default());
    let term = election.term();
    let secrets: kube::Api<Secret> = kube::Api::namespaced(term.fence(api.client()), "default");
    let write = async |name: &str| {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await
    };
    assert!(write("before").await.is_err(), "it does not lead yet");
    let led = Arc::new(Notify::new());
    let leads = led.clone();
    let work = |_stop| async move {
        leads.notify_one();
        std::future::pending::<()>().await;
    };
    let stop = CancellationToken::new();
    let leading = tokio::spawn(async move { election.lead(&stop, work).await });
    led.notified().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    write("leads").await.expect("it renews the lease");

    // Its process stands still, with what it has decided to write.
    leading.abort();
    let _aborted = leading.await;
    tokio::time::advance(Duration::from_secs(8)).await;
    write("still").await.expect("nobody else can have the lease");
    tokio::time::advance(Duration::from_secs(6)).await;
    let refused = write("late").await.expect_err("another may lead by now");
    assert!(refused.to_string().contains("another operator leads"), "{refused}");
    assert!(api.get("secrets", "late").is_none());
    assert!(secrets.get_opt("leads").await.expect("reads go on").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_by_the_clock_of_a_machine_that_slept() {
    let all = Candidates::new();
    let clock = Arc::new(ManualClock::new(START_MS));
    let election = Election::new(all.api.client(), "default", "one".to_owned(), clock.clone(), Timing::default());
    let term = election.term();
    let (stop, led) = (CancellationToken::new(), all.led.clone());
    let work = |_stop| async move {
        led.notify_one();
        std::future::pending::<()>().await;
    };
    let leading = tokio::spawn(async move { election.lead(&stop, work).await });
    all.led.notified().await;
    assert!(term.holds());
    clock.set(START_MS + 14_000);
    assert!(!term.holds());
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(term.holds(), "renewed");
    leading.abort();
}

#[tokio::test(start_paused = true)]
async fn who_sees_that_another_leads_stops() {
    let all = Candidates::new();
    let first = all.start("one");
    all.led.notified().await;
    all.api.edit("leases", "waybill-operator", |lease| lease["spec"]["holderIdentity"] = json!("two"));
    assert_eq!(first.task.await.expect("it ends"), Err(Lost));
}
