//! A batch: what shall change together. It is encoded as it is built, by the caller, so that the committer only adds a header.

use super::held::HeldRow;
use super::record::{self, HEADER, Header};
use super::types::{Entry, EntryMeta, Keyspace, QueueKey};

/// Changes that are made together or not at all.
#[derive(Debug, Default)]
pub struct Batch {
    /// Room for the header, then the operations.
    record: Vec<u8>,
    operations: u32,
    digest: u32,
    /// Where the payloads (appended and held) start within the record.
    appends: Vec<u64>,
    /// The size of a key, value or payload that is larger than the format allows.
    too_large: Option<u64>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`. A key may have 65,535 bytes.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        let (Some(key_len), Some(value_len)) = (self.limited(key), self.limited::<u32>(value)) else { return };
        let start = self.begin(record::PUT, 12 + key.len() + value.len());
        self.record.push(keyspace as u8);
        self.record.extend_from_slice(&u16::to_le_bytes(key_len));
        self.record.extend_from_slice(&value_len.to_le_bytes());
        self.record.extend_from_slice(key);
        self.record.extend_from_slice(value);
        self.end(start);
    }

    /// Removes `key`; nothing happens if it is not there.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        let Some(key_len) = self.limited(key) else { return };
        let start = self.begin(record::DELETE, 8 + key.len());
        self.record.push(keyspace as u8);
        self.record.extend_from_slice(&u16::to_le_bytes(key_len));
        self.record.extend_from_slice(key);
        self.end(start);
    }

    /// Removes the row of a message that is held and goes to no queue. It says the row once more before, so that who only reads the log
    /// knows whose it was.
    pub fn let_go(&mut self, keyspace: Keyspace, row: &HeldRow) {
        let key = HeldRow::key(row.time_ms, row.position);
        self.put(keyspace, &key, &row.value());
        self.delete(keyspace, &key);
    }

    /// Adds a message to a queue. Offsets of a queue must grow; the first one of a queue is its lower bound.
    pub fn append(&mut self, queue: QueueKey, offset: u64, meta: EntryMeta, payload: &[u8]) {
        self.payload(record::APPEND, 0, queue, offset, meta, payload);
    }

    /// Writes a message that is in no queue yet, and its [`HeldRow`] in `keyspace`, which is Timer or Half. `queue` is where it is to
    /// go. Its position is among [`super::Committed::positions`], like that of an append.
    pub fn hold(&mut self, keyspace: Keyspace, time_ms: u64, queue: QueueKey, meta: EntryMeta, payload: &[u8]) {
        self.payload(record::HOLD, keyspace as u8, queue, time_ms, meta, payload);
    }

    /// Adds to a queue a message that is in the log already: one that was held, and whose row is deleted by what comes next. Offsets of
    /// a queue must grow.
    pub fn link(&mut self, queue: QueueKey, entry: Entry) {
        let start = self.begin(record::LINK, record::LINK_LEN);
        self.record.extend_from_slice(&[0; 3]);
        self.record.extend_from_slice(&entry.len.to_le_bytes());
        self.record.extend_from_slice(&entry.tag_hash.to_le_bytes());
        self.record.extend_from_slice(&queue.topic.to_le_bytes());
        self.record.extend_from_slice(&queue.queue.to_le_bytes());
        self.record.extend_from_slice(&entry.offset.to_le_bytes());
        self.record.extend_from_slice(&entry.store_time_ms.to_le_bytes());
        self.record.extend_from_slice(&entry.position.to_le_bytes());
        self.end(start);
    }

    fn payload(&mut self, kind: u8, keyspace: u8, queue: QueueKey, number: u64, meta: EntryMeta, payload: &[u8]) {
        let Some(len) = self.limited::<u32>(payload) else { return };
        let start = self.begin(kind, record::APPEND_HEAD + payload.len());
        self.appends.push(start as u64);
        self.record.extend_from_slice(&[keyspace, 0, 0]);
        self.record.extend_from_slice(&len.to_le_bytes());
        self.record.extend_from_slice(&meta.tag_hash.to_le_bytes());
        self.record.extend_from_slice(&queue.topic.to_le_bytes());
        self.record.extend_from_slice(&queue.queue.to_le_bytes());
        self.record.extend_from_slice(&number.to_le_bytes());
        self.record.extend_from_slice(&meta.store_time_ms.to_le_bytes());
        self.record.extend_from_slice(payload);
        self.end(start);
    }

    /// Forgets all queues of a topic.
    pub(super) fn drop_topic(&mut self, topic: u32) {
        let start = self.begin(record::DROP_TOPIC, 12);
        self.record.extend_from_slice(&[0; 3]);
        self.record.extend_from_slice(&topic.to_le_bytes());
        self.end(start);
    }

    /// Says again that a queue is there, and how far it goes; raises its lower bound.
    pub(super) fn trim(&mut self, queue: QueueKey, min: u64, next: u64) {
        let start = self.begin(record::TRIM, 32);
        self.record.extend_from_slice(&[0; 3]);
        self.record.extend_from_slice(&queue.topic.to_le_bytes());
        self.record.extend_from_slice(&queue.queue.to_le_bytes());
        self.record.extend_from_slice(&min.to_le_bytes());
        self.record.extend_from_slice(&next.to_le_bytes());
        self.end(start);
    }

    /// Says that the log is complete from this position on.
    pub(super) fn start(&mut self, position: u64) {
        let start = self.begin(record::START, 16);
        self.record.extend_from_slice(&[0; 3]);
        self.record.extend_from_slice(&position.to_le_bytes());
        self.end(start);
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.record.len()
    }

    /// True if there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations == 0 && self.too_large.is_none()
    }

    /// The finished record, which must not be longer than `max` bytes; else how long it is.
    pub(super) fn finish(mut self, max: u64) -> Result<Record, u64> {
        if let Some(bytes) = self.too_large {
            return Err(bytes);
        }
        let len = self.record.len().max(HEADER);
        let bytes = record::padded(len);
        let body_len = u32::try_from(len - HEADER).ok().filter(|_| bytes as u64 <= max).ok_or(bytes as u64)?;
        self.record.resize(bytes, 0);
        Ok(Record {
            bytes: self.record,
            position: 0,
            body_len,
            operations: self.operations,
            digest: self.digest,
            appends: self.appends,
        })
    }

    /// The length of a key, value or payload, if the format can say it.
    fn limited<T: TryFrom<usize>>(&mut self, bytes: &[u8]) -> Option<T> {
        let len = T::try_from(bytes.len()).ok();
        if len.is_none() {
            self.too_large = Some(bytes.len() as u64);
        }
        len
    }

    /// Starts an operation of about this many bytes, all told; answers where.
    fn begin(&mut self, kind: u8, bytes: usize) -> usize {
        if self.record.is_empty() {
            self.record.reserve(record::padded(HEADER + bytes));
            self.record.resize(HEADER, 0);
        }
        let start = self.record.len();
        self.record.extend_from_slice(&[0, 0, 0, 0, kind]);
        start
    }

    /// Ends the operation that starts here: its checksum.
    fn end(&mut self, start: usize) {
        let Some((checksum, covered)) = self.record.get_mut(start..).and_then(|bytes| bytes.split_first_chunk_mut())
        else {
            return;
        };
        *checksum = crc32c::crc32c(covered).to_le_bytes();
        self.digest = crc32c::crc32c_append(self.digest, &*checksum);
        self.operations += 1;
    }
}

/// A finished batch that has no place in the log yet.
#[derive(Debug)]
pub(super) struct Record {
    bytes: Vec<u8>,
    position: u64,
    body_len: u32,
    operations: u32,
    digest: u32,
    appends: Vec<u64>,
}

/// A record's place in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) position: u64,
    /// What is on the disk by now.
    pub(super) durable: u64,
    /// Bytes left out since the record before.
    pub(super) gap: u32,
    /// The seed of the segment.
    pub(super) seed: u32,
}

impl Record {
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where it starts in the log, once placed.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The operations.
    pub(super) fn body(&self) -> &[u8] {
        self.bytes.get(HEADER..HEADER + self.body_len as usize).unwrap_or_default()
    }

    /// Gives the record its place: the header, and the seals of the appends. Once.
    pub(super) fn place(&mut self, place: Place) {
        self.position = place.position;
        for start in &mut self.appends {
            let position = place.position + *start;
            if let Some(stored) = self.bytes.get_mut(*start as usize..).and_then(<[u8]>::first_chunk_mut) {
                *stored = (u32::from_le_bytes(*stored) ^ record::seal(place.seed, position)).to_le_bytes();
            }
            *start = position;
        }
        let header = Header {
            body_len: self.body_len,
            operations: self.operations,
            digest: self.digest,
            position: place.position,
            durable: place.durable,
            gap: place.gap,
        };
        if let Some(room) = self.bytes.first_chunk_mut() {
            *room = header.encode(place.seed);
        }
    }

    /// The positions of the appends, once placed.
    pub(super) fn into_positions(self) -> Vec<u64> {
        self.appends
    }
}
