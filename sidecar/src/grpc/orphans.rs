//! Transactions that are open for long: a broker asks, and one of the producers of the topic that are here is asked through its
//! telemetry stream.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waybill_protocol::{
    grpc::v2::{RecoverOrphanedTransactionCommand, TelemetryCommand, telemetry_command},
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
        let asking = async {
            let mut turn = 0;
            while let Some((address, command)) = self.questions.recv().await {
                let told = self.ask(&address, &command, turn);
                turn = turn.wrapping_add(1);
                self.metrics.question(told.is_some());
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            ((), ()) = async { tokio::join!(announcing, asking) } => {}
        }
    }

    /// Asks a producer of the message's topic; nothing if there is none, or if the question cannot be read.
    fn ask(&self, address: &str, command: &Command, turn: usize) -> Option<()> {
        let read = |command: &Command| {
            let header: CheckTransactionStateRequestHeader = command.header().map_err(|error| error.to_string())?;
            let stored = StoredMessage::decode(&mut command.body.clone()).map_err(|error| error.to_string())?;
            Ok::<_, String>((header, stored))
        };
        let (header, stored) = read(command)
            .inspect_err(|error| tracing::warn!(address, error, "a question about a transaction cannot be read"))
            .ok()?;
        let broker_name = header.broker_name.or_else(|| self.messages.broker_at(address))?;
        let topic = stored.topic.clone();
        let id = TransactionId {
            commit_log_offset: header.commit_log_offset,
            tran_state_table_offset: header.tran_state_table_offset,
            broker_name,
            topic: topic.clone(),
        };
        let message_id = properties::get(&stored.properties, properties::UNIQ_KEY).map(str::to_owned);
        let message = convert::message(stored, message_id.or(header.msg_id).unwrap_or_default());
        let producers = self.sessions.producers_of(&topic);
        let first = turn % producers.len().max(1);
        let in_turn = producers.iter().cycle().skip(first).take(producers.len());
        for (called, sender) in in_turn {
            let mut message = message.clone();
            namespace::show_message(&mut message, &namespace::shown(called));
            let question = RecoverOrphanedTransactionCommand { message: Some(message), transaction_id: id.to_string() };
            let question = telemetry_command::Command::RecoverOrphanedTransactionCommand(question);
            let question = TelemetryCommand { status: Some(errors::ok()), command: Some(question) };
            if sender.try_send(Ok(question)).is_ok() {
                return Some(());
            }
        }
        tracing::debug!(topic, "no producer of the topic can be asked about a transaction");
        None
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
