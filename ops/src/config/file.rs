//! Reading a small text file, and noticing by its metadata alone that it became another one.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::ConfigError;

/// Largest file that is read, in bytes. A Kubernetes ConfigMap holds at most 1 MiB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads a whole file of at most [`MAX_BYTES`] of UTF-8.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let cannot = |reason: String| ConfigError::file(path, reason);
    // Opening a named pipe would wait for whoever writes to it.
    let meta = std::fs::metadata(path).map_err(|e| cannot(format!("cannot be opened: {e}")))?;
    if !meta.is_file() {
        return Err(cannot("is not a file".to_owned()));
    }
    let file = std::fs::File::open(path).map_err(|e| cannot(format!("cannot be opened: {e}")))?;
    let mut text = String::new();
    // One byte more than allowed tells "too long" from "just long enough".
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| cannot(format!("cannot be read: {e}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(cannot(format!("is longer than {MAX_BYTES} bytes")));
    }
    if let Some(at) = text.bytes().position(|byte| byte == 0) {
        // YAML would end there, and what follows would be ignored.
        return Err(cannot(format!("has a NUL byte at {at}: it was not written whole")));
    }
    Ok(text)
}

/// Makes hashes by which states of a file are told apart.
#[derive(Debug, Default)]
pub(super) struct Hasher(Option<RandomState>);

impl Hasher {
    /// One whose hashes tell nothing of the text to whoever does not know what this process drew by lot.
    pub(super) fn of_this_process() -> Self {
        Self(Some(RandomState::new()))
    }

    /// 16 hexadecimal digits.
    pub(super) fn hash(&self, text: &str) -> String {
        let hash = match &self.0 {
            Some(drawn) => drawn.hash_one(text),
            None => fnv_1a(text),
        };
        format!("{hash:016x}")
    }
}

/// 64-bit FNV-1a: the same everywhere and for ever, to compare files, not to keep secrets.
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// What changes when a file is rewritten, replaced, or reached through a symbolic link that was turned to another
/// target, which is how Kubernetes swaps a mounted ConfigMap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Fingerprint {
    /// None when there is no such file, or it cannot be looked at.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?; // follows links
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do now.
    Wait,
    /// The file is to be read.
    Load,
}

/// Decides when to read: at the first look, and after each change once it has settled, that is, when two looks in a
/// row saw the same. An editor that empties a file before it writes it is thereby not caught half-way.
#[derive(Debug, Default)]
pub(super) struct Poller {
    loaded: Option<Option<Fingerprint>>,
    last: Option<Option<Fingerprint>>,
}

impl Poller {
    pub(super) fn step(&mut self, seen: Option<Fingerprint>) -> Step {
        let settled = self.last == Some(seen);
        let first = self.last.is_none();
        self.last = Some(seen);
        // The first look reads as well: the file may have changed between the start of the process and now.
        if (settled || first) && self.loaded != Some(seen) {
            self.loaded = Some(seen);
            return Step::Load;
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(inode: u64) -> Option<Fingerprint> {
        Some(Fingerprint { device: 1, inode, size: 1, modified: (1, 0), changed: (1, 0) })
    }

    #[test]
    fn loads_once_a_change_has_settled() {
        let mut poller = Poller::default();
        let mut look = |seen| poller.step(seen) == Step::Load;
        assert!(look(print(1)), "the first look");
        assert!(!look(print(1)));
        assert!(!look(print(2)), "changed just now");
        assert!(!look(print(3)), "still changing");
        assert!(look(print(3)), "settled");
        assert!(!look(print(3)));
        assert!(!look(None), "gone, perhaps for a moment");
        assert!(!look(print(3)), "back, and the same as what was loaded");
        assert!(!look(print(3)));
        assert!(!look(None));
        assert!(look(None), "gone for longer: to be reported");
        assert!(!look(None), "once");
    }

    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(Hasher::default().hash(""), "cbf29ce484222325");
        assert_eq!(Hasher::default().hash("a"), "af63dc4c8601ec8c");
        assert_eq!(Hasher::default().hash("foobar"), "85944171f73967e8");
    }

    #[test]
    fn a_huge_file_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("huge.yaml");
        std::fs::File::create(&path).and_then(|f| f.set_len(MAX_BYTES + 1)).expect("file");
        assert!(read(&path).is_err_and(|e| e.to_string().contains("longer than")));
        std::fs::write(&path, " ".repeat(usize::try_from(MAX_BYTES).expect("a size"))).expect("file");
        assert!(read(&path).is_ok());
    }

    #[test]
    fn what_is_no_file_or_was_not_written_whole_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        assert!(read(dir.path()).is_err_and(|e| e.to_string().contains("not a file")));
        let path = dir.path().join("half.yaml");
        std::fs::write(&path, "a: 1\n\0\nb: 2\n").expect("file");
        assert!(read(&path).is_err_and(|e| e.to_string().contains("NUL byte at 5")));
    }
}
