//! `waybill topic`.

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_protocol::names::RETRY_PREFIX;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command as Remoting, CreateTopicRequestHeader, DeleteTopicRequestHeader, GetTopicConfigRequestHeader, Header,
    OffsetResponseHeader, QueueRequestHeader, TopicConfig, TopicConfigTable,
};

use super::retention::{self, Retention};
use super::{Address, Broker, body};
use crate::exit::Failure;
use crate::names;
use crate::output::{self, Format};

/// The topic attribute that holds the message type.
const MESSAGE_TYPE: &str = "message.type";

/// Topics that brokers make for themselves, besides those that are known by how their names begin or end.
const SYSTEM_TOPICS: [&str; 7] = [
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "DefaultHeartBeatSyncerTopic",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
];

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a topic
    #[command(after_help = "\
Examples:
  waybill topic create orders
  waybill topic create orders --type fifo --queues 16
  waybill topic create orders --queues 32 --update
  waybill topic create orders --retention 12h --update

Fewer queues, without hiding what is still in them: lower the number to write to, let the consumers finish, lower the other:
  waybill topic create orders --write-queues 4 --update
  waybill topic create orders --read-queues 4 --update")]
    Create(CreateArgs),
    /// List the topics
    #[command(after_help = "Example:\n  waybill topic list --output json")]
    List(ListArgs),
    /// Show a topic's settings and how much is in its queues
    #[command(after_help = "Example:\n  waybill topic describe orders")]
    Describe(NameArgs),
    /// Delete a topic and all its messages
    #[command(after_help = "Example:\n  waybill topic delete orders")]
    Delete(NameArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[command(flatten)]
    address: Address,
    /// The topic
    #[arg(value_name = "TOPIC", value_parser = names::topic)]
    name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    address: Address,
    /// Also those that the broker made for itself
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Which messages it takes; normal for a new topic
    #[arg(long = "type", value_enum)]
    message_type: Option<MessageType>,
    /// How many queues it has on this broker; 8 for a new topic
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=1024))]
    queues: Option<i32>,
    /// How many of them consumers read from, if that is not as many as producers write to
    #[arg(long, conflicts_with = "queues", value_parser = clap::value_parser!(i32).range(1..=1024))]
    read_queues: Option<i32>,
    /// How many of them producers write to
    #[arg(long, conflicts_with = "queues", value_parser = clap::value_parser!(i32).range(1..=1024))]
    write_queues: Option<i32>,
    /// What clients may do with it; read-write for a new topic
    #[arg(long, value_enum)]
    permission: Option<Permission>,
    /// How long its messages are kept, consumed or not: hours or days (12h, 3d), no longer than the broker keeps messages of all topics
    /// (fileReservedTime); default is as long as that
    #[arg(long, value_name = "TIME|default", value_parser = retention::parse)]
    retention: Option<Retention>,
    /// Change the topic if it exists with other settings
    #[arg(long)]
    update: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MessageType {
    /// Messages without order or delay
    Normal,
    /// Messages delivered in order within their message group
    Fifo,
    /// Messages delivered at a later time
    Delay,
    /// Messages that become visible when a transaction commits
    Transaction,
    /// All of them
    Mixed,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Permission {
    ReadWrite,
    Read,
    Write,
}

/// A topic as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Topic {
    name: String,
    message_type: String,
    read_queues: i32,
    write_queues: i32,
    permission: &'static str,
    /// Hours after which its messages go, if that is not the broker's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_hours: Option<i64>,
}

/// A topic and how much is in it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(flatten)]
    topic: Topic,
    attributes: BTreeMap<String, String>,
    /// Messages that wait for their time, if the broker says.
    #[serde(skip_serializing_if = "Option::is_none")]
    delayed: Option<u64>,
    /// Hours after which messages of all topics go, if the broker says.
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_retention_hours: Option<i64>,
    queues: Vec<Queue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Queue {
    id: i32,
    min_offset: i64,
    next_offset: i64,
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::Create(args) => create(args, format).await,
            Self::List(args) => list(args, format).await,
            Self::Describe(args) => describe(args, format).await,
            Self::Delete(args) => delete(args, format).await,
        }
    }
}

impl CreateArgs {
    /// What is not asked for stays as it is, or is as a new topic has it.
    fn wanted(&self, existing: Option<&TopicConfig>) -> TopicConfig {
        let new = || TopicConfig {
            topic_name: self.name.name.clone(),
            read_queue_nums: 8,
            write_queue_nums: 8,
            attributes: BTreeMap::from([(MESSAGE_TYPE.to_owned(), "NORMAL".to_owned())]),
            ..TopicConfig::default()
        };
        let mut wanted = existing.cloned().unwrap_or_else(new);
        if let Some(queues) = self.read_queues.or(self.queues) {
            wanted.read_queue_nums = queues;
        }
        if let Some(queues) = self.write_queues.or(self.queues) {
            wanted.write_queue_nums = queues;
        }
        if let Some(message_type) = self.message_type {
            wanted.attributes.insert(MESSAGE_TYPE.to_owned(), format!("{message_type:?}").to_uppercase());
        }
        match self.permission {
            Some(Permission::ReadWrite) => wanted.perm = 6,
            Some(Permission::Read) => wanted.perm = 4,
            Some(Permission::Write) => wanted.perm = 2,
            None => {}
        }
        if let Some(retention) = self.retention {
            retention.set(&mut wanted.attributes);
        }
        wanted
    }
}

async fn create(args: CreateArgs, format: Format) -> Result<(), Failure> {
    let broker = args.name.address.broker();
    let existing = broker.topic(&args.name.name).await?;
    let wanted = args.wanted(existing.as_ref());
    let attributes = changes(existing.as_ref().map(|existing| &existing.attributes), &wanted.attributes);
    let (existing, topic) = (existing.map(Topic::from), Topic::from(wanted.clone()));
    let done = match &existing {
        Some(existing) if existing.settings() == topic.settings() => "exists already",
        Some(existing) if !args.update => {
            let (name, is) = (&existing.name, existing.settings());
            return Err(Failure::failed(format!("the topic {name} exists with other settings: {is}"))
                .hint("--update changes it"));
        }
        _other => {
            let header = CreateTopicRequestHeader {
                topic: wanted.topic_name.clone(),
                default_topic: "TBW102".to_owned(),
                read_queue_nums: wanted.read_queue_nums,
                write_queue_nums: wanted.write_queue_nums,
                perm: wanted.perm,
                topic_filter_type: wanted.topic_filter_type.clone(),
                topic_sys_flag: Some(0),
                order: false,
                attributes: Some(attributes),
                force: None,
            };
            broker.demand(Remoting::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header)).await?;
            if existing.is_some() { "updated" } else { "created" }
        }
    };
    let printed = serde_json::json!({"topic": topic, "result": done});
    output::print(format, &printed, |_json| format!("topic {} {done}: {}", topic.name, topic.settings()))
}

/// What makes one set of attributes the other, as brokers read it. Only what is there can be taken away.
fn changes(old: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> String {
    let gone = old.into_iter().flatten().map(|(key, _)| key).filter(|key| !wanted.contains_key(*key));
    let set = wanted.iter().map(|(key, value)| format!("+{key}={value}"));
    set.chain(gone.map(|key| format!("-{key}"))).collect::<Vec<_>>().join(",")
}

async fn list(args: ListArgs, format: Format) -> Result<(), Failure> {
    let mut topics: Vec<Topic> = Vec::new();
    let page = |seen: usize| {
        let mut command = Remoting::request(request::GET_ALL_TOPIC_CONFIG);
        command.ext.set_number("topicSeq", seen);
        command
    };
    let take = |table: TopicConfigTable| {
        let count = table.topic_config_table.len();
        topics.extend(table.topic_config_table.into_values().map(Topic::from));
        count
    };
    args.address.broker().pages(page, "totalTopicNum", take).await?;
    topics.retain(|topic| args.all || !is_system(&topic.name));
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    output::print(format, &topics, |topics| {
        let rows = topics.iter().map(|topic| {
            let queues = format!("{}/{}", topic.read_queues, topic.write_queues);
            let kept = topic.retention_hours.map_or_else(|| "-".to_owned(), retention::text);
            [topic.name.clone(), topic.message_type.clone(), queues, topic.permission.to_owned(), kept]
        });
        output::table(["TOPIC", "TYPE", "QUEUES (READ/WRITE)", "PERMISSION", "RETENTION"], rows)
    })
}

async fn describe(args: NameArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let answer = broker.topic_answer(&args.name).await?.ok_or_else(|| missing(&args.name))?;
    let config: TopicConfig = body(&answer)?;
    let mut queues = Vec::new();
    for id in 0..config.read_queue_nums.max(config.write_queue_nums) {
        let header = QueueRequestHeader { topic: args.name.clone(), queue_id: id };
        let (min, next) = (request::GET_MIN_OFFSET, request::GET_MAX_OFFSET);
        queues.push(Queue {
            id,
            min_offset: broker.offset(min, &header).await?,
            next_offset: broker.offset(next, &header).await?,
        });
    }
    let attributes = config.attributes.clone();
    let delayed = delayed(&answer);
    // Only Waybill's brokers say it.
    let broker_retention_hours = answer.ext.get("fileReservedTime").and_then(|hours| hours.parse().ok());
    let described = Described { topic: Topic::from(config), attributes, delayed, broker_retention_hours, queues };
    output::print(format, &described, |described| {
        let rows = described.queues.iter().map(|queue| {
            let held = queue.next_offset - queue.min_offset;
            [i64::from(queue.id), queue.min_offset, queue.next_offset, held].map(|number| number.to_string())
        });
        let topic = &described.topic;
        let kept = described.kept_by_broker();
        let delayed = described.delayed.map(|count| {
            let waiting = ["delayed message waits for its time", "delayed messages wait for their time"];
            format!("\n{}", output::counted(count, waiting[0], waiting[1]))
        });
        format!(
            "topic {}: {}{}{}\n\n{}",
            topic.name,
            topic.settings(),
            kept.unwrap_or_default(),
            delayed.unwrap_or_default(),
            output::table(["QUEUE", "MIN OFFSET", "NEXT OFFSET", "MESSAGES"], rows)
        )
    })
}

/// Messages of a topic that wait for their time, if the broker says: only Waybill's do.
fn delayed(answer: &Remoting) -> Option<u64> {
    answer.ext.get("delayedMessages").and_then(|count| count.parse().ok())
}

async fn delete(args: NameArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    broker.topic(&args.name).await?.ok_or_else(|| missing(&args.name))?;
    let header = DeleteTopicRequestHeader { topic: args.name.clone(), only_if_empty: None };
    broker.demand(Remoting::request(request::DELETE_TOPIC_IN_BROKER).with_header(&header)).await?;
    let printed = serde_json::json!({"topic": args.name, "result": "deleted"});
    output::print(format, &printed, |_json| format!("topic {} deleted", args.name))
}

fn missing(name: &str) -> Failure {
    Failure::failed(format!("there is no topic {name}")).hint("waybill topic list")
}

impl Broker {
    /// A topic's settings; None when there is no such topic.
    async fn topic(&self, name: &str) -> Result<Option<TopicConfig>, Failure> {
        self.topic_answer(name).await?.as_ref().map(body).transpose()
    }

    /// The answer that has a topic's settings; None when there is no such topic.
    async fn topic_answer(&self, name: &str) -> Result<Option<Remoting>, Failure> {
        let header = GetTopicConfigRequestHeader { topic: name.to_owned(), lo: None };
        let answer = self.ask(Remoting::request(request::GET_TOPIC_CONFIG).with_header(&header)).await?;
        match answer.code {
            response::SUCCESS => Ok(Some(answer)),
            response::TOPIC_NOT_EXIST => Ok(None),
            _other => Err(self.refused(&answer)),
        }
    }

    /// Messages of a topic that wait for their time, as far as the broker says.
    pub(super) async fn delayed(&self, name: &str) -> Result<u64, Failure> {
        Ok(self.topic_answer(name).await?.as_ref().and_then(delayed).unwrap_or(0))
    }

    pub(super) async fn offset(&self, code: i32, header: &impl Header) -> Result<i64, Failure> {
        let answer = self.demand(Remoting::request(code).with_header(header)).await?;
        let header: OffsetResponseHeader =
            answer.header().map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))?;
        Ok(header.offset)
    }
}

impl From<TopicConfig> for Topic {
    fn from(config: TopicConfig) -> Self {
        Self {
            name: config.topic_name,
            retention_hours: retention::of(&config.attributes),
            message_type: config.attributes.get(MESSAGE_TYPE).cloned().unwrap_or_else(|| "NORMAL".to_owned()),
            read_queues: config.read_queue_nums,
            write_queues: config.write_queue_nums,
            permission: match (config.perm & 4 != 0, config.perm & 2 != 0) {
                (true, true) => "read-write",
                (true, false) => "read",
                (false, true) => "write",
                (false, false) => "none",
            },
        }
    }
}

impl Topic {
    /// What can be set, in words; equal words mean equal settings.
    fn settings(&self) -> String {
        let Self { message_type, read_queues, write_queues, permission, retention_hours, .. } = self;
        let queues = match read_queues == write_queues {
            true => output::counted(*read_queues, "queue", "queues"),
            false => format!("{} to read, {write_queues} to write", output::counted(*read_queues, "queue", "queues")),
        };
        let kept = retention_hours.map(|hours| format!(", messages kept for {}", retention::text(hours)));
        format!("type {message_type}, {queues}, {permission}{}", kept.unwrap_or_default())
    }
}

impl Described {
    /// What the broker's time means for the topic, if it means something.
    fn kept_by_broker(&self) -> Option<String> {
        let all = self.broker_retention_hours?;
        let kept = retention::text(all);
        match self.topic.retention_hours {
            None => Some(format!("\nmessages are kept for {kept}, as of all topics of this broker")),
            Some(hours) if hours > all => Some(format!("\nbut this broker keeps messages for {kept} only")),
            Some(_shorter) => None,
        }
    }
}

fn is_system(name: &str) -> bool {
    let prefixed = ["rmq_sys_", "RMQ_SYS_", RETRY_PREFIX].iter().any(|prefix| name.starts_with(prefix));
    prefixed || name.ends_with("_REPLY_TOPIC") || SYSTEM_TOPICS.contains(&name)
}
