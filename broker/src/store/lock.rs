//! One process at a time in a directory.

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::FlockOperation;

use super::error::StoreError;

/// The right to use a directory; given back when dropped, and by the system when the process dies.
#[derive(Debug)]
pub(super) struct DirLock(File);

impl DirLock {
    pub(super) fn acquire(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("lock");
        let failed = |error| StoreError::io(format!("locking {}", path.display()), error);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked(dir.to_owned())),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started may have the file for a moment, too.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}
