//! Who waits for messages of one consumer group on one topic.
//!
//! A long poll registers here *before* it looks into the ledger, so no arrival between the look and the wait is missed.
//! One arrival wakes one poll (the oldest); a poll that was woken and leaves without taking anything passes the wake-up on.
//! Who only wants to be told (NOTIFICATION) takes nothing, so all of them are told and none of it costs a poll its wake-up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Those who wait for messages of one consumer group on one topic.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    any: Arc<Notify>,
    by_queue: Mutex<HashMap<u32, Arc<Notify>>>,
    /// Rings for all who only want to be told, at the same time.
    told: Notify,
    waiting: AtomicUsize,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// To take messages (POP_MESSAGE).
    Messages,
    /// To be told of messages (NOTIFICATION).
    Word,
}

impl Waiters {
    /// The bell of polls for `queue`, or of polls for all queues.
    pub(crate) fn bell(&self, queue: Option<u32>) -> Arc<Notify> {
        match queue {
            None => Arc::clone(&self.any),
            Some(queue) => Arc::clone(self.by_queue.lock().entry(queue).or_default()),
        }
    }

    /// The bell of those who only want to be told.
    pub(crate) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }

    /// How many wait now, for messages or to be told.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Something became available in `queue`: wakes one poll for all queues and one for just this queue.
    pub(crate) fn ring(&self, queue: u32) {
        if self.waiting() == 0 {
            return;
        }
        self.tell();
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
        self.tell();
        self.pass_on();
    }

    /// Deadlines moved, but none that a poll need look at: those who only want to be told look again.
    pub(crate) fn tell(&self) {
        self.told.notify_waiters();
    }

    /// One poll of each kind looks again.
    fn pass_on(&self) {
        self.any.notify_one();
        for bell in self.by_queue.lock().values() {
            bell.notify_one();
        }
    }

    /// Wakes everybody; used when a topic or a group goes away.
    pub(crate) fn release_everyone(&self) {
        self.tell();
        self.any.notify_waiters();
        for bell in self.by_queue.lock().values() {
            bell.notify_waiters();
        }
    }

    /// Counts one more as waiting until the guard is dropped. There may be `most_here` in this group and topic and `most` in
    /// `total`; answers the limit that leaves no room.
    pub(crate) fn enter(
        self: &Arc<Self>,
        what: For,
        total: &Arc<AtomicUsize>,
        most_here: usize,
        most: usize,
    ) -> Result<Waiting, usize> {
        if !count_in(&self.waiting, most_here) {
            return Err(most_here);
        }
        if !count_in(total, most) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(most);
        }
        Ok(Waiting { waiters: Arc::clone(self), total: Arc::clone(total), what })
    }
}

fn count_in(counter: &AtomicUsize, most: usize) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1)).is_ok()
}

/// One that waits. When a poll leaves, another poll looks again, since this one may have held the wake-up or the earliest timer.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: Arc<Waiters>,
    total: Arc<AtomicUsize>,
    what: For,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waiters.waiting.fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
        if self.what == For::Messages && self.waiters.waiting() > 0 {
            self.waiters.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(waiters: &Arc<Waiters>, total: &Arc<AtomicUsize>) -> Waiting {
        waiters.enter(For::Messages, total, 9, 9).expect("there is room")
    }

    #[tokio::test]
    async fn one_arrival_wakes_one_poll_and_a_leaving_poll_passes_it_on() {
        let waiters = Arc::new(Waiters::default());
        let total = Arc::new(AtomicUsize::new(0));
        let first = poll(&waiters, &total);
        let second = poll(&waiters, &total);
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
        let _here = poll(&waiters, &total);
        let bell = waiters.bell(Some(3));
        let wait = bell.notified();
        tokio::pin!(wait);
        wait.as_mut().enable();
        waiters.ring(5);
        assert!(futures::poll!(wait.as_mut()).is_pending());
        waiters.ring(3);
        wait.await;
    }

    #[tokio::test]
    async fn all_who_want_to_be_told_are_told_and_a_poll_keeps_its_wake_up() {
        let waiters = Arc::new(Waiters::default());
        let total = Arc::new(AtomicUsize::new(0));
        let _polls = poll(&waiters, &total);
        let bell = waiters.bell(None);
        let polled = bell.notified();
        let (one, two) = (waiters.told(), waiters.told());
        tokio::pin!(polled, one, two);
        for wait in [one.as_mut(), two.as_mut()] {
            wait.enable();
        }
        polled.as_mut().enable();
        waiters.ring(0);
        one.await;
        two.await;
        polled.await;
    }

    #[test]
    fn both_limits_hold_whatever_is_waited_for() {
        let waiters = Arc::new(Waiters::default());
        let total = Arc::new(AtomicUsize::new(0));
        let one = waiters.enter(For::Word, &total, 2, 3).expect("there is room");
        let _two = waiters.enter(For::Messages, &total, 2, 3).expect("there is room");
        assert_eq!(waiters.enter(For::Word, &total, 2, 3).err(), Some(2));
        let elsewhere = Arc::new(Waiters::default());
        let _three = elsewhere.enter(For::Word, &total, 2, 3).expect("there is room");
        assert_eq!(elsewhere.enter(For::Messages, &total, 2, 3).err(), Some(3));
        assert_eq!((waiters.waiting(), elsewhere.waiting(), total.load(Ordering::Relaxed)), (2, 1, 3));
        drop(one);
        assert!(elsewhere.enter(For::Messages, &total, 2, 3).is_ok());
    }
}
