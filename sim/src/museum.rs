//! Bugs that brokers and proxies of the field have had, put in again: what shows that the auditor would see them.
//!
//! Each is a thin wrong layer around the real broker, a wrong disk below it, or a wrong layer between the real sidecar and its brokers, so
//! that no production code knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use clap::ValueEnum;
use parking_lot::Mutex;
use waybill_broker::{Broker, Peer};
use waybill_ops::config::Live;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::message::StoredMessage;
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    AckMessageRequestHeader, BatchChangeInvisibleResult, ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader, Command, EntryCodes, JsonBody, PopMessageRequestHeader,
    PopMessageResponseHeader, VouchAnswer,
};
use waybill_sidecar::backend::MessageService;
use waybill_sidecar::batching::Caller;
use waybill_sidecar::config::Config;
use waybill_sidecar::receipts::{Change, ChangeError, Changer};

/// How long a wrong layer keeps in memory what it has answered already, milliseconds.
const BUFFERED_MS: u64 = 1_500;
/// How long after a change an ack meets it, milliseconds.
const MEETS_MS: i64 = 1_500;

/// A bug of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Bug {
    /// Requests are answered before what they changed is on the disk.
    AnsweredBeforeDurable,
    /// A sync that failed is taken for one that was done.
    FailedSyncIgnored,
    /// An ack is answered OK and kept in memory for a while before it is written.
    AckBuffered,
    /// A renewal is answered OK and kept in memory for a while before it is written.
    RenewalBuffered,
    /// An ack is matched by offset only, so that a handle of a past delivery ends the newer one.
    OldHandleAcksNewDelivery,
    /// A lease whose deadline is set to what it is already is deleted: written and removed under the same key.
    EqualDeadlinesErase,
    /// A renewal that meets the ack of its message writes the lease again.
    RenewalBringsLeaseBack,
    /// The results of a batch come in another order than its entries.
    BatchOrderMixedUp,
    /// One result is given for all entries of a batch.
    OneResultForBatch,
    /// What a client holds is returned although it only moved to another sidecar.
    MovedClientReturned,
    /// A renewal sets the count of deliveries back.
    CountResetByRenewal,
    /// The count of deliveries does not survive a crash.
    CountLostInCrash,
    /// The lock of a queue goes away under a pop, and another pop gets the same messages.
    PopLockDropped,
    /// A change of a lease that is over is answered OK, with zeros.
    ChangeOfNothingAnsweredOk,
    /// That a group consumes in order does not survive a restart.
    OrderForgottenInRestart,
    /// When renewal is switched off, what was given out to be renewed is renewed no more.
    FlipStopsRenewal,
}

/// A message of a group: group, queue, offset.
type Message = (String, i32, i64);

#[derive(Debug, Default)]
struct Memory {
    /// Pop time and deadline of the newest delivery.
    newest: BTreeMap<Message, (i64, i64)>,
    /// When it was changed last.
    changed: BTreeMap<Message, i64>,
    /// Messages whose lease was renewed.
    renewed: BTreeSet<Message>,
    /// Deliveries before the broker was started.
    before_start: BTreeMap<Message, i32>,
    /// The latest answer with messages, and who asked.
    latest_pop: Option<(String, Option<String>, Command)>,
}

/// The real broker behind a layer that may be wrong.
#[derive(Debug)]
pub struct Exhibit {
    bug: Option<Bug>,
    memory: Mutex<Memory>,
}

impl Exhibit {
    /// A layer with that bug, or none.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, memory: Mutex::default() }
    }

    /// Whether groups are to lose their order when the broker starts again.
    #[must_use]
    pub fn forgets_order(&self) -> bool {
        self.bug == Some(Bug::OrderForgottenInRestart)
    }

    /// The broker was started anew.
    pub fn started(&self) {
        *self.memory.lock() = Memory::default();
    }

    /// Answers a request as the broker does, but for the bug.
    pub async fn handle(
        self: Arc<Self>,
        broker: &Arc<Broker>,
        now: i64,
        peer: &Peer,
        command: Command,
    ) -> Option<Command> {
        let Some(bug) = self.bug else { return broker.handle(peer, command).await };
        match (bug, command.code) {
            (Bug::AckBuffered, request::ACK_MESSAGE | request::BATCH_ACK_MESSAGE) => {
                let Some(early) = early_ack(&command) else { return broker.handle(peer, command).await };
                self.later(broker, peer, command);
                Some(early)
            }
            (Bug::RenewalBuffered, request::CHANGE_MESSAGE_INVISIBLETIME) => {
                let Some(early) = self.early_change(now, &command) else { return broker.handle(peer, command).await };
                self.later(broker, peer, command);
                Some(early)
            }
            (Bug::OldHandleAcksNewDelivery, request::ACK_MESSAGE) => {
                let command = self.with_newest_handle(command);
                broker.handle(peer, command).await
            }
            (Bug::RenewalBringsLeaseBack, request::ACK_MESSAGE) if self.meets_change(&command, now) => {
                Some(Command::response(response::SUCCESS, "").reply_to(&command))
            }
            (Bug::PopLockDropped, request::POP_MESSAGE) => {
                if let Some(again) = self.take_latest(&command) {
                    return Some(again);
                }
                let answer = broker.handle(peer, command.clone()).await?;
                self.note(&command, &answer, now);
                Some(answer)
            }
            _ => {
                let answer = broker.handle(peer, command.clone()).await?;
                let before = self.newest_of(&command);
                let answer = self.tamper(bug, &command, answer);
                self.note(&command, &answer, now);
                if bug == Bug::EqualDeadlinesErase
                    && let Some((key, before)) = before
                    && self.memory.lock().newest.get(&key) == Some(&before)
                    && let Some(ack) = ack_of(&command)
                {
                    broker.handle(peer, ack).await;
                }
                Some(answer)
            }
        }
    }

    /// Does it a while later; a broker that is killed before has forgotten it.
    fn later(&self, broker: &Arc<Broker>, peer: &Peer, command: Command) {
        let (broker, peer) = (Arc::downgrade(broker), peer.clone());
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(BUFFERED_MS)).await;
            if let Some(broker) = broker.upgrade() {
                broker.handle(&peer, command).await;
            }
        });
    }

    /// The answer to a change that is not made yet; only for the newest delivery while it lives.
    fn early_change(&self, now: i64, command: &Command) -> Option<Command> {
        let header: ChangeInvisibleTimeRequestHeader = command.header().ok()?;
        let handle: ReceiptHandle = header.extra_info.parse().ok()?;
        let key = (header.consumer_group, handle.queue_id, handle.offset);
        let (pop_time, deadline) = *self.memory.lock().newest.get(&key)?;

        if pop_time != handle.pop_time || deadline < now + 2 * BUFFERED_MS.cast_signed() {
            return None;
        }
        let invisible_time = now + header.invisible_time - pop_time;
        let answer = ChangeInvisibleTimeResponseHeader { pop_time, invisible_time, revive_qid: 0 };
        Some(Command::response(response::SUCCESS, "").with_header(&answer).reply_to(command))
    }

    /// The request with the handle of the newest delivery of its message.
    fn with_newest_handle(&self, command: Command) -> Command {
        let Ok(mut header) = command.header::<AckMessageRequestHeader>() else { return command };
        let Ok(mut handle) = header.extra_info.parse::<ReceiptHandle>() else { return command };
        let key = (header.consumer_group.clone(), handle.queue_id, handle.offset);
        if let Some((pop_time, _)) = self.memory.lock().newest.get(&key) {
            handle.pop_time = *pop_time;
        }
        header.extra_info = handle.to_string();
        command.with_header(&header)
    }

    fn meets_change(&self, command: &Command, now: i64) -> bool {
        let Ok(header) = command.header::<AckMessageRequestHeader>() else { return false };
        let key = (header.consumer_group, header.queue_id, header.offset);
        self.memory.lock().changed.get(&key).is_some_and(|changed| now - changed < MEETS_MS)
    }

    /// What another pop of the same group was answered just now.
    fn take_latest(&self, command: &Command) -> Option<Command> {
        let header: PopMessageRequestHeader = command.header().ok()?;
        let mut memory = self.memory.lock();
        let (group, client, answer) = memory.latest_pop.take()?;
        (group == header.consumer_group && client != header.client_id).then(|| answer.reply_to(command))
    }

    fn newest_of(&self, command: &Command) -> Option<(Message, (i64, i64))> {
        let header: ChangeInvisibleTimeRequestHeader =
            (command.code == request::CHANGE_MESSAGE_INVISIBLETIME).then(|| command.header().ok()).flatten()?;
        let key = (header.consumer_group, header.queue_id, header.offset);
        let newest = *self.memory.lock().newest.get(&key)?;
        Some((key, newest))
    }

    /// Makes the answer wrong.
    fn tamper(&self, bug: Bug, command: &Command, answer: Command) -> Command {
        match (bug, command.code) {
            (Bug::BatchOrderMixedUp, request::BATCH_CHANGE_MESSAGE_INVISIBLETIME) if !answer.body.is_empty() => {
                let mut body = BatchChangeInvisibleResult::from_json(&answer.body).unwrap_or_default();
                body.entries.reverse();
                answer.with_json(&body)
            }
            (Bug::BatchOrderMixedUp | Bug::OneResultForBatch, request::BATCH_ACK_MESSAGE)
                if !answer.body.is_empty() =>
            {
                let mut body = EntryCodes::from_json(&answer.body).unwrap_or_default();
                body.entries.reverse();
                if bug == Bug::OneResultForBatch {
                    let ok = body.entries.iter().any(|entry| entry.code == response::SUCCESS);
                    for entry in body.entries.iter_mut().filter(|_| ok) {
                        entry.code = response::SUCCESS;
                    }
                }
                answer.with_json(&body)
            }
            (Bug::MovedClientReturned, own::VOUCH_FOR_CLIENTS) if answer.code == response::SUCCESS => {
                let said = VouchAnswer::from_json(&answer.body).unwrap_or_default();
                answer.with_json(&VouchAnswer { elsewhere: Vec::new(), ..said })
            }
            (Bug::ChangeOfNothingAnsweredOk, request::CHANGE_MESSAGE_INVISIBLETIME)
                if answer.code == response::NO_MESSAGE =>
            {
                let zeros = ChangeInvisibleTimeResponseHeader::default();
                Command::response(response::SUCCESS, "").with_header(&zeros).reply_to(command)
            }
            (Bug::CountResetByRenewal | Bug::CountLostInCrash, request::POP_MESSAGE) if !answer.body.is_empty() => {
                self.miscount(bug, command, answer)
            }
            _ => answer,
        }
    }

    fn miscount(&self, bug: Bug, command: &Command, answer: Command) -> Command {
        let (Ok(header), Ok(mut messages)) =
            (command.header::<PopMessageRequestHeader>(), StoredMessage::decode_all(answer.body.clone()))
        else {
            return answer;
        };
        let mut body = BytesMut::new();
        let mut memory = self.memory.lock();
        for message in &mut messages {
            let key = (header.consumer_group.clone(), message.queue_id, message.queue_offset);
            match bug {
                Bug::CountResetByRenewal if memory.renewed.contains(&key) => message.reconsume_times = 0,
                Bug::CountLostInCrash => {
                    message.reconsume_times -= *memory.before_start.entry(key).or_insert(message.reconsume_times);
                }
                _ => {}
            }
            if message.encode(&mut body).is_err() {
                return answer;
            }
        }
        answer.with_body(body.freeze())
    }

    /// Remembers what the wrong layers need to know.
    fn note(&self, command: &Command, answer: &Command, now: i64) {
        if answer.code != response::SUCCESS {
            return;
        }
        let mut memory = self.memory.lock();
        match command.code {
            request::POP_MESSAGE => {
                let (Ok(asked), Ok(header)) =
                    (command.header::<PopMessageRequestHeader>(), answer.header::<PopMessageResponseHeader>())
                else {
                    return;
                };
                for message in StoredMessage::decode_all(answer.body.clone()).unwrap_or_default() {
                    let key = (asked.consumer_group.clone(), message.queue_id, message.queue_offset);
                    memory.newest.insert(key, (header.pop_time, header.pop_time + header.invisible_time));
                }
                memory.latest_pop = Some((asked.consumer_group, asked.client_id, answer.clone()));
            }
            request::CHANGE_MESSAGE_INVISIBLETIME => {
                let (Ok(asked), Ok(header)) = (
                    command.header::<ChangeInvisibleTimeRequestHeader>(),
                    answer.header::<ChangeInvisibleTimeResponseHeader>(),
                ) else {
                    return;
                };
                let key = (asked.consumer_group, asked.queue_id, asked.offset);
                memory.changed.insert(key.clone(), now);
                memory.renewed.insert(key.clone());
                memory.newest.insert(key, (header.pop_time, header.pop_time + header.invisible_time));
            }
            _ => {}
        }
    }
}

/// OK to an ack that is not made yet.
fn early_ack(command: &Command) -> Option<Command> {
    (command.code == request::ACK_MESSAGE).then(|| Command::response(response::SUCCESS, "").reply_to(command))
}

/// The ack of the delivery that a change is about.
fn ack_of(command: &Command) -> Option<Command> {
    let header: ChangeInvisibleTimeRequestHeader = command.header().ok()?;
    Some(Command::request(request::ACK_MESSAGE).with_header(&AckMessageRequestHeader {
        consumer_group: header.consumer_group,
        topic: header.topic,
        queue_id: header.queue_id,
        extra_info: header.extra_info,
        offset: header.offset,
    }))
}

/// [`Bug::FlipStopsRenewal`]: what renews looks at the switch as it is now.
pub struct WrongChanger {
    real: MessageService,
    config: Arc<Live<Config>>,
}

impl WrongChanger {
    /// In front of the real one.
    #[must_use]
    pub fn new(real: MessageService, config: Arc<Live<Config>>) -> Self {
        Self { real, config }
    }
}

#[async_trait]
impl Changer for WrongChanger {
    async fn change_invisible(
        &self,
        group: &Arc<str>,
        topic: &Arc<str>,
        changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>> {
        let renews = self.config.get().enable_grpc_channel_receipt_handle_renew;
        let wanted = |change: &Change| renews || change.caller != Caller::Renewal;
        let sent: Vec<bool> = changes.iter().map(wanted).collect();
        let asked = changes.into_iter().filter(wanted).collect();
        let mut results = Changer::change_invisible(&self.real, group, topic, asked).await.into_iter();
        let answer = |sent| if sent { results.next() } else { None };
        sent.into_iter().map(answer).map(|result| result.unwrap_or(Err(ChangeError::Refused))).collect()
    }

    fn batch_limit(&self, broker: &str) -> usize {
        self.real.batch_limit(broker)
    }

    async fn retry_delay_ms(&self, group: &Arc<str>, topic: &Arc<str>, reconsume_times: i32) -> Option<i64> {
        self.real.retry_delay_ms(group, topic, reconsume_times).await
    }
}
