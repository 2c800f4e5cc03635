//! `waybill lease`: which messages are out with consumers, a question that only Waybill's brokers answer.

use serde::{Deserialize, Serialize};
use waybill_ops::clock;
use waybill_protocol::remoting::Command as Remoting;
use waybill_protocol::remoting::codes::{own, response};

use super::Address;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::quantity::millis;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the messages that a consumer group has received and not acknowledged yet
    #[command(after_help = "\
Examples:
  waybill lease list --group billing
  waybill lease list --group billing --topic orders --output json")]
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    address: Address,
    /// The consumer group
    #[arg(long)]
    group: String,
    /// Only those of this topic
    #[arg(long)]
    topic: Option<String>,
}

/// What the broker answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Leases {
    leases: Vec<Lease>,
    /// There are more than the broker lists.
    truncated: bool,
}

/// Times in milliseconds, moments since the Unix epoch.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lease {
    group: String,
    topic: String,
    queue_id: i32,
    offset: i64,
    /// The client that holds it, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    pop_time: i64,
    invisible_time: i64,
    deadline: i64,
    /// Deliveries so far, this one included.
    attempts: i64,
    /// How often its end was moved.
    changes: i64,
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::List(args) => list(args, format).await,
        }
    }
}

async fn list(args: ListArgs, format: Format) -> Result<(), Failure> {
    let mut question = Remoting::request(own::LIST_LEASES);
    question.ext.set("consumerGroup", &args.group);
    if let Some(topic) = &args.topic {
        question.ext.set("topic", topic);
    }
    let broker = args.address.broker();
    let answer = broker.ask(question).await?;
    if answer.code == response::REQUEST_CODE_NOT_SUPPORTED {
        return Err(Failure::failed("this broker does not list leases: only Waybill's brokers do"));
    }
    if answer.code != response::SUCCESS {
        return Err(broker.refused(&answer));
    }
    let leases: Leases = serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))?;
    output::print(format, &leases, |leases| text(leases, clock::now_ms()))
}

fn text(leases: &Leases, now_ms: i64) -> String {
    let rows = leases.leases.iter().map(|lease| {
        [
            lease.topic.clone(),
            lease.queue_id.to_string(),
            lease.offset.to_string(),
            lease.holder.clone().unwrap_or_else(|| "-".to_owned()),
            lease.attempts.to_string(),
            millis(now_ms - lease.pop_time),
            millis(lease.deadline - now_ms),
            lease.changes.to_string(),
        ]
    });
    let heading = ["TOPIC", "QUEUE", "OFFSET", "HOLDER", "DELIVERIES", "HELD FOR", "ENDS IN", "EXTENDED"];
    let more = if leases.truncated { "and more: --topic narrows the list\n" } else { "" };
    format!("{}{more}", output::table(heading, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_how_long_and_by_whom() {
        let json = br#"{"leases":[{"group":"g","topic":"orders","queueId":3,"offset":17,"holder":"pod-1","popTime":1000,
            "invisibleTime":60000,"deadline":61000,"attempts":2,"changes":1},{"topic":"t","popTime":1000,"deadline":500}],
            "truncated":true}"#;
        let leases: Leases = serde_json::from_slice(json).expect("JSON");
        let text = text(&leases, 31_000);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["orders", "3", "17", "pod-1", "2", "30s", "30s", "1"]);
        assert_eq!(lines[2], ["t", "0", "0", "-", "0", "30s", "-30.5s", "0"]);
        assert!(text.ends_with("and more: --topic narrows the list\n"));
    }
}
