//! `waybill message query`: messages by id or by key.

use std::collections::{BTreeMap, HashSet};

use clap::ArgGroup;
use serde::Serialize;
use waybill_protocol::message::{StoredMessage, properties};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command as Remoting, QueryMessageRequestHeader, UNIQUE_KEY_QUERY};

use crate::admin::{Address, Broker};
use crate::body::Body;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::{moment, names};

/// Searches of one command: a broker looks at tens of thousands of messages in each.
const ROUNDS_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("what").args(["id", "key"]).required(true))]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(super) address: Address,
    /// The topic
    #[arg(long, value_parser = names::topic)]
    pub(super) topic: String,
    /// Messages with this id: the producer's, or the broker's
    #[arg(long, value_name = "MESSAGE_ID")]
    id: Option<String>,
    /// Messages with this key
    #[arg(long)]
    key: Option<String>,
    /// Only those stored at this time or later: 2026-11-30T16:00:00Z, milliseconds since 1970, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    since: Option<i64>,
    /// Only those stored at this time or earlier
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<i64>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    max: u64,
}

/// A message as it is printed. Times in milliseconds since 1970.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    topic: String,
    queue_id: i32,
    offset: i64,
    born_timestamp: i64,
    store_timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    keys: Vec<String>,
    properties: BTreeMap<String, String>,
    #[serde(flatten)]
    body: Body,
}

pub(crate) async fn run(args: QueryArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let (mut since, mut until) = (args.since.unwrap_or(0), args.until.unwrap_or(i64::MAX));
    let (mut seen, mut messages): (HashSet<(i32, i64)>, Vec<Message>) = (HashSet::new(), Vec::new());
    for _round in 0..ROUNDS_MAX {
        let (found, cut) = broker.query(&args, since, until).await?;
        let fresh = found.into_iter().filter(|message| seen.insert((message.queue_id, message.queue_offset)));
        messages.extend(fresh.map(Message::from));
        messages.truncate(usize::try_from(args.max).unwrap_or(usize::MAX));
        let Some(cut) = cut.filter(|_| (messages.len() as u64) < args.max) else { break };
        let before = (since, until);
        if cut.oldest_first {
            since = cut.at
        } else {
            until = cut.at
        }
        if (since, until) == before {
            output::progress(format, "too many messages were stored in one millisecond to look at all of them");
            break;
        }
        output::progress(format, &format!("looked as far as {} …", moment::text(cut.at)));
    }
    output::print(format, &messages, |messages| text(messages))?;
    if messages.is_empty() && format == Format::Text {
        let delayed = broker.delayed(&args.topic).await?;
        if delayed > 0 {
            let waiting = ["message of this topic is", "messages of this topic are"];
            let id = args.id.as_deref().unwrap_or("ID");
            output::progress(
                format,
                &format!(
                    "{} delayed and in no queue yet, where this command does not look; by its id it is found with\n  waybill message describe --topic {} --id {id}",
                    output::counted(delayed, waiting[0], waiting[1]),
                    args.topic
                ),
            );
        }
    }
    Ok(())
}

fn text(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        out.push_str(&format!("message {}\n", message.message_id));
        out.push_str(&format!("  at       queue {}, offset {}\n", message.queue_id, message.offset));
        out.push_str(&format!("  born     {}\n", moment::text(message.born_timestamp)));
        out.push_str(&format!("  stored   {}\n", moment::text(message.store_timestamp)));
        if let Some(tag) = &message.tag {
            out.push_str(&format!("  tag      {tag}\n"));
        }
        if !message.keys.is_empty() {
            out.push_str(&format!("  keys     {}\n", message.keys.join(", ")));
        }
        for (key, value) in &message.properties {
            out.push_str(&format!("  property {key}={value}\n"));
        }
        out.push_str(&format!("  body     {}\n", message.body.text()));
    }
    match messages.len() {
        0 => out.push_str("no message\n"),
        1 => {}
        count => out.push_str(&format!("{count} messages\n")),
    }
    out
}

impl From<StoredMessage> for Message {
    fn from(message: StoredMessage) -> Self {
        let property = |name| properties::get(&message.properties, name);
        let user = properties::iter(&message.properties).filter(|(name, _)| !properties::is_reserved(name));
        Self {
            message_id: property(properties::UNIQ_KEY).unwrap_or_default().to_owned(),
            topic: message.topic.clone(),
            queue_id: message.queue_id,
            offset: message.queue_offset,
            born_timestamp: message.born_timestamp,
            store_timestamp: message.store_timestamp,
            tag: property(properties::TAGS).map(str::to_owned),
            keys: property(properties::KEYS).unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            properties: user.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: Body::from(&message.body[..]),
        }
    }
}

/// Where the bound of one search ended it.
struct Cut {
    at: i64,
    oldest_first: bool,
}

impl Broker {
    async fn query(
        &self,
        args: &QueryArgs,
        since: i64,
        until: i64,
    ) -> Result<(Vec<StoredMessage>, Option<Cut>), Failure> {
        let (key, by_id) = match (&args.id, &args.key) {
            (Some(id), _) => (id, "true"),
            (None, Some(key)) => (key, "false"),
            (None, None) => return Err(Failure::usage("there is neither an id nor a key")),
        };
        let header = QueryMessageRequestHeader {
            topic: args.topic.clone(),
            key: key.clone(),
            max_num: i32::try_from(args.max.min(64)).unwrap_or(64),
            begin_timestamp: since,
            end_timestamp: until,
        };
        let mut question = Remoting::request(request::QUERY_MESSAGE).with_header(&header);
        question.ext.set(UNIQUE_KEY_QUERY, by_id);
        let answer = self.ask(question).await?;
        let messages = match answer.code {
            response::SUCCESS => StoredMessage::decode_all(answer.body.clone())
                .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))?,
            response::QUERY_NOT_FOUND => Vec::new(),
            _refused => return Err(self.refused(&answer)),
        };
        let cut = answer.ext.get("cutAt").and_then(|at| at.parse().ok());
        let oldest_first = answer.ext.get("oldestFirst") == Some("true");
        // An answer that is as full as it may be was cut there.
        let full =
            (messages.len() >= 64).then(|| messages.last().map(|last| Cut { at: last.store_timestamp, oldest_first }));
        Ok((messages, cut.map(|at| Cut { at, oldest_first }).or(full.flatten())))
    }
}
