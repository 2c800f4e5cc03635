//! Every bound of the broker in one place. A limit that upstream names keeps upstream's value.

/// Messages one pop may take (upstream refuses more with INVALID_PARAMETER).
pub const POP_MAX_MESSAGES: usize = 32;
/// Bytes of message payload one pop answer may carry; a pop always gives at least one message.
pub const POP_MAX_BYTES: usize = 12 * 1024 * 1024;
/// A pop that waited longer than this beyond its own poll time, in milliseconds, is answered POLLING_TIMEOUT without work.
pub const POP_LATE_MS: i64 = 500;
/// How long a pop may pass over messages that its filter does not want, in milliseconds, when its poll time is shorter.
pub const SCAN_MS_MAX: i64 = 1_000;
/// How much earlier than asked a long poll is answered, in milliseconds, so that the answer arrives in time.
pub const POLL_EARLY_MS: i64 = 50;
/// The longest a request waits for messages (`pollTime`), in milliseconds; one that would wait longer waits this long. Upstream has
/// no bound; its own clients ask for 20 seconds at most.
pub const POLL_MS_MAX: i64 = 5 * 60_000;
/// The longest invisible duration a pop or change may ask for, in milliseconds: seven days. The sidecar's own limit is 12 hours.
pub const INVISIBLE_MS_MAX: i64 = 7 * 24 * 3_600_000;
/// Bytes of the encoded properties of a message: the wire has a signed 16-bit length.
pub const PROPERTIES_BYTES_MAX: usize = 32_767;
/// The most that `batchMaxEntries` may be set to: that many entries fit into the body's bytes.
pub const BATCH_ENTRIES_MAX: u64 = 16_384;
/// Bytes of the JSON body of a batch request.
pub const BATCH_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Messages in one SEND_BATCH_MESSAGE.
pub const SEND_BATCH_MAX: usize = 1024;
/// Connections the remoting listener holds at once.
pub const CONNECTIONS_MAX: usize = 10_000;
/// TLS handshakes at the same time; more wait.
pub const HANDSHAKES_MAX: usize = 256;
/// Requests of one connection that are being worked on; reading stops until one is answered.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 8_192;
/// Bytes of answers waiting to be written to one connection before its requests stop being read.
pub const RESPONSE_BYTES_PER_CONNECTION_MAX: usize = 64 * 1024 * 1024;
/// Clients in the registry (HEART_BEAT).
pub const CLIENTS_MAX: usize = 100_000;
/// Clients that one VOUCH_FOR_CLIENTS names.
pub const VOUCHES_PER_REQUEST_MAX: usize = 10_000;
/// Clients whose life is watched; more keep their leases to the end.
pub const WATCHED_CLIENTS_MAX: usize = 1_000_000;
/// Sidecars that vouch for one client at the same time; the one that was silent longest makes room.
pub const VOUCHERS_PER_CLIENT_MAX: usize = 8;
/// Groups one client may register.
pub const GROUPS_PER_CLIENT_MAX: usize = 1_024;
/// Producers of one group that are tried for one question about a transaction, until one can be told.
pub const PRODUCERS_TRIED: usize = 16;
/// Halves of transactions that wait for a decision; more are refused.
pub const HALVES_MAX: usize = 1_000_000;
/// Decisions about transactions that are remembered …
pub const DECISIONS_MAX: usize = 100_000;
/// … and for how long, in milliseconds. Whoever decides again afterwards hears that there is no such transaction.
pub const DECISIONS_MS: i64 = 24 * 3_600_000;
/// Halves that are looked at together for whether their producers are to be asked; one batch in the log.
pub const CHECKS_PER_BATCH: usize = 256;
/// Delayed messages that go to their queues with one batch.
pub const TIMER_BATCH: usize = 1_024;
/// … and how many more, of those that are due just now, while older ones wait in a longer line.
pub const TIMER_FRESH: usize = 256;
/// Messages due in the same millisecond that one recall looks at …
pub const RECALL_LOOKS_MAX: usize = 1_024;
/// … and bytes of them that it reads. The one that the handle names is found at once.
pub const RECALL_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Leases one answer to `waybill lease list` carries.
pub const LEASE_LIST_MAX: usize = 10_000;
/// Dead letters that one REDRIVE_DEAD_LETTERS looks at, and so the most that it moves.
pub const REDRIVE_LOOK_MAX: usize = 512;
/// Bytes of dead letters after which one REDRIVE_DEAD_LETTERS looks at no more.
pub const REDRIVE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Topics that one answer to COUNT_LEFT names.
pub const LEFT_TOPICS_MAX: usize = 16;
/// Groups and topics one answer to COUNT_MESSAGES carries.
pub const COUNTS_MAX: usize = 10_000;
/// Messages that one search looks at.
pub const QUERY_LOOK_MAX: usize = 20_000;
/// Bytes of messages after which one search looks at no more.
pub const QUERY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Messages that one search finds at most; upstream's tools ask for 64.
pub const QUERY_MESSAGES_MAX: usize = 64;
/// Entries of queues among which one is looked for by its place in the log.
pub const QUERY_ENTRIES_MAX: usize = 1_000_000;
/// Delayed messages, and halves of transactions, of a topic that one search looks at.
pub const QUERY_HELD_MAX: usize = 2_000;
/// Letters among which one search looks for a message that a group has done with.
pub const QUERY_LETTERS_MAX: usize = 1_000;
/// Ledgers (consumer group on topic) in memory.
pub const LEDGERS_MAX: usize = 100_000;
