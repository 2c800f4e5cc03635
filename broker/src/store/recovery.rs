//! Opening: what a crash left is read, judged, repaired and applied.
//!
//! Nothing is changed before it is known that what is to be thrown away had never been answered.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tracing::{info, warn};

use super::checkpoint;
use super::error::StoreError;
use super::facts::AllFacts;
use super::index::{Index, IndexError};
use super::lock::DirLock;
use super::options::Options;
use super::queues::Queues;
use super::record::{Operation, Operations};
use super::repair;
use super::scan::{self, End, Scanner, Step};
use super::schema;
use super::segment::{self, Segment};
use super::segments::{self, Segments};
use super::shared::{Indexed, Shared};
use super::space::Space;
use super::state::{Applied, State};
use super::waiting::{self, Waiting};
use super::writer::Writer;

/// A store that is ready to run.
pub(super) struct Recovered {
    /// Held for as long as the directory is in use.
    pub(super) lock: DirLock,
    pub(super) shared: Shared,
    pub(super) writer: Writer,
}

/// Opens the directory.
pub(super) fn recover(options: Options) -> Result<Recovered, StoreError> {
    options.validate()?;
    let dir = options.dir.clone();
    let log_dir = options.log_dir();
    fs::create_dir_all(&log_dir).map_err(|error| io_error("creating", &log_dir, error))?;
    let lock = DirLock::acquire(&dir)?;

    let mut segments = list_segments(&log_dir)?;
    if segments.is_empty() {
        let (segment, _) = Segment::create(&log_dir, 0, options.segment_bytes, &*options.disk)
            .map_err(|error| io_error("creating a segment in", &log_dir, error))?;
        segments.push(Arc::new(segment));
        // The names of the directories themselves. That of the store may be in one that only others may read.
        segment::sync_dir(&dir).map_err(|error| io_error("syncing", &dir, error))?;
        let _ = dir.parent().map(segment::sync_dir);
    }
    let usable = open_index(&dir, &segments)?;
    let start = match &usable {
        Some(usable) => usable.start,
        None => Start { applied: beginning(&segments), segment: 0 },
    };

    let Checked { end, durable, torn, log_start } = check(&log_dir, &segments, start)?;
    let indexed_start = usable.as_ref().map_or(0, |usable| usable.log_start);
    check_beginning(&segments, log_start.max(indexed_start))?;
    let tail = repair::repair(&log_dir, &mut segments, end, durable, &torn, options.segment_bytes, &*options.disk)
        .map_err(|error| io_error("repairing", &log_dir, error))?;
    if end.position > start.applied.position {
        info!(from = start.applied.position, to = end.position, "replaying the log");
    }

    let (index, queues, facts, waiting) = match usable {
        Some(usable) => (usable.index, usable.queues, usable.facts, usable.waiting),
        None => (new_index(&dir)?, Queues::default(), AllFacts::default(), Waiting::default()),
    };
    let state = RwLock::new(State::new(queues, facts, waiting, indexed_start, start.applied));
    let indexed = replay(&log_dir, &segments, start, end, &state, &index, &options)?;
    count_waiting(&state, &index)?;

    let next_base = tail.current.0.end();
    let space = Space::new(
        log_dir,
        options.segment_bytes,
        options.space_retry_interval,
        options.disk.clone(),
        tail.next,
        next_base,
    );
    let writer = Writer::new(options.disk.clone(), tail.current, end.position);
    let segments = Segments::new(segments, end.position);
    let shared = Shared::new(options, segments, space, state, index, &writer, indexed);
    Ok(Recovered { lock, shared, writer })
}

/// The segments, each good and each following the one before.
fn list_segments(log_dir: &Path) -> Result<Vec<Arc<Segment>>, StoreError> {
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    let found = segment::list(log_dir).map_err(|error| io_error("listing", log_dir, error))?;
    for found in found {
        let position = found.base;
        let corrupt = |file: PathBuf, reason: &str| StoreError::Corrupt { file, position, reason: reason.into() };
        if let Some(expected) = segments.last().map(|segment| segment.end()).filter(|end| *end != found.base) {
            return Err(corrupt(found.path, &format!("the segment at {expected} is missing before it")));
        }
        // A segment gets its name after its header is on the disk.
        let segment = found.segment.ok_or_else(|| corrupt(found.path, "the header of the segment is damaged"))?;
        segments.push(Arc::new(segment));
    }
    Ok(segments)
}

/// The log must be there from where it says that it is complete.
fn check_beginning(segments: &[Arc<Segment>], log_start: u64) -> Result<(), StoreError> {
    match segments.first() {
        Some(first) if first.base > log_start => Err(StoreError::Corrupt {
            file: first.path.clone(),
            position: first.base,
            reason: format!("the segment at {log_start} is missing before it").into(),
        }),
        _ => Ok(()),
    }
}

/// Where the first record would be.
fn beginning(segments: &[Arc<Segment>]) -> Applied {
    let first = segments.first().map_or(0, |segment| segment.first());
    Applied { position: first, last_record: first }
}

/// Where the replay starts, and in which segment.
#[derive(Debug, Clone, Copy)]
struct Start {
    applied: Applied,
    segment: usize,
}

/// An index that belongs to this log.
struct Usable {
    index: Index,
    queues: Queues,
    facts: AllFacts,
    waiting: Waiting,
    start: Start,
    /// Where the log starts.
    log_start: u64,
}

/// Opens the index if there is one that fits this log; `None` if it must be built from the log.
fn open_index(dir: &Path, segments: &[Arc<Segment>]) -> Result<Option<Usable>, StoreError> {
    let loaded = Index::open(dir).and_then(|index| {
        let applied = load_applied(&index)?;
        let queues = load_queues(&index)?;
        let facts = load_facts(&index)?;
        let waiting = load_waiting(&index, applied)?;
        Ok((index, applied, queues, facts, waiting))
    });
    let (index, applied, queues, facts, waiting) = match loaded {
        Ok(loaded) => loaded,
        Err(IndexError::Io(error)) => return Err(io_error("opening the index in", dir, error)),
        Err(IndexError::Damaged(reason)) => {
            warn!(reason, "the index is damaged and will be built again from the log");
            return Ok(None);
        }
        Err(IndexError::Closed) => return Err(StoreError::Closed),
    };
    let start = match applied {
        None => Some(Start { applied: beginning(segments), segment: 0 }),
        Some((applied, _)) => find(segments, applied).map_err(|error| io_error("reading the log in", dir, error))?,
    };
    if start.is_none() {
        warn!(
            ?applied,
            "the index does not belong to this log, or the log was cut, and it will be built again from the log"
        );
    }
    let log_start = applied.map_or(0, |(_, log_start)| log_start);
    Ok(start.map(|start| Usable { index, queues, facts, waiting, start, log_start }))
}

fn load_applied(index: &Index) -> Result<Option<(Applied, u64)>, IndexError> {
    let Some(value) = index.get(schema::APPLIED_KEY)? else { return Ok(None) };
    let applied = schema::decode_applied(&value);
    applied.map(Some).ok_or_else(|| IndexError::Damaged("its position is not readable".into()))
}

fn load_queues(index: &Index) -> Result<Queues, IndexError> {
    let mut queues = Queues::default();
    for (key, value) in index.scan(&schema::all_bounds())? {
        let (queue, min, next) = schema::decode_bounds(&key, &value)
            .ok_or_else(|| IndexError::Damaged("the bounds of a queue are not readable".into()))?;
        queues.restore(queue, min, next);
    }
    Ok(queues)
}

fn load_facts(index: &Index) -> Result<AllFacts, IndexError> {
    let mut all = AllFacts::default();
    for (key, value) in index.scan(&schema::all_segments())? {
        let (base, facts) = schema::decode_segment(&key, &value)
            .ok_or_else(|| IndexError::Damaged("what is known about a segment is not readable".into()))?;
        all.restore(base, facts);
    }
    Ok(all)
}

/// What was counted when the index came to where it is; counted again later if it does not say.
fn load_waiting(index: &Index, applied: Option<(Applied, u64)>) -> Result<Waiting, IndexError> {
    let Some((applied, _)) = applied else { return Ok(Waiting::default()) };
    let written = index.get(schema::WAITING_KEY)?;
    let counted = written.and_then(|value| schema::decode_waiting(&value, applied.position));
    Ok(counted.map_or_else(Waiting::default, Waiting::new))
}

/// Counts the delayed messages that wait, if nobody has kept count: an older version, or one that built the index again.
fn count_waiting(state: &RwLock<State>, index: &Index) -> Result<(), StoreError> {
    if state.read().waiting.is_certain() {
        return Ok(());
    }
    let counted = waiting::count(&state.read(), index)?;
    let messages: u64 = counted.all().map(|(_, messages)| messages).sum();
    if messages > 0 {
        info!(messages, "delayed messages counted");
    }
    state.write().waiting = counted;
    Ok(())
}

/// The place in the log that an index has come to, if this log has it.
fn find(segments: &[Arc<Segment>], applied: Applied) -> std::io::Result<Option<Start>> {
    let number = segments.partition_point(|segment| segment.base <= applied.last_record).checked_sub(1);
    let Some((number, segment)) = number.and_then(|number| Some((number, segments.get(number)?))) else {
        return Ok(None);
    };
    let header = scan::header_at(segment, applied.last_record)?;
    let ends = header.map(|header| applied.last_record + header.record_len());
    Ok((ends == Some(applied.position)).then_some(Start { applied, segment: number }))
}

fn new_index(dir: &Path) -> Result<Index, StoreError> {
    Index::remove(dir).map_err(|error| io_error("removing the index in", dir, error))?;
    Ok(Index::open(dir)?)
}

/// What the log turned out to be.
struct Checked {
    /// Where good records end.
    end: End,
    /// Up to where they had been on the disk.
    durable: u64,
    /// What is torn after them.
    torn: Vec<Range<u64>>,
    /// From where on the log is complete, as far as the records say.
    log_start: u64,
}

/// Reads all records. An error if durable ones are lost.
fn check(log_dir: &Path, segments: &[Arc<Segment>], start: Start) -> Result<Checked, StoreError> {
    let read_error = |error| io_error("reading the log in", log_dir, error);
    let mut scanner = Scanner::new(segments, start.segment, start.applied.position).map_err(read_error)?;
    let (mut durable, mut log_start) = (start.applied.position, 0);
    let end = loop {
        match scanner.next().map_err(read_error)? {
            Step::Record { header, body } => {
                durable = durable.max(header.durable);
                for located in Operations::new(body) {
                    if let Operation::Start { position } = located.operation {
                        log_start = log_start.max(position);
                    }
                }
            }
            Step::End(end) => break end,
        }
    };
    let survey = scan::survey(segments, end).map_err(read_error)?;
    if let Some((file, position)) = survey.proof_of_loss {
        let damaged = segments.get(end.segment).map_or(file.clone(), |segment| segment.path.clone());
        let reason = format!("{}, and {} says at {position} that it had been on the disk", end.reason, file.display());
        return Err(StoreError::Corrupt { file: damaged, position: end.position, reason: reason.into() });
    }
    if !survey.written.is_empty() {
        info!(position = end.position, reason = end.reason, "what follows was never answered and is removed");
    }
    Ok(Checked { end, durable, torn: survey.written, log_start })
}

/// Applies the records up to `end`, with a checkpoint whenever they use much memory; answers how far the index has come.
fn replay(
    log_dir: &Path,
    segments: &[Arc<Segment>],
    start: Start,
    end: End,
    state: &RwLock<State>,
    index: &Index,
    options: &Options,
) -> Result<Indexed, StoreError> {
    let read_error = |error| io_error("reading the log in", log_dir, error);
    let mut scanner = Scanner::new(segments, start.segment, start.applied.position).map_err(read_error)?;
    let mut indexed = Indexed { position: start.applied.position, start: state.read().start() };
    while let Step::Record { header, body } = scanner.next().map_err(read_error)? {
        let base = segments::base_of(segments, header.position);
        state.write().apply(base, header.position, header.record_len(), body);
        if state.read().bytes() >= options.index_overlay_bytes {
            let snapshot = state.write().freeze();
            checkpoint::write(index, &snapshot, &*options.disk)?;
            state.write().thaw(&snapshot);
            index.compact()?;
            indexed = Indexed { position: snapshot.applied.position, start: snapshot.start };
        }
    }
    if state.read().applied().position != end.position {
        return Err(read_error(std::io::Error::other("the log changed while it was read")));
    }
    Ok(indexed)
}

fn io_error(what: &str, path: &Path, error: std::io::Error) -> StoreError {
    StoreError::io(format!("{what} {}", path.display()), error)
}
