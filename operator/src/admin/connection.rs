//! A connection to one broker that asks one thing after the other.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use waybill_ops::connect::connect as reach;
use waybill_ops::tls::{Connector, ReadHalf, Stream, WriteHalf};
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{self, Command};

use super::AdminError;

/// The most bytes of an answer: the counts of some ten thousand groups and topics. Whoever says which image brokers have is not trusted
/// with the operator's memory.
const ANSWER_MAX: usize = 4 << 20;

/// How long a broker is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until it takes the connection.
    pub connect: Duration,
    /// For each answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), answer: Duration::from_secs(10) }
    }
}

/// How brokers are spoken with.
#[derive(Debug, Clone)]
pub struct Way {
    /// How long they are waited for.
    pub limits: Limits,
    /// How to speak TLS; none: plain text. An error: whom to believe is not known, and why, for people; then none is asked.
    pub tls: Result<Option<Connector>, String>,
}

impl Way {
    /// Connects to `address`, host:port; the host is looked up anew each time, so a pod's new address is found.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`].
    pub async fn open(&self, address: &str) -> Result<Connection, AdminError> {
        let tls = self.tls.as_ref().map_err(|reason| AdminError::Unreachable(reason.clone()))?;
        let limit = self.limits.connect;
        let (reader, writer) = match timeout(limit, connect(address, tls.as_ref(), limit)).await {
            Ok(connected) => connected?.into_split(),
            Err(_elapsed) => return Err(AdminError::Unreachable("it does not take the connection in time".into())),
        };
        Ok(Connection { reader, writer, answer: self.limits.answer, read: BytesMut::new(), asked: 0 })
    }
}

async fn connect(address: &str, tls: Option<&Connector>, limit: Duration) -> Result<Stream, AdminError> {
    // The kind without its number: the same failure always reads the same.
    let socket = reach(address, limit).await.map_err(|error| AdminError::Unreachable(error.kind().to_string()))?;
    let _slower_without = socket.set_nodelay(true);
    match tls {
        None => Ok(Stream::Plain(socket)),
        Some(tls) => {
            let stream = tls.connect(socket, address).await;
            stream.map(Stream::from).map_err(|error| AdminError::Unreachable(error.to_string()))
        }
    }
}

/// A connection to one broker. It is of no more use after an error other than [`AdminError::Refused`].
#[derive(Debug)]
pub struct Connection {
    reader: ReadHalf,
    writer: WriteHalf,
    answer: Duration,
    read: BytesMut,
    asked: i32,
}

impl Connection {
    /// Asks, and gives the answer whatever its code.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`].
    pub async fn ask(&mut self, request: Command) -> Result<Command, AdminError> {
        self.asked = self.asked.wrapping_add(1);
        let request = Command { opaque: self.asked, ..request };
        match timeout(self.answer, self.exchange(&request)).await {
            Ok(answered) => answered,
            Err(_elapsed) => Err(AdminError::Unreachable("it does not answer in time".into())),
        }
    }

    /// Asks, and takes every code but SUCCESS as a refusal.
    ///
    /// # Errors
    /// Both kinds of [`AdminError`].
    pub async fn demand(&mut self, request: Command) -> Result<Command, AdminError> {
        let answer = self.ask(request).await?;
        if answer.code == response::SUCCESS { Ok(answer) } else { Err(refusal(&answer)) }
    }

    async fn exchange(&mut self, request: &Command) -> Result<Command, AdminError> {
        let broken = |error: std::io::Error| AdminError::Unreachable(error.kind().to_string());
        let mut frame = BytesMut::new();
        remoting::encode(request, &mut frame);
        self.writer.write_all(&frame).await.map_err(broken)?;
        self.writer.flush().await.map_err(broken)?;
        loop {
            match remoting::decode(&mut self.read, ANSWER_MAX) {
                Ok(Some(answer)) if answer.is_response() && answer.opaque == request.opaque => return Ok(answer),
                // Brokers may ask their clients something, which is none of ours.
                Ok(Some(_other)) => {}
                Ok(None) => {
                    if self.reader.read_buf(&mut self.read).await.map_err(broken)? == 0 {
                        return Err(AdminError::Unreachable("it closed the connection".into()));
                    }
                }
                Err(error) => return Err(AdminError::Unreachable(format!("its answer cannot be read: {error}"))),
            }
        }
    }
}

/// What a broker answered, in words.
pub(super) fn refusal(answer: &Command) -> AdminError {
    let name = response::name(answer.code).map_or_else(|| answer.code.to_string(), str::to_owned);
    let remark = answer.remark.as_deref().unwrap_or("no reason given").trim();
    let said = format!("{name}: {remark}");
    match answer.code {
        // It cannot now, and may in a moment.
        response::SYSTEM_BUSY | response::SERVICE_NOT_AVAILABLE => AdminError::Unreachable(said),
        _other => AdminError::Refused(said),
    }
}
