//! Writing records to the end of the log.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::batch::{Place, Record};
use super::disk::{Disk, write_all};
use super::segment::Segment;
use super::segments::Segments;
use super::space::{Space, Writable};

/// The end of the log. Used by one thread.
#[derive(Debug)]
pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    segment: Arc<Segment>,
    file: Arc<File>,
    /// The position the next record is written at, unless it goes to the next segment.
    end: u64,
    /// Where the last record ended.
    previous_end: u64,
    durable: u64,
    /// Segments left behind since the last sync.
    unsynced: Vec<Arc<File>>,
}

impl Writer {
    /// Continues a log at `end`, everything before it being durable.
    pub(super) fn new(disk: Arc<dyn Disk>, (segment, file): Writable, end: u64) -> Self {
        Self { disk, segment, file, end, previous_end: end, durable: end, unsynced: Vec::new() }
    }

    /// Where the last record ended.
    pub(super) fn end(&self) -> u64 {
        self.previous_end
    }

    /// The end of the current segment.
    pub(super) fn segment_end(&self) -> u64 {
        self.segment.end()
    }

    /// Everything before this position is on the disk.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Places and writes records in order; answers how many had room. An error means that the log has failed.
    pub(super) fn write<'a>(
        &mut self,
        records: impl Iterator<Item = &'a mut Record>,
        space: &Space,
        segments: &Segments,
    ) -> io::Result<usize> {
        let mut written = 0;
        let mut run = Vec::with_capacity(records.size_hint().0);
        let mut run_start = self.end;
        for record in records {
            if self.end + record.len() > self.segment.end() {
                self.write_run(&run, run_start)?;
                run.clear();
                let Some((segment, file)) = space.take() else { return Ok(written) };
                segments.push(segment.clone());
                self.unsynced.push(std::mem::replace(&mut self.file, file));
                self.segment = segment;
                self.end = self.segment.first();
                run_start = self.end;
            }
            // A segment is at most 1 GiB, so the rest of one fits.
            let gap = (self.end - self.previous_end) as u32;
            record.place(Place { position: self.end, durable: self.durable, gap, seed: self.segment.seed });
            self.end += record.len();
            self.previous_end = self.end;
            run.push(&*record);
            written += 1;
        }
        self.write_run(&run, run_start)?;
        Ok(written)
    }

    /// Writes records that follow one another in the current segment.
    fn write_run(&self, run: &[&Record], start: u64) -> io::Result<()> {
        let mut parts: Vec<_> = run.iter().map(|record| IoSlice::new(record.bytes())).collect();
        write_all(&*self.disk, &self.file, &mut parts, start - self.segment.base)
    }

    /// Brings everything written to the disk; answers how many files were synced.
    pub(super) fn sync(&mut self) -> io::Result<u64> {
        if self.durable == self.previous_end {
            return Ok(0);
        }
        let files = self.unsynced.len() as u64 + 1;
        // The older first: what is durable has no holes.
        for file in self.unsynced.drain(..) {
            self.disk.sync(&file)?;
        }
        self.disk.sync(&self.file)?;
        self.durable = self.previous_end;
        Ok(files)
    }
}
