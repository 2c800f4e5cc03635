//! Making the end of the log one that can be continued.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, write_all, write_zeros};
use super::scan::{self, End};
use super::segment::{self, Segment};
use super::space::Writable;

/// The end of a repaired log.
#[derive(Debug)]
pub(super) struct Tail {
    /// The segment that is written next.
    pub(super) current: Writable,
    /// The segment after it, if it was there and blank.
    pub(super) next: Option<Writable>,
}

/// Removes what is after `end`, so that it can never be taken for valid again, and makes what is before it durable: everything up
/// to `durable` is so already. `torn` is what is after `end`; that nothing of it had been durable was checked before.
pub(super) fn repair(
    dir: &Path,
    segments: &mut Vec<Arc<Segment>>,
    end: End,
    durable: u64,
    torn: &[Range<u64>],
    segment_bytes: u64,
    disk: &dyn Disk,
) -> io::Result<Tail> {
    let next = remove_after(dir, segments, end.segment, torn, segment_bytes)?;
    let Some(current) = segments.last().cloned() else { return Err(io::ErrorKind::NotFound.into()) };
    let file = open(&current)?;
    if file.metadata()?.len() < current.size {
        disk.allocate(&file, current.size)?;
        disk.sync(&file)?;
    }
    let in_current: Vec<_> = torn.iter().filter(|range| range.start < current.end()).collect();
    for range in &in_current {
        write_zeros(disk, &file, range.start - current.base, range.end - current.base)?;
    }
    if !in_current.is_empty() {
        disk.sync(&file)?;
    }
    for segment in segments.iter().filter(|segment| segment.end() > durable) {
        write_again(segment, durable.max(segment.first()), end.position, disk)?;
    }
    Ok(Tail { current: (current, Arc::new(file)), next })
}

/// Removes the segments after number `last`, but for a blank one that can be used next.
fn remove_after(
    dir: &Path,
    segments: &mut Vec<Arc<Segment>>,
    last: usize,
    torn: &[Range<u64>],
    segment_bytes: u64,
) -> io::Result<Option<Writable>> {
    let after = segments.split_off((last + 1).min(segments.len()));
    let (mut next, mut removed) = (None, false);
    // The last first: a crash in between must not leave a hole.
    for (number, segment) in after.iter().enumerate().rev() {
        let blank = !torn.iter().any(|range| (segment.base..segment.end()).contains(&range.start));
        if number == 0 && segment.size == segment_bytes && blank {
            let file = open(segment)?;
            if file.metadata()?.len() == segment.size {
                next = Some((segment.clone(), Arc::new(file)));
                continue;
            }
        }
        fs::remove_file(&segment.path)?;
        removed = true;
    }
    if removed {
        segment::sync_dir(dir)?;
    }
    Ok(next)
}

/// Writes the bytes in between once more and syncs them: after a sync that failed, the system may show bytes that never reached the
/// disk, and take them for written.
fn write_again(segment: &Segment, from: u64, to: u64, disk: &dyn Disk) -> io::Result<()> {
    if from >= to.min(segment.end()) {
        return Ok(());
    }
    let file = open(segment)?;
    scan::for_each_chunk(segment, from, |position, chunk| {
        let len = to.saturating_sub(position).min(chunk.len() as u64) as usize;
        let bytes = chunk.get(..len).unwrap_or_default();
        write_all(disk, &file, &mut [IoSlice::new(bytes)], position - segment.base)?;
        Ok(position + (chunk.len() as u64) < to)
    })?;
    disk.sync(&file)
}

fn open(segment: &Segment) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(&segment.path)
}
