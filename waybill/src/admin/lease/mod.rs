//! `waybill lease`: which messages are out with consumers, and for how long; only Waybill's brokers tell.

mod change;
mod listing;
mod show;

use std::time::Duration;

use clap::ArgGroup;
use clap::builder::NonEmptyStringValueParser;

use self::listing::Leases;
use super::Address;
use crate::exit::Failure;
use crate::names;
use crate::output::{self, Format};
use crate::quantity;

/// The least of `lease extend --for`.
const FROM_NOW_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the messages that consumers have received and not acknowledged yet
    #[command(after_help = "\
Examples:
  waybill lease list
  waybill lease list --group billing --topic orders
  waybill lease list --client pod-1@7@0@x --output json

WHY says how the lease came to end when it does: as received (never changed; consume timeout where that is the duration),
renewed (by a sidecar: the client still works on it), by client (given back), extended (by a simple consumer, which holds it
until then), returned (the client left or did not get it), client gone (nobody vouched for it), by operator (waybill lease),
changed (by a sidecar that does not say why, such as Apache's). CHANGES counts all of them, RENEWALS those of a sidecar. ENDS IN
is over when the message can be delivered again and was not yet. The groups below say what holds for messages that are
received from now on; where they say nothing, the sidecar's configuration decides (its /config). HEARD is when a sidecar last
vouched for the holder: when that is longer ago than the broker's clientGoneAfter, the broker gives back what it holds; - is
not watched.")]
    List(ListArgs),
    /// Make messages that consumers hold visible now
    #[command(after_help = "\
The delivery counts as an attempt. Who held the message may still acknowledge it until it is delivered again.

Examples:
  waybill lease release --client pod-1@7@0@x --dry-run
  waybill lease release --group billing --topic orders
  waybill lease release --group billing --topic orders --queue 3 --offset 1742")]
    Release(ChangeArgs),
    /// Let consumers keep messages for longer
    #[command(after_help = "\
A sidecar that renews the lease goes on doing so, and may shorten what was extended.

Examples:
  waybill lease extend --group billing --by 10m
  waybill lease extend --client pod-1@7@0@x --for 1h --dry-run")]
    Extend(ExtendArgs),
}

/// Which leases. To a broker an empty word is none, hence everything: it is refused, for `--group "$G"` may have an unset `G`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Filters {
    /// Only of this consumer group
    #[arg(long, value_parser = names::group)]
    group: Option<String>,
    /// Only of this topic
    #[arg(long, value_parser = names::topic)]
    topic: Option<String>,
    /// Only held by the client with this id
    #[arg(long, value_name = "CLIENT_ID", value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// Only of this queue
    #[arg(long, value_name = "QUEUE_ID")]
    queue: Option<u32>,
    /// Only the message at this offset
    #[arg(long, requires = "queue")]
    offset: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    filters: Filters,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").args(["group", "topic", "client", "all"]).required(true).multiple(true))]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    filters: Filters,
    /// Every lease of the broker
    #[arg(long, conflicts_with_all = ["group", "topic", "client"])]
    all: bool,
    /// Only say how many leases it would be
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("how_long").args(["by", "from_now"]).required(true))]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// Let each lease end so much later than it would: 500ms, 30s, 5m, 2h
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    by: Option<Duration>,
    /// Let each lease end so long from now, 1s or more
    #[arg(long = "for", id = "from_now", value_name = "DURATION", value_parser = from_now)]
    from_now: Option<Duration>,
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::List(args) => list(args, format).await,
            Self::Release(args) => change::run(args, change::Wish::Release, format).await,
            Self::Extend(args) => {
                let wish = match (args.by, args.from_now) {
                    (Some(by), _) => change::Wish::By(millis(by)),
                    (None, from_now) => change::Wish::For(millis(from_now.unwrap_or_default())),
                };
                change::run(args.change, wish, format).await
            }
        }
    }
}

/// Shorter ones end leases rather than extend them.
fn from_now(text: &str) -> Result<Duration, String> {
    let duration = quantity::duration(text)?;
    if duration < FROM_NOW_MIN {
        return Err("1s is the least; `waybill lease release` ends leases at once".to_owned());
    }
    Ok(duration)
}

/// What is too long for the number is refused by the broker.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

async fn list(args: ListArgs, format: Format) -> Result<(), Failure> {
    let leases: Leases = args.address.broker().leases(&args.filters, None).await?;
    output::print(format, &leases, show::table)
}
