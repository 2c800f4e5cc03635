//! `waybill message describe`: where a message is, and what each group has done with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use waybill_protocol::remoting::Command as Remoting;
use waybill_protocol::remoting::codes::{own, response};

use crate::admin::{Address, Broker};
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::{moment, names};

/// Searches of one command: a broker looks at tens of thousands of messages in each.
const ROUNDS_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    address: Address,
    /// The topic
    #[arg(long, value_parser = names::topic)]
    topic: String,
    /// The message's id: the producer's, or the broker's
    #[arg(long, value_name = "MESSAGE_ID")]
    id: String,
}

/// Times in milliseconds since 1970.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Message {
    message_id: String,
    offset_message_id: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
    topic: String,
    queue_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    position: u64,
    born_timestamp: i64,
    born_host: String,
    store_timestamp: i64,
    body_bytes: u64,
    properties: BTreeMap<String, String>,
    groups: Vec<OfGroup>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfGroup {
    group: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    attempts: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    blocked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_offset: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    messages: Vec<Message>,
    oldest_first: bool,
    cut_at: Option<i64>,
    held_cut: bool,
}

pub(crate) async fn run(args: DescribeArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let (mut since, mut until) = (0, i64::MAX);
    let mut answer = broker.describe(&args, since, until).await?;
    for _round in 0..ROUNDS_MAX {
        let Some(cut_at) = answer.cut_at.filter(|_| answer.messages.is_empty()) else { break };
        let before = (since, until);
        if answer.oldest_first {
            since = cut_at
        } else {
            until = cut_at
        }
        if (since, until) == before {
            break;
        }
        output::progress(format, &format!("looked as far as {} …", moment::text(cut_at)));
        answer = broker.describe(&args, since, until).await?;
    }
    if answer.messages.is_empty() {
        let missing = Failure::failed(format!("no message {} is found in topic {}", args.id, args.topic));
        return Err(match answer.held_cut {
            true => missing.hint("many messages wait for their time, and not all of them were looked at"),
            false => missing,
        });
    }
    output::print(format, &answer.messages, |messages| messages.iter().map(text).collect())
}

fn text(message: &Message) -> String {
    let mut out = format!("message {}\n", message.message_id);
    let mut line = |name: &str, value: String| out.push_str(&format!("  {name:<8} {value}\n"));
    line(
        "state",
        match message.state.as_str() {
            "Timing" => format!("Timing, until {}", message.due.map(moment::text).unwrap_or_default()),
            "Half" => "Half: its transaction is not decided".to_owned(),
            state => state.to_owned(),
        },
    );
    let offset = message.offset.map_or_else(|| "no offset yet".to_owned(), |offset| format!("offset {offset}"));
    line("at", format!("topic {}, queue {}, {offset}, position {}", message.topic, message.queue_id, message.position));
    line("id", message.offset_message_id.clone());
    line("born", format!("{} by {}", moment::text(message.born_timestamp), message.born_host));
    line("stored", moment::text(message.store_timestamp));
    line("body", format!("{} bytes", message.body_bytes));
    for (name, value) in &message.properties {
        line("property", format!("{name}={value}"));
    }
    if message.groups.is_empty() {
        line("groups", "no group reads the topic yet".to_owned());
        return out;
    }
    let rows = message.groups.iter().map(|of| {
        let until = of.until.map_or_else(|| "-".to_owned(), moment::text);
        let letter = of.dead_letter_offset.map(|offset| format!(" at offset {offset}")).unwrap_or_default();
        let blocked = if of.blocked { ", behind another of its message group" } else { "" };
        let holder = of.holder.clone().filter(|holder| !holder.is_empty()).unwrap_or_else(|| "-".to_owned());
        [of.group.clone(), format!("{}{letter}{blocked}", of.state), of.attempts.to_string(), holder, until]
    });
    out.push_str(&output::table(["GROUP", "STATE", "DELIVERIES", "HOLDER", "UNTIL"], rows));
    out
}

impl Broker {
    async fn describe(&self, args: &DescribeArgs, since: i64, until: i64) -> Result<Answer, Failure> {
        let mut question = Remoting::request(own::DESCRIBE_MESSAGE);
        question.ext.set("topic", &args.topic);
        question.ext.set("messageId", &args.id);
        question.ext.set_number("beginTimestamp", since);
        question.ext.set_number("endTimestamp", until);
        let answer = self.ask(question).await?;
        match answer.code {
            response::SUCCESS => serde_json::from_slice(&answer.body)
                .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}"))),
            response::REQUEST_CODE_NOT_SUPPORTED => {
                Err(Failure::failed("this broker does not describe messages: only Waybill's brokers do")
                    .hint("waybill message query"))
            }
            _refused => Err(self.refused(&answer)),
        }
    }
}
