//! `waybill lease release` and `extend`: many leases with one request, one result for each.

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
    BatchChangeInvisibleTimeRequestHeader, ChangedBy, Command as Remoting,
};

use super::ChangeArgs;
use super::listing::{Lease, Leases};
use crate::admin::{Broker, body};
use crate::exit::Failure;
use crate::output::{self, Format};

/// The most entries of one request, also of a broker that takes more: its body stays far below the broker's limit.
const BATCH_MAX: usize = 1_024;

/// What is to become of each lease. Milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    /// It ends now.
    Release,
    /// It ends so much later than it would.
    By(i64),
    /// It ends so long from now.
    For(i64),
}

impl Wish {
    /// The invisible duration from now on that gives the lease the end that is wished for.
    fn invisible_ms(self, lease: &Lease, now_ms: i64) -> i64 {
        match self {
            Self::Release => 0,
            Self::By(ms) => lease.deadline.saturating_sub(now_ms).saturating_add(ms),
            Self::For(ms) => ms,
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Release => "released",
            Self::By(_) | Self::For(_) => "extended",
        }
    }
}

/// What came of it: numbers of leases.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    /// That were to be changed.
    found: usize,
    changed: usize,
    /// That were over when they were to be changed: acknowledged, delivered again, or at their end.
    ended: usize,
    /// By the name of the broker's answer.
    failed: BTreeMap<String, usize>,
    dry_run: bool,
}

pub(super) async fn run(args: ChangeArgs, wish: Wish, format: Format) -> Result<(), Failure> {
    let broker = args.address.broker();
    let mut outcome = Outcome { dry_run: args.dry_run, ..Outcome::default() };
    let mut after = None;
    loop {
        let listed = broker.leases(&args.filters, after.as_ref()).await?;
        let live: Vec<&Lease> = listed.leases.iter().filter(|lease| lease.deadline > listed.now).collect();
        outcome.found += live.len();
        if !args.dry_run {
            change(&broker, &listed, &live, wish, &mut outcome).await?;
        }
        if !listed.truncated {
            break;
        }
        output::progress(format, &format!("{} {} so far …", leases(outcome.changed), wish.done()));
        after = listed.leases.last().cloned();
    }
    output::print(format, &outcome, |outcome| text(outcome, wish))?;
    let failed: usize = outcome.failed.values().sum();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::failed(format!("1 lease was not {}", wish.done()))),
        failed => Err(Failure::failed(format!("{failed} leases were not {}", wish.done()))),
    }
}

/// One request for each group and topic, or several where it is many leases.
async fn change(
    broker: &Broker,
    listed: &Leases,
    live: &[&Lease],
    wish: Wish,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let most = listed.batch_max_entries.clamp(1, BATCH_MAX);
    for same in live.chunk_by(|a, b| (&a.group, &a.topic) == (&b.group, &b.topic)) {
        for chunk in same.chunks(most) {
            let Some(first) = chunk.first() else { continue };
            let header = BatchChangeInvisibleTimeRequestHeader {
                consumer_group: first.group.clone(),
                topic: first.topic.clone(),
            };
            let entries = chunk.iter().map(|lease| entry(lease, listed, wish)).collect();
            let command = Remoting::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
                .with_header(&header)
                .with_json(&BatchChangeInvisibleBody { entries });
            let answer = broker.ask(command).await?;
            if answer.code != response::SUCCESS {
                *outcome.failed.entry(name(answer.code)).or_default() += chunk.len();
                continue;
            }
            let result: BatchChangeInvisibleResult = body(&answer)?;
            outcome.count(chunk.len(), result.entries.iter().map(|entry| entry.code));
        }
    }
    Ok(())
}

/// The lease's newest handle, with the new duration.
fn entry(lease: &Lease, listed: &Leases, wish: Wish) -> BatchChangeInvisibleEntry {
    let handle = ReceiptHandle {
        start_offset: lease.offset,
        pop_time: lease.pop_time,
        invisible_time: lease.invisible_time,
        revive_queue_id: 0,
        topic_type: TopicType::of(&lease.topic),
        broker_name: listed.broker_name.clone(),
        queue_id: lease.queue_id,
        offset: lease.offset,
        commit_log_offset: None,
    };
    BatchChangeInvisibleEntry {
        consumer_group: lease.group.clone(),
        topic: lease.topic.clone(),
        queue_id: lease.queue_id,
        offset: lease.offset,
        extra_info: handle.to_string(),
        invisible_time: wish.invisible_ms(lease, listed.now),
        changed_by: ChangedBy::Operator.word().map(str::to_owned),
        ..Default::default()
    }
}

impl Outcome {
    /// Counts one code for each of `asked` leases; one that is missing is a failure.
    fn count(&mut self, asked: usize, codes: impl Iterator<Item = i32>) {
        for code in codes.map(Some).chain(std::iter::repeat(None)).take(asked) {
            match code {
                Some(response::SUCCESS) => self.changed += 1,
                Some(response::NO_MESSAGE) => self.ended += 1,
                Some(code) => *self.failed.entry(name(code)).or_default() += 1,
                None => *self.failed.entry("no answer".to_owned()).or_default() += 1,
            }
        }
    }
}

fn name(code: i32) -> String {
    response::name(code).map_or_else(|| code.to_string(), str::to_owned)
}

fn leases(count: usize) -> String {
    output::counted(count as u64, "lease", "leases")
}

fn text(outcome: &Outcome, wish: Wish) -> String {
    if outcome.dry_run {
        return format!("{} would be {}\n", leases(outcome.found), wish.done());
    }
    let mut text = format!("{} of {} {}\n", outcome.changed, leases(outcome.found), wish.done());
    if outcome.ended > 0 {
        text.push_str(&format!("{} over before\n", output::counted(outcome.ended as u64, "was", "were")));
    }
    for (reason, count) in &outcome.failed {
        text.push_str(&format!("{count} failed: {reason}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_is_counted_once() {
        let mut outcome = Outcome::default();
        let codes = [response::SUCCESS, response::NO_MESSAGE, response::SYSTEM_BUSY, response::SUCCESS];
        outcome.count(5, codes.into_iter());
        outcome.count(1, [response::SUCCESS; 3].into_iter());
        assert_eq!((outcome.changed, outcome.ended), (3, 1));
        let failed = [("SYSTEM_BUSY".to_owned(), 1), ("no answer".to_owned(), 1)];
        assert_eq!(outcome.failed, failed.into());
        outcome.found = 6;
        let wanted = "3 of 6 leases released\n1 was over before\n1 failed: SYSTEM_BUSY\n1 failed: no answer\n";
        assert_eq!(text(&outcome, Wish::Release), wanted);
    }

    #[test]
    fn durations_count_from_now_or_from_the_end() {
        let lease = Lease { pop_time: 1_000, deadline: 11_000, ..Lease::default() };
        let ms = |wish: Wish| wish.invisible_ms(&lease, 4_000);
        assert_eq!((ms(Wish::Release), ms(Wish::By(5_000)), ms(Wish::For(5_000))), (0, 12_000, 5_000));
        assert_eq!(ms(Wish::By(i64::MAX)), i64::MAX);
    }
}
