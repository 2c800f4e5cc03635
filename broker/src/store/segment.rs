//! One file of the log.
//!
//! ```text
//! File:    log/<base position, 20 digits>.log, `size` bytes of reserved blocks
//! Header:  magic u32 · version u32 · base u64 · size u64 · seed u32 · crc u32 (CRC-32C over the 28 bytes before); then records, then zeros
//! ```
//! The seed is random. It starts the checksums of the records, so that no byte that was ever anywhere else is taken for one.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::disk::{Disk, write_all};
use super::record::{u32_at, u64_at};

/// Bytes before the first record.
pub(super) const SEGMENT_HEADER: u64 = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"WBs1");
const VERSION: u32 = 1;
const EXTENSION: &str = "log";
/// A segment that is not finished; no segment until it is renamed.
const UNFINISHED: &str = "next.tmp";

/// What is known about a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// The log position of the file's first byte.
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) seed: u32,
}

impl Segment {
    /// Where the first record may start.
    pub(super) fn first(&self) -> u64 {
        self.base + SEGMENT_HEADER
    }

    /// The position after the last byte; the base of the next segment.
    pub(super) fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Creates a segment, on the disk when this returns; nothing is left behind if it fails.
    pub(super) fn create(dir: &Path, base: u64, size: u64, disk: &dyn Disk) -> io::Result<(Self, File)> {
        let unfinished = dir.join(UNFINISHED);
        let segment = Self {
            path: dir.join(format!("{base:020}.{EXTENSION}")),
            base,
            size,
            seed: RandomState::new().hash_one(base) as u32,
        };
        let create = || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&unfinished)?;
            disk.allocate(&file, size)?;
            write_all(disk, &file, &mut [IoSlice::new(&segment.header())], 0)?;
            disk.sync(&file)?;
            fs::rename(&unfinished, &segment.path)?;
            sync_dir(dir)?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok((segment, file)),
            Err(error) => {
                // Best effort: a leftover is overwritten by the next attempt.
                let _ = fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    fn header(&self) -> [u8; SEGMENT_HEADER as usize] {
        let mut out = [0; SEGMENT_HEADER as usize];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.base.to_le_bytes());
        out[16..24].copy_from_slice(&self.size.to_le_bytes());
        out[24..28].copy_from_slice(&self.seed.to_le_bytes());
        let crc = crc32c::crc32c(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header of an existing segment; `None` if it is damaged.
    fn open(path: PathBuf, base: u64) -> io::Result<Option<Self>> {
        let mut header = [0; SEGMENT_HEADER as usize];
        match File::open(&path)?.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let read = || {
            let segment = Self { path, base, size: u64_at(&header, 16)?, seed: u32_at(&header, 24)? };
            let valid = segment.header() == header && segment.size > SEGMENT_HEADER;
            valid.then_some(segment)
        };
        Ok(read())
    }
}

/// A file that claims to be a segment.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) base: u64,
    /// `None` if its header is damaged.
    pub(super) segment: Option<Segment>,
}

/// Every segment in a directory, in order.
pub(super) fn list(dir: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let base = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (Some(base), Some(EXTENSION)) = (base, path.extension().and_then(|extension| extension.to_str())) {
            found.push(Found { segment: Segment::open(path.clone(), base)?, path, base });
        }
    }
    found.sort_by_key(|found| found.base);
    Ok(found)
}

/// Makes created, renamed and removed names durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
