//! A whole sidecar with a million handles in its hands: what it costs to renew 10,000 of them a second.
//!
//! This program is the broker and the clients; the sidecar is another process, whose CPU and memory are read from /proc. `bench/run
//! --only receipts` starts both:
//! `held_bench <port for the broker> <sidecar's gRPC address> <its admin address> <its process id> <handles> <seconds to measure>`.
//!
//! Messages are received at a steady rate first. How soon one is due is said by the broker, in its answer to the pop. Half of the handles are due one after the other, as many
//! a second as are wanted, for [`CYCLE_S`] seconds; by then the first, whose lease is one minute then, are due again. The others are
//! held and not due meanwhile.
#![allow(clippy::print_stdout)]

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, transport::Channel};
use waybill_ops::clock::now_ms;
use waybill_protocol::{
    grpc::v2::{self, messaging_service_client::MessagingServiceClient, settings::PubSub, telemetry_command},
    handle::{ReceiptHandle, TopicType},
    message::StoredMessage,
    remoting::{
        BatchChangeInvisibleBody, BatchChangeInvisibleResult, BatchChangeInvisibleResultEntry, BrokerData,
        ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, ClusterInfo, Command, JsonBody,
        PopMessageResponseHeader, QueueData, SubscriptionGroupConfig, TopicConfig, TopicRouteData, VouchAnswer,
        codes::{own, request, response},
        decode, encode,
        pop_info::{MsgOffsets, StartOffset, encode_msg_offsets, encode_start_offsets},
    },
};

const TOPIC: &str = "orders-topic";
const GROUP: &str = "orders-consumer-group";
const BROKER: &str = "broker-0";
/// Messages of one receive.
const BATCH: usize = 32;
/// So many messages a second are received until all are held.
const RECEIVED_PER_S: usize = 20_000;
/// Clients, and the connections that they share.
const CLIENTS: usize = 200;
const CONNECTIONS: usize = 8;
const QUEUES: i32 = 16;
/// From one renewal of a handle to its second: a lease of one minute, renewed `renewAheadTimeMillis` before its end.
const CYCLE_S: usize = 50;
const AHEAD_MS: i64 = 10_000;
/// Due when nobody looks any more.
const LONG_MS: i64 = 3_600_000;
/// From when all handles are there until renewals begin, and until they are measured.
const REST: Duration = Duration::from_secs(5);
const START_LIMIT: Duration = Duration::from_secs(30);
const LOAD_LIMIT: Duration = Duration::from_secs(400);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Rpc = MessagingServiceClient<Channel>;

/// The broker.
struct Broker {
    address: String,
    handles: usize,
    /// When the first handle is due; set when it is known how long it takes to hand them all out.
    first_due_ms: i64,
    given: AtomicUsize,
    requests: AtomicU64,
    entries: AtomicU64,
    singly: AtomicU64,
}

impl Broker {
    fn answer(&self, command: &Command) -> Result<Command, Failure> {
        let ok = || Command::response(response::SUCCESS, "");
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => ok().with_json(&self.route()),
            request::GET_BROKER_CLUSTER_INFO => {
                let mut info = ClusterInfo::default();
                info.broker_addr_table.insert(BROKER.into(), self.data());
                ok().with_json(&info)
            }
            request::GET_TOPIC_CONFIG => {
                ok().with_json(&TopicConfig { topic_name: TOPIC.into(), ..Default::default() })
            }
            request::GET_SUBSCRIPTIONGROUP_CONFIG => {
                ok().with_json(&SubscriptionGroupConfig { group_name: GROUP.into(), ..Default::default() })
            }
            own::VOUCH_FOR_CLIENTS => ok().with_json(&VouchAnswer { client_gone_after: 30_000, ..Default::default() }),
            request::POP_MESSAGE => self.pop()?,
            request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => self.change_many(command)?,
            request::CHANGE_MESSAGE_INVISIBLETIME => self.change(command)?,
            _ => Command::response(response::REQUEST_CODE_NOT_SUPPORTED, "not at this broker"),
        };
        Ok(answer.reply_to(command))
    }

    fn data(&self) -> BrokerData {
        let broker_addrs = [(0, self.address.clone())].into();
        BrokerData { broker_name: BROKER.into(), broker_addrs, ..Default::default() }
    }

    fn route(&self) -> TopicRouteData {
        let queues = QueueData {
            broker_name: BROKER.into(),
            read_queue_nums: QUEUES,
            write_queue_nums: QUEUES,
            perm: 6,
            ..Default::default()
        };
        TopicRouteData { queue_datas: vec![queues], broker_datas: vec![self.data()], ..Default::default() }
    }

    /// How long the messages from this number on are hidden, so that they are due in their turn.
    fn lease(&self, first: usize, now: i64) -> i64 {
        let in_turn = self.handles / 2;
        if first >= in_turn {
            return LONG_MS;
        }
        let turn = i64::try_from(first * CYCLE_S * 1_000 / in_turn).unwrap_or(0);
        self.first_due_ms + turn + AHEAD_MS - now
    }

    fn pop(&self) -> Result<Command, Failure> {
        let first = self.given.fetch_add(BATCH, Ordering::Relaxed);
        if first >= self.handles {
            return Ok(Command::response(response::POLLING_TIMEOUT, "nothing"));
        }
        let now = now_ms();
        let queue_id = i32::try_from(first / BATCH)? % QUEUES;
        let mut body = BytesMut::new();
        let mut offsets = Vec::with_capacity(BATCH);
        for n in first..self.handles.min(first + BATCH) {
            let offset = i64::try_from(n)?;
            let message = StoredMessage {
                topic: TOPIC.into(),
                queue_id,
                flag: 0,
                queue_offset: offset,
                physical_offset: offset * 1_024,
                sys_flag: 0,
                born_timestamp: now,
                born_host: ([127, 0, 0, 1], 1).into(),
                store_timestamp: now,
                store_host: ([127, 0, 0, 1], 10_911).into(),
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: "x".into(),
                properties: format!("UNIQ_KEY\u{1}01A2B3C4D5E6F7A8B9C0{n:012X}\u{2}"),
            };
            message.encode(&mut body)?;
            offsets.push(offset);
        }
        let start = StartOffset { kind: TopicType::Normal, queue_id, offset: i64::try_from(first)? };
        let header = PopMessageResponseHeader {
            pop_time: now,
            invisible_time: self.lease(first, now),
            revive_qid: 0,
            rest_num: 0,
            start_offset_info: Some(encode_start_offsets(&[start])),
            msg_offset_info: Some(encode_msg_offsets(&[MsgOffsets { kind: TopicType::Normal, queue_id, offsets }])),
            order_count_info: None,
        };
        Ok(Command::response(response::SUCCESS, "").with_body(body.freeze()).with_header(&header))
    }

    fn change_many(&self, command: &Command) -> Result<Command, Failure> {
        let body = BatchChangeInvisibleBody::from_json(&command.body)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.entries.fetch_add(body.entries.len() as u64, Ordering::Relaxed);
        let now = now_ms();
        let mut entries = Vec::with_capacity(body.entries.len());
        for entry in &body.entries {
            let handle: ReceiptHandle = entry.extra_info.parse()?;
            entries.push(BatchChangeInvisibleResultEntry {
                code: response::SUCCESS,
                pop_time: handle.pop_time,
                invisible_time: now - handle.pop_time + entry.invisible_time,
                ..Default::default()
            });
        }
        let result = BatchChangeInvisibleResult { entries };
        Ok(Command::response(response::SUCCESS, "").with_json(&result))
    }

    fn change(&self, command: &Command) -> Result<Command, Failure> {
        let header: ChangeInvisibleTimeRequestHeader = command.header()?;
        let handle: ReceiptHandle = header.extra_info.parse()?;
        self.singly.fetch_add(1, Ordering::Relaxed);
        let invisible_time = now_ms() - handle.pop_time + header.invisible_time;
        let answer = ChangeInvisibleTimeResponseHeader { pop_time: handle.pop_time, invisible_time, revive_qid: 0 };
        Ok(Command::response(response::SUCCESS, "").with_header(&answer))
    }

    async fn serve(self: Arc<Self>, mut socket: TcpStream) -> Result<(), Failure> {
        let (mut read, mut written) = (BytesMut::new(), BytesMut::new());
        while socket.read_buf(&mut read).await? > 0 {
            while let Some(command) = decode(&mut read, 64 << 20)? {
                if !command.is_oneway() {
                    encode(&self.answer(&command)?, &mut written);
                }
            }
            socket.write_all_buf(&mut written).await?;
        }
        Ok(())
    }
}

/// A push consumer: says who it is, receives until nothing is left, and stays.
async fn consume(mut rpc: Rpc, number: usize, broker: Arc<Broker>) -> Result<(), Failure> {
    let id = format!("app-7c9d8b6f5-x{number:03}@1@0@a1b2c3d4e5");
    let asked = |message| -> Result<Request<_>, Failure> { with_id(message, &id) };
    let resource = |name: &str| Some(v2::Resource { name: name.into(), ..Default::default() });
    let settings = v2::Settings {
        client_type: Some(v2::ClientType::PushConsumer.into()),
        request_timeout: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
        pub_sub: Some(PubSub::Subscription(v2::Subscription {
            group: resource(GROUP),
            subscriptions: vec![v2::SubscriptionEntry { topic: resource(TOPIC), expression: None }],
            ..Default::default()
        })),
        ..Default::default()
    };
    let (commands, outgoing) = tokio::sync::mpsc::channel(1);
    let command = telemetry_command::Command::Settings(settings);
    commands.send(v2::TelemetryCommand { status: None, command: Some(command) }).await?;
    let mut told = rpc.telemetry(with_id(ReceiverStream::new(outgoing), &id)?).await?.into_inner();
    told.message().await?;
    let mut pace =
        tokio::time::interval(Duration::from_secs((CLIENTS * BATCH) as u64) / u32::try_from(RECEIVED_PER_S)?);
    while broker.given.load(Ordering::Relaxed) < broker.handles {
        pace.tick().await;
        let receive = v2::ReceiveMessageRequest {
            group: resource(GROUP),
            message_queue: Some(v2::MessageQueue { topic: resource(TOPIC), ..Default::default() }),
            batch_size: i32::try_from(BATCH)?,
            auto_renew: true,
            long_polling_timeout: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
            ..Default::default()
        };
        let mut messages = rpc.receive_message(asked(receive)?).await?.into_inner();
        while messages.message().await?.is_some() {}
    }
    loop {
        sleep(Duration::from_secs(10)).await;
        let beat = v2::HeartbeatRequest { group: resource(GROUP), client_type: v2::ClientType::PushConsumer.into() };
        rpc.heartbeat(with_id(beat, &id)?).await?;
        let _still_open = &commands;
    }
}

fn with_id<Q>(message: Q, id: &str) -> Result<Request<Q>, Failure> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-mq-client-id", id.parse()?);
    request.metadata_mut().insert("x-mq-client-version", "5.0.7".parse()?);
    Ok(request)
}

/// What the sidecar says and what /proc says of it.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at: Option<Instant>,
    cpu_s: f64,
    rss_kib: u64,
    peak_kib: u64,
    held: f64,
    renewed: f64,
    late: f64,
    failed: f64,
    dropped: f64,
    due: f64,
}

async fn get(admin: &str, path: &str) -> Result<String, Failure> {
    let mut socket = TcpStream::connect(admin).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await?;
    Ok(text)
}

/// Waits until the sidecar has found the broker.
async fn ready(admin: &str) -> Result<(), Failure> {
    let end = Instant::now() + START_LIMIT;
    loop {
        match get(admin, "/readyz").await {
            Ok(text) if text.starts_with("HTTP/1.1 200") => return Ok(()),
            Ok(text) if Instant::now() > end => return Err(text.into()),
            Err(error) if Instant::now() > end => return Err(error),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn look(admin: &str, pid: &str) -> Result<Look, Failure> {
    let text = get(admin, "/metrics").await?;
    let sum = |name: &str| -> f64 {
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    Ok(Look {
        at: Some(Instant::now()),
        cpu_s: waybill_ops::process::usage(pid.parse()?)?.cpu_seconds,
        rss_kib: kib("VmRSS:"),
        peak_kib: kib("VmHWM:"),
        held: sum("waybill_sidecar_receipts_held"),
        renewed: sum("waybill_sidecar_receipts_renewed_total"),
        late: sum("waybill_sidecar_receipts_late_total"),
        failed: sum("waybill_sidecar_receipts_failed_total"),
        dropped: sum("waybill_sidecar_receipts_dropped_total"),
        due: sum("waybill_sidecar_receipts_due"),
    })
}

async fn measure(arguments: &[String]) -> Result<(), Failure> {
    let [port, endpoint, admin, pid, handles, seconds] = arguments else {
        return Err("six arguments are needed".into());
    };
    let (handles, seconds): (usize, u64) = (handles.parse()?, seconds.parse()?);
    let address = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind(&address).await?;
    // Nothing is due before all are there, even if that takes longer than it should.
    let load = Duration::from_secs((handles / RECEIVED_PER_S) as u64) * 5 / 4 + REST;
    let broker = Arc::new(Broker {
        address,
        handles,
        first_due_ms: now_ms() + i64::try_from((load + REST).as_millis())?,
        given: AtomicUsize::new(0),
        requests: AtomicU64::new(0),
        entries: AtomicU64::new(0),
        singly: AtomicU64::new(0),
    });
    let first_due = Instant::now() + load + REST;
    let accepting = broker.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(accepting.clone().serve(socket));
        }
    });
    ready(admin).await?;
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(Channel::from_shared(format!("http://{endpoint}"))?.connect().await?);
    }
    let began = Instant::now();
    let mut consumers = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let channel = channels.get(number % CONNECTIONS).cloned().ok_or("no connection")?;
        consumers.spawn(consume(MessagingServiceClient::new(channel), number, broker.clone()));
    }
    let loaded = loop {
        if let Some(ended) = consumers.try_join_next() {
            ended??;
        }
        let seen = look(admin, pid).await?;
        if seen.held >= handles as f64 {
            break began.elapsed();
        }
        if began.elapsed() > LOAD_LIMIT {
            return Err(format!("only {} handles are held after {LOAD_LIMIT:?}", seen.held).into());
        }
        sleep(Duration::from_millis(500)).await;
    };
    if Instant::now() >= first_due {
        return Err(format!("it took {loaded:?} to hand all out: too long to measure in peace").into());
    }
    tokio::time::sleep_until(first_due + REST).await;
    let (before, asked) = (look(admin, pid).await?, counts(&broker));
    sleep(Duration::from_secs(seconds)).await;
    let (after, answered) = (look(admin, pid).await?, counts(&broker));
    if let Some(ended) = consumers.try_join_next() {
        ended??;
    }
    let took = after.at.zip(before.at).map_or(0.0, |(after, before)| (after - before).as_secs_f64());
    let [requests, entries, singly] = std::array::from_fn(|n| answered[n] - asked[n]);
    println!(
        "{}",
        serde_json::json!({
            "handles": handles, "loadedInS": loaded.as_secs_f64(), "seconds": took,
            "cpuPercent": (after.cpu_s - before.cpu_s) / took * 100.0,
            "renewedPerS": (after.renewed - before.renewed) / took,
            "held": after.held, "late": after.late, "failed": after.failed, "dropped": after.dropped, "due": after.due,
            "rssMiB": after.rss_kib as f64 / 1024.0, "rssBeforeMiB": before.rss_kib as f64 / 1024.0,
            "peakMiB": after.peak_kib as f64 / 1024.0,
            "requestsPerS": requests as f64 / took, "entriesPerRequest": entries as f64 / (requests as f64).max(1.0),
            "singly": singly,
        })
    );
    Ok(())
}

fn counts(broker: &Broker) -> [u64; 3] {
    [&broker.requests, &broker.entries, &broker.singly].map(|count| count.load(Ordering::Relaxed))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() else {
        return ExitCode::FAILURE;
    };
    match runtime.block_on(measure(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("held_bench: {error}");
            ExitCode::FAILURE
        }
    }
}
