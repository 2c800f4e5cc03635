//! One connection: frames in, frames out.
//!
//! Requests are worked on side by side and answered in the order they finish. What is read is bounded: when a connection has
//! too many requests in hand, or its peer does not read the answers, its requests stop being read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use waybill_ops::tls::{ReadHalf, Stream, WriteHalf};
use waybill_protocol::remoting::codes::own;
use waybill_protocol::remoting::{self, Command};

use super::channel::Channel;
use crate::Broker;
use crate::limits;

/// A connection without a byte from its peer and without work in hand is closed after this long, as upstream does.
pub(super) const IDLE: Duration = Duration::from_secs(120);
/// Answers written with one system call, at most.
const WRITE_BATCH: usize = 256;
const READ_CHUNK: usize = 64 * 1024;
/// How long the end of a connection may take to be told.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address of the other side.
    pub address: SocketAddr,
    /// Number of the connection, unique while the broker runs.
    pub connection: u64,
    /// Cancelled when the connection is closed.
    pub gone: CancellationToken,
    /// The way back.
    pub channel: Channel,
}

impl Peer {
    /// The peer of requests that come from this process.
    #[must_use]
    pub fn local() -> Self {
        Self::local_with(Channel::none())
    }

    /// The same, with a way back.
    #[must_use]
    pub fn local_with(channel: Channel) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { address, connection: 0, gone: CancellationToken::new(), channel }
    }
}

struct Outgoing {
    command: Command,
    /// Room in the bound on bytes waiting; given back when the answer is written.
    _room: OwnedSemaphorePermit,
}

const KIB: usize = 1024;

fn kib(bytes: usize) -> u32 {
    let most = limits::RESPONSE_BYTES_PER_CONNECTION_MAX / KIB;
    u32::try_from((bytes / KIB + 1).min(most)).unwrap_or(u32::MAX)
}

/// Serves one connection until it is closed by either side.
pub(crate) async fn serve(
    stream: Stream,
    address: SocketAddr,
    connection: u64,
    broker: Arc<Broker>,
    stop: CancellationToken,
) {
    let (reader, writer) = stream.into_split();
    let (answers, to_write) = mpsc::channel(WRITE_BATCH);
    let room = Arc::new(Semaphore::new(limits::RESPONSE_BYTES_PER_CONNECTION_MAX / KIB));
    let channel = way_back(&answers, Arc::clone(&room));
    let peer = Peer { address, connection, gone: CancellationToken::new(), channel };
    let writing = tokio::spawn(write_answers(writer, to_write, peer.clone()));
    read_requests(reader, answers, room, &broker, &peer, &stop).await;
    // Requests in hand still hold a sender; the writer ends with the last of them, or at once if the peer is gone.
    if let Err(error) = writing.await {
        warn!(%address, %error, "the writer of a connection failed");
    }
    peer.gone.cancel();
    broker.connection_closed(&peer);
}

/// What the broker asks goes the way of the answers, and waits for nothing. It keeps no connection open.
fn way_back(answers: &mpsc::Sender<Outgoing>, room: Arc<Semaphore>) -> Channel {
    let answers = answers.downgrade();
    Channel::new(move |command| {
        let Some(answers) = answers.upgrade() else { return false };
        let Ok(permit) = Arc::clone(&room).try_acquire_many_owned(kib(command.body.len())) else { return false };
        answers.try_send(Outgoing { command, _room: permit }).is_ok()
    })
}

async fn read_requests(
    mut reader: ReadHalf,
    answers: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    broker: &Arc<Broker>,
    peer: &Peer,
    stop: &CancellationToken,
) {
    let requests = Arc::new(Semaphore::new(limits::REQUESTS_PER_CONNECTION_MAX));
    let mut buffer = BytesMut::new();
    loop {
        loop {
            match remoting::decode(&mut buffer, remoting::DEFAULT_MAX_FRAME) {
                Ok(Some(command)) => {
                    // A closed semaphore does not happen: nobody closes it.
                    let Ok(turn) = Arc::clone(&requests).acquire_owned().await else { return };
                    let in_order = command.code == own::VOUCH_FOR_CLIENTS;
                    let (broker, answers, room) = (Arc::clone(broker), answers.clone(), Arc::clone(&room));
                    let answering = tokio::spawn(answer_one(broker, peer.clone(), command, answers, room, turn));
                    if in_order {
                        // Of two words about a client the later one counts; it must not be heard first.
                        let _ended = answering.await;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    broker.metrics.malformed_frame();
                    warn!(address = %peer.address, %error, "malformed frame, connection closed");
                    peer.gone.cancel();
                    return;
                }
            }
        }
        if buffer.capacity() - buffer.len() < READ_CHUNK / 4 {
            buffer.reserve(READ_CHUNK);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = peer.gone.cancelled() => return,
            read = tokio::time::timeout(IDLE, reader.read_buf(&mut buffer)) => match read {
                Ok(Ok(0)) => {
                    peer.gone.cancel();
                    return;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    debug!(address = %peer.address, %error, "connection lost");
                    peer.gone.cancel();
                    return;
                }
                Err(_) if requests.available_permits() == limits::REQUESTS_PER_CONNECTION_MAX => {
                    debug!(address = %peer.address, "idle connection closed");
                    return;
                }
                Err(_) => {}
            },
        }
        // A connection that once carried a large frame does not keep its memory.
        if buffer.is_empty() && buffer.capacity() > 4 * READ_CHUNK {
            buffer = BytesMut::new();
        }
    }
}

async fn answer_one(
    broker: Arc<Broker>,
    peer: Peer,
    request: Command,
    answers: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    _turn: OwnedSemaphorePermit,
) {
    if request.is_response() {
        debug!(address = %peer.address, opaque = request.opaque, "an answer nobody waits for");
        return;
    }
    let oneway = request.is_oneway();
    let Some(reply) = broker.handle(&peer, request).await else { return };
    if oneway {
        return;
    }
    // Neither fails while the connection lives; what a gone peer was to be answered has nowhere to go.
    if let Ok(permit) = room.acquire_many_owned(kib(reply.body.len())).await {
        let _ = answers.send(Outgoing { command: reply, _room: permit }).await;
    }
}

async fn write_answers(mut writer: WriteHalf, mut to_write: mpsc::Receiver<Outgoing>, peer: Peer) {
    let mut batch = Vec::with_capacity(WRITE_BATCH);
    let mut buffer = BytesMut::new();
    while to_write.recv_many(&mut batch, WRITE_BATCH).await > 0 {
        // Answers come in groups, as their batches are committed: those that are about to come go out with the same call.
        tokio::task::yield_now().await;
        while batch.len() < WRITE_BATCH
            && let Ok(more) = to_write.try_recv()
        {
            batch.push(more);
        }
        for outgoing in &batch {
            remoting::encode(&outgoing.command, &mut buffer);
        }
        let written = match writer.write_all(&buffer).await {
            Ok(()) => writer.flush().await,
            failed => failed,
        };
        batch.clear();
        if buffer.capacity() > 4 * READ_CHUNK {
            buffer = BytesMut::new();
        } else {
            buffer.clear();
        }
        if let Err(error) = written {
            debug!(address = %peer.address, %error, "answers could not be written");
            peer.gone.cancel();
            return;
        }
    }
    // With TLS the peer is told that this is the end, and not cut off. One that does not read need not hear it.
    let _told = tokio::time::timeout(FAREWELL, writer.shutdown()).await;
}
