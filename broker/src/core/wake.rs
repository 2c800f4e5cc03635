//! Who waits for messages of one consumer group on one topic.
//!
//! A long poll registers here *before* it looks into the ledger, so no arrival between the look and the wait is missed.
//! One arrival wakes one poll (the oldest); a poll that was woken and leaves without taking anything passes the wake-up on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The waiting polls of one consumer group on one topic.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    any: Arc<Notify>,
    by_queue: Mutex<HashMap<u32, Arc<Notify>>>,
    waiting: AtomicUsize,
}

impl Waiters {
    /// The bell of polls for `queue`, or of polls for all queues.
    pub(crate) fn bell(&self, queue: Option<u32>) -> Arc<Notify> {
        match queue {
            None => Arc::clone(&self.any),
            Some(queue) => Arc::clone(self.by_queue.lock().entry(queue).or_default()),
        }
    }

    /// Polls waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Something became available in `queue`: wakes one poll for all queues and one for just this queue.
    pub(crate) fn ring(&self, queue: u32) {
        if self.waiting() == 0 {
            return;
        }
        self.any.notify_one();
        let by_queue = self.by_queue.lock();
        if let Some(bell) = by_queue.get(&queue) {
            bell.notify_one();
        }
    }

    /// Something may have become available in any queue, or deadlines moved: one poll of each kind looks again.
    pub(crate) fn ring_all(&self) {
        if self.waiting() == 0 {
            return;
        }
        self.any.notify_one();
        for bell in self.by_queue.lock().values() {
            bell.notify_one();
        }
    }

    /// Wakes every poll; used when the broker stops or a topic goes away.
    pub(crate) fn release_everyone(&self) {
        self.any.notify_waiters();
        for bell in self.by_queue.lock().values() {
            bell.notify_waiters();
        }
    }

    /// Counts one poll as waiting until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, total: &Arc<AtomicUsize>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        total.fetch_add(1, Ordering::Relaxed);
        Waiting { waiters: Arc::clone(self), total: Arc::clone(total) }
    }
}

/// One waiting poll. When it leaves, another poll looks again, since this one may have held the wake-up or the earliest timer.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: Arc<Waiters>,
    total: Arc<AtomicUsize>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waiters.waiting.fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
        self.waiters.ring_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_arrival_wakes_one_poll_and_a_leaving_poll_passes_it_on() {
        let waiters = Arc::new(Waiters::default());
        let total = Arc::new(AtomicUsize::new(0));
        let first = waiters.enter(&total);
        let second = waiters.enter(&total);
        let bell = waiters.bell(None);
        let one = bell.notified();
        let two = bell.notified();
        tokio::pin!(one, two);
        assert!(!one.as_mut().enable());
        assert!(!two.as_mut().enable());
        waiters.ring(0);
        one.as_mut().await;
        assert!(futures::poll!(two.as_mut()).is_pending(), "one arrival wakes one poll");
        drop(first);
        two.as_mut().await;
        drop(second);
        assert_eq!((waiters.waiting(), total.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test]
    async fn a_poll_for_one_queue_is_not_woken_by_another() {
        let waiters = Arc::new(Waiters::default());
        let total = Arc::new(AtomicUsize::new(0));
        let _here = waiters.enter(&total);
        let bell = waiters.bell(Some(3));
        let wait = bell.notified();
        tokio::pin!(wait);
        wait.as_mut().enable();
        waiters.ring(5);
        assert!(futures::poll!(wait.as_mut()).is_pending());
        waiters.ring(3);
        wait.await;
    }
}
