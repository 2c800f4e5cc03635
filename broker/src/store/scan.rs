//! Reading the log from front to back, when the store is opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Advice, SeekFrom};

use super::record::{self, ALIGN, HEADER, Header, MAGIC, u32_at};
use super::segment::Segment;

/// What is read from a file at once.
const CHUNK: usize = 1024 * 1024;

/// What comes next in the log.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A good record.
    Record { header: Header, body: &'a [u8] },
    /// No good record.
    End(End),
}

/// Where good records end, and why there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) position: u64,
    /// Which of the segments the position is in.
    pub(super) segment: usize,
    pub(super) reason: &'static str,
}

/// Reads records one by one, checking everything about each.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    segments: &'a [Arc<Segment>],
    window: Window,
    /// Which of the segments the next record is looked for in.
    at: usize,
    position: u64,
    /// Where the last good record ended, and in which segment.
    end: (u64, usize),
}

impl<'a> Scanner<'a> {
    /// Starts after a record that ends at `position` in segment number `at`.
    pub(super) fn new(segments: &'a [Arc<Segment>], at: usize, position: u64) -> io::Result<Self> {
        let segment = segments.get(at).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { segments, window: Window::open(segment.clone())?, at, position, end: (position, at) })
    }

    /// The next record.
    pub(super) fn next(&mut self) -> io::Result<Step<'_>> {
        let (seed, header) = match self.find_header()? {
            Ok(found) => found,
            Err(reason) => return Ok(Step::End(End { position: self.end.0, segment: self.end.1, reason })),
        };
        let body_start = self.position + HEADER as u64;
        let body = self.window.bytes(body_start, header.body_len as usize)?;
        if !record::verify(&header, body, seed) {
            let reason = "the checksum does not match";
            return Ok(Step::End(End { position: self.end.0, segment: self.end.1, reason }));
        }
        self.position += header.record_len();
        self.end = (self.position, self.at);
        Ok(Step::Record { header, body })
    }

    /// The header of the next record and the seed of its segment; else why there is none.
    fn find_header(&mut self) -> io::Result<Result<(u32, Header), &'static str>> {
        loop {
            let seed = self.window.segment.seed;
            let room = self.window.segment.end().saturating_sub(self.position);
            let bytes = if room < HEADER as u64 { &[] } else { self.window.bytes(self.position, HEADER)? };
            let blank = bytes.iter().all(|byte| *byte == 0);
            return Ok(match Header::decode(bytes, seed) {
                Some(header) if header.position != self.position => Err("the record belongs elsewhere"),
                Some(header) if header.record_len() > room => Err("the record is longer than the segment"),
                Some(header) => Ok((seed, header)),
                None if !blank => Err("the header is damaged"),
                // The writer leaves the rest of a segment when a record does not fit into it.
                None if self.enter_next()? => continue,
                None => Err("nothing is written"),
            });
        }
    }

    /// Goes to the next segment if the log goes on there.
    fn enter_next(&mut self) -> io::Result<bool> {
        let Some(next) = self.segments.get(self.at + 1) else { return Ok(false) };
        let mut window = Window::open(next.clone())?;
        let header = Header::decode(window.bytes(next.first(), HEADER)?, next.seed);
        let continued =
            header.is_some_and(|header| header.position == next.first() && header.previous_end() == Some(self.end.0));
        if continued {
            self.at += 1;
            self.position = next.first();
            self.window = window;
        }
        Ok(continued)
    }
}

/// The header of the record at a position, if there is one.
pub(super) fn header_at(segment: &Arc<Segment>, position: u64) -> io::Result<Option<Header>> {
    let mut window = Window::open(segment.clone())?;
    let header = Header::decode(window.bytes(position, HEADER)?, segment.seed);
    Ok(header.filter(|header| header.position == position))
}

/// What there is after the end of the good records.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// A record that says that the end had been on the disk when it was written: its file and position.
    pub(super) proof_of_loss: Option<(PathBuf, u64)>,
    /// Log positions between which there is something else than zeros, in order.
    pub(super) written: Vec<Range<u64>>,
}

/// Looks at everything after `end`.
pub(super) fn survey(segments: &[Arc<Segment>], end: End) -> io::Result<Survey> {
    let mut survey = Survey::default();
    for (number, segment) in segments.iter().enumerate().skip(end.segment) {
        let start = if number == end.segment { end.position } else { segment.first() };
        for_each_chunk(segment, start, |at, chunk| {
            if chunk.iter().any(|byte| *byte != 0) {
                survey.written.push(at..at + chunk.len() as u64);
                if let Some(offset) = find_durable_beyond(end.position, segment, at, chunk) {
                    survey.proof_of_loss.get_or_insert((segment.path.clone(), offset));
                }
            }
            Ok(true)
        })?;
    }
    Ok(survey)
}

/// The position of a header in a chunk that starts at log position `at` that says that more than `position` is on the disk.
fn find_durable_beyond(position: u64, segment: &Segment, at: u64, chunk: &[u8]) -> Option<u64> {
    let offsets = (0..chunk.len()).step_by(ALIGN).filter(|offset| u32_at(chunk, *offset) == Some(MAGIC));
    offsets.map(|offset| (at + offset as u64, chunk.get(offset..).unwrap_or_default())).find_map(|(here, bytes)| {
        let header = Header::decode(bytes, segment.seed)?;
        (header.position == here && header.durable > position).then_some(here)
    })
}

/// Shows what is in the file from log position `start` on, in chunks that overlap by a header, until `each` says false.
pub(super) fn for_each_chunk(
    segment: &Segment,
    start: u64,
    mut each: impl FnMut(u64, &[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let file = File::open(&segment.path)?;
    // Reserved blocks that were never written are not read, so that they do not fill memory with zeros; nor are they read ahead.
    rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
    let len = file.metadata()?.len().min(segment.size);
    let mut offset = start - segment.base;
    let mut chunk = vec![0; CHUNK];
    while offset < len {
        let data = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
            Ok(data) => offset.max(data - data % ALIGN as u64),
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(data))?.min(len);
        let size = hole.saturating_sub(data).min(CHUNK as u64) as usize;
        let Some(bytes) = chunk.get_mut(..size).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        file.read_exact_at(bytes, data)?;
        if !each(segment.base + data, bytes)? {
            return Ok(());
        }
        // A header may go over the end of a chunk, but not into a hole.
        offset = data + size as u64;
        if offset < hole {
            offset -= HEADER as u64;
        }
    }
    Ok(())
}

/// A part of a segment's file in memory. What the file lacks reads as zero.
#[derive(Debug)]
struct Window {
    segment: Arc<Segment>,
    file: File,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn open(segment: Arc<Segment>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).open(&segment.path)?;
        Ok(Self { start: segment.base, segment, file, bytes: Vec::new() })
    }

    /// The bytes at a log position.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let inside = position >= self.start && position + len as u64 <= self.start + self.bytes.len() as u64;
        if !inside {
            self.bytes.clear();
            self.bytes.resize(len.max(CHUNK), 0);
            self.start = position;
            let mut filled = 0;
            while let Some(rest) = self.bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match self.file.read_at(rest, position - self.segment.base + filled as u64) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let from = (position - self.start) as usize;
        Ok(self.bytes.get(from..from + len).unwrap_or_default())
    }
}
