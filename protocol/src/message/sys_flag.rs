//! Bits of a message's system flag.

/// The body is compressed; how, say the bits of [`COMPRESSION`].
pub const COMPRESSED: i32 = 0x1;
/// More than one tag.
pub const MULTI_TAGS: i32 = 0x2;
/// Both bits of the transaction state; none set: no transaction.
pub const TRANSACTION: i32 = 0xC;
/// First half of a transaction.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// Committed.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// Rolled back.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The producer's address is IPv6.
pub const BORN_V6: i32 = 0x10;
/// The broker's address is IPv6.
pub const STORE_V6: i32 = 0x20;
/// The body is a batch that is to be taken apart.
pub const NEED_UNWRAP: i32 = 0x40;
/// The body is a batch inside the queue.
pub const INNER_BATCH: i32 = 0x80;
/// The bits of the compression; none set: zlib, as old producers leave it.
pub const COMPRESSION: i32 = 0x700;
/// LZ4.
pub const COMPRESSION_LZ4: i32 = 0x100;
/// Zstandard.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// zlib.
pub const COMPRESSION_ZLIB: i32 = 0x300;
/// Ours: only the consumer group that the property [`ORIGIN_GROUP`](super::properties::ORIGIN_GROUP) names gets the message.
pub const FOR_ONE_GROUP: i32 = 0x0100_0000;
