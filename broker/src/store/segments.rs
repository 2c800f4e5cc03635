//! All segments of the log, and reading a payload from them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, RwLock};

use super::disk::Disk;
use super::error::StoreError;
use super::record::{self, APPEND_HEAD};
use super::segment::Segment;

/// Files that are kept open for reading, at most.
const OPEN_FILES: usize = 64;
/// What is read at once in the hope that the whole message is in it.
const FIRST_READ: usize = 4096;

/// The segments, by position.
#[derive(Debug, Default)]
pub(super) struct Segments {
    list: RwLock<Vec<Arc<Segment>>>,
    /// The most recently read last.
    files: Mutex<Vec<(u64, Arc<File>)>>,
    /// Nothing at or after this position may be read: it is not committed.
    committed: AtomicU64,
}

impl Segments {
    /// The segments of a log that is committed up to a position.
    pub(super) fn new(list: Vec<Arc<Segment>>, committed: u64) -> Self {
        Self { list: RwLock::new(list), committed: AtomicU64::new(committed), ..Self::default() }
    }

    /// Adds the segment after the last one.
    pub(super) fn push(&self, segment: Arc<Segment>) {
        self.list.write().push(segment);
    }

    /// The first position of the segment that a position lies in; 0 if it lies before all.
    pub(super) fn base_of(&self, position: u64) -> u64 {
        base_of(&self.list.read(), position)
    }

    /// The first position of the first segment.
    pub(super) fn first_base(&self) -> u64 {
        self.list.read().first().map_or(0, |segment| segment.base)
    }

    pub(super) fn len(&self) -> usize {
        self.list.read().len()
    }

    /// All of them, in order; the last one is being written.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.list.read().clone()
    }

    /// Removes the first segment if it ends at or before `until`: readers find nothing there from now on, and its file is gone from the
    /// disk when this returns. `None` if there is nothing to remove.
    pub(super) fn remove_first(&self, until: u64, disk: &dyn Disk) -> Option<io::Result<Arc<Segment>>> {
        let first = {
            let mut list = self.list.write();
            let first = list.first().filter(|segment| segment.end() <= until && list.len() > 1)?.clone();
            list.remove(0);
            first
        };
        self.files.lock().retain(|(base, _)| *base != first.base);
        if let Err(error) = disk.remove(&first.path) {
            self.list.write().insert(0, first);
            return Some(Err(error));
        }
        Some(Ok(first))
    }

    /// Lets readers see the log up to here.
    pub(super) fn set_committed(&self, position: u64) {
        self.committed.store(position, Ordering::Release);
    }

    /// The end of what is committed.
    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The payload that was appended or held at this position.
    pub(super) fn read(&self, position: u64) -> Result<Bytes, StoreError> {
        let none = || StoreError::NotFound(position);
        let segment = self.find(position).ok_or_else(none)?;
        let file = self.file(&segment).map_err(|error| match self.has(&segment) {
            true => read_error(&segment, error),
            false => none(),
        })?;
        let offset = position - segment.base;

        let mut first = [0; FIRST_READ];
        let read = read_up_to(&file, &mut first, offset).map_err(|error| read_error(&segment, error))?;
        let first = first.get(..read).unwrap_or_default();
        let payload_len = record::payload_len(first).ok_or_else(none)? as usize;
        let len = APPEND_HEAD + payload_len;
        if position.saturating_add(len as u64) > segment.end().min(self.committed()) {
            return Err(none());
        }
        let stored = record::u32_at(first, 0).ok_or_else(none)? ^ record::seal(segment.seed, position);
        let corrupt =
            |reason: &str| StoreError::Corrupt { file: segment.path.clone(), position, reason: reason.into() };
        let head = first.get(4..APPEND_HEAD).ok_or_else(|| corrupt("the file is too short"))?;

        let mut payload = BytesMut::with_capacity(payload_len);
        payload.extend_from_slice(first.get(APPEND_HEAD..len.min(first.len())).unwrap_or_default());
        let had = payload.len();
        if had < payload_len {
            payload.resize(payload_len, 0);
            let rest = payload.get_mut(had..).unwrap_or_default();
            file.read_exact_at(rest, offset + (APPEND_HEAD + had) as u64).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => corrupt("the file is too short"),
                _ => read_error(&segment, error),
            })?;
        }
        if crc32c::crc32c_append(crc32c::crc32c(head), &payload) != stored {
            return Err(corrupt("the checksum does not match"));
        }
        Ok(payload.freeze())
    }

    /// The segment a position lies in.
    fn find(&self, position: u64) -> Option<Arc<Segment>> {
        let list = self.list.read();
        let after = list.partition_point(|segment| segment.base <= position);
        list.get(after.checked_sub(1)?).filter(|segment| (segment.first()..segment.end()).contains(&position)).cloned()
    }

    fn has(&self, segment: &Segment) -> bool {
        self.base_of(segment.base) == segment.base
    }

    /// An open file of the segment.
    fn file(&self, segment: &Segment) -> io::Result<Arc<File>> {
        let mut files = self.files.lock();
        if let Some(at) = files.iter().position(|(base, _)| *base == segment.base) {
            if let Some(since) = files.get_mut(at..) {
                since.rotate_left(1);
            }
        } else {
            let file = OpenOptions::new().read(true).open(&segment.path)?;
            // The file of one that was removed meanwhile is not kept: its space would stay taken.
            if !self.has(segment) {
                return Ok(Arc::new(file));
            }
            if files.len() == OPEN_FILES {
                files.remove(0);
            }
            files.push((segment.base, Arc::new(file)));
        }
        files.last().map(|(_, file)| file.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The first position of the segment that a position lies in; 0 if it lies before all.
pub(super) fn base_of(segments: &[Arc<Segment>], position: u64) -> u64 {
    let after = segments.partition_point(|segment| segment.base <= position);
    after.checked_sub(1).and_then(|at| segments.get(at)).map_or(0, |segment| segment.base)
}

fn read_error(segment: &Segment, error: io::Error) -> StoreError {
    StoreError::io(format!("reading {}", segment.path.display()), error)
}

/// Fills as much of `buffer` as the file has.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
