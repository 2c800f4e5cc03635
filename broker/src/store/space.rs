//! The next segment, always ready before it is needed: a thread reserves it, and tries again when the disk was full.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{info, warn};

use super::disk::Disk;
use super::segment::Segment;

/// A segment and its file, open for writing.
pub(super) type Writable = (Arc<Segment>, Arc<File>);

/// What is known about the segment after the current one.
#[derive(Debug)]
enum Next {
    Ready(Writable),
    /// To be created at this base.
    Wanted(u64),
    /// Could not be created at this base.
    Full(u64),
    Stopped,
}

/// Reserves the next segment.
#[derive(Debug)]
pub(super) struct Space {
    dir: PathBuf,
    segment_bytes: u64,
    retry: Duration,
    disk: Arc<dyn Disk>,
    next: Mutex<Next>,
    changed: Condvar,
    full: AtomicBool,
}

impl Space {
    /// `existing` is a next segment that is there already; else one is wanted at `base`.
    pub(super) fn new(
        dir: PathBuf,
        segment_bytes: u64,
        retry: Duration,
        disk: Arc<dyn Disk>,
        existing: Option<Writable>,
        base: u64,
    ) -> Self {
        let next = existing.map_or(Next::Wanted(base), Next::Ready);
        Self {
            dir,
            segment_bytes,
            retry,
            disk,
            next: Mutex::new(next),
            changed: Condvar::new(),
            full: AtomicBool::new(false),
        }
    }

    /// True while the next segment could not be reserved.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Takes the next segment, waiting for it if need be; `None` if there is no space for one.
    pub(super) fn take(&self) -> Option<Writable> {
        let mut next = self.next.lock();
        loop {
            match &*next {
                Next::Ready((segment, _)) => {
                    let wanted = Next::Wanted(segment.end());
                    let Next::Ready(taken) = std::mem::replace(&mut *next, wanted) else { return None };
                    self.changed.notify_all();
                    return Some(taken);
                }
                Next::Wanted(_) => self.changed.wait(&mut next),
                Next::Full(_) | Next::Stopped => return None,
            }
        }
    }

    /// Reserves the next segment if one is wanted; for a store without threads.
    pub(super) fn reserve(&self) {
        let mut next = self.next.lock();
        let (Next::Wanted(base) | Next::Full(base)) = *next else { return };
        let created = Segment::create(&self.dir, base, self.segment_bytes, &*self.disk);
        self.full.store(created.is_err(), Ordering::Relaxed);
        *next = match created {
            Ok((segment, file)) => Next::Ready((Arc::new(segment), Arc::new(file))),
            Err(_) => Next::Full(base),
        };
    }

    /// The reserving thread; returns after [`Space::stop`].
    pub(super) fn run(&self) {
        let mut next = self.next.lock();
        loop {
            let base = match &*next {
                Next::Ready(_) => {
                    self.changed.wait(&mut next);
                    continue;
                }
                Next::Full(base) => {
                    let base = *base;
                    if !self.changed.wait_for(&mut next, self.retry).timed_out() {
                        continue;
                    }
                    base
                }
                Next::Wanted(base) => *base,
                Next::Stopped => return,
            };
            // Reserving takes a while, and the committer asks how things are.
            let created = parking_lot::MutexGuard::unlocked(&mut next, || {
                Segment::create(&self.dir, base, self.segment_bytes, &*self.disk)
            });
            if matches!(*next, Next::Stopped) {
                return;
            }
            let was_full = self.full.swap(created.is_err(), Ordering::Relaxed);
            *next = match created {
                Ok((segment, file)) => {
                    if was_full {
                        info!(base, "there is space for the log again");
                    }
                    Next::Ready((Arc::new(segment), Arc::new(file)))
                }
                Err(error) => {
                    if !was_full {
                        warn!(base, %error, "no space could be reserved for the log; no new messages are taken");
                    }
                    Next::Full(base)
                }
            };
            self.changed.notify_all();
        }
    }

    /// Ends the reserving thread and everybody who waits.
    pub(super) fn stop(&self) {
        *self.next.lock() = Next::Stopped;
        self.changed.notify_all();
    }
}
