//! RocketMQ's remoting protocol: frames over a byte stream, a header of named fields, and an opaque body.
//!
//! [`decode`] and [`encode`] turn bytes into a [`Command`] and back; [`Header`]s are typed views of its fields, [`body`] has the
//! JSON bodies, [`codes`] the numbers.

mod binary;
pub mod body;
mod changed_by;
pub mod codes;
mod command;
mod ext;
mod frame;
mod header;
mod headers;
mod json;
mod language;
pub mod pop_info;
pub mod queue_table;
mod subscribed;

pub use body::*;
pub use changed_by::{CHANGED_BY, ChangedBy};
pub use command::{Command, FLAG_ONEWAY, FLAG_RESPONSE, SerializeType, VERSION};
pub use ext::{ExtFields, MAX_EXT_FIELDS};
pub use frame::{DEFAULT_MAX_FRAME, FrameError, decode, encode, encode_head};
pub use header::{Header, HeaderError};
pub use headers::*;
pub use language::Language;
pub use queue_table::MessageQueue;
pub use subscribed::SUBSCRIBED_TOPICS;
