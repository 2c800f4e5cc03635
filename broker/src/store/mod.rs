//! The store: a batch-capable key-value store whose write-ahead log is the message log.
//!
//! One verb changes it: [`Store::submit`] of a [`Batch`], atomic and, once answered, durable. Every batch is one record in an append-only
//! segmented log. Message bodies stay there, written once and read by position. What must be found again is in an index beside it, which
//! is written in checkpoints, says how much of the log it has, and can be built again from the log.
//!
//! ```text
//! submit → inbox → committer ─ write, sync ─ apply ─ answer      space: reserves the next segment
//!                                            │
//!          get, scan, entries ← state (what is committed since the last checkpoint) → checkpoint → index
//!          read ← log segments
//! ```
//!
//! On disk: `lock`, `log/<base position>.log` (`segment.rs`, `record.rs`), `index/` (`schema.rs`).

// The users' side.
mod api;
mod batch;
mod commit;
mod error;
mod held;
mod options;
mod stats;
mod types;

// The log.
mod disk;
mod facts;
mod flusher;
mod record;
mod segment;
mod segments;
mod space;
mod writer;

// Committing and reading.
mod committer;
mod inbox;
mod overlay;
mod queues;
mod range;
mod shared;
mod state;
mod waiting;

// The index.
mod blocks;
mod checkpoint;
mod index;
mod schema;

// Opening.
mod lock;
mod recovery;
mod repair;
mod scan;

// Shortening.
mod shorten;

pub use api::Store;
pub use batch::Batch;
pub use commit::{Commit, Committed};
pub use disk::{Disk, DiskUsage, RealDisk};
pub use error::StoreError;
pub use held::HeldRow;
pub use options::{Drive, Flush, Options};
pub use shorten::{Cut, Held, Shortened};
pub use stats::Stats;
pub use types::{Admit, Entry, EntryMeta, Health, Keyspace, QueueKey, SegmentInfo};
