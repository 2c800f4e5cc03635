//! One connection: many requests at a time, matched with their answers by the opaque number.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use waybill_ops::tls::{ReadHalf, Stream, WriteHalf};
use waybill_protocol::remoting::{self, Command, Language, SerializeType, codes::response};

use super::RemoteOptions;
use crate::backend::{from_brokers::FromBrokers, transport::TransportError};

/// Requests that wait for the writer. Callers wait beyond that.
const OUTBOX: usize = 1_024;
/// The writer takes so many requests at a time …
const TAKE: usize = 256;
/// … and writes when so many bytes have gathered.
const WRITE_BYTES: usize = 256 * 1_024;
/// Bodies from this size on are written from where they are instead of being copied.
const COPY_BELOW: usize = 32 * 1_024;
/// How long the end of a connection may take to be told.
const FAREWELL: Duration = Duration::from_secs(1);
/// The least room for reading.
const READ_BYTES: usize = 16 * 1_024;

/// Why a request was not sent.
pub(super) enum NotSent {
    /// The connection is closed; here is the request again.
    Closed(Box<Command>),
    /// Too many requests are waiting for answers.
    Overloaded,
}

/// A connection with its reader and its writer.
pub(super) struct Connection {
    outbox: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

struct Shared {
    address: String,
    waiting: Mutex<Waiting>,
    max_in_flight: usize,
    next_opaque: AtomicI32,
    /// The broker said that it is going away: answers still come, nothing new is asked.
    retired: AtomicBool,
    /// The broker is a Waybill, as its answers say, and reads the codes that a binary header cuts. Apache's do not.
    binary: AtomicBool,
    closed: CancellationToken,
    from_brokers: FromBrokers,
}

#[derive(Default)]
struct Waiting {
    answers: HashMap<i32, oneshot::Sender<Result<Command, TransportError>>>,
    /// Set once, when the connection fails: nothing may be added afterwards, nobody would answer it.
    failed: bool,
}

/// A request that was handed to the connection. Dropping it forgets the request; a late answer is then ignored.
pub(super) struct InFlight {
    opaque: i32,
    shared: Arc<Shared>,
    answer: oneshot::Receiver<Result<Command, TransportError>>,
}

impl Connection {
    /// Takes over a connected socket.
    pub(super) fn start(
        address: &str,
        stream: Stream,
        options: &RemoteOptions,
        from_brokers: FromBrokers,
    ) -> Arc<Self> {
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            waiting: Mutex::default(),
            max_in_flight: options.max_in_flight,
            next_opaque: AtomicI32::new(1),
            retired: AtomicBool::new(false),
            binary: AtomicBool::new(false),
            closed: CancellationToken::new(),
            from_brokers,
        });
        let (read, write) = stream.into_split();
        tokio::spawn(write_loop(write, inbox, Arc::clone(&shared)));
        // The reader must not keep the writer alive: dropping the connection ends both.
        tokio::spawn(read_loop(read, options.max_frame, outbox.downgrade(), Arc::clone(&shared)));
        Arc::new(Self { outbox, shared })
    }

    /// Whether new requests may be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.closed.is_cancelled() && !self.shared.retired.load(Ordering::Relaxed)
    }

    /// Sends a request whose answer will be waited for.
    pub(super) async fn send(&self, mut request: Command) -> Result<InFlight, NotSent> {
        request.opaque = self.shared.next_opaque.fetch_add(1, Ordering::Relaxed);
        if self.shared.binary.load(Ordering::Relaxed) {
            request.serialize = SerializeType::RocketMq;
        }
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting.lock();
            if waiting.failed {
                return Err(NotSent::Closed(Box::new(request)));
            }
            if waiting.answers.len() >= self.shared.max_in_flight {
                return Err(NotSent::Overloaded);
            }
            waiting.answers.insert(request.opaque, sender);
        }
        let in_flight = InFlight { opaque: request.opaque, shared: Arc::clone(&self.shared), answer };
        self.post(request).await?;
        Ok(in_flight)
    }

    /// Sends a command to which no answer is awaited.
    pub(super) async fn post(&self, command: Command) -> Result<(), NotSent> {
        self.outbox.send(command).await.map_err(|mpsc::error::SendError(command)| NotSent::Closed(Box::new(command)))
    }
}

impl InFlight {
    /// Waits for the answer, or for the connection to fail.
    pub(super) async fn answer(mut self) -> Result<Command, TransportError> {
        (&mut self.answer).await.unwrap_or_else(|_| Err(TransportError::Connection(self.shared.address.clone())))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.waiting.lock().answers.remove(&self.opaque);
    }
}

impl Shared {
    /// Fails everything that waits. Only the first reason is kept.
    fn fail(&self, reason: &str) {
        let answers = {
            let mut waiting = self.waiting.lock();
            if waiting.failed {
                return;
            }
            waiting.failed = true;
            std::mem::take(&mut waiting.answers)
        };
        self.closed.cancel();
        tracing::debug!(address = self.address, reason, in_flight = answers.len(), "connection closed");
        for answer in answers.into_values() {
            // A caller that stopped waiting needs no answer.
            let _ = answer.send(Err(TransportError::Connection(format!("{}: {reason}", self.address))));
        }
    }
}

async fn write_loop(mut socket: WriteHalf, mut inbox: mpsc::Receiver<Command>, shared: Arc<Shared>) {
    let mut taken = Vec::with_capacity(TAKE);
    let mut buffer = BytesMut::new();
    loop {
        let count = tokio::select! {
            count = inbox.recv_many(&mut taken, TAKE) => count,
            () = shared.closed.cancelled() => 0,
        };
        if count == 0 {
            break;
        }
        // Requests come in groups, as clients' packets are read: those that are about to come go out with the same call.
        tokio::task::yield_now().await;
        while taken.len() < TAKE
            && let Ok(more) = inbox.try_recv()
        {
            taken.push(more);
        }
        let written = tokio::select! {
            written = write_all(&mut socket, &mut buffer, taken.drain(..)) => written,
            () = shared.closed.cancelled() => break,
        };
        if let Err(error) = written {
            shared.fail(&error.to_string());
            break;
        }
        taken.clear();
    }
    shared.fail("closed");
    // A broker that does not read need not hear the end of it.
    let _ = timeout(FAREWELL, socket.shutdown()).await;
}

/// Writes many frames with few system calls.
async fn write_all(
    socket: &mut WriteHalf,
    buffer: &mut BytesMut,
    commands: impl Iterator<Item = Command>,
) -> std::io::Result<()> {
    for command in commands {
        if command.body.len() < COPY_BELOW {
            remoting::encode(&command, buffer);
        } else {
            remoting::encode_head(&command, buffer);
            let mut frame = Buf::chain(buffer.split(), command.body);
            socket.write_all_buf(&mut frame).await?;
        }
        if buffer.len() >= WRITE_BYTES {
            socket.write_all_buf(buffer).await?;
        }
    }
    socket.write_all_buf(buffer).await?;
    socket.flush().await
}

async fn read_loop(mut socket: ReadHalf, max_frame: usize, outbox: mpsc::WeakSender<Command>, shared: Arc<Shared>) {
    let reason = tokio::select! {
        reason = read_frames(&mut socket, max_frame, &outbox, &shared) => reason,
        () = shared.closed.cancelled() => return,
    };
    shared.fail(&reason);
}

/// Reads until the connection ends; returns why.
async fn read_frames(
    socket: &mut ReadHalf,
    max_frame: usize,
    outbox: &mpsc::WeakSender<Command>,
    shared: &Shared,
) -> String {
    let mut buffer = BytesMut::new();
    loop {
        loop {
            match remoting::decode(&mut buffer, max_frame) {
                Ok(Some(command)) => receive(command, outbox, shared),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(address = shared.address, %error, "closing a connection that sent something that is no frame");
                    return error.to_string();
                }
            }
        }
        buffer.reserve(READ_BYTES);
        match socket.read_buf(&mut buffer).await {
            Ok(0) => return "closed by the other side".to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

fn receive(command: Command, outbox: &mpsc::WeakSender<Command>, shared: &Shared) {
    if command.is_response() {
        if command.code == response::GO_AWAY {
            shared.retired.store(true, Ordering::Relaxed);
        }
        if command.language == Language::Rust {
            shared.binary.store(true, Ordering::Relaxed);
        }
        let waiting = shared.waiting.lock().answers.remove(&command.opaque);
        match waiting {
            // A caller that stopped waiting at this very moment needs no answer.
            Some(answer) => drop(answer.send(Ok(command))),
            None => tracing::debug!(address = shared.address, opaque = command.opaque, "answer came too late"),
        }
        return;
    }
    if command.is_oneway() && shared.from_brokers.give(&shared.address, command.clone()) {
        return;
    }
    tracing::debug!(address = shared.address, code = command.code, "request from a broker is not for us");
    if !command.is_oneway()
        && let Some(outbox) = outbox.upgrade()
    {
        let remark = format!("request type {} not supported", command.code);
        let answer = Command::response(response::REQUEST_CODE_NOT_SUPPORTED, remark).reply_to(&command);
        // If the writer is that far behind, the broker can do without this answer.
        let _ = outbox.try_send(answer);
    }
}
