//! The limits of the client side that are not configuration keys, in one place. Those that are keys are in
//! [`crate::config`].
//!
//! Lengths are in bytes and times in milliseconds, unless the name says otherwise.

use std::time::Duration;

/// Most messages of one SendMessage.
pub const SEND_MESSAGES: usize = 1_024;
/// Longest filter expression.
pub const FILTER_BYTES: usize = 16_384;
/// Longest attempt id of a receive.
pub const ATTEMPT_ID_BYTES: usize = 512;
/// Most deliveries of one AckMessage.
pub const ACK_ENTRIES: usize = 4_096;
/// Largest body that is made of a compressed one, where `maxMessageSize` says nothing.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest receipt handle: eight numbers and the name of a broker.
pub const HANDLE_BYTES: usize = 512;

/// Longest client id.
pub const CLIENT_ID_BYTES: usize = 255;
/// Most addresses in the endpoints of a request: they are repeated for every queue of the answer.
pub const ENDPOINT_ADDRESSES: usize = 32;
/// Longest host in the endpoints of a request.
pub const ENDPOINT_HOST_BYTES: usize = 255;
/// Most queues in one answer, and most queues of one topic that take messages.
pub const ROUTE_QUEUES: usize = 16_384;
/// Most queues of one topic on one broker that take messages.
pub const BROKER_QUEUES: usize = 4_096;
/// Most pairs of brokers of one name that are told apart in the log.
pub const NAMESAKES: usize = 1_024;

/// Most clients known at a time.
pub const CLIENTS: usize = 20_000;
/// Consumer groups that `/config` shows.
pub const GROUPS_SHOWN: usize = 1_000;
/// Largest settings of a client; they are kept as long as the client is known.
pub const SETTINGS_BYTES: usize = 128 * 1024;
/// Commands that may wait for one client's telemetry stream.
pub const TELEMETRY_QUEUE: usize = 16;
/// A client whose telemetry stream closed and that is silent for so long is gone. Clients reopen the stream after a
/// second.
pub const STREAM_CLOSED_GRACE_MS: i64 = 5_000;
/// A client that goes on calling without a telemetry stream and is silent for so long is gone. Clients send heartbeats
/// every ten seconds.
pub const STREAMLESS_GRACE_MS: i64 = 15_000;
/// A call so long after its telemetry stream closed shows that a client goes on without one.
pub const STREAMLESS_AFTER_MS: i64 = 1_000;
/// A consumer that asks for messages for so long without having sent settings will not send any soon.
pub const STRANGER_PATIENCE_MS: i64 = 5_000;
/// How long after a goodbye a call without settings is taken for one that was under way, milliseconds.
pub const GOODBYE_MS: i64 = 5_000;
/// How long the first receive of a consumer waits for its settings, which it may have overtaken.
pub const SETTINGS_WAIT: Duration = Duration::from_secs(1);
/// When the last look for departures is so long ago, that says nothing of clients.
pub const LATE_LOOK_MS: i64 = 30_000;
/// How often departures are looked for.
pub const DEPARTURE_SCAN_MS: u64 = 1_000;
/// How often brokers are told which clients are here, at least and at most; a third of the broker's `clientGoneAfter`.
pub const VOUCH_PERIOD_MIN: Duration = Duration::from_secs(1);
/// See [`VOUCH_PERIOD_MIN`].
pub const VOUCH_PERIOD_MAX: Duration = Duration::from_secs(10);
/// How long it is looked for brokers that are not known yet before those that are known are told.
pub const VOUCH_LOOKUP: Duration = Duration::from_millis(500);
/// How long a broker may take to answer that.
pub const VOUCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Clients that one such request names; brokers take 10,000.
pub const CLIENTS_PER_VOUCH: usize = 10_000;

/// Questions of brokers about transactions that may wait; brokers ask again.
pub const QUESTIONS_WAITING: usize = 1_024;
/// Bytes of the messages of questions that wait because all producers of their topic have much to read. (And of each topic at most as many
/// questions as may wait to be read at all.)
pub const QUESTION_BYTES_WAITING: usize = 64 << 20;
/// How often such questions are tried again, and for how long.
pub const QUESTION_PAUSE: Duration = Duration::from_millis(10);
/// See [`QUESTION_PAUSE`].
pub const QUESTION_WAIT: Duration = Duration::from_secs(10);
/// Producers of a topic that are tried for one question, until one can be told.
pub const PRODUCERS_TRIED: usize = 16;
/// How often brokers are told which producers are here, at least.
pub const ANNOUNCE_PERIOD: Duration = Duration::from_secs(10);
/// How long news of producers gathers before brokers are told.
pub const ANNOUNCE_GATHER: Duration = Duration::from_millis(200);
/// Topics in one such message; Apache's proxy takes 100.
pub const TOPICS_PER_ANNOUNCEMENT: usize = 100;

/// Calls of one kind that may be under way at a time; more are answered TOO_MANY_REQUESTS.
pub const CALLS_IN_FLIGHT: usize = 10_000;
/// Receives that may be under way at a time. They mostly wait.
pub const RECEIVES_IN_FLIGHT: usize = 20_000;
/// Bytes of messages that may be on their way to brokers at a time.
pub const SEND_BYTES_IN_FLIGHT: usize = 256 * 1024 * 1024;
/// What a client may send on one stream before it is read.
pub const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;
/// What a client may send on one connection before it is read.
pub const HTTP2_CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Most bytes of the headers of a call.
pub const HTTP2_HEADER_BYTES: u32 = 64 * 1024;

/// Requests with many leases of one consumer group and topic that may be under way to one broker at a time. What comes
/// meanwhile gathers and goes with the next.
pub const BATCHES_OF_TARGET_IN_FLIGHT: usize = 4;
/// The same, of all consumer groups and topics together.
pub const BATCHES_IN_FLIGHT: usize = 64;
/// Most bytes of the body of such a request; brokers take 4 MiB.
pub const BATCH_BODY_BYTES: usize = 2 * 1024 * 1024;
/// Largest distance between the offset of a message and the start of its pop that is told by a bit of a batch of acks.
pub const BATCH_ACK_SPAN: i64 = 8_192;
/// Leases that may wait to be changed or ended at one broker; more are answered TOO_MANY_REQUESTS.
pub const LEASES_WAITING_OF_BROKER: usize = 65_536;
/// The same, at all brokers together.
pub const LEASES_WAITING: usize = 262_144;
