//! Administration of one broker over the remoting protocol; Apache's brokers understand it too.

pub(crate) mod group;
pub(crate) mod lease;
pub(crate) mod message;
mod overrides;
mod retention;
pub(crate) mod topic;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use waybill_ops::tls::{Connector, Trust};
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{Command, DEFAULT_MAX_FRAME, JsonBody};
use waybill_sidecar::backend::{RemoteOptions, RemoteTransport, TlsNow, Transport, TransportError};

use crate::address;
use crate::exit::Failure;
use crate::peer::Protocol;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pages of a long list that are asked for at most; a page holds hundreds of entries.
const PAGES_MAX: usize = 1_000;

/// Which broker.
#[derive(Debug, clap::Args)]
pub(crate) struct Address {
    /// The broker: host:port of its remoting port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    broker: String,
    /// Speak TLS with the broker; without --tls-ca any certificate is believed
    #[arg(long)]
    tls: bool,
    /// PEM file: speak TLS with the broker, and believe it only if one of these authorities has signed its certificate for the host of
    /// --broker
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// A broker that can be asked.
pub(crate) struct Broker {
    transport: Arc<dyn Transport>,
    address: String,
    speaks_tls: bool,
}

impl Address {
    /// Nothing is connected before the first question.
    fn broker(&self) -> Broker {
        let options =
            RemoteOptions { connect_timeout: CONNECT_TIMEOUT, max_in_flight: 8, max_frame: DEFAULT_MAX_FRAME };
        let transport = RemoteTransport::new(options).with_tls(self.tls());
        let speaks_tls = self.speaks_tls();
        Broker { transport: Arc::new(transport), address: self.broker.clone(), speaks_tls }
    }

    fn speaks_tls(&self) -> bool {
        self.tls || self.tls_ca.is_some()
    }

    fn tls(&self) -> TlsNow {
        let trust = self.tls_ca.clone().map_or(Trust::Anybody, Trust::File);
        let speaks_tls = self.speaks_tls();
        Arc::new(move || speaks_tls.then(|| Connector::new(&trust)).transpose())
    }
}

impl Broker {
    /// Asks, and gives the answer whatever its code.
    async fn ask(&self, request: Command) -> Result<Command, Failure> {
        let failure = |error| match error {
            TransportError::Timeout => {
                Failure::unavailable(format!("the broker at {} does not answer in time", self.address))
                    .hint("it may be starting or overloaded: see its log")
            }
            TransportError::Connection(_) if !self.speaks_tls => {
                Failure::unavailable(format!("no broker at {}: {error}", self.address))
                    .hint("does it take TLS only? --tls speaks it")
            }
            error => Failure::unavailable(format!("no broker at {}: {error}", self.address))
                .hint("is it running there? `waybill standalone` starts one; --broker names another"),
        };
        let answered = self.transport.call(&self.address, request, ANSWER_TIMEOUT).await;
        answered.map_err(|error| failure(error).looking_for(&self.address, Protocol::Remoting))
    }

    /// Asks, and takes every code but SUCCESS as a failure.
    async fn demand(&self, request: Command) -> Result<Command, Failure> {
        let answer = self.ask(request).await?;
        if answer.code == response::SUCCESS { Ok(answer) } else { Err(self.refused(&answer)) }
    }

    /// The failure that an answer stands for.
    fn refused(&self, answer: &Command) -> Failure {
        let name = response::name(answer.code).map_or_else(|| answer.code.to_string(), str::to_owned);
        let remark = answer.remark.as_deref().unwrap_or("no reason given").trim();
        let failure = Failure::failed(format!("the broker at {} refused: {name}: {remark}", self.address));
        match answer.code {
            response::TOPIC_NOT_EXIST => failure.hint("waybill topic list"),
            response::SUBSCRIPTION_GROUP_NOT_EXIST => failure.hint("waybill group list"),
            response::REQUEST_CODE_NOT_SUPPORTED => failure.hint("this broker does not know the request"),
            _other => failure,
        }
    }

    /// Collects a list that brokers may cut into pages: `total` names the field of the answer that tells its length.
    async fn pages<T: JsonBody>(
        &self,
        page: impl Fn(usize) -> Command,
        total: &str,
        mut take: impl FnMut(T) -> usize,
    ) -> Result<(), Failure> {
        let mut seen = 0;
        for _page in 0..PAGES_MAX {
            let answer = self.demand(page(seen)).await?;
            let count = take(body(&answer)?);
            seen += count;
            // Brokers that send all at once do not tell the total.
            let all: usize = answer.ext.get(total).and_then(|text| text.parse().ok()).unwrap_or(0);
            if count == 0 || seen >= all {
                break;
            }
        }
        Ok(())
    }
}

/// The JSON body of an answer.
fn body<T: JsonBody>(answer: &Command) -> Result<T, Failure> {
    answer.json().map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests;
