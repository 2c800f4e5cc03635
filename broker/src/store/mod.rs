//! The store: a batch-capable key-value store whose write-ahead log is the message log.

mod api;
mod batch;
mod commit;
mod error;
mod options;
mod stats;
mod types;

pub use api::Store;
pub use batch::Batch;
pub use commit::{Commit, Committed};
pub use error::StoreError;
pub use options::{Flush, Options};
pub use stats::Stats;
pub use types::{Admit, Entry, EntryMeta, Health, Keyspace, QueueKey};
