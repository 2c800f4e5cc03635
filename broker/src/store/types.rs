//! The words the store's users speak: keyspaces, queues and their entries.

/// A part of the store with an order of keys of its own. The numbers are written to disk and stay the same for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Keyspace {
    /// What the broker knows about itself.
    Meta = 0,
    /// Topics and their settings.
    Topic = 1,
    /// Consumer groups and their settings.
    Group = 2,
    /// How far a group has been given each queue.
    Progress = 3,
    /// Leases of messages that are with a consumer.
    Lease = 4,
    /// Who holds leases.
    Holder = 5,
    /// Offsets that consumers commit by themselves.
    Offset = 6,
    /// Delayed messages that wait for their time ([`super::HeldRow`]).
    Timer = 7,
    /// Halves of transactions that wait for a decision ([`super::HeldRow`]).
    Half = 8,
    /// Decisions about transactions, which are final, and how often producers were asked about open ones.
    Decision = 9,
    // 10 was never written by any version.
    /// Which dead letters went back to where they came from.
    Redriven = 11,
}

impl Keyspace {
    /// Every keyspace, in the order of their numbers.
    pub const ALL: [Keyspace; 11] = [
        Keyspace::Meta,
        Keyspace::Topic,
        Keyspace::Group,
        Keyspace::Progress,
        Keyspace::Lease,
        Keyspace::Holder,
        Keyspace::Offset,
        Keyspace::Timer,
        Keyspace::Half,
        Keyspace::Decision,
        Keyspace::Redriven,
    ];

    /// All numbers are less than this.
    pub(super) const NUMBERS: usize = Self::Redriven as usize + 1;

    /// The keyspace with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|keyspace| *keyspace as u8 == number)
    }
}

/// One queue of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// The catalog's number of the topic; never given to another topic.
    pub topic: u32,
    /// The number of the queue within the topic.
    pub queue: u32,
}

/// What is kept about a message beside its payload, so that filtering by tag or time needs no read of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryMeta {
    /// Hash of the tag; 0 for a message without one.
    pub tag_hash: u32,
    /// When the broker took the message, in milliseconds since 1970.
    pub store_time_ms: i64,
}

/// One message of a queue: where it is and what is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The place in the queue.
    pub offset: u64,
    /// The place in the log; what [`super::Store::read`] takes.
    pub position: u64,
    /// The payload's length in bytes.
    pub len: u32,
    /// Hash of the tag; 0 for a message without one.
    pub tag_hash: u32,
    /// When the broker took the message, in milliseconds since 1970.
    pub store_time_ms: i64,
}

/// One file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The position of its first byte.
    pub base: u64,
    /// The position after its last byte; `end - base` is also its size on disk.
    pub end: u64,
    /// When the first message in it was taken, milliseconds since 1970, if it is known.
    pub first_ms: Option<i64>,
    /// When the newest message in it was taken or came into its queue, milliseconds since 1970, at the latest; `None` if there are none.
    pub newest_ms: Option<i64>,
    /// Messages whose payloads are in it, as far as it is known.
    pub messages: u64,
}

/// What a change is for; decides which of the free space it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// New messages. Refused first when space runs out.
    Append,
    /// Acks, leases, settings: small, and often what frees space. May use the reserve.
    State,
}

/// Whether the store can take changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Ok,
    /// It takes no messages until there is free space again; changes of state go on while the reserve lasts.
    DiskFull,
    /// A write or a sync of the log failed, for this reason. Nothing is taken until the store is opened again.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_ever() {
        let numbers: Vec<u8> = Keyspace::ALL.into_iter().map(|keyspace| keyspace as u8).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
        for number in 0..=u8::MAX {
            let known = Keyspace::from_number(number);
            assert_eq!(known.map(|keyspace| keyspace as u8), Some(number).filter(|number| numbers.contains(number)));
            assert!(known.is_none_or(|keyspace| (keyspace as usize) < Keyspace::NUMBERS));
        }
    }
}
