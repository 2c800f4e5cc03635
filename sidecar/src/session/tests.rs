//! Sessions and the receipt manager agree on who is here.

use async_trait::async_trait;
use waybill_ops::clock::ManualClock;
use waybill_protocol::handle::ReceiptHandle;

use super::*;
use crate::receipts::{Change, ChangeError, Changer, ChannelKind, Holder, Mode, Policy, Received};

struct Nobody;

#[async_trait]
impl Vouch for Nobody {
    async fn vouch(&self, _words: Words) -> Heard {
        Heard::default()
    }
}

#[async_trait]
impl Changer for Nobody {
    async fn change_invisible(
        &self,
        _group: &Arc<str>,
        _topic: &Arc<str>,
        _changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>> {
        std::future::pending().await
    }

    async fn retry_delay_ms(&self, _group: &Arc<str>, _topic: &Arc<str>, _times: i32) -> Option<i64> {
        None
    }
}

fn profile() -> Profile {
    Profile::new(Some("g".into()), Arc::default(), Arc::default())
}

/// Keeps what brokers are told.
struct Told(mpsc::UnboundedSender<Words>);

#[async_trait]
impl Vouch for Told {
    async fn vouch(&self, words: Words) -> Heard {
        let _closed = self.0.send(words);
        Heard::default()
    }
}

fn sessions() -> (Sessions, Receipts) {
    sessions_with(Arc::new(Nobody))
}

fn sessions_with(vouch: Arc<dyn Vouch>) -> (Sessions, Receipts) {
    let receipts = Receipts::start(Policy::default(), Arc::new(Nobody), CancellationToken::new());
    let config = Arc::new(Live::fixed(Config::default()));
    let clock = Arc::new(ManualClock::default());
    (Sessions::new(receipts.clone(), vouch, config, clock), receipts)
}

/// Whether a message that comes now is kept for the client.
fn is_served(receipts: &Receipts, offset: i64) -> bool {
    let handle = format!("{offset} 1700000000000 60000 0 0 broker-a 0 {offset}").parse().expect("a handle");
    let message = Received { handle, message_id: String::new(), reconsume_times: 0, mode: Mode::Renew };
    let holder = Holder { client: "c", group: "g", topic: "t" };
    !receipts.register(holder, ChannelKind::Grpc, vec![message]).client_gone
}

#[tokio::test]
async fn whoever_is_known_again_is_served_again() {
    let (sessions, receipts) = sessions();
    let (sender, _commands) = mpsc::channel(1);
    sessions.register("c", profile(), 1, sender.clone()).expect("room");
    assert!(is_served(&receipts, 1));
    assert!(sessions.terminate("c"));
    assert!(!is_served(&receipts, 2), "it is gone");
    sessions.register("c", profile(), 2, sender).expect("room");
    assert!(is_served(&receipts, 3));
    assert!(sessions.terminate("c"));
    assert!(!is_served(&receipts, 4));
    sessions.adopt("c", profile()).expect("room");
    assert!(is_served(&receipts, 5), "also without settings");
}

#[tokio::test]
async fn a_client_that_is_here_is_not_gone_whatever_was_thought() {
    let (sessions, receipts) = sessions();
    let (sender, _commands) = mpsc::channel(1);
    sessions.register("c", profile(), 1, sender).expect("room");
    // As if it had come back between a look at the registry and what followed from it.
    receipts.client_gone("c", None);
    assert!(!is_served(&receipts, 1));
    sessions.correct("c");
    assert!(is_served(&receipts, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_under_way_at_a_goodbye_does_not_bring_the_client_back() {
    let (words, mut told) = mpsc::unbounded_channel();
    let (sessions, _receipts) = sessions_with(Arc::new(Told(words)));
    let (sender, _commands) = mpsc::channel(1);
    let run = sessions.clone();
    tokio::spawn(async move { run.run(CancellationToken::new()).await });
    sessions.register("c", profile(), 1, sender).expect("room");
    assert_eq!(told.recv().await.expect("words").alive, ["c"]);
    assert!(sessions.terminate("c"));
    // Its heartbeat, say, which another task of the client had sent.
    assert!(!sessions.stranger("c"));
    let words = told.recv().await.expect("words");
    assert_eq!((words.alive, words.left), (vec![], vec!["c".to_owned()]));
    // The next round names everybody who is here.
    sessions.stranger("stranger");
    assert_eq!(told.recv().await.expect("words").alive, ["stranger"]);
    assert!(sessions.terminate("stranger"), "brokers think that it is here");
    assert_eq!(told.recv().await.expect("words").left, ["stranger"]);
    assert!(!sessions.terminate("nobody"));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_makes_nobody_leave() {
    let receipts = Receipts::start(Policy::default(), Arc::new(Nobody), CancellationToken::new());
    let clock = Arc::new(ManualClock::default());
    let config = Arc::new(Live::fixed(Config::default()));
    let sessions = Sessions::new(receipts.clone(), Arc::new(Nobody), config, clock.clone());
    let (sender, _commands) = mpsc::channel(1);
    sessions.register("c", profile(), 1, sender).expect("room");
    let stop = CancellationToken::new();
    let running = tokio::spawn(sessions.clone().run(stop.clone()));
    // Half a second beside the looks, of which there is one each second.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = async || {
        clock.advance(1_000);
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    for _ in 0..100 {
        second().await;
    }
    clock.advance(3_600_000);
    for _ in 0..19 {
        second().await;
    }
    assert_eq!(sessions.len(), 1, "it has been silent for 119 seconds, not for an hour");
    for _ in 0..3 {
        second().await;
    }
    assert!(sessions.is_empty());
    stop.cancel();
    running.await.expect("it ends");
}
