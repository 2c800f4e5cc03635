//! Bringing the log to the disk: by the committer after every group, or by a thread of its own (`Flush::Async`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::disk::Disk;
use super::shared::Shared;

/// What was written and is not on the disk yet.
#[derive(Debug)]
struct Written {
    /// In the order of the log.
    files: Vec<Arc<File>>,
    end: u64,
    stopped: bool,
}

/// Knows what is on the disk.
#[derive(Debug)]
pub(super) struct Flusher {
    disk: Arc<dyn Disk>,
    written: Mutex<Written>,
    stop: Condvar,
    /// One sync at a time: what is durable has no holes.
    turn: Mutex<()>,
    durable: AtomicU64,
    syncs: AtomicU64,
}

impl Flusher {
    /// Everything before `end` is on the disk.
    pub(super) fn new(disk: Arc<dyn Disk>, end: u64) -> Self {
        Self {
            disk,
            written: Mutex::new(Written { files: Vec::new(), end, stopped: false }),
            stop: Condvar::new(),
            turn: Mutex::new(()),
            durable: AtomicU64::new(end),
            syncs: AtomicU64::new(0),
        }
    }

    /// Says that this file was written, and that the log is written up to `end`.
    pub(super) fn wrote(&self, file: &Arc<File>, end: u64) {
        let mut written = self.written.lock();
        if !written.files.last().is_some_and(|last| Arc::ptr_eq(last, file)) {
            written.files.push(file.clone());
        }
        written.end = end;
    }

    /// Everything before this position is on the disk.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Files that were synced.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Brings everything that was written to the disk. An error means that the log has failed.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _turn = self.turn.lock();
        let (files, end) = {
            let mut written = self.written.lock();
            (std::mem::take(&mut written.files), written.end)
        };
        for file in files {
            self.disk.sync(&file)?;
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.durable.store(end, Ordering::Release);
        Ok(())
    }

    /// The thread of `Flush::Async`; returns after [`Flusher::stop`].
    pub(super) fn run(&self, shared: &Shared) {
        loop {
            let mut written = self.written.lock();
            if !written.stopped {
                self.stop.wait_for(&mut written, shared.options.async_sync_interval);
            }
            let (stopped, idle) = (written.stopped, written.files.is_empty());
            drop(written);
            if stopped {
                return;
            }
            if idle {
                continue;
            }
            match self.sync() {
                Ok(()) => shared.alarm.ring(),
                Err(error) => return shared.fail(&error.to_string()),
            }
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.written.lock().stopped = true;
        self.stop.notify_all();
    }
}
