//! Messages as they are stored and delivered, their properties and ids, and the body of a batch.

mod batch;
mod ids;
pub mod properties;
mod stored;
pub mod sys_flag;

pub use batch::{BatchItem, decode_batch, encode_batch};
pub use ids::{host_text, java_hash, offset_msg_id, offset_of_msg_id};
pub use stored::{Delivery, StoredMessage, patch_delivery, peek_properties, peek_sys_flag};

/// The longest property string, in bytes: its length field is a signed 16-bit number.
pub const MAX_PROPERTIES: usize = i16::MAX as usize;

/// Why bytes are no message, or a message cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes end, or a length leads outside of them.
    #[error("a message ends within its {0}")]
    Truncated(&'static str),
    /// A number that cannot be, such as a negative length or a port beyond 65535.
    #[error("{value} is no {field} of a message")]
    BadNumber {
        /// What it was read as.
        field: &'static str,
        /// What it was.
        value: i32,
    },
    /// Neither of the two forms of messages.
    #[error("unknown message magic {0:#010x}")]
    BadMagic(i32),
    /// The stated size and the sum of the parts differ.
    #[error("a message of {stated} bytes has parts of {found} bytes")]
    SizeMismatch {
        /// By the size field.
        stated: usize,
        /// By the lengths of the parts.
        found: usize,
    },
    /// The body is not what its checksum was made of.
    #[error("the body of a message does not match its checksum")]
    BodyChecksum,
    /// Text that is not UTF-8.
    #[error("the {0} of a message is not UTF-8")]
    NotUtf8(&'static str),
    /// A part too long for its length field.
    #[error("the {field} of a message has {len} bytes, at most {max} fit")]
    TooLong {
        /// Which part.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// What fits.
        max: usize,
    },
}
