//! `waybill message`: send, receive and acknowledge by hand, over gRPC as every client does.

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use waybill_ops::clock;
use waybill_protocol::grpc::v2;

use crate::address;
use crate::body::Body;
use crate::exit::Failure;
use crate::grpc::{self, Client, Identity, MessageIds, Receive, Session, resource};
use crate::moment;
use crate::names;
use crate::output::{self, Format};
use crate::peer::Protocol;
use crate::quantity;

/// Largest body, in bytes, that is read from a file: the server's own limit is 4 MiB unless it is set higher.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bounds of a long poll, as servers have them unless told otherwise.
const WAIT_MIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Endpoint {
    /// Where clients connect: host:port of a Waybill sidecar or an Apache proxy. If it asks for credentials, set WAYBILL_ACCESS_KEY and
    /// WAYBILL_SECRET_KEY in the environment
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081", value_parser = address::parse)]
    pub(crate) endpoint: String,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Send one message
    #[command(after_help = "\
Examples:
  waybill message send --topic orders --body 'hello'
  echo hello | waybill message send --topic orders --tag paid --key 4711 --property region=eu
  waybill message send --topic orders --file order.json
  waybill message send --topic reminders --body 'wake up' --delay 30m")]
    Send(SendArgs),
    /// Take a delayed message back before it is delivered
    #[command(after_help = "\
Example:
  waybill message recall --topic reminders '<recall handle as printed by send --delay>'")]
    Recall(RecallArgs),
    /// Receive messages; they stay invisible to others for a while, and come back unless acknowledged
    #[command(after_help = "\
Examples:
  waybill message receive --topic orders --group billing
  waybill message receive --topic orders --group billing --max 32 --wait 20s --ack
  waybill message receive --topic orders --group billing --tags 'paid || sent' --output json
  waybill message receive --topic orders --group billing --sql \"region = 'eu' AND amount > 100\"")]
    Receive(ReceiveArgs),
    /// Acknowledge deliveries by their receipt handles
    #[command(after_help = "\
Example:
  waybill message ack --topic orders --group billing '<receipt handle as printed by receive>'")]
    Ack(AckArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic to send to
    #[arg(long, value_parser = names::topic)]
    topic: String,
    /// The body as text; without it and without --file, the body is read from standard input
    #[arg(long, conflicts_with = "file")]
    body: Option<String>,
    /// A file whose bytes are the body
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// A word that consumers can filter by
    #[arg(long)]
    tag: Option<String>,
    /// A key by which the message can be found later; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// A property of your own; may be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = quantity::pair)]
    properties: Vec<(String, String)>,
    /// Messages of one group are delivered in order (topic type fifo)
    #[arg(long, value_name = "GROUP", conflicts_with = "delay")]
    message_group: Option<String>,
    /// Deliver after this time (topic type delay): 500ms, 30s, 5m, 2h. The moment is printed
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    delay: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecallArgs {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic the message was sent to
    #[arg(long)]
    topic: String,
    /// The recall handle as printed by `waybill message send --delay`
    #[arg(value_name = "HANDLE")]
    handle: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic to receive from
    #[arg(long, value_parser = names::topic)]
    topic: String,
    /// The consumer group
    #[arg(long, value_parser = names::group)]
    group: String,
    /// Receive only messages with one of these tags, separated by ||
    #[arg(long, value_name = "TAGS", default_value = "*")]
    tags: String,
    /// Receive only messages whose properties meet this SQL92 condition
    #[arg(long, value_name = "CONDITION", conflicts_with = "tags")]
    sql: Option<String>,
    /// The most messages to receive
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=32))]
    max: i32,
    /// How long the messages stay invisible to others, 10s to 12h
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = quantity::duration)]
    invisible: Duration,
    /// How long to wait for the first message, 5s to 20s, which is what servers allow
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = wait)]
    wait: Duration,
    /// Acknowledge what was received, so that it does not come back
    #[arg(long)]
    ack: bool,
}

/// Servers wait no shorter and no longer, whatever they are asked; so nothing else is taken.
fn wait(text: &str) -> Result<Duration, String> {
    let wait = quantity::duration(text)?;
    let allowed = WAIT_MIN..=WAIT_MAX;
    if allowed.contains(&wait) { Ok(wait) } else { Err("servers wait from 5s to 20s".to_owned()) }
}

#[derive(Debug, clap::Args)]
pub(crate) struct AckArgs {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic the message was received from
    #[arg(long, value_parser = names::topic)]
    topic: String,
    /// The consumer group it was received by
    #[arg(long, value_parser = names::group)]
    group: String,
    /// Receipt handles as printed by `waybill message receive`; quote them, they hold spaces
    #[arg(required = true, value_name = "HANDLE")]
    handles: Vec<String>,
}

/// A message as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    keys: Vec<String>,
    properties: std::collections::BTreeMap<String, String>,
    delivery_attempt: i32,
    #[serde(flatten)]
    body: Body,
    receipt_handle: String,
    acked: bool,
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let endpoint = match &self {
            Self::Send(args) => args.endpoint.endpoint.clone(),
            Self::Recall(args) => args.endpoint.endpoint.clone(),
            Self::Receive(args) => args.endpoint.endpoint.clone(),
            Self::Ack(args) => args.endpoint.endpoint.clone(),
        };
        let done = match self {
            Self::Send(args) => send(args, format).await,
            Self::Recall(args) => recall(args, format).await,
            Self::Receive(args) => receive(args, format).await,
            Self::Ack(args) => ack(args, format).await,
        };
        done.map_err(|failure| failure.looking_for(&endpoint, Protocol::Grpc))
    }
}

async fn send(args: SendArgs, format: Format) -> Result<(), Failure> {
    let body = body(&args)?;
    let client = Client::connect(&args.endpoint.endpoint, Identity::new("send", 0)).await?;
    let session = Session::producer(&client, &args.topic).await?;
    let message = message(&args, body);
    let due_ms = message.system_properties.as_ref().and_then(|system| system.delivery_timestamp.as_ref()).map(millis);
    let results = client.send(vec![message]).await?;
    session.close().await?;
    let Some(result) = results.into_iter().next() else {
        return Err(Failure::failed("the server answered OK, but without a message id"));
    };
    if !result.recall_handle.is_empty() {
        let v2::SendResultEntry { message_id, recall_handle, .. } = &result;
        let printed =
            serde_json::json!({"messageId": message_id, "recallHandle": recall_handle, "deliveryTimestamp": due_ms});
        return output::print(format, &printed, |_json| {
            let due = due_ms.map_or_else(|| "later".to_owned(), |due_ms| format!("at {}", moment::text(due_ms)));
            format!("sent {message_id} to {}, to be delivered {due}\n  recall handle {recall_handle}", args.topic)
        });
    }
    let printed = serde_json::json!({"messageId": result.message_id, "queueOffset": result.offset});
    output::print(format, &printed, |_json| format!("sent {} to {}", result.message_id, args.topic))
}

async fn recall(args: RecallArgs, format: Format) -> Result<(), Failure> {
    let client = Client::connect(&args.endpoint.endpoint, Identity::new("recall", 0)).await?;
    let message_id = client.recall(&args.topic, &args.handle).await?;
    let printed = serde_json::json!({"messageId": message_id, "result": "recalled"});
    output::print(format, &printed, |_json| format!("recalled {message_id}"))
}

fn body(args: &SendArgs) -> Result<Bytes, Failure> {
    if let Some(text) = &args.body {
        return Ok(Bytes::from(text.clone()));
    }
    let mut bytes = Vec::new();
    let read = match &args.file {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes)),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::usage("there is no body").hint("--body TEXT, --file PATH, or a pipe"));
        }
        None => std::io::stdin().take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes),
    };
    let length = read.map_err(|error| Failure::failed(format!("cannot read the body: {error}")))?;
    if length as u64 > BODY_BYTES_MAX {
        return Err(Failure::usage(format!("the body is longer than {BODY_BYTES_MAX} bytes")));
    }
    Ok(Bytes::from(bytes))
}

/// Milliseconds since 1970.
fn millis(timestamp: &prost_types::Timestamp) -> i64 {
    timestamp.seconds.saturating_mul(1_000).saturating_add(i64::from(timestamp.nanos) / 1_000_000)
}

fn message(args: &SendArgs, body: Bytes) -> v2::Message {
    let timestamp = |ms: i64| prost_types::Timestamp { seconds: ms / 1000, nanos: ((ms % 1000) * 1_000_000) as i32 };
    let now_ms = clock::now_ms();
    let delay_ms = args.delay.map(|delay| i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
    let message_type = match (&args.message_group, delay_ms) {
        (Some(_), _) => v2::MessageType::Fifo,
        (None, Some(_)) => v2::MessageType::Delay,
        (None, None) => v2::MessageType::Normal,
    };
    v2::Message {
        topic: resource(&args.topic),
        user_properties: args.properties.iter().cloned().collect::<HashMap<_, _>>(),
        system_properties: Some(v2::SystemProperties {
            tag: args.tag.clone(),
            keys: args.keys.clone(),
            message_id: MessageIds::new().next(),
            body_encoding: v2::Encoding::Identity.into(),
            message_type: message_type.into(),
            born_timestamp: Some(timestamp(now_ms)),
            message_group: args.message_group.clone(),
            delivery_timestamp: delay_ms.map(|delay_ms| timestamp(now_ms.saturating_add(delay_ms))),
            ..Default::default()
        }),
        body,
    }
}

async fn receive(args: ReceiveArgs, format: Format) -> Result<(), Failure> {
    let client = Client::connect(&args.endpoint.endpoint, Identity::new("receive", 0)).await?;
    let filter = args.sql.as_deref().map_or_else(|| grpc::tags(&args.tags), grpc::sql);
    let session = Session::consumer_where(&client, &args.topic, &args.group, filter.clone()).await?;
    output::progress(
        format,
        &format!("waiting up to {} for messages …", quantity::millis(args.wait.as_millis() as i64)),
    );
    let what = Receive {
        topic: args.topic.clone(),
        group: args.group.clone(),
        tags: args.tags.clone(),
        max: args.max,
        invisible: args.invisible,
        wait: args.wait,
        renew: false,
    };
    let mut received: Vec<Received> =
        client.receive_where(&what, filter).await?.into_iter().map(Received::from).collect();
    let mut refused = None;
    if args.ack && !received.is_empty() {
        let deliveries = received.iter().map(|m| (m.message_id.clone(), m.receipt_handle.clone())).collect();
        let results = client.ack(&args.topic, &args.group, deliveries).await?;
        for (message, result) in received.iter_mut().zip(results) {
            message.acked = result.is_ok();
            refused = refused.or(result.err());
        }
    }
    // Who just went away would be taken for gone, and what it holds given back long before its time.
    session.close().await?;
    output::print(format, &received, |received| text(received, args.invisible))?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

fn text(received: &[Received], invisible: Duration) -> String {
    let mut out = String::new();
    for message in received {
        out.push_str(&format!("message {}, delivery {}\n", message.message_id, message.delivery_attempt));
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
        match message.acked {
            true => out.push_str("  acknowledged\n"),
            false => out.push_str(&format!("  handle   {}\n", message.receipt_handle)),
        }
    }
    let open = received.iter().filter(|message| !message.acked).count();
    match (received.len(), open) {
        (0, _) => out.push_str("no message\n"),
        (_, 0) => {}
        (_, open) => out.push_str(&format!(
            "{open} to be acknowledged within {}, or they come back\n",
            quantity::millis(invisible.as_millis() as i64)
        )),
    }
    out
}

async fn ack(args: AckArgs, format: Format) -> Result<(), Failure> {
    let client = Client::connect(&args.endpoint.endpoint, Identity::new("ack", 0)).await?;
    // Servers want a message id beside the handle, and go by the handle.
    let deliveries = args.handles.iter().map(|handle| ("unknown".to_owned(), handle.clone())).collect();
    let results = client.ack(&args.topic, &args.group, deliveries).await?;
    let acked = results.iter().filter(|result| result.is_ok()).count();
    let printed = serde_json::json!({"acked": acked, "refused": results.len() - acked});
    output::print(format, &printed, |_json| format!("acknowledged {acked} of {}", results.len()))?;
    results.into_iter().collect::<Result<(), _>>().map_err(Failure::from)
}

impl From<v2::Message> for Received {
    fn from(message: v2::Message) -> Self {
        let system = message.system_properties.unwrap_or_default();
        Self {
            message_id: system.message_id,
            tag: system.tag,
            keys: system.keys,
            properties: message.user_properties.into_iter().collect(),
            delivery_attempt: system.delivery_attempt.unwrap_or_default(),
            body: Body::from(&message.body[..]),
            receipt_handle: system.receipt_handle.unwrap_or_default(),
            acked: false,
        }
    }
}
