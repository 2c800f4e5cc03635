//! What brokers are asked and what they answer, read from the commands themselves.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::message::{StoredMessage, properties};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    AckMessageRequestHeader, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleResult,
    BatchChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
    Command, ConsumerSendMsgBackRequestHeader, EntryCodes, JsonBody, PopMessageRequestHeader, PopMessageResponseHeader,
    SendMessageRequestHeader, SendMessageResponseHeader, VouchBody,
};

use super::lease::Popped;
use super::{Audit, Place};
use crate::broker::PROMISED;
use crate::plan::{CONSUME_TIMEOUT_MS, GROUPS};

/// No plan has a shorter lease for messages that are renewed.
const LEAST_RENEWAL_MS: i64 = 6_000;

/// One delivery that a request is about.
#[derive(Debug)]
struct Target {
    place: Place,
    group: String,
    pop_time: i64,
}

/// A request that reached a broker, as far as the auditor cares.
#[derive(Debug)]
pub struct Asked {
    step: u64,
    /// The true time.
    at: i64,
    broker: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Send { topic: String, body: String, message_group: Option<String> },
    Pop { group: String, topic: String, client: Option<String>, wanted_ms: i64 },
    Ack { targets: Vec<Target>, batch: bool },
    Change { targets: Vec<Target>, batch: bool },
    Forward(Option<Target>),
    Other,
}

impl Audit {
    /// A request reached a broker whose clock shows `clock`. Answers how to remember it, and how to say it.
    pub fn asked(&mut self, broker: &str, clock: i64, command: &Command) -> (Asked, String) {
        let step = self.next_step();
        let what = read(broker, command).unwrap_or(What::Other);
        let mut said = request::name(command.code).or_else(|| own::name(command.code)).unwrap_or("?").to_owned();
        match &what {
            What::Pop { group, client, .. } => {
                let _ = write!(said, " {group} {}", client.as_deref().unwrap_or("?"));
                self.heard(broker, clock, client.iter().map(String::as_str));
            }
            What::Ack { targets, .. } => {
                for target in targets {
                    let _ = write!(said, " {}@{}", target.place, target.pop_time);
                    self.story(&target.place, &target.group).ack_asked(target.pop_time);
                }
            }
            What::Change { targets, .. } => {
                for (target, (invisible, suspend)) in targets.iter().zip(changes(command)) {
                    let popped_for = self.story(&target.place, &target.group).popped_for(target.pop_time);
                    let kept = popped_for == Some(CONSUME_TIMEOUT_MS);
                    // Clients of push consumers ask for less, and so does whoever returns or lets go.
                    if target.group == GROUPS[0] && invisible >= LEAST_RENEWAL_MS {
                        self.renewal_asked(&target.place, &target.group);
                    }
                    if kept && target.group == GROUPS[0] && invisible >= LEAST_RENEWAL_MS {
                        let place = &target.place;
                        self.violation(format!("{place}: renewed by {invisible} ms although it is only kept"));
                    }
                    let _ = write!(said, " {}@{}+{invisible}", target.place, target.pop_time);
                    self.story(&target.place, &target.group).change_asked(
                        step,
                        target.pop_time,
                        clock.saturating_add(invisible),
                        suspend,
                    );
                }
            }
            What::Forward(Some(target)) => {
                let _ = write!(said, " {}@{}", target.place, target.pop_time);
                self.story(&target.place, &target.group).forward_asked();
            }
            What::Send { body, .. } => {
                let _ = write!(said, " {body}");
            }
            What::Forward(None) | What::Other => {}
        }
        if command.code == own::VOUCH_FOR_CLIENTS
            && let Ok(body) = VouchBody::from_json(&command.body)
        {
            let sorted = |mut names: Vec<String>| {
                names.sort();
                names.join(",")
            };
            self.heard(broker, clock, body.alive.iter().map(String::as_str));
            let (now, gone_after) = (self.now, self.gone_after_ms);
            let facts = self.brokers.entry(broker.to_owned()).or_default();
            for client in &body.alive {
                facts.vouched(&body.sidecar_id, client, clock);
            }
            for client in body.gone.iter().chain(&body.left) {
                facts.said_gone(&body.sidecar_id, client, (clock, now), gone_after);
            }
            let (alive, gone, left) = (sorted(body.alive), sorted(body.gone), sorted(body.left));
            let _ = write!(said, " alive=[{alive}] gone=[{gone}] left=[{left}]");
        }
        (Asked { step, at: self.now, broker: broker.to_owned(), what }, said)
    }

    /// A broker whose clock shows `clock` answers. How to say it.
    pub fn answered(&mut self, asked: &Asked, clock: i64, answer: &Command) -> String {
        let step = self.next_step();
        let mut said = format!("-> {}", answer.code);
        match &asked.what {
            What::Send { topic, body, message_group } if answer.code == response::SUCCESS => {
                if let Ok(header) = answer.header::<SendMessageResponseHeader>() {
                    let place = place(&asked.broker, topic, header.queue_id, header.queue_offset);
                    let _ = write!(said, " {place}");
                    if let Some(message_group) = message_group {
                        self.order.is_in(&place, message_group);
                    }
                    self.is_in(place, body);
                }
            }
            What::Pop { group, topic, client, wanted_ms } if answer.code == response::SUCCESS => {
                self.popped(asked, (step, clock), (group, topic, client.as_deref()), *wanted_ms, answer, &mut said);
            }
            What::Ack { targets, batch } => {
                let codes = match batch {
                    false => vec![answer.code; targets.len()],
                    true => EntryCodes::from_json(&answer.body)
                        .map(|codes| codes.entries.iter().map(|entry| entry.code).collect())
                        .unwrap_or_default(),
                };
                if answer.code == response::SUCCESS && codes.len() != targets.len() {
                    self.violation(format!("{} answers to a batch of {} acks", codes.len(), targets.len()));
                }
                for (target, code) in targets.iter().zip(codes) {
                    let _ = write!(said, " {code}");
                    if code == response::SUCCESS {
                        self.note("acks");
                        let most = self.attempts;
                        if let Some(wrong) =
                            self.story(&target.place, &target.group).ack_answered(target.pop_time, most)
                        {
                            let wrong = format!("at {} ms: {} for {}: {wrong}", self.now, target.place, target.group);
                            self.suspicions.push((target.place.clone(), target.group.clone(), wrong));
                        }
                    }
                }
            }
            What::Change { targets, batch } => self.changed(asked, step, targets, *batch, answer, &mut said),
            What::Forward(Some(target)) if answer.code == response::SUCCESS => {
                self.story(&target.place, &target.group).forward_answered();
            }
            _ => {}
        }
        said
    }

    fn popped(
        &mut self,
        asked: &Asked,
        (step, clock): (u64, i64),
        who: (&str, &str, Option<&str>),
        wanted_ms: i64,
        answer: &Command,
        said: &mut String,
    ) {
        let (group, topic, client) = who;
        let Ok(header) = answer.header::<PopMessageResponseHeader>() else {
            return self.violation("the header of an answer to a pop cannot be read".to_owned());
        };
        let Ok(messages) = StoredMessage::decode_all(answer.body.clone()) else {
            return self.violation("the messages of an answer to a pop cannot be read".to_owned());
        };
        let _ = write!(said, " {}+{}", header.pop_time, header.invisible_time);
        let mut together = BTreeSet::new();
        // On a slow disk the answer comes long after the lease began.
        let since = (self.now - (clock - header.pop_time).max(0)).max(asked.at);
        for message in messages {
            let place = place(&asked.broker, topic, message.queue_id, message.queue_offset);
            let body = String::from_utf8_lossy(&message.body).into_owned();
            let attempt = message.reconsume_times + 1;
            let _ = write!(said, " {place}={body}#{attempt}");
            self.note("deliveries");
            self.is_in(place.clone(), &body);
            let new = Popped {
                pop_time: header.pop_time,
                invisible: header.invisible_time,
                wanted_ms,
                attempt,
                holder: client,
                since,
            };
            let facts = self.brokers.get(&asked.broker);
            let gone_after = self.gone_after_ms;
            // By then nobody has vouched for the holder for long enough, or since the broker started.
            let excuse =
                |holder: &str, since: i64| facts.map_or(i64::MAX, |facts| facts.returned(holder, since, gone_after));
            let story = self.stories.entry((place.clone(), group.to_owned())).or_default();
            for wrong in story.delivered(asked.step, step, &new, excuse) {
                self.violation(format!("{place} for {group}: {wrong}"));
            }
            if let Some(message_group) = properties::get(&message.properties, properties::SHARDING_KEY)
                // Who reads the dead letters takes them in any order.
                && GROUPS.contains(&group)
            {
                self.order.is_in(&place, message_group);
                self.in_order(&place, (group, message_group), header.pop_time, &together);
                together.insert(place.offset);
                if attempt > 1 {
                    self.note("in_order_again");
                }
            }
            self.given_to_another(&place, group, header.pop_time, client);
        }
    }

    fn changed(
        &mut self,
        asked: &Asked,
        step: u64,
        targets: &[Target],
        batch: bool,
        answer: &Command,
        said: &mut String,
    ) {
        let entries: Vec<(i32, i64, i64)> = if !batch {
            let header = answer.header::<ChangeInvisibleTimeResponseHeader>().unwrap_or_default();
            vec![(answer.code, header.pop_time, header.invisible_time)]
        } else if answer.code == response::SUCCESS {
            let body = BatchChangeInvisibleResult::from_json(&answer.body).unwrap_or_default();
            body.entries.iter().map(|entry| (entry.code, entry.pop_time, entry.invisible_time)).collect()
        } else {
            vec![(answer.code, 0, 0); targets.len()]
        };
        if entries.len() != targets.len() {
            self.violation(format!("{} answers to a batch of {} changes", entries.len(), targets.len()));
        }
        for (target, (code, pop_time, invisible)) in targets.iter().zip(entries) {
            let _ = write!(said, " {code}");
            let deadline = match code {
                response::SUCCESS => {
                    self.note("changes");
                    let _ = write!(said, ":{invisible}");
                    if pop_time != target.pop_time {
                        let place = &target.place;
                        self.violation(format!(
                            "{place}: the change of delivery {} is answered with {pop_time}",
                            target.pop_time
                        ));
                    }
                    Some(pop_time + invisible)
                }
                // Only these say that nothing was changed.
                response::NO_MESSAGE | response::TOPIC_NOT_EXIST | response::MESSAGE_ILLEGAL => None,
                _ => continue,
            };
            let when = (asked.step, step, asked.at);
            self.story(&target.place, &target.group).change_answered(when, target.pop_time, deadline);
        }
    }

    /// A broker like Apache's answered OK to an ack that did nothing.
    pub fn hollow_ok(&mut self, broker: &str, command: &Command) {
        self.note("hollow_acks");
        if let Some(What::Ack { targets, .. }) = read(broker, command) {
            for target in targets {
                self.story(&target.place, &target.group).hollow = true;
            }
        }
    }

    pub(super) fn story(&mut self, place: &Place, group: &str) -> &mut super::lease::Story {
        self.stories.entry((place.clone(), group.to_owned())).or_default()
    }

    fn heard<'a>(&mut self, broker: &str, clock: i64, clients: impl Iterator<Item = &'a str>) {
        let (now, gone_after) = (self.now, self.gone_after_ms);
        let facts = self.brokers.entry(broker.to_owned()).or_default();
        for client in clients {
            facts.heard(client, clock, now, gone_after);
        }
    }

    /// A place has always the same message.
    fn is_in(&mut self, place: Place, body: &str) {
        if let Some(known) = self.bodies.get(&place) {
            if known != body {
                let known = known.clone();
                self.violation(format!("{place} had {known:?}, now it has {body:?}"));
            }
            return;
        }
        self.bodies.insert(place, body.to_owned());
    }
}

fn place(broker: &str, topic: &str, queue: i32, offset: i64) -> Place {
    Place { broker: broker.to_owned(), topic: topic.to_owned(), queue, offset }
}

fn target(broker: &str, group: &str, topic: &str, handle: &str) -> Option<Target> {
    let handle: ReceiptHandle = handle.parse().ok()?;
    let place = place(broker, topic, handle.queue_id, handle.offset);
    Some(Target { place, group: group.to_owned(), pop_time: handle.pop_time })
}

fn read(broker: &str, command: &Command) -> Option<What> {
    Some(match command.code {
        request::SEND_MESSAGE_V2 => {
            let header = SendMessageRequestHeader::decode_v2(&command.ext).ok()?;
            // They are in no queue yet.
            if header.topic == PROMISED {
                return None;
            }
            let message_group =
                header.properties.as_deref().and_then(|raw| properties::get(raw, properties::SHARDING_KEY));
            What::Send {
                message_group: message_group.map(str::to_owned),
                topic: header.topic,
                body: String::from_utf8_lossy(&command.body).into_owned(),
            }
        }
        request::POP_MESSAGE => {
            let header: PopMessageRequestHeader = command.header().ok()?;
            What::Pop {
                group: header.consumer_group,
                topic: header.topic,
                client: header.client_id,
                wanted_ms: header.invisible_time,
            }
        }
        request::ACK_MESSAGE => {
            let header: AckMessageRequestHeader = command.header().ok()?;
            let target = target(broker, &header.consumer_group, &header.topic, &header.extra_info)?;
            What::Ack { targets: vec![target], batch: false }
        }
        request::BATCH_ACK_MESSAGE => {
            let body = BatchAckBody::from_json(&command.body).ok()?;
            let mut targets = Vec::new();
            for ack in &body.acks {
                targets.extend(ack.offsets().map(|offset| Target {
                    place: place(broker, &ack.topic, ack.queue_id, offset),
                    group: ack.consumer_group.clone(),
                    pop_time: ack.pop_time,
                }));
            }
            What::Ack { targets, batch: true }
        }
        request::CHANGE_MESSAGE_INVISIBLETIME => {
            let header: ChangeInvisibleTimeRequestHeader = command.header().ok()?;
            let target = target(broker, &header.consumer_group, &header.topic, &header.extra_info)?;
            What::Change { targets: vec![target], batch: false }
        }
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => {
            let header: BatchChangeInvisibleTimeRequestHeader = command.header().ok()?;
            let body = BatchChangeInvisibleBody::from_json(&command.body).ok()?;
            let entry = |entry: &waybill_protocol::remoting::BatchChangeInvisibleEntry| {
                target(broker, &header.consumer_group, &header.topic, &entry.extra_info)
            };
            What::Change { targets: body.entries.iter().map(entry).collect::<Option<_>>()?, batch: true }
        }
        request::CONSUMER_SEND_MSG_BACK => {
            let header: ConsumerSendMsgBackRequestHeader = command.header().ok()?;
            let topic = header.origin_topic.unwrap_or_default();
            What::Forward(header.extra_info.and_then(|handle| target(broker, &header.group, &topic, &handle)))
        }
        _ => return None,
    })
}

/// What a change asks for: invisible duration and suspend, for each of its entries.
fn changes(command: &Command) -> Vec<(i64, bool)> {
    if command.code == request::CHANGE_MESSAGE_INVISIBLETIME {
        let header: ChangeInvisibleTimeRequestHeader = command.header().unwrap_or_default();
        return vec![(header.invisible_time, header.suspend == Some(true))];
    }
    let body = BatchChangeInvisibleBody::from_json(&command.body).unwrap_or_default();
    body.entries.iter().map(|entry| (entry.invisible_time, entry.suspend)).collect()
}
