//! Transactions that are open for long: a broker asks, and one of the producers of the topic that are here is asked through its
//! telemetry stream.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use waybill_protocol::{
    grpc::v2::{Message, RecoverOrphanedTransactionCommand, TelemetryCommand, telemetry_command},
    message::{StoredMessage, properties},
    remoting::{CheckTransactionStateRequestHeader, Command, codes::request},
    transaction::TransactionId,
};

use super::{Metrics, convert, errors};
use crate::backend::{Announcer, MessageService};
use crate::limits;
use crate::namespace;
use crate::session::Sessions;

/// Tells brokers which producers are here, and passes on what brokers ask them.
pub struct Orphans {
    messages: MessageService,
    sessions: Sessions,
    metrics: Metrics,
    questions: mpsc::Receiver<(String, Command)>,
}

impl Orphans {
    /// From now on it hears what brokers ask; [`Orphans::run`] must run for producers to be asked.
    #[must_use]
    pub fn new(messages: MessageService, sessions: Sessions, metrics: Metrics) -> Self {
        let (sender, questions) = mpsc::channel(limits::QUESTIONS_WAITING);
        let unheard = metrics.clone();
        messages.on_request(Arc::new(move |address, command| {
            if command.code != request::CHECK_TRANSACTION_STATE {
                tracing::debug!(address, code = command.code, "request from a broker is not for us");
            } else if sender.try_send((address.to_owned(), command)).is_err() {
                // The broker asks again.
                unheard.question(false);
            }
        }));
        Self { messages, sessions, metrics, questions }
    }

    /// Works until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let announcing = announce(self.messages.clone(), self.sessions.clone());
        tokio::select! {
            () = stop.cancelled() => {}
            ((), ()) = async { tokio::join!(announcing, self.ask()) } => {}
        }
    }

    /// Never waits for a producer: what finds all producers of its topic with much to read is tried again, and only its topic waits.
    async fn ask(&mut self) {
        let (mut waiting, mut turn) = (Waiting::default(), 0_usize);
        let mut again = interval(limits::QUESTION_PAUSE);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                question = self.questions.recv() => {
                    let Some((address, command)) = question else { return };
                    turn = turn.wrapping_add(1);
                    let Some(question) = self.read(&address, &command, turn) else {
                        self.metrics.question(false);
                        continue;
                    };
                    let told = if waiting.has(&question.id.topic) { Told::Later } else { self.tell(&question) };
                    match told {
                        Told::Later if waiting.take(question) => {}
                        told => self.metrics.question(told == Told::Now),
                    }
                }
                _tick = again.tick(), if !waiting.is_empty() => {
                    waiting.try_again(|question| {
                        let told = self.tell(question);
                        if told != Told::Later {
                            self.metrics.question(told == Told::Now);
                        }
                        told
                    }, |lost| (0..lost).for_each(|_| self.metrics.question(false)));
                }
            }
        }
    }

    /// What a broker asks; nothing if that cannot be read.
    fn read(&self, address: &str, command: &Command, turn: usize) -> Option<Question> {
        let read = |command: &Command| {
            let header: CheckTransactionStateRequestHeader = command.header().map_err(|error| error.to_string())?;
            let stored = StoredMessage::decode(&mut command.body.clone()).map_err(|error| error.to_string())?;
            Ok::<_, String>((header, stored))
        };
        let (header, stored) = read(command)
            .inspect_err(|error| tracing::warn!(address, error, "a question about a transaction cannot be read"))
            .ok()?;
        let broker_name = header.broker_name.or_else(|| self.messages.broker_at(address))?;
        let id = TransactionId {
            commit_log_offset: header.commit_log_offset,
            tran_state_table_offset: header.tran_state_table_offset,
            broker_name,
            topic: stored.topic.clone(),
        };
        let message_id = properties::get(&stored.properties, properties::UNIQ_KEY).map(str::to_owned);
        let message_id = message_id.or(header.msg_id).unwrap_or_default();
        let message = convert::message(stored, message_id, limits::BODY_BYTES_MAX);
        Some(Question { id, message, turn, since: Instant::now() })
    }

    /// Asks a producer of the message's topic, the one whose turn it is, or another one.
    fn tell(&self, question: &Question) -> Told {
        let topic = &question.id.topic;
        let producers = self.sessions.producers_of(topic);
        let first = question.turn % producers.len().max(1);
        let mut told = Told::Never;
        for (called, sender) in producers.iter().cycle().skip(first).take(producers.len()) {
            let room = match sender.try_reserve() {
                Ok(room) => room,
                Err(TrySendError::Full(())) => {
                    told = Told::Later;
                    continue;
                }
                Err(TrySendError::Closed(())) => continue,
            };
            let mut message = question.message.clone();
            namespace::show_message(&mut message, &namespace::shown(called));
            let command =
                RecoverOrphanedTransactionCommand { message: Some(message), transaction_id: question.id.to_string() };
            let command = telemetry_command::Command::RecoverOrphanedTransactionCommand(command);
            room.send(Ok(TelemetryCommand { status: Some(errors::ok()), command: Some(command) }));
            return Told::Now;
        }
        tracing::debug!(topic, ?told, "no producer of the topic can be asked about a transaction");
        told
    }
}

/// A question of a broker.
struct Question {
    id: TransactionId,
    message: Message,
    /// Decides which producer is the first to be tried.
    turn: usize,
    since: Instant,
}

/// Whether a producer was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Now,
    /// There are some, and all of them have much to read.
    Later,
    Never,
}

/// Questions whose producers have much to read, by topic.
#[derive(Default)]
struct Waiting {
    of_topic: BTreeMap<String, VecDeque<Question>>,
    bytes: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.of_topic.is_empty()
    }

    fn has(&self, topic: &str) -> bool {
        self.of_topic.contains_key(topic)
    }

    /// False if there is no room.
    fn take(&mut self, question: Question) -> bool {
        let bytes = self.bytes + question.message.body.len();
        let waits = self.of_topic.get(&question.id.topic).map_or(0, VecDeque::len);
        if waits >= limits::QUESTIONS_WAITING || bytes > limits::QUESTION_BYTES_WAITING {
            return false;
        }
        self.bytes = bytes;
        self.of_topic.entry(question.id.topic.clone()).or_default().push_back(question);
        true
    }

    /// Tries them again, each topic until one has to wait on. `lost` hears how many have waited for too long.
    fn try_again(&mut self, tell: impl Fn(&Question) -> Told, lost: impl Fn(usize)) {
        for questions in self.of_topic.values_mut() {
            while let Some(question) = questions.front() {
                let over = question.since.elapsed() >= limits::QUESTION_WAIT;
                match tell(question) {
                    Told::Later if !over => break,
                    Told::Later => lost(1),
                    Told::Now | Told::Never => {}
                }
                self.bytes = self.bytes.saturating_sub(question.message.body.len());
                questions.pop_front();
            }
        }
        self.of_topic.retain(|_, questions| !questions.is_empty());
    }
}

/// Tells brokers which producers are here: news soon, everything now and then.
async fn announce(messages: MessageService, sessions: Sessions) {
    let mut announcer = Announcer::new(messages);
    loop {
        announcer.announce(sessions.published()).await;
        tokio::select! {
            () = sessions.producers_changed() => {}
            () = sleep(limits::ANNOUNCE_PERIOD) => {}
        }
        // Producers come in crowds.
        sleep(limits::ANNOUNCE_GATHER).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn question(topic: &str, bytes: usize) -> Question {
        let id = TransactionId {
            commit_log_offset: 1,
            tran_state_table_offset: 1,
            broker_name: "b".into(),
            topic: topic.into(),
        };
        let message = Message { body: vec![0; bytes].into(), ..Message::default() };
        Question { id, message, turn: 0, since: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_whose_producers_read_nothing_holds_up_no_other() {
        let mut waiting = Waiting::default();
        for topic in ["stuck", "good", "stuck", "good", "gone"] {
            assert!(waiting.take(question(topic, 10)));
        }
        let (told, lost) = (Cell::new(0), Cell::new(0));
        let tell = |question: &Question| match question.id.topic.as_str() {
            "stuck" => Told::Later,
            "good" => {
                told.set(told.get() + 1);
                Told::Now
            }
            _ => Told::Never,
        };
        waiting.try_again(tell, |count| lost.set(lost.get() + count));
        assert_eq!((told.get(), lost.get(), waiting.bytes), (2, 0, 20));
        assert!(waiting.has("stuck") && !waiting.has("good") && !waiting.has("gone"));
        tokio::time::advance(limits::QUESTION_WAIT).await;
        waiting.try_again(tell, |count| lost.set(lost.get() + count));
        assert_eq!((lost.get(), waiting.bytes, waiting.is_empty()), (2, 0, true), "not for ever");
    }

    #[tokio::test]
    async fn what_waits_is_bounded_for_each_topic_and_for_all() {
        let mut waiting = Waiting::default();
        let taken = (0..2 * limits::QUESTIONS_WAITING).filter(|_| waiting.take(question("a", 1))).count();
        assert_eq!(taken, limits::QUESTIONS_WAITING);
        assert!(waiting.take(question("b", 1)), "another topic has room");
        assert!(!waiting.take(question("c", limits::QUESTION_BYTES_WAITING)));
    }
}
