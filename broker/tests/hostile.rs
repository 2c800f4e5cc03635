//! Malformed input beside a good client, a disk that fills up, and SIGTERM under load: all with the real process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use process::{BrokerProcess, Client, small_disks_can_be_had};
use support::Rig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    self, Command, CreateTopicRequestHeader, JsonBody, PopMessageRequestHeader, SubscriptionGroupConfig,
};

const MALFORMED: u64 = 100_000;
/// Malformed frames before the memory is looked at.
const WARM_UP: u64 = 40_000;
/// How much more memory a broker may have after [`MALFORMED`] frames more. With a leak of 100 bytes for each it has.
const GROWTH_KIB_MAX: u64 = 8 * 1024;
const RESUME_WITHIN: Duration = Duration::from_secs(60);
/// Messages that are stored before the broker is told to stop.
const UNDER_LOAD: u64 = 200;
/// After which a stop ends by force, and less than that: far more than what is in hand needs.
const STOP_GRACE_S: u64 = 60;
const STOP_MAX: Duration = Duration::from_secs(45);

async fn prepare(client: &Client) {
    let topic = CreateTopicRequestHeader::new("t", 1);
    let group = SubscriptionGroupConfig { group_name: "g".into(), ..Default::default() };
    for command in [
        Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&topic),
        Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group.to_json()),
    ] {
        assert_eq!(client.call(command).await.expect("an answer").code, response::SUCCESS);
    }
}

async fn pop_and_ack(client: &Client, max: i32) -> usize {
    let header = PopMessageRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: -1,
        max_msg_nums: max,
        invisible_time: 60_000,
        poll_time: 0,
        ..Default::default()
    };
    let answer = client.call(Command::request(request::POP_MESSAGE).with_header(&header)).await.expect("an answer");
    if answer.code == response::POLLING_TIMEOUT {
        return 0;
    }
    let got = support::got(&answer);
    for message in &got {
        assert_eq!(process::ack_over(client, "g", "t", &message.handle).await, Some(response::SUCCESS));
    }
    got.len()
}

/// A small generator of its own, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A frame that is well-formed as a frame, with fields that are missing, absurd or of the wrong kind.
fn absurd_request(random: &mut Random) -> Command {
    const CODES: [i32; 17] = [
        10, 310, 320, 36, 200_050, 200_051, 200_053, 200_054, 200_151, 200_153, 105, 17, 200, 34, 14, 200_901, 200_902,
    ];
    const NAMES: [&str; 14] = [
        "consumerGroup",
        "topic",
        "queueId",
        "maxMsgNums",
        "invisibleTime",
        "pollTime",
        "offset",
        "extraInfo",
        "a",
        "b",
        "e",
        "f",
        "g",
        "i",
    ];
    const VALUES: [&str; 12] = [
        "abc",
        "2147483648",
        "-9223372036854775808",
        "",
        " ",
        "t",
        "g",
        "\u{1}\u{2}",
        "0 0 0 0 0 broker-a 0 0",
        "1 2 3",
        "0",
        "\"}]{",
    ];
    let mut command = Command::request(CODES[random.below(CODES.len() as u64) as usize]);
    for _ in 0..random.below(8) {
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        command.ext.set(name, VALUES[random.below(VALUES.len() as u64) as usize]);
    }
    let body: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
    let bodies: [&[u8]; 5] = [b"", b"{", b"{\"entries\":[null,{}]}", b"{\"acks\":[{\"b\":\"////\",\"so\":-5}]}", &body];
    command.with_body(bodies[random.below(5) as usize].to_vec())
}

/// Bytes that are no frame, or lie about their length.
fn garbage(random: &mut Random) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    match random.below(5) {
        0 => bytes.put_i32(0),
        1 => bytes.put_u32(0x8000_0000),
        2 => {
            bytes.put_i32(20);
            bytes.put_i32(1_000);
            bytes.put_bytes(b'x', 16);
        }
        3 => bytes.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n"),
        _ => bytes.extend((0..random.below(64) + 8).map(|_| random.next() as u8)),
    }
    bytes.to_vec()
}

async fn attack(address: SocketAddr, seed: u64, frames: u64) -> u64 {
    let mut random = Random(seed);
    let (mut done, mut answered) = (0, 0);
    while done < frames {
        let mut stream = TcpStream::connect(address).await.expect("it still listens");
        let rounds = 64.min(frames - done);
        let mut bytes = BytesMut::new();
        let mut expected = 0;
        for opaque in 0..rounds {
            let mut command = absurd_request(&mut random);
            command.opaque = opaque as i32;
            expected += u64::from(command.code != request::POP_MESSAGE);
            remoting::encode(&command, &mut bytes);
        }
        stream.write_all(&bytes).await.expect("it still reads");
        let mut answers = BytesMut::new();
        let mut got = 0;
        while got < expected {
            if stream.read_buf(&mut answers).await.expect("it still answers") == 0 {
                panic!("the connection was closed after {got} of {expected} answers");
            }
            while let Some(answer) =
                remoting::decode(&mut answers, remoting::DEFAULT_MAX_FRAME).expect("a well-formed answer")
            {
                assert!(answer.is_response());
                got += 1;
            }
        }
        answered += got;
        stream.write_all(&garbage(&mut random)).await.expect("it still reads");
        done += rounds + 1;
    }
    answered
}

/// What came of an attack.
struct Attacked {
    answered: u64,
    sent: u64,
    received: u64,
}

/// So many malformed frames over four connections, with a good client beside them.
async fn attack_beside_a_good_client(address: SocketAddr, client: &Client, seed: u64, frames: u64) -> Attacked {
    let done = Arc::new(AtomicBool::new(false));
    let good = tokio::spawn({
        let (client, done) = (client.clone(), Arc::clone(&done));
        async move {
            let (mut sent, mut received) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let answer =
                    client.call(Rig::send_command("t", &format!("m{sent}"), None, "body")).await.expect("an answer");
                assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
                sent += 1;
                received += pop_and_ack(&client, 32).await as u64;
            }
            (sent, received)
        }
    });
    let attackers: Vec<_> = (0..4).map(|n| tokio::spawn(attack(address, seed + n, frames / 4))).collect();
    let mut answered = 0;
    for attacker in attackers {
        answered += attacker.await.expect("the attack ends");
    }
    done.store(true, Ordering::Relaxed);
    let (sent, received) = good.await.expect("the good client is not affected");
    Attacked { answered, sent, received }
}

/// C29 and the fault list of the issue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_frames_hurt_nobody_but_their_sender() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerProcess::start(dir.path(), &[]);
    let client = Client::connect(broker.address).await;
    prepare(&client).await;
    // The same before the memory is looked at: the heap of a process grows to what its load needs, and stays there.
    attack_beside_a_good_client(broker.address, &client, 7, WARM_UP).await;
    let before = broker.resident_kib();
    let Attacked { answered, sent, received } =
        attack_beside_a_good_client(broker.address, &client, 77, MALFORMED).await;
    assert_eq!(received, sent, "the good client got everything it sent");
    assert!(!broker.log().iter().any(|line| line.contains("panicked")), "a panic in the log");
    let after = broker.resident_kib();
    println!(
        "{MALFORMED} malformed frames, {answered} answered; good client: {sent} sent, {received} received; {before} KiB before, {after} KiB after"
    );
    assert!(after < before + GROWTH_KIB_MAX, "memory: {before} KiB before, {after} KiB after");
}

/// A broker in a mount namespace of its own, on a small disk.
fn on_a_small_disk(dir: &std::path::Path, mib: u32) -> BrokerProcess {
    let config = dir.join("broker.yaml");
    // What fills the disk is not the broker's: it is not to make room by dropping messages, which it does within seconds.
    std::fs::write(
        &config,
        "mappedFileSizeCommitLog: 4194304\nmaxMessageSize: 1048576\nindexCheckpointBytes: 1048576\ndiskMaxUsedSpaceRatio: 100\n",
    )
    .unwrap();
    let store = dir.join("store");
    std::fs::create_dir_all(&store).unwrap();
    BrokerProcess::start_in_namespace(&store, mib, &["--config", config.to_str().unwrap()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_sends_and_heals_by_itself() {
    if !small_disks_can_be_had() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let broker = on_a_small_disk(dir.path(), 32);
    let client = Client::connect(broker.address).await;
    prepare(&client).await;
    // Small, so that a segment takes long to fill: by then the broker has noticed, also on a busy machine, that there is no next one,
    // and keeps the rest of this one for what goes on.
    let body = "x".repeat(2_500);
    let mut stored = 0;
    for n in 0..64 {
        let answer = client.call(Rig::send_command("t", &format!("m{n}"), None, &body)).await.expect("an answer");
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        stored += 1;
    }
    let filler = broker.inside(&dir.path().join("store/filler"));
    let mut file = std::fs::File::create(&filler).expect("the small disk is reachable");
    while file.write_all(&[0; 65_536]).is_ok() {}
    // What was reserved for the log is still there; then comes the end.
    let refused = loop {
        let answer = client.call(Rig::send_command("t", &format!("m{stored}"), None, &body)).await.expect("an answer");
        if answer.code != response::SUCCESS {
            break answer;
        }
        stored += 1;
        assert!(stored < 10_000, "a full disk was never noticed");
    };
    assert_eq!(refused.code, response::SERVICE_NOT_AVAILABLE, "{:?}", refused.remark);
    assert!(refused.remark.as_deref().unwrap_or("").contains("disk is full"), "{:?}", refused.remark);
    let mut received = 0;
    while received < 200.min(stored) {
        let got = pop_and_ack(&client, 32).await;
        assert!(got > 0, "receiving stopped at {received} of {stored}");
        received += got;
    }
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let freed = Instant::now();
    loop {
        let answer = client.call(Rig::send_command("t", "after", None, &body)).await.expect("an answer");
        if answer.code == response::SUCCESS {
            break;
        }
        assert!(freed.elapsed() < RESUME_WITHIN, "still refused after {:?}: {:?}", freed.elapsed(), answer.remark);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "full disk: {stored} stored before, sends resumed {} ms after space was back",
        freed.elapsed().as_millis()
    );
    loop {
        match pop_and_ack(&client, 32).await {
            0 => break,
            got => received += got,
        }
    }
    assert_eq!(received, stored + 1, "everything answered OK arrives");
}

/// C37, the clean half of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_answers_what_is_in_hand_and_exits_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    std::fs::write(&config, format!("shutdownGraceSeconds: {STOP_GRACE_S}\n")).unwrap();
    let store = dir.path().join("store");
    let broker = BrokerProcess::start(&store, &["--config", config.to_str().unwrap()]);
    let client = Client::connect(broker.address).await;
    prepare(&client).await;
    let stored = Arc::new(AtomicU64::new(0));
    let senders: Vec<_> = (0..8)
        .map(|task| {
            let (client, stored) = (client.clone(), Arc::clone(&stored));
            tokio::spawn(async move {
                for n in 0.. {
                    match client.call(Rig::send_command("t", &format!("{task}-{n}"), None, "body")).await {
                        Some(answer) if answer.code == response::SUCCESS => {
                            stored.fetch_add(1, Ordering::Relaxed);
                        }
                        // A retryable code, or the end of the connection.
                        Some(answer) => assert_eq!(answer.code, response::SERVICE_NOT_AVAILABLE, "{:?}", answer.remark),
                        None => return,
                    }
                }
            })
        })
        .collect();
    let under_load = async {
        while stored.load(Ordering::Relaxed) < UNDER_LOAD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(support::LIMIT, under_load).await.expect("messages are stored");
    let (status, took) = tokio::task::spawn_blocking(move || broker.terminate()).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(took < STOP_MAX, "{took:?}");
    for sender in senders {
        sender.await.unwrap();
    }
    let ok = stored.load(Ordering::Relaxed);
    let broker = BrokerProcess::start(&store, &[]);
    let client = Client::connect(broker.address).await;
    let mut received = 0;
    loop {
        match pop_and_ack(&client, 32).await {
            0 => break,
            got => received += got as u64,
        }
    }
    assert!(received >= ok, "{ok} answered OK, {received} there");
}
