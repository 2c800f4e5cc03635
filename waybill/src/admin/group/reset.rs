//! `waybill group reset`: a group goes on elsewhere in a topic.

use serde::Serialize;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command as Remoting, GetTopicConfigRequestHeader, Header, MessageQueue, OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader, QueueRequestHeader, ResetOffsetRequestHeader, SearchOffsetRequestHeader,
    TopicConfig, queue_table,
};

use crate::admin::{Address, Broker, body};
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::{moment, names};

#[derive(Debug, clap::Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    address: Address,
    /// The consumer group
    #[arg(long, value_parser = names::group)]
    group: String,
    /// The topic
    #[arg(long, value_parser = names::topic)]
    topic: String,
    /// Only this queue
    #[arg(long, value_name = "QUEUE_ID", value_parser = clap::value_parser!(i32).range(0..))]
    queue: Option<i32>,
    /// Where the group goes on: earliest (everything that is still there), latest (only messages to come), or the first message
    /// stored at a time: 2026-11-30T16:00:00Z, milliseconds since 1970, or 2h for two hours ago
    #[arg(long, value_name = "WHERE", value_parser = whereto)]
    to: Where,
    /// Only say where it would go on
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Time(i64),
}

fn whereto(text: &str) -> Result<Where, String> {
    match text {
        "earliest" => Ok(Where::Earliest),
        "latest" => Ok(Where::Latest),
        time => {
            moment::parse(time).map(Where::Time).map_err(|said| format!("it is earliest, latest or a time; {said}"))
        }
    }
}

/// One queue as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Queue {
    id: i32,
    /// Below it, everything was done; none for a group that never read the queue.
    from: Option<i64>,
    to: i64,
}

pub(super) async fn run(args: ResetArgs, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let queues = match args.queue {
        Some(queue) => vec![queue],
        None => (0..broker.queues_to_read(&args.topic).await?).collect(),
    };
    let mut moves = Vec::new();
    for id in queues {
        let from = broker.consumer_offset(&args.group, &args.topic, id).await?;
        moves.push(Queue { id, from, to: broker.offset_of(&args.topic, id, args.to).await? });
    }
    if !args.dry_run {
        for (queue, offset) in broker.reset(&args).await? {
            match moves.iter_mut().find(|known| known.id == queue.queue_id) {
                Some(known) => known.to = offset,
                None => moves.push(Queue { id: queue.queue_id, from: None, to: offset }),
            }
        }
    }
    let printed =
        serde_json::json!({"group": args.group, "topic": args.topic, "reset": !args.dry_run, "queues": moves});
    output::print(format, &printed, |_json| {
        let rows = moves.iter().map(|queue| {
            let from = queue.from.map_or_else(|| "-".to_owned(), |from| from.to_string());
            let by = queue.from.map_or_else(|| "-".to_owned(), |from| format!("{:+}", queue.to - from));
            [queue.id.to_string(), from, queue.to.to_string(), by]
        });
        let done = if args.dry_run { "would go on" } else { "goes on" };
        format!(
            "group {} {done} in topic {} at:\n{}",
            args.group,
            args.topic,
            output::table(["QUEUE", "WAS", "IS", "BY"], rows)
        )
    })
}

impl Broker {
    /// How many queues of a topic consumers read from.
    async fn queues_to_read(&self, topic: &str) -> Result<i32, Failure> {
        let header = GetTopicConfigRequestHeader { topic: topic.to_owned(), lo: None };
        let answer = self.demand(Remoting::request(request::GET_TOPIC_CONFIG).with_header(&header)).await?;
        Ok(body::<TopicConfig>(&answer)?.read_queue_nums)
    }

    /// The offset below which a group is done; none if it never read the queue.
    async fn consumer_offset(&self, group: &str, topic: &str, queue_id: i32) -> Result<Option<i64>, Failure> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            set_zero_if_not_found: Some(false),
        };
        let answer = self.ask(Remoting::request(request::QUERY_CONSUMER_OFFSET).with_header(&header)).await?;
        match answer.code {
            response::SUCCESS => match OffsetResponseHeader::decode(&answer.ext) {
                Ok(header) => Ok(Some(header.offset)),
                Err(error) => Err(Failure::failed(format!("the broker's answer cannot be read: {error}"))),
            },
            response::QUERY_NOT_FOUND => Ok(None),
            _refused => Err(self.refused(&answer)),
        }
    }

    /// Where a group would go on, without moving it.
    async fn offset_of(&self, topic: &str, queue_id: i32, to: Where) -> Result<i64, Failure> {
        let queue = QueueRequestHeader { topic: topic.to_owned(), queue_id };
        match to {
            Where::Earliest => self.offset(request::GET_MIN_OFFSET, &queue).await,
            Where::Latest => self.offset(request::GET_MAX_OFFSET, &queue).await,
            Where::Time(timestamp) => {
                let topic = topic.to_owned();
                let search = SearchOffsetRequestHeader { topic, queue_id, timestamp, boundary_type: None };
                self.offset(request::SEARCH_OFFSET_BY_TIMESTAMP, &search).await
            }
        }
    }

    async fn reset(&self, args: &ResetArgs) -> Result<Vec<(MessageQueue, i64)>, Failure> {
        let header = ResetOffsetRequestHeader {
            topic: args.topic.clone(),
            group: args.group.clone(),
            timestamp: match args.to {
                Where::Earliest => 0,
                Where::Latest => -1,
                Where::Time(ms) => ms,
            },
            is_force: true,
            queue_id: Some(args.queue.unwrap_or(-1)),
            offset: None,
        };
        let command = Remoting::request(request::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&header);
        let answer = self.demand(command).await?;
        queue_table::read("offsetTable", &answer.body)
            .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_to() {
        assert_eq!(whereto("earliest"), Ok(Where::Earliest));
        assert_eq!(whereto("latest"), Ok(Where::Latest));
        assert_eq!(whereto("1796054451000"), Ok(Where::Time(1_796_054_451_000)));
        assert!(whereto("newest").is_err_and(|said| said.contains("earliest, latest or a time")));
    }
}
