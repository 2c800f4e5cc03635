//! What the log asks of the operating system, as a seam: tests put a disk here that fails.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// How full a disk is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// What is taken, by whomever.
    pub used: u64,
    /// What there is.
    pub total: u64,
}

/// The calls that can fail while the store runs. The provided methods do the real thing.
pub trait Disk: Debug + Send + Sync {
    /// Writes what it can of `parts`, one after the other, at `offset`; answers how many bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn write_at(&self, file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(file, parts, offset)?)
    }

    /// Returns when everything written to `file` is on the disk.
    ///
    /// # Errors
    /// The operating system's. What was written may or may not be on the disk then.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Makes `file` at least `size` bytes long, with blocks reserved and what is new reading as zero.
    ///
    /// # Errors
    /// The operating system's, `StorageFull` when there is no space.
    fn allocate(&self, file: &File, size: u64) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, file, file.metadata()?.len(), size),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file, if it is there; its name is gone from the disk when this returns.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }

    /// How full the disk is that `dir` is on.
    ///
    /// # Errors
    /// The operating system's.
    fn usage(&self, dir: &Path) -> io::Result<DiskUsage> {
        let found = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // What is kept for the superuser counts neither as used nor as there.
        let used = bytes(found.f_blocks.saturating_sub(found.f_bfree));
        Ok(DiskUsage { used, total: used.saturating_add(bytes(found.f_bavail)) })
    }

    /// Called before every write of the index.
    ///
    /// # Errors
    /// An error makes the write fail with it.
    fn before_index_write(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The operating system itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {}

/// No system takes more parts in one call.
const MAX_PARTS: usize = 1024;

/// Writes all of `parts`, one after the other, at `offset`.
pub(super) fn write_all<D: Disk + ?Sized>(
    disk: &D,
    file: &File,
    mut parts: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    while !parts.is_empty() {
        let some = parts.get(..MAX_PARTS).unwrap_or(parts);
        match disk.write_at(file, some, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut parts, written);
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes zeros from `from` up to `to`.
pub(super) fn write_zeros<D: Disk + ?Sized>(disk: &D, file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 256 * 1024];
    let mut at = from;
    while at < to {
        let len = (to - at).min(zeros.len() as u64);
        let part = zeros.get(..len as usize).unwrap_or(&zeros);
        write_all(disk, file, &mut [IoSlice::new(part)], at)?;
        at += len;
    }
    Ok(())
}

/// True if the error says that there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
