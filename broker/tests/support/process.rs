//! The broker as a process of its own, and a client of its remoting port.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    self, AckMessageRequestHeader, Command, CreateTopicRequestHeader, JsonBody, PopMessageRequestHeader,
    SubscriptionGroupConfig,
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill-broker");

/// A running broker; killed when dropped.
pub struct BrokerProcess {
    child: Child,
    pub address: SocketAddr,
    /// From the start of the process until it listened.
    pub startup: Duration,
    log: Arc<Mutex<Vec<String>>>,
}

impl BrokerProcess {
    pub fn start(dir: &Path, more: &[&str]) -> Self {
        Self::spawn(Process::new(BINARY), dir, more)
    }

    /// The same on a disk of `mib` MiB, mounted at `dir` where only this broker sees it. See [`small_disks_can_be_had`].
    pub fn start_in_namespace(dir: &Path, mib: u32, more: &[&str]) -> Self {
        let mut process = on_small_disk(dir, mib);
        process.arg(BINARY);
        Self::spawn(process, dir, more)
    }

    /// A path as the broker sees it.
    pub fn inside(&self, path: &Path) -> std::path::PathBuf {
        Path::new(&format!("/proc/{}/root", self.pid())).join(path.strip_prefix("/").expect("an absolute path"))
    }

    fn spawn(mut process: Process, dir: &Path, more: &[&str]) -> Self {
        let began = Instant::now();
        let mut child = process
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store"])
            .arg(dir)
            .args(more)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the broker starts");
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut lines = BufReader::new(child.stderr.take().expect("its log is piped")).lines();
        let address = loop {
            let line = match lines.next() {
                Some(line) => line.expect("its log is text"),
                None => panic!("the broker ended before it listened: {:#?}", log.lock()),
            };
            log.lock().push(line.clone());
            if line.contains("broker listens") {
                let at =
                    line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
                break at.parse().expect("an address");
            }
        };
        let startup = began.elapsed();
        let more = Arc::clone(&log);
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| more.lock().push(line)));
        Self { child, address, startup, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM; answers the exit status and how long it took.
    pub fn terminate(mut self) -> (std::process::ExitStatus, Duration) {
        let began = Instant::now();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it can be told");
        let status = self.child.wait().expect("it ends");
        (status, began.elapsed())
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

/// Runs the program that is added to it with a disk of `mib` MiB at `at`, in a mount namespace of its own.
fn on_small_disk(at: &Path, mib: u32) -> Process {
    let mut process = Process::new("unshare");
    if !rustix::process::geteuid().is_root() {
        process.arg("--map-root-user");
    }
    let script = format!("mount -t tmpfs -o size={mib}m small \"$0\" && exec \"$@\"");
    process.args(["--mount", "sh", "-c", &script]).arg(at);
    process
}

/// Whether this machine lets a test have a disk of its own: it takes root or user namespaces, which containers often refuse. Says
/// so if it does not.
pub fn small_disks_can_be_had() -> bool {
    let at = tempfile::tempdir().expect("a directory");
    let said = match on_small_disk(at.path(), 1).arg("true").output() {
        Ok(ran) if ran.status.success() => return true,
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    println!("SKIPPED: no disk of its own can be mounted here: {}", said.trim());
    false
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who waits for which answer; `None` once the connection ended and no answer can come any more.
type Waiting = Arc<Mutex<Option<HashMap<i32, oneshot::Sender<Command>>>>>;

/// One connection with any number of requests under way.
#[derive(Clone)]
pub struct Client {
    writer: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    waiting: Waiting,
    next: Arc<AtomicI32>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the broker listens");
        stream.set_nodelay(true).expect("a socket");
        let (mut reader, writer) = stream.into_split();
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let answers = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut buffer = BytesMut::new();
            while matches!(reader.read_buf(&mut buffer).await, Ok(1..)) {
                while let Some(answer) =
                    remoting::decode(&mut buffer, remoting::DEFAULT_MAX_FRAME).expect("a well-formed answer")
                {
                    let waits = answers.lock().as_mut().and_then(|waiting| waiting.remove(&answer.opaque));
                    if let Some(sender) = waits {
                        let _ = sender.send(answer);
                    }
                }
            }
            // Dropping the senders tells every waiting call that its answer will not come; a later call is told at once,
            // for a write to a connection that the other side has closed may well succeed.
            *answers.lock() = None;
        });
        Self { writer: Arc::new(tokio::sync::Mutex::new(writer)), waiting, next: Arc::new(AtomicI32::new(1)) }
    }

    /// The answer, or `None` if the connection ended before it came.
    pub async fn call(&self, mut command: Command) -> Option<Command> {
        command.opaque = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().as_mut()?.insert(command.opaque, sender);
        let mut frame = BytesMut::new();
        remoting::encode(&command, &mut frame);
        self.writer.lock().await.write_all(&frame).await.ok()?;
        receiver.await.ok()
    }
}

/// Makes topic "t", and groups that give up on nothing.
pub async fn prepare(client: &Client, queues: i32, groups: &[&str]) {
    let topic = CreateTopicRequestHeader::new("t", queues);
    let mut commands = vec![Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&topic)];
    for group in groups {
        let group =
            SubscriptionGroupConfig { group_name: (*group).into(), retry_max_times: 10_000, ..Default::default() };
        commands.push(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group.to_json()));
    }
    for command in commands {
        assert_eq!(client.call(command).await.expect("an answer").code, response::SUCCESS);
    }
}

/// A pop over a connection from topic "t"; the answer if there are messages in it. `None` if none came.
pub async fn pop_over(
    client: &Client,
    group: &str,
    max: i32,
    invisible_ms: i64,
    poll_ms: i64,
) -> Option<Option<Command>> {
    let header = PopMessageRequestHeader {
        consumer_group: group.into(),
        topic: "t".into(),
        queue_id: -1,
        max_msg_nums: max,
        invisible_time: invisible_ms,
        poll_time: poll_ms,
        init_mode: 0,
        ..Default::default()
    };
    let answer = client.call(Command::request(request::POP_MESSAGE).with_header(&header)).await?;
    Some(Some(answer).filter(|answer| answer.code != response::POLLING_TIMEOUT))
}

/// An ack over a connection; answers the response code, if an answer came.
pub async fn ack_over(client: &Client, group: &str, topic: &str, handle: &ReceiptHandle) -> Option<i32> {
    let header = AckMessageRequestHeader {
        consumer_group: group.into(),
        topic: topic.into(),
        queue_id: handle.queue_id,
        extra_info: handle.to_string(),
        offset: handle.offset,
    };
    Some(client.call(Command::request(request::ACK_MESSAGE).with_header(&header)).await?.code)
}
