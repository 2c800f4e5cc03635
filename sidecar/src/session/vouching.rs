//! Telling brokers which clients are alive, so that they give back what dead ones hold, and learning which clients that left
//! here are alive at another sidecar.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::limits;

/// What brokers are told of clients. Only consumers hold anything, so only they are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// They are here.
    pub alive: Vec<String>,
    /// They went away without a word.
    pub gone: Vec<String>,
    /// They said goodbye.
    pub left: Vec<String>,
}

/// What brokers answered. Brokers that do not watch clients say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Those of `gone` for which another sidecar vouches.
    pub elsewhere: HashSet<String>,
    /// Brokers that may know more, and did not answer.
    pub silent: Vec<Arc<str>>,
    /// After which silence the most impatient broker takes a client for gone, milliseconds.
    pub gone_after_ms: Option<i64>,
}

/// The only thing that sessions ask of brokers.
#[async_trait]
pub trait Vouch: Send + Sync {
    /// Tells every broker; answers when all have answered or had their time.
    async fn vouch(&self, words: Words) -> Heard;
}

/// What was not told yet.
#[derive(Default)]
struct News {
    arrived: HashSet<String>,
    left: HashSet<String>,
}

/// Speaks for the clients: what is new at once, everybody now and then.
pub(super) struct Vouching {
    vouch: Arc<dyn Vouch>,
    news: Mutex<News>,
    ring: Notify,
}

impl Vouching {
    pub(super) fn new(vouch: Arc<dyn Vouch>) -> Self {
        Self { vouch, news: Mutex::default(), ring: Notify::new() }
    }

    /// A consumer is here that was not, or not known to be.
    pub(super) fn arrived(&self, client_id: &str) {
        let mut news = self.news.lock();
        news.left.remove(client_id);
        // What does not fit is told with all the others.
        if news.arrived.len() < limits::CLIENTS && news.arrived.insert(client_id.to_owned()) {
            self.ring.notify_one();
        }
    }

    /// A consumer said goodbye.
    pub(super) fn left(&self, client_id: &str) {
        let mut news = self.news.lock();
        news.arrived.remove(client_id);
        if news.left.len() < limits::CLIENTS && news.left.insert(client_id.to_owned()) {
            self.ring.notify_one();
        }
    }

    /// What brokers know of these clients, gone from here.
    pub(super) async fn ask(&self, gone: Vec<String>) -> Heard {
        self.vouch.vouch(Words { gone, ..Words::default() }).await
    }

    /// Vouches until `stop`. `present` names the consumers that are here.
    pub(super) async fn run(&self, present: impl Fn() -> Vec<String>, stop: CancellationToken) {
        let mut period = limits::VOUCH_PERIOD_MAX;
        let mut full_at = Instant::now() + period;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.ring.notified() => {}
                () = sleep_until(full_at) => {}
            }
            // A round may take long, and the next one must not come later for it.
            let began = Instant::now();
            let full = began >= full_at;
            let news = std::mem::take(&mut *self.news.lock());
            let alive = if full { present() } else { news.arrived.into_iter().collect() };
            let words = Words { alive, gone: Vec::new(), left: news.left.into_iter().collect() };
            if words != Words::default() {
                let heard = tokio::select! {
                    () = stop.cancelled() => return,
                    heard = self.vouch.vouch(words) => heard,
                };
                if let Some(ms) = heard.gone_after_ms {
                    // Two of three may be lost on the way.
                    let third = Duration::from_millis(u64::try_from(ms).unwrap_or_default() / 3);
                    period = third.clamp(limits::VOUCH_PERIOD_MIN, limits::VOUCH_PERIOD_MAX);
                }
            }
            full_at = if full { began + period } else { full_at.min(began + period) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    struct Told {
        words: mpsc::UnboundedSender<Words>,
        gone_after_ms: Option<i64>,
    }

    #[async_trait]
    impl Vouch for Told {
        async fn vouch(&self, words: Words) -> Heard {
            let _ = self.words.send(words);
            Heard { gone_after_ms: self.gone_after_ms, ..Heard::default() }
        }
    }

    fn running(gone_after_ms: Option<i64>) -> (Arc<Vouching>, mpsc::UnboundedReceiver<Words>) {
        let (words, told) = mpsc::unbounded_channel();
        let vouching = Arc::new(Vouching::new(Arc::new(Told { words, gone_after_ms })));
        let runs = Arc::clone(&vouching);
        tokio::spawn(async move { runs.run(|| vec!["here".to_owned()], CancellationToken::new()).await });
        (vouching, told)
    }

    fn alive(ids: &[&str]) -> Words {
        Words { alive: ids.iter().map(|id| (*id).to_owned()).collect(), ..Words::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_new_is_named_at_once_and_everybody_again_and_again() {
        let (vouching, mut told) = running(Some(9_000));
        let start = Instant::now();
        vouching.arrived("new");
        assert_eq!(told.recv().await, Some(alive(&["new"])));
        assert!(start.elapsed() < Duration::from_millis(10), "at once");
        assert_eq!(told.recv().await, Some(alive(&["here"])));
        assert_eq!(told.recv().await, Some(alive(&["here"])));
        assert_eq!(start.elapsed().as_secs(), 6, "every third of what the broker said");
    }

    #[tokio::test(start_paused = true)]
    async fn a_goodbye_takes_the_place_of_an_arrival() {
        let (vouching, mut told) = running(None);
        vouching.arrived("short");
        vouching.left("short");
        assert_eq!(told.recv().await, Some(Words { left: vec!["short".to_owned()], ..Words::default() }));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_longest_period_holds() {
        let (_vouching, mut told) = running(None);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(told.recv().await, Some(alive(&["here"])));
        }
        assert_eq!(start.elapsed(), 3 * limits::VOUCH_PERIOD_MAX);
    }
}
