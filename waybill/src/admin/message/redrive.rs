//! `waybill message redrive`: dead letters go back to the topic that they came from.

use clap::ArgGroup;
use serde::{Deserialize, Serialize};
use waybill_protocol::remoting::Command as Remoting;
use waybill_protocol::remoting::codes::{own, response};

use crate::admin::{Address, Broker};
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::{moment, names};

/// Letters that are told one by one; of more there are only numbers.
const TOLD_MAX: usize = 1_000;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").args(["ids", "all", "max"]).required(true).multiple(true))]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    address: Address,
    /// The consumer group that gave up on the messages
    #[arg(long, value_parser = names::group)]
    group: String,
    /// Only the message with this id; may be repeated
    #[arg(long = "id", value_name = "MESSAGE_ID")]
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// At most so many, the oldest first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Only say which it would be
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Letter {
    message_id: String,
    queue_id: u32,
    offset: u64,
    /// Milliseconds since 1970.
    died_at: i64,
    /// Where it came from.
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    moved: Vec<Letter>,
    refused: Vec<Letter>,
    looked_at: u64,
    next: Option<(u32, u64)>,
    now: i64,
}

/// What came of it, as it is printed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    group: String,
    dry_run: bool,
    moved: u64,
    refused: u64,
    /// Of each kind the first.
    letters: Vec<Letter>,
}

pub(crate) async fn run(args: RedriveArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let mut done = Done { group: args.group.clone(), dry_run: args.dry_run, ..Done::default() };
    let (mut from, mut until, mut looked_at) = (Some((0, 0)), None, 0);
    let most = args.max.unwrap_or(u64::MAX);
    while let Some(at) = from.filter(|_| done.moved < most) {
        let answer = broker.redrive(&args, at, until, most - done.moved).await?;
        // What dies again meanwhile is another matter, or this would never end.
        until = until.or(Some(answer.now));
        from = answer.next.filter(|next| *next > at);
        looked_at += answer.looked_at;
        done.moved += answer.moved.len() as u64;
        done.refused += answer.refused.len() as u64;
        for letter in answer.moved.into_iter().chain(answer.refused) {
            if done.letters.len() < TOLD_MAX {
                done.letters.push(letter);
            }
        }
        if from.is_some() {
            output::progress(
                format,
                &format!("{looked_at} looked at, {} moved, {} refused …", done.moved, done.refused),
            );
        }
    }
    output::print(format, &done, text)?;
    let missing = (args.ids.len() as u64).saturating_sub(done.moved + done.refused);
    match (done.refused, missing) {
        (0, 0) => Ok(()),
        (0, missing) => {
            let are = output::counted(missing, "of the ids is", "of the ids are");
            Err(Failure::failed(format!("{are} of no dead letter of group {}", args.group))
                .hint("waybill message redrive --all --dry-run lists them; what was redriven is none any more"))
        }
        (refused, _) => {
            let cannot = [
                "dead letter cannot go back and stays where it is",
                "dead letters cannot go back and stay where they are",
            ];
            Err(Failure::failed(output::counted(refused, cannot[0], cannot[1])))
        }
    }
}

fn text(done: &Done) -> String {
    let rows = done.letters.iter().map(|letter| {
        [
            letter.message_id.clone(),
            letter.topic.clone(),
            moment::text(letter.died_at),
            letter.refused.as_ref().map_or_else(|| "goes back".to_owned(), |why| format!("stays: {why}")),
        ]
    });
    let table = match done.letters.is_empty() {
        true => String::new(),
        false => output::table(["MESSAGE", "TOPIC", "DIED AT", ""], rows),
    };
    let more = (done.moved + done.refused).saturating_sub(done.letters.len() as u64);
    let more = if more == 0 { String::new() } else { format!("and {more} more\n") };
    let went = if done.dry_run { "would go back" } else { "went back" };
    let letters = output::counted(done.moved, "dead letter", "dead letters");
    format!("{table}{more}{letters} of group {} {went}\n", done.group)
}

impl Broker {
    async fn redrive(
        &self,
        args: &RedriveArgs,
        at: (u32, u64),
        until: Option<i64>,
        most: u64,
    ) -> Result<Answer, Failure> {
        let mut question = Remoting::request(own::REDRIVE_DEAD_LETTERS);
        let ext = &mut question.ext;
        ext.set("consumerGroup", &args.group);
        ext.set_number("queueId", at.0);
        ext.set_number("offset", at.1);
        if let Some(until) = until {
            ext.set_number("storedUntil", until);
        }
        if args.max.is_some() {
            ext.set_number("max", most);
        }
        if args.dry_run {
            ext.set("dryRun", "true");
        }
        if !args.ids.is_empty() {
            question = question.with_body(serde_json::json!({ "ids": args.ids }).to_string());
        }
        let answer = self.ask(question).await?;
        match answer.code {
            response::SUCCESS => serde_json::from_slice(&answer.body)
                .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}"))),
            response::REQUEST_CODE_NOT_SUPPORTED => {
                Err(Failure::failed("this broker does not redrive dead letters: only Waybill's brokers do"))
            }
            _refused => Err(self.refused(&answer)),
        }
    }
}
