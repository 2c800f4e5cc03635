//! `waybill message`: by hand over gRPC, as every client does; and what only brokers tell: where messages are, and dead letters that
//! go back.

mod describe;
mod query;
mod redrive;

use crate::exit::Failure;
use crate::message;
use crate::output::Format;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    ByHand(message::Command),
    /// Find messages by id or by key
    #[command(after_help = "\
There is no index of ids and keys: the broker looks through the messages of the topic, the newest first. An id of the official clients
says when it was made, and is looked for from then on. --since and --until make it faster. What the messages contain is printed;
`waybill message describe` says what became of one.

Examples:
  waybill message query --topic orders --key 4711 --since 2h
  waybill message query --topic orders --id 01AABBCCDDEEFF1234071A2B3C00000001 --output json
  waybill message query --topic orders --key 4711 --since 2026-11-30T16:00:00Z --until 2026-11-30T17:00:00Z --max 5")]
    Query(query::QueryArgs),
    /// Show where a message is, and what each consumer group has done with it
    #[command(after_help = "\
States of a group: Ready (can be delivered), Inflight (a consumer holds it), WaitingRetry (given back, and delivered again later), Commit
(done, or not wanted by the group's filter), DLQ (given up). A message that is in no queue yet is Timing (delayed) or Half (of a
transaction that is not decided).

Example:
  waybill message describe --topic orders --id 01AABBCCDDEEFF1234071A2B3C00000001")]
    Describe(describe::DescribeArgs),
    /// Send dead letters back to the topic they came from
    #[command(after_help = "\
Each letter goes back once: a copy of the message, with its attempts anew, for the group that gave up on it and no other. The letter stays in
the dead-letter topic, and is not counted any more. Letters whose topic is gone are told and stay.

Examples:
  waybill message redrive --group billing --all --dry-run
  waybill message redrive --group billing --all
  waybill message redrive --group billing --max 10
  waybill message redrive --group billing --id 01AABBCCDDEEFF1234071A2B3C00000001")]
    Redrive(redrive::RedriveArgs),
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::ByHand(command) => command.run(format).await,
            Self::Query(args) => query::run(args, format).await,
            Self::Describe(args) => describe::run(args, format).await,
            Self::Redrive(args) => redrive::run(args, format).await,
        }
    }
}
