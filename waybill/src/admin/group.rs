//! `waybill group`.

mod counts;
mod reset;

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{
    Command as Remoting, DeleteSubscriptionGroupRequestHeader, GroupOverrides, GroupRetryPolicyType, RetrySchedule,
    SubscriptionGroupConfig, SubscriptionGroupTable,
};

use self::counts::Counts;
use super::overrides::{self, LeaseArgs, Overrides};
use super::{Address, Broker};
use crate::exit::Failure;
use crate::names;
use crate::output::{self, Format};

/// Groups that brokers make for themselves begin so.
const SYSTEM_PREFIX: &str = "CID_RMQ_SYS_";
/// Groups that Apache's brokers make for themselves, besides.
const SYSTEM_GROUPS: [&str; 7] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
];

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a consumer group
    #[command(after_help = "\
Examples:
  waybill group create billing
  waybill group create billing --retry-max-times 3 --consume-timeout-minutes 30
  waybill group create billing --orderly --update
  waybill group create reports --renew off --consume-timeout-minutes 60
  waybill group create reports --renew default --invisible-duration 30s --update")]
    Create(CreateArgs),
    /// List the consumer groups
    #[command(after_help = "Example:\n  waybill group list --output json")]
    List(ListArgs),
    /// Show a consumer group's settings, and how many messages are in which state
    #[command(after_help = "\
LAG counts what is not done: READY could be delivered now, IN FLIGHT is with consumers, WAITING RETRY was given back to come again
later, BLOCKED waits for a message before it in its message group. DELAYED messages of the topic are not due yet, and not in the lag.

Example:
  waybill group describe billing")]
    Describe(NameArgs),
    /// Let a consumer group go on elsewhere in a topic, further on or further back
    #[command(after_help = "\
What consumers hold at the time is taken from them: a message at or behind the new place is delivered again, one before it is done,
and a late acknowledgement of either has no effect. Attempts start anew.

A dead letter that was redriven is a message of the topic like the one that it is a copy of: a group that goes back to before both gets both.

Examples:
  waybill group reset --group billing --topic orders --to earliest --dry-run
  waybill group reset --group billing --topic orders --to 2h
  waybill group reset --group billing --topic orders --queue 3 --to 2026-11-30T16:00:00Z
  waybill group reset --group billing --topic orders --to latest")]
    Reset(reset::ResetArgs),
    /// Delete a consumer group and its progress
    #[command(after_help = "Example:\n  waybill group delete billing")]
    Delete(NameArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[command(flatten)]
    address: Address,
    /// The consumer group
    #[arg(value_name = "GROUP", value_parser = names::group)]
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
    /// How often a message is tried again before it goes to the dead-letter topic, 0 to 1000; 16 for a new group
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..=1000))]
    retry_max_times: Option<i32>,
    /// How long a push consumer may work on a message, in minutes, 1 to 1440; 15 for a new group
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..=1440))]
    consume_timeout_minutes: Option<i32>,
    /// Whether the messages of a message group are delivered in order; false for a new group
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    orderly: Option<bool>,
    #[command(flatten)]
    leases: LeaseArgs,
    /// Change the group if it exists with other settings
    #[arg(long)]
    update: bool,
}

/// A group as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    consume_enabled: bool,
    orderly: bool,
    retry_max_times: i32,
    consume_timeout_minutes: i32,
    retry_policy: &'static str,
    /// What the group decides itself about its leases.
    overrides: Overrides,
}

/// A group and what it has before it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(flatten)]
    group: Group,
    /// How long a message waits before each retry.
    waits: String,
    attributes: BTreeMap<String, String>,
    /// Nothing from a broker that does not tell.
    #[serde(flatten)]
    counts: Option<Counts>,
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::Create(args) => create(args, format).await,
            Self::List(args) => list(args, format).await,
            Self::Describe(args) => describe(args, format).await,
            Self::Reset(args) => reset::run(args, format).await,
            Self::Delete(args) => delete(args, format).await,
        }
    }
}

async fn create(args: CreateArgs, format: Format) -> Result<(), Failure> {
    let broker = args.name.address.broker();
    let existing = broker.group(&args.name.name).await?;
    // What is not asked for stays as it is, or is as a new group has it.
    let mut wanted = existing.clone().unwrap_or_default();
    wanted.group_name.clone_from(&args.name.name);
    wanted.retry_max_times = args.retry_max_times.unwrap_or(wanted.retry_max_times);
    wanted.consume_timeout_minute = args.consume_timeout_minutes.unwrap_or(wanted.consume_timeout_minute);
    wanted.consume_message_orderly = args.orderly.unwrap_or(wanted.consume_message_orderly);
    args.leases.apply(&mut wanted.attributes);
    let group = Group::from(wanted.clone());
    let done = match &existing {
        Some(existing) if *existing == wanted => "exists already",
        Some(existing) if !args.update => {
            let existing = Group::from(existing.clone());
            let (name, is) = (&existing.name, existing.settings());
            return Err(Failure::failed(format!("the group {name} exists with other settings: {is}"))
                .hint("--update changes it"));
        }
        other => {
            let before = other.as_ref().map(|other| other.attributes.clone()).unwrap_or_default();
            let attributes = overrides::changes(&before, &wanted.attributes);
            let change = SubscriptionGroupConfig { attributes, ..wanted };
            broker.demand(Remoting::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_json(&change)).await?;
            if other.is_some() { "updated" } else { "created" }
        }
    };
    let printed = serde_json::json!({"group": group, "result": done});
    output::print(format, &printed, |_json| format!("group {} {done}: {}", group.name, group.settings()))
}

async fn list(args: ListArgs, format: Format) -> Result<(), Failure> {
    let mut groups: Vec<Group> = args.address.broker().groups().await?.into_iter().map(Group::from).collect();
    groups.retain(|group| args.all || !is_system(&group.name));
    output::print(format, &groups, |groups| {
        let rows = groups.iter().map(|group| {
            let numbers = [group.retry_max_times, group.consume_timeout_minutes].map(|number| number.to_string());
            let [retries, minutes] = numbers;
            [group.name.clone(), group.order().to_owned(), retries, minutes, group.retry_policy.to_owned()]
        });
        output::table(["GROUP", "ORDER", "RETRIES", "TIMEOUT (MINUTES)", "RETRY POLICY"], rows)
    })
}

async fn describe(args: NameArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let config = broker.group(&args.name).await?.ok_or_else(|| missing(&args.name))?;
    let described = Described {
        waits: waits(&config),
        attributes: config.attributes.clone(),
        counts: broker.counts(&args.name).await?,
        group: Group::from(config),
    };
    output::print(format, &described, |Described { group, waits, counts, .. }| {
        let counts = counts.as_ref().map_or_else(|| "this broker does not count messages\n".to_owned(), Counts::text);
        let (settings, overrides) = (group.settings(), group.overrides.in_lines());
        format!("group {}: {settings}\nwaits before a retry: {waits}\n{overrides}{counts}", group.name)
    })
}

/// How long a message waits before each retry, in words.
fn waits(config: &SubscriptionGroupConfig) -> String {
    let time = crate::quantity::millis;
    match RetrySchedule::of(config) {
        RetrySchedule::List(next) => next.into_iter().map(time).collect::<Vec<_>>().join(", "),
        RetrySchedule::Formula(formula) if formula.multiplier == 1 => format!("{} each time", time(formula.initial)),
        RetrySchedule::Formula(formula) => {
            format!("from {} to {}, times {}", time(formula.initial), time(formula.max), formula.multiplier)
        }
    }
}

async fn delete(args: NameArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    broker.group(&args.name).await?.ok_or_else(|| missing(&args.name))?;
    let header = DeleteSubscriptionGroupRequestHeader { group_name: args.name.clone(), clean_offset: Some(true) };
    broker.demand(Remoting::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&header)).await?;
    let printed = serde_json::json!({"group": args.name, "result": "deleted"});
    output::print(format, &printed, |_json| format!("group {} deleted", args.name))
}

fn missing(name: &str) -> Failure {
    Failure::failed(format!("there is no group {name}")).hint("waybill group list")
}

impl Broker {
    /// All groups. Asking for one by name would create it on a broker that creates groups on first use.
    async fn groups(&self) -> Result<Vec<SubscriptionGroupConfig>, Failure> {
        let mut groups = Vec::new();
        let page = |seen: usize| {
            let mut command = Remoting::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG);
            command.ext.set_number("groupSeq", seen);
            command
        };
        let take = |table: SubscriptionGroupTable| {
            let count = table.subscription_group_table.len();
            groups.extend(table.subscription_group_table.into_values());
            count
        };
        self.pages(page, "totalGroupNum", take).await?;
        groups.sort_by(|a: &SubscriptionGroupConfig, b| a.group_name.cmp(&b.group_name));
        Ok(groups)
    }

    /// A group's settings; None when there is no such group.
    async fn group(&self, name: &str) -> Result<Option<SubscriptionGroupConfig>, Failure> {
        Ok(self.groups().await?.into_iter().find(|group| group.group_name == name))
    }
}

impl From<SubscriptionGroupConfig> for Group {
    fn from(config: SubscriptionGroupConfig) -> Self {
        Self {
            name: config.group_name,
            consume_enabled: config.consume_enable,
            orderly: config.consume_message_orderly,
            retry_max_times: config.retry_max_times,
            consume_timeout_minutes: config.consume_timeout_minute,
            overrides: Overrides::from(GroupOverrides::understood(&config.attributes)),
            retry_policy: match config.group_retry_policy.kind {
                GroupRetryPolicyType::Customized => "customized",
                GroupRetryPolicyType::Exponential => "exponential",
            },
        }
    }
}

impl Group {
    fn order(&self) -> &'static str {
        if self.orderly { "fifo" } else { "any" }
    }

    /// What can be set, in words.
    fn settings(&self) -> String {
        let enabled = if self.consume_enabled { "" } else { ", consumption switched off" };
        format!(
            "order {}, {}, {} to consume{enabled}{}",
            self.order(),
            output::counted(self.retry_max_times, "retry", "retries"),
            output::counted(self.consume_timeout_minutes, "minute", "minutes"),
            self.overrides.in_short()
        )
    }
}

fn is_system(name: &str) -> bool {
    name.starts_with(SYSTEM_PREFIX) || SYSTEM_GROUPS.contains(&name)
}
