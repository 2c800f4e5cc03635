//! Waiting a moment before writing, so that more answers go out with one system call.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// Answers to one client are made by tasks of their own, and each of them wakes the task that writes. Without this it would run
/// at once and write a single answer. With it, the first write after a flush waits until everything that is ready to run
/// has run, and takes along what came of it. On an idle server that is immediately.
#[derive(Default)]
pub(super) struct Gather {
    state: State,
}

#[derive(Default)]
enum State {
    /// All that was to be written is written.
    #[default]
    Flushed,
    /// Others run first.
    Waiting(Arc<Turn>),
    /// It is our turn until the next flush.
    Writing,
}

/// Whether those that were ready before have run, and who waits for that.
#[derive(Default)]
struct Turn {
    over: AtomicBool,
    waiting: AtomicWaker,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.over.store(true, Ordering::Release);
        self.waiting.wake();
    }
}

impl Gather {
    /// Ready when it is time to write.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let State::Flushed = self.state {
            let turn = Arc::new(Turn::default());
            let waker = Waker::from(Arc::clone(&turn));
            // The first poll asks the runtime to wake the turn after all others; nothing more is needed of it.
            if pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker)).is_ready() {
                turn.over.store(true, Ordering::Release);
            }
            self.state = State::Waiting(turn);
        }
        if let State::Waiting(turn) = &self.state {
            turn.waiting.register(context.waker());
            if !turn.over.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            self.state = State::Writing;
        }
        Poll::Ready(())
    }

    /// Everything is written: the next write waits again.
    pub(super) fn flushed(&mut self) {
        if let State::Writing = self.state {
            self.state = State::Flushed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::atomic::AtomicUsize};

    use super::*;

    /// Starts tasks that each count themselves once they run.
    fn start(count: usize, ran: &Arc<AtomicUsize>) {
        for _ in 0..count {
            let ran = Arc::clone(ran);
            tokio::spawn(async move { ran.fetch_add(1, Ordering::SeqCst) });
        }
    }

    #[tokio::test]
    async fn what_is_ready_runs_before_the_first_write_after_a_flush() {
        let (mut gather, ran) = (Gather::default(), Arc::new(AtomicUsize::new(0)));
        start(20, &ran);
        poll_fn(|context| gather.poll(context)).await;
        assert_eq!(ran.load(Ordering::SeqCst), 20);

        start(1, &ran);
        poll_fn(|context| gather.poll(context)).await;
        assert_eq!(ran.load(Ordering::SeqCst), 20, "until the flush, writing goes on at once");

        gather.flushed();
        poll_fn(|context| gather.poll(context)).await;
        assert_eq!(ran.load(Ordering::SeqCst), 21);
    }

    #[tokio::test]
    async fn being_polled_early_does_not_end_the_wait() {
        let (mut gather, ran) = (Gather::default(), Arc::new(AtomicUsize::new(0)));
        start(20, &ran);
        poll_fn(|context| {
            // As when one of the answers wakes the task that writes.
            for _ in 0..3 {
                assert!(gather.poll(context).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        poll_fn(|context| gather.poll(context)).await;
        assert_eq!(ran.load(Ordering::SeqCst), 20);
    }

    #[tokio::test]
    async fn a_flush_while_others_run_changes_nothing() {
        let (mut gather, ran) = (Gather::default(), Arc::new(AtomicUsize::new(0)));
        start(20, &ran);
        poll_fn(|context| {
            assert!(gather.poll(context).is_pending());
            gather.flushed();
            Poll::Ready(())
        })
        .await;
        poll_fn(|context| gather.poll(context)).await;
        assert_eq!(ran.load(Ordering::SeqCst), 20);
    }

    #[test]
    fn without_a_runtime_nobody_waits_for_ever() {
        let mut gather = Gather::default();
        let mut context = Context::from_waker(Waker::noop());
        while gather.poll(&mut context).is_pending() {}
    }
}
