//! Writing records to the end of the log.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::batch::{Place, Record};
use super::disk::{Disk, write_all};
use super::flusher::Flusher;
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
    next: u64,
    /// Where the last record ended.
    end: u64,
}

impl Writer {
    /// Continues a log at `end`.
    pub(super) fn new(disk: Arc<dyn Disk>, (segment, file): Writable, end: u64) -> Self {
        Self { disk, segment, file, next: end, end }
    }

    /// Where the last record ended.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The end of the current segment.
    pub(super) fn segment_end(&self) -> u64 {
        self.segment.end()
    }

    /// Places and writes records in order; answers how many had room. An error means that the log has failed.
    pub(super) fn write<'a>(
        &mut self,
        records: impl Iterator<Item = &'a mut Record>,
        space: &Space,
        segments: &Segments,
        flusher: &Flusher,
    ) -> io::Result<usize> {
        let durable = flusher.durable();
        let mut written = 0;
        let mut run = Vec::with_capacity(records.size_hint().0);
        let mut run_start = self.next;
        for record in records {
            if self.next + record.len() > self.segment.end() {
                self.write_run(&run, run_start, flusher)?;
                run.clear();
                let Some((segment, file)) = space.take() else { return Ok(written) };
                segments.push(segment.clone());
                (self.segment, self.file) = (segment, file);
                self.next = self.segment.first();
                run_start = self.next;
            }
            // A segment is at most 1 GiB, so the rest of one fits.
            let gap = (self.next - self.end) as u32;
            record.place(Place { position: self.next, durable, gap, seed: self.segment.seed });
            self.next += record.len();
            self.end = self.next;
            run.push(&*record);
            written += 1;
        }
        self.write_run(&run, run_start, flusher)?;
        Ok(written)
    }

    /// Writes records that follow one another in the current segment.
    fn write_run(&self, run: &[&Record], start: u64, flusher: &Flusher) -> io::Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        let mut parts: Vec<_> = run.iter().map(|record| IoSlice::new(record.bytes())).collect();
        write_all(&*self.disk, &self.file, &mut parts, start - self.segment.base)?;
        flusher.wrote(&self.file, self.end);
        Ok(())
    }
}
