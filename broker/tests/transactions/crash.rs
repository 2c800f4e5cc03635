//! kill -9 around decisions: what was answered holds, each message comes once or never. And a whole transaction over TCP in real time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use waybill_protocol::remoting::{self, CheckTransactionStateRequestHeader, HeartbeatData, JsonBody, ProducerData};

use super::process::{BrokerProcess, Client, ack_over, pop_over, prepare};
use super::*;

const CYCLES: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The decision was sent, and not answered.
    Asked(i32),
    /// The decision was answered OK.
    Held(i32),
}

#[derive(Default)]
struct Ledger {
    sent: HashMap<String, SendMessageResponseHeader>,
    decided: HashMap<String, Known>,
}

/// Sends halves and decides about most of them, in every order, until the connection ends.
async fn transact(client: Client, name: String, ledger: std::sync::Arc<Mutex<Ledger>>) {
    for n in 0.. {
        let id = format!("{name}-{n}");
        let Some(answer) = client.call(half(&id)).await else { return };
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        let sent: SendMessageResponseHeader = answer.header().unwrap();
        ledger.lock().sent.insert(id.clone(), sent.clone());
        if n % 5 == 4 {
            continue;
        }
        let decision = if n % 3 == 0 { ROLLBACK } else { COMMIT };
        ledger.lock().decided.insert(id.clone(), Known::Asked(decision));
        let Some(answer) = client.call(end(&sent, decision)).await else { return };
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        ledger.lock().decided.insert(id, Known::Held(decision));
    }
}

/// Everything that can be had, acknowledged; how often each came.
async fn drain(client: &Client) -> HashMap<String, u32> {
    let mut seen = HashMap::new();
    while let Some(answer) = pop_over(client, "g", 32, 600_000, 0).await.expect("an answer") {
        for got in support::got(&answer) {
            *seen.entry(got.id()).or_default() += 1;
            assert_eq!(ack_over(client, "g", "t", &got.handle).await, Some(response::SUCCESS));
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_crashes_change_no_decision() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    std::fs::write(&config, "mappedFileSizeCommitLog: 1048576\nindexCheckpointBytes: 131072\nmaxMessageSize: 65536\n")
        .unwrap();
    let (store, config) = (dir.path().join("store"), ["--config", config.to_str().unwrap()]);
    let ledger = std::sync::Arc::new(Mutex::new(Ledger::default()));
    let mut came: HashMap<String, u32> = HashMap::new();
    let mut judged = HashSet::new();
    for cycle in 0..=CYCLES {
        let broker = BrokerProcess::start(&store, &config);
        let client = Client::connect(broker.address).await;
        if cycle == 0 {
            prepare(&client, 2, &["g"]).await;
        }
        // What was in hand at the crash is decided one way or the other now, and not both.
        let pending: Vec<_> = {
            let ledger = ledger.lock();
            let open = ledger.sent.iter().filter(|(id, _)| !judged.contains(*id));
            open.map(|(id, sent)| (id.clone(), sent.clone(), ledger.decided.get(id).copied())).collect()
        };
        for (id, sent, known) in pending {
            let again = client.call(end(&sent, COMMIT)).await.expect("an answer").code;
            match known {
                Some(Known::Held(decision)) => {
                    assert_eq!(
                        again == response::SUCCESS,
                        decision == COMMIT,
                        "{id} was answered {decision}: now {again}"
                    );
                }
                Some(Known::Asked(decision)) => {
                    let held = if again == response::SUCCESS { COMMIT } else { ROLLBACK };
                    assert!(held == decision || held == COMMIT, "{id}: a rollback that nobody asked for");
                    ledger.lock().decided.insert(id.clone(), Known::Held(held));
                }
                None => {
                    assert_eq!(again, response::SUCCESS, "{id} was open");
                    ledger.lock().decided.insert(id.clone(), Known::Held(COMMIT));
                }
            }
            judged.insert(id);
        }
        for (id, count) in drain(&client).await {
            *came.entry(id).or_default() += count;
        }
        if cycle == CYCLES {
            let (status, _) = broker.terminate();
            assert!(status.success(), "{status}");
            break;
        }
        let load: Vec<_> = (0..6)
            .map(|task| {
                tokio::spawn(transact(client.clone(), format!("{cycle}-{task}"), std::sync::Arc::clone(&ledger)))
            })
            .collect();
        // Another moment in each cycle.
        tokio::time::sleep(Duration::from_millis(5 + u64::from(cycle * 7 % 40))).await;
        broker.kill();
        for task in load {
            task.await.unwrap();
        }
    }
    let ledger = ledger.lock();
    let (mut commits, mut rollbacks) = (0, 0);
    for id in ledger.sent.keys() {
        let times = came.get(id).copied().unwrap_or(0);
        match ledger.decided.get(id) {
            Some(Known::Held(COMMIT)) => {
                assert_eq!(times, 1, "{id} was committed");
                commits += 1;
            }
            Some(Known::Held(ROLLBACK)) => {
                assert_eq!(times, 0, "{id} was rolled back");
                rollbacks += 1;
            }
            other => panic!("{id}: {other:?}"),
        }
    }
    assert!(came.keys().all(|id| ledger.sent.contains_key(id) || !judged.contains(id)));
    println!("{CYCLES} cycles of kill -9: {commits} commits came once, {rollbacks} rollbacks never");
    // Thousands, on a machine that has nothing else to do.
    assert!(commits > 10 && rollbacks > 10, "the load was no load");
}

/// A producer on a connection of its own, in real time: it is asked after a moment, and its answer is the decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_comes_over_the_producers_connection() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    std::fs::write(&config, "transactionTimeOut: 100\ntransactionCheckInterval: 100\n").unwrap();
    let broker = BrokerProcess::start(&dir.path().join("store"), &["--config", config.to_str().unwrap()]);
    let client = Client::connect(broker.address).await;
    prepare(&client, 2, &["g"]).await;

    let mut producer = tokio::net::TcpStream::connect(broker.address).await.unwrap();
    let beat = HeartbeatData {
        client_id: "c".into(),
        producer_data_set: vec![ProducerData { group_name: GROUP.into() }],
        ..Default::default()
    };
    let mut out = BytesMut::new();
    remoting::encode(&Command::request(request::HEART_BEAT).with_body(beat.to_json()), &mut out);
    remoting::encode(&half("m"), &mut out);
    producer.write_all(&out).await.unwrap();
    let asked = async {
        let mut buffer = BytesMut::new();
        loop {
            while let Some(command) = remoting::decode(&mut buffer, remoting::DEFAULT_MAX_FRAME).unwrap() {
                if command.code == request::CHECK_TRANSACTION_STATE && !command.is_response() {
                    return command;
                }
            }
            assert!(producer.read_buf(&mut buffer).await.unwrap() > 0, "the connection ended");
        }
    };
    let asked = tokio::time::timeout(support::LIMIT, asked).await.expect("a question");
    let header: CheckTransactionStateRequestHeader = asked.header().unwrap();
    let answer = EndTransactionRequestHeader {
        topic: Some("t".into()),
        producer_group: GROUP.into(),
        tran_state_table_offset: header.tran_state_table_offset,
        commit_log_offset: header.commit_log_offset,
        commit_or_rollback: COMMIT,
        from_transaction_check: Some(true),
        msg_id: "m".into(),
        transaction_id: Some("m".into()),
        broker_name: None,
    };
    let answer = client.call(Command::request(request::END_TRANSACTION).with_header(&answer)).await.expect("an answer");
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    assert_eq!(drain(&client).await, HashMap::from([("m".to_owned(), 1)]));
    let (status, _) = broker.terminate();
    assert!(status.success(), "{status}");
}
