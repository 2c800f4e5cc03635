//! C29 at the port for clients: a server in a process of its own, attacked over real HTTP/2 connections beside a good client.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waybill_protocol::grpc::v2;

use crate::support::{Dir, Standalone};

/// Calls with a payload that means nothing, or hardly anything.
const CALLS: u64 = 100_000;
/// Calls of one connection, and the frames and bytes without meaning that end it.
const CALLS_EACH: u64 = 64;
const FRAMES_EACH: u64 = 16;
const ATTACKERS: u64 = 4;
/// Calls before memory is looked at for the first time: so many fill most of the allocator's pools. A leak would not level off as what
/// was seen did: 35 MB after these, 43 MB after as many more, 50 MB after 500,000, 54 MB after 1.7 million.
const WARM_UP: u64 = 100_000;
/// What the allocator and tables that grow in steps may keep.
const GROWTH_MAX: i64 = 16 * 1024 * 1024;
/// Nothing that must come takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const HEAD: usize = 9;

/// Methods that answer at once, whatever they are asked; and those that may wait.
const PROMPT: [&str; 13] = [
    "QueryRoute",
    "Heartbeat",
    "SendMessage",
    "QueryAssignment",
    "AckMessage",
    "ForwardMessageToDeadLetterQueue",
    "PullMessage",
    "UpdateOffset",
    "EndTransaction",
    "NotifyClientTermination",
    "ChangeInvisibleDuration",
    "RecallMessage",
    "NoSuchMethod",
];
const WAITING: [&str; 2] = ["ReceiveMessage", "Telemetry"];

/// A small generator of its own, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap_or(0) % n.max(1)
    }

    fn bytes(&mut self, below: usize) -> Vec<u8> {
        (0..self.below(below)).map(|_| self.below(256) as u8).collect()
    }
}

fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.to_owned() })
}

/// Requests in order, to be spoilt, and their methods.
fn good_requests() -> Vec<(&'static str, Vec<u8>)> {
    let system = v2::SystemProperties {
        message_id: "01A2B3C4D5E6F70102030405060708090A".to_owned(),
        tag: Some("tag".to_owned()),
        keys: vec!["key".to_owned()],
        message_type: v2::MessageType::Normal.into(),
        ..Default::default()
    };
    let message = v2::Message {
        topic: resource("t"),
        user_properties: [("key".to_owned(), "value".to_owned())].into(),
        system_properties: Some(system),
        body: b"body"[..].into(),
    };
    let handle = "0 1800000000000 60000 0 0 broker-a 0 0 0".to_owned();
    let entry =
        v2::AckMessageEntry { message_id: "id".to_owned(), receipt_handle: handle.clone(), ..Default::default() };
    let invisible = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let receive = v2::ReceiveMessageRequest {
        group: resource("g"),
        message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
        batch_size: 32,
        invisible_duration: invisible,
        ..Default::default()
    };
    let change = v2::ChangeInvisibleDurationRequest {
        group: resource("g"),
        topic: resource("t"),
        receipt_handle: handle,
        invisible_duration: invisible,
        ..Default::default()
    };
    let settings = v2::Settings {
        client_type: Some(v2::ClientType::SimpleConsumer.into()),
        pub_sub: Some(v2::settings::PubSub::Subscription(v2::Subscription {
            group: resource("g"),
            ..Default::default()
        })),
        ..Default::default()
    };
    let ack = v2::AckMessageRequest { group: resource("g"), topic: resource("t"), entries: vec![entry; 3] };
    let telemetry =
        v2::TelemetryCommand { command: Some(v2::telemetry_command::Command::Settings(settings)), status: None };
    vec![
        ("SendMessage", v2::SendMessageRequest { messages: vec![message; 3] }.encode_to_vec()),
        ("ReceiveMessage", receive.encode_to_vec()),
        ("AckMessage", ack.encode_to_vec()),
        ("ChangeInvisibleDuration", change.encode_to_vec()),
        ("Telemetry", telemetry.encode_to_vec()),
    ]
}

/// The body of a call: a gRPC message with a spoilt request, or one that lies about itself, or no such thing.
fn payload(random: &mut Random, method: &str, good: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = match random.below(4) {
        0 => random.bytes(300),
        _spoilt => {
            // The method's own request, if there is one, or one of another.
            let own = good.iter().find(|(of, _)| *of == method && random.below(4) != 0);
            let mut bytes = own.unwrap_or(&good[random.below(good.len())]).1.clone();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            // Most are whole, so that more than the decoder sees them.
            if random.below(4) == 0 {
                bytes.truncate(random.below(bytes.len() + 1));
            }
            bytes
        }
    };
    let length = match random.below(16) {
        0 => u32::MAX,
        1 => random.below(1 << 24) as u32,
        _true => bytes.len() as u32,
    };
    let compressed = u8::from(random.below(16) == 0);
    let mut body = [&[compressed][..], &length.to_be_bytes()].concat();
    body.append(&mut bytes);
    match random.below(16) {
        0 => random.bytes(300),
        _message => body,
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, each as a literal.
fn headers(method: &str, client: &str) -> Vec<u8> {
    let path = format!("/apache.rocketmq.v2.MessagingService/{method}");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", &path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-mq-client-id", client),
        ("x-mq-language", "JAVA"),
    ];
    let literal = |(name, value): (&str, &str)| {
        [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    fields.into_iter().flat_map(literal).collect()
}

/// Frames of kinds, flags and streams by chance, whole or not.
fn absurd_frames(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..FRAMES_EACH {
        let (kind, flags, stream) = (random.below(12) as u8, random.below(256) as u8, random.below(300) as u32);
        bytes.extend(frame(kind, flags, stream, &random.bytes(64)));
    }
    let tail = random.bytes(64);
    bytes.extend(tail);
    bytes
}

/// Attacks with so many calls; how many of those that had to be were answered.
async fn attack(address: &str, seed: u64, calls: u64) -> u64 {
    let (mut random, good) = (Random(seed), good_requests());
    let client = format!("bad-{seed}");
    let (mut done, mut answered) = (0, 0);
    while done < calls {
        let mut socket = TcpStream::connect(address).await.expect("it still listens");
        // Now and then something that is no HTTP/2 at all.
        if random.below(8) == 0 {
            let begins: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 2, 0], &PREFACE[..20]];
            let noise = [begins[random.below(4)], &random.bytes(500)].concat();
            let _cut = socket.write_all(&noise).await;
            let _cut = socket.shutdown().await;
            closed(socket).await;
            continue;
        }
        let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let mut expected = HashSet::new();
        for call in 0..CALLS_EACH.min(calls - done) {
            let stream = 2 * call as u32 + 1;
            let method = match random.below(8) {
                0 => WAITING[random.below(WAITING.len())],
                _prompt => {
                    expected.insert(stream);
                    PROMPT[random.below(PROMPT.len())]
                }
            };
            bytes.extend(frame(HEADERS, END_HEADERS, stream, &headers(method, &client)));
            bytes.extend(frame(DATA, END_STREAM, stream, &payload(&mut random, method, &good)));
            done += 1;
        }
        socket.write_all(&bytes).await.expect("it still reads");
        answered += answers(&mut socket, expected).await;
        let _cut = socket.write_all(&absurd_frames(&mut random)).await;
        let _cut = socket.shutdown().await;
        closed(socket).await;
    }
    answered
}

/// Reads frames until every stream of `expected` has headers of an answer; how many there were.
async fn answers(socket: &mut TcpStream, mut expected: HashSet<u32>) -> u64 {
    let wanted = expected.len() as u64;
    let mut seen: Vec<u8> = Vec::new();
    let read = async {
        while !expected.is_empty() {
            let end = socket.read_buf(&mut seen).await.expect("it still answers") == 0;
            assert!(!end, "the connection was closed before {} calls were answered", expected.len());
            while let Some(head) = seen.get(..HEAD) {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let (kind, stream) = (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
                if seen.len() < HEAD + length {
                    break;
                }
                seen.drain(..HEAD + length);
                if kind == HEADERS {
                    expected.remove(&stream);
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("every call is answered");
    wanted
}

/// Waits until the server ends a connection.
async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a connection without meaning is kept open");
}

/// Sends and receives until it is told to stop; how many messages.
fn good_client(waybill: &Standalone, stop: &AtomicBool) -> usize {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let body = format!("message {count}");
        waybill.client(&["message", "send", "--topic", "good", "--body", &body]).ok();
        let receive = ["message", "receive", "--topic", "good", "--group", "good", "--ack", "--output", "json"];
        let received = waybill.client(&receive).json();
        assert_eq!((&received[0]["body"], &received[0]["acked"]), (&body.into(), &true.into()), "{received}");
        count += 1;
    }
    count
}

#[test]
fn bytes_without_meaning_harm_nobody_but_their_sender() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &["--no-auto-create"]);
    for (kind, name) in [("topic", "t"), ("topic", "good"), ("group", "g"), ("group", "good")] {
        waybill.admin(&[kind, "create", name]).ok();
    }
    let pid = waybill.pid().parse().expect("a number");
    let resident = || waybill_ops::process::usage(pid).expect("it runs").resident_bytes;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let attacks = |seed: u64, calls: u64| {
        let attackers = (0..ATTACKERS).map(|n| attack(&waybill.endpoint, seed + n, calls / ATTACKERS));
        runtime.block_on(futures::future::join_all(attackers)).into_iter().sum::<u64>()
    };
    attacks(7, WARM_UP);
    let before = resident();

    let stop = AtomicBool::new(false);
    let (answered, exchanged) = std::thread::scope(|scope| {
        let good = scope.spawn(|| good_client(&waybill, &stop));
        let answered = attacks(77, CALLS);
        stop.store(true, Ordering::Relaxed);
        (answered, good.join().expect("the good client is not harmed"))
    });
    let after = resident();
    println!(
        "{CALLS} calls without meaning, {answered} answered; good client: {exchanged} sent and received; {before} B before, {after} B after"
    );
    assert!(answered > CALLS / 2, "only {answered} were answered");
    assert!(exchanged > 0);
    assert!(!waybill.log().contains("panicked"), "a panic in the log");
    assert!(after < before + GROWTH_MAX, "memory: {before} B before, {after} B after");
    assert_eq!(waybill.stop(), Some(0));
}
