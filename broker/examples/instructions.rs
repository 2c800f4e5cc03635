//! Fixed work whose instructions are counted: `bench/run --instructions` runs this under callgrind.
//!
//! `instructions <path>` prepares, and then takes the path so many times inside [`measured`], which is where callgrind counts.
//! `instructions list` names the paths and says how often each is taken.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement stops where it cannot go on"
)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use waybill_broker::lease::{Change, ChangeArgs, ChangedBy, LeaseRef, Ledger, PopArgs, Source, Verdict};
use waybill_broker::{Broker, BrokerConfig, FlushDiskType, Peer};
use waybill_ops::clock::ManualClock;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::message::{StoredMessage, properties};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::pop_info::decode_msg_offsets;
use waybill_protocol::remoting::{
    self, AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, Command, CreateTopicRequestHeader, JsonBody,
    PopMessageRequestHeader, PopMessageResponseHeader, SendMessageRequestHeader, SubscriptionGroupConfig,
};

/// How often a path is taken.
const CALLS: usize = 1024;
const POP: usize = 32;
const BODY: usize = 1024;
const QUEUES: i32 = 8;
const NOW_MS: i64 = 1_800_000_000_000;
const INVISIBLE_MS: i64 = 60_000;
const DELAY_MS: i64 = 60_000;

/// Its name, how often it is taken, and what prepares and takes it.
type Path = (&'static str, usize, fn());

const PATHS: [Path; 14] = [
    ("frame-encode", CALLS, frame_encode),
    ("frame-decode", CALLS, frame_decode),
    ("message-encode", CALLS, message_encode),
    ("message-decode", CALLS, message_decode),
    ("handle-print", CALLS, handle_print),
    ("handle-parse", CALLS, handle_parse),
    ("ledger-pop-32", CALLS / POP, ledger_pop),
    ("ledger-ack", CALLS, ledger_ack),
    ("ledger-change", CALLS, ledger_change),
    ("broker-send", CALLS, || broker(async |_| Vec::new(), send_all)),
    ("broker-delay", CALLS, || broker(async |_| Vec::new(), delay_all)),
    ("broker-pop-32", CALLS / POP, || broker(sent, pop_all)),
    ("broker-ack", CALLS, || broker(leased, ack_all)),
    ("broker-change", CALLS, || broker(leased, change_all)),
];

fn main() {
    let name = std::env::args().nth(1).expect("usage: instructions list | <path>");
    if name == "list" {
        PATHS.iter().for_each(|(name, calls, _)| println!("{name} {calls}"));
    } else {
        PATHS.iter().find(|(path, _, _)| *path == name).expect("a known path").2();
    }
}

/// Callgrind counts from its beginning to its end.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    // Without something after it, the call would become a jump, and callgrind would not see this end.
    black_box(());
}

/// Counts so many calls of `work`.
fn repeated(mut work: impl FnMut()) {
    measured(&mut || (0..CALLS).for_each(|_| work()));
}

fn send_header() -> SendMessageRequestHeader {
    let mut raw = String::new();
    properties::set(&mut raw, properties::UNIQ_KEY, "01A2B3C4D5E6F70102030405060708090A");
    properties::set(&mut raw, properties::TAGS, "tag");
    SendMessageRequestHeader {
        producer_group: "producers".into(),
        topic: "topic".into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: QUEUES,
        queue_id: -1,
        born_timestamp: NOW_MS,
        properties: Some(raw),
        ..Default::default()
    }
}

fn send_request() -> Command {
    Command::request(request::SEND_MESSAGE_V2).with_header(&send_header()).with_body(vec![b'x'; BODY])
}

/// The same, to be delivered later.
fn delay_request() -> Command {
    let mut header = send_header();
    let raw = header.properties.get_or_insert_default();
    properties::set(raw, properties::TIMER_DELIVER_MS, &(NOW_MS + DELAY_MS).to_string());
    Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(vec![b'x'; BODY])
}

fn frame_encode() {
    let (sent, mut out) = (send_request(), BytesMut::with_capacity(4 * BODY));
    let header: SendMessageRequestHeader = sent.header().unwrap();
    repeated(|| {
        out.clear();
        let command = Command::request(request::SEND_MESSAGE_V2).with_header(black_box(&header));
        remoting::encode(&command.with_body(sent.body.clone()), &mut out);
        black_box(&out);
    });
}

fn frame_decode() {
    let mut frames = BytesMut::new();
    (0..CALLS).for_each(|_| remoting::encode(&send_request(), &mut frames));
    repeated(|| {
        let command = remoting::decode(&mut frames, remoting::DEFAULT_MAX_FRAME).unwrap().unwrap();
        black_box(SendMessageRequestHeader::decode_v2(&command.ext).unwrap());
    });
}

fn stored() -> StoredMessage {
    let host = ([127, 0, 0, 1], 10911).into();
    StoredMessage {
        topic: "topic".into(),
        queue_id: 3,
        flag: 0,
        queue_offset: 4_711,
        physical_offset: 1_234_567,
        sys_flag: 0,
        born_timestamp: NOW_MS,
        born_host: host,
        store_timestamp: NOW_MS,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: vec![b'x'; BODY].into(),
        properties: "UNIQ_KEY\u{1}01A2B3C4D5E6F70102030405060708090A\u{2}TAGS\u{1}tag\u{2}".into(),
    }
}

fn message_encode() {
    let (message, mut out) = (stored(), BytesMut::with_capacity(2 * BODY));
    repeated(|| {
        out.clear();
        black_box(&message).encode(&mut out).unwrap();
        black_box(&out);
    });
}

fn message_decode() {
    let mut out = BytesMut::new();
    stored().encode(&mut out).unwrap();
    let encoded = out.freeze();
    repeated(|| drop(black_box(StoredMessage::decode(&mut black_box(encoded.clone())).unwrap())));
}

fn handle(queue_id: i32, offset: i64, pop_time: i64) -> ReceiptHandle {
    ReceiptHandle {
        start_offset: offset,
        pop_time,
        invisible_time: INVISIBLE_MS,
        revive_queue_id: 0,
        topic_type: TopicType::Normal,
        broker_name: "broker-a".into(),
        queue_id,
        offset,
        commit_log_offset: Some(1_234_567),
    }
}

fn handle_print() {
    let handle = handle(3, 4_711, NOW_MS);
    repeated(|| drop(black_box(black_box(&handle).to_string())));
}

fn handle_parse() {
    let text = handle(3, 4_711, NOW_MS).to_string();
    repeated(|| drop(black_box(black_box(&text).parse::<ReceiptHandle>().unwrap())));
}

/// Queues of wanted messages that never end.
struct Endless;

impl Source for Endless {
    fn bounds(&self, _queue: u32) -> (u64, u64) {
        (0, u64::MAX)
    }

    fn start(&mut self, _queue: u32) -> u64 {
        0
    }

    fn examine(&mut self, _queue: u32, _offset: u64) -> Verdict {
        Verdict::Deliver
    }

    fn message_group(&mut self, _queue: u32, _offset: u64) -> Option<u32> {
        None
    }
}

/// Takes all messages, 32 at a time; the leases.
fn pops(ledger: &mut Ledger) -> Vec<LeaseRef> {
    let (mut taken, mut changes) = (Vec::with_capacity(CALLS), Vec::<Change>::new());
    let args = PopArgs {
        now_ms: NOW_MS,
        queues: 0..QUEUES.cast_unsigned(),
        max: POP,
        invisible_ms: INVISIBLE_MS,
        holder: 1,
        attempt: 0,
        max_attempts: u32::MAX,
        in_flight_max: usize::MAX,
        scan_max: 800,
        dead_letter: true,
    };
    for _ in 0..CALLS / POP {
        changes.clear();
        let popped = ledger.pop(&args, &mut Endless, &mut changes);
        let pop_time_ms = popped.pop_time_ms;
        taken.extend(popped.messages.iter().map(|m| LeaseRef { queue: m.queue, offset: m.offset, pop_time_ms }));
    }
    taken
}

fn ledger_pop() {
    let mut ledger = Ledger::new(false);
    measured(&mut || drop(black_box(pops(&mut ledger))));
}

fn ledger_ack() {
    let (mut ledger, mut changes) = (Ledger::new(false), Vec::with_capacity(4));
    let mut leases = pops(&mut ledger).into_iter();
    repeated(|| {
        changes.clear();
        black_box(ledger.ack(NOW_MS, leases.next().unwrap(), &mut changes));
    });
}

fn ledger_change() {
    let (mut ledger, mut changes) = (Ledger::new(false), Vec::with_capacity(4));
    let mut leases = pops(&mut ledger).into_iter();
    repeated(|| {
        changes.clear();
        let args = ChangeArgs {
            lease: leases.next().unwrap(),
            invisible_ms: 2 * INVISIBLE_MS,
            count: true,
            by: ChangedBy::Unknown,
        };
        black_box(ledger.change(NOW_MS, args, &mut changes));
    });
}

/// A broker without sockets, its clock standing still, one request at a time.
struct Rig {
    broker: Arc<Broker>,
    peer: Peer,
}

/// Opens a broker, prepares handles in it, and counts what is done with them.
fn broker(prepare: impl AsyncFn(&Rig) -> Vec<ReceiptHandle>, work: impl AsyncFn(&Rig, &[ReceiptHandle])) {
    let dir = tempfile::tempdir().unwrap();
    let config = BrokerConfig {
        store_path_root_dir: dir.path().to_owned(),
        flush_disk_type: FlushDiskType::Async,
        ..BrokerConfig::default()
    };
    let broker = Broker::open_with_clock(config, Arc::new(ManualClock::new(NOW_MS))).unwrap();
    let rig = Rig { broker, peer: Peer::local() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handles = runtime.block_on(async {
        let topic = CreateTopicRequestHeader::new("topic", QUEUES);
        rig.ok(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&topic)).await;
        let group = SubscriptionGroupConfig { group_name: "group".into(), ..Default::default() };
        rig.ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group.to_json())).await;
        prepare(&rig).await
    });
    measured(&mut || runtime.block_on(work(&rig, &handles)));
    rig.broker.close();
}

impl Rig {
    async fn ok(&self, command: Command) -> Command {
        let answer = self.broker.handle(&self.peer, command).await.expect("an answer");
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }

    async fn send(&self, request: fn() -> Command) {
        for _ in 0..CALLS {
            self.ok(request()).await;
        }
    }

    /// Takes all messages, 32 at a time; the handles of the whole.
    async fn pop(&self) -> Vec<ReceiptHandle> {
        let mut handles = Vec::new();
        for _ in 0..CALLS / POP {
            let answer = self
                .ok(Command::request(request::POP_MESSAGE).with_header(&PopMessageRequestHeader {
                    consumer_group: "group".into(),
                    topic: "topic".into(),
                    queue_id: -1,
                    max_msg_nums: POP as i32,
                    invisible_time: INVISIBLE_MS,
                    client_id: Some("client".into()),
                    ..Default::default()
                }))
                .await;
            let header: PopMessageResponseHeader = answer.header().unwrap();
            for queue in decode_msg_offsets(header.msg_offset_info.as_deref().unwrap()).unwrap() {
                handles.extend(queue.offsets.iter().map(|offset| handle(queue.queue_id, *offset, header.pop_time)));
            }
        }
        assert_eq!(handles.len(), CALLS, "every pop is full");
        handles
    }
}

async fn sent(rig: &Rig) -> Vec<ReceiptHandle> {
    rig.send(send_request).await;
    Vec::new()
}

async fn leased(rig: &Rig) -> Vec<ReceiptHandle> {
    rig.send(send_request).await;
    rig.pop().await
}

async fn send_all(rig: &Rig, _handles: &[ReceiptHandle]) {
    rig.send(send_request).await;
}

async fn delay_all(rig: &Rig, _handles: &[ReceiptHandle]) {
    rig.send(delay_request).await;
}

async fn pop_all(rig: &Rig, _handles: &[ReceiptHandle]) {
    rig.pop().await;
}

async fn ack_all(rig: &Rig, handles: &[ReceiptHandle]) {
    for handle in handles {
        rig.ok(Command::request(request::ACK_MESSAGE).with_header(&AckMessageRequestHeader {
            consumer_group: "group".into(),
            topic: "topic".into(),
            queue_id: handle.queue_id,
            extra_info: handle.to_string(),
            offset: handle.offset,
        }))
        .await;
    }
}

async fn change_all(rig: &Rig, handles: &[ReceiptHandle]) {
    for handle in handles {
        rig.ok(Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(
            &ChangeInvisibleTimeRequestHeader {
                consumer_group: "group".into(),
                topic: "topic".into(),
                queue_id: handle.queue_id,
                extra_info: handle.to_string(),
                offset: handle.offset,
                invisible_time: 2 * INVISIBLE_MS,
                ..Default::default()
            },
        ))
        .await;
    }
}
