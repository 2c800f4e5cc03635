//! A broker over TCP that does what a test tells it to.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};
use waybill_protocol::remoting::{Command, decode, encode};

/// What is written to a connection.
#[derive(Debug)]
pub(crate) enum Out {
    Frame(Command),
    Raw(Bytes),
    Close,
}

pub(crate) type Reply = mpsc::UnboundedSender<Out>;

/// So many sockets at one address at which nobody listens yet, and nobody else will: what is bound is given to no other test.
pub(crate) fn places<const COUNT: usize>() -> (SocketAddr, [TcpSocket; COUNT]) {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = std::array::from_fn(|_| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseport(true).expect("an option");
        socket.bind(address).expect("bind");
        address = socket.local_addr().expect("address");
        socket
    });
    (address, sockets)
}

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u32 = 128;

/// Stops when it is dropped.
pub(crate) struct FakeBroker {
    pub(crate) address: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    connections: AtomicUsize,
    seen: Mutex<Vec<Command>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        self.accepting.abort();
        for task in self.state.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

impl FakeBroker {
    pub(crate) async fn start(handler: impl Fn(Command, &Reply) + Send + Sync + 'static) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.expect("bind"), handler)
    }

    pub(crate) fn start_on(listener: TcpListener, handler: impl Fn(Command, &Reply) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("address").to_string();
        let state =
            Arc::new(State { connections: AtomicUsize::new(0), seen: Mutex::default(), tasks: Mutex::default() });
        let (accepted, handler) = (Arc::clone(&state), Arc::new(handler));
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                accepted.connections.fetch_add(1, Ordering::SeqCst);
                let task = tokio::spawn(serve(socket, Arc::clone(&accepted), Arc::clone(&handler)));
                accepted.tasks.lock().push(task);
            }
        });
        Self { address, state, accepting }
    }

    /// Ends it; then nobody listens at its address, and its connections are closed.
    pub(crate) async fn stop(mut self) {
        self.accepting.abort();
        let _aborted = (&mut self.accepting).await;
        let tasks = std::mem::take(&mut *self.state.tasks.lock());
        for task in tasks {
            task.abort();
            let _aborted = task.await;
        }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Every command that came, in order.
    pub(crate) fn seen(&self) -> Vec<Command> {
        self.state.seen.lock().clone()
    }
}

async fn serve(socket: TcpStream, state: Arc<State>, handler: Arc<impl Fn(Command, &Reply) + Send + Sync + 'static>) {
    let (mut read, mut write) = socket.into_split();
    let (reply, mut outbox) = mpsc::unbounded_channel();
    let reading = async {
        let mut buffer = BytesMut::new();
        while let Ok(count) = read.read_buf(&mut buffer).await {
            if count == 0 {
                break;
            }
            while let Some(command) = decode(&mut buffer, 64 << 20).expect("a frame") {
                state.seen.lock().push(command.clone());
                handler(command, &reply);
            }
        }
    };
    let writing = async {
        while let Some(out) = outbox.recv().await {
            let mut bytes = BytesMut::new();
            match out {
                Out::Frame(command) => encode(&command, &mut bytes),
                Out::Raw(raw) => bytes.extend_from_slice(&raw),
                Out::Close => break,
            }
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// An answer with success and the request's own body.
pub(crate) fn echo(request: &Command) -> Out {
    Out::Frame(Command::response(0, "").with_body(request.body.clone()).reply_to(request))
}
