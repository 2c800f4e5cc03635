//! A start after an end without goodbye, with as much to read again as the default settings allow: 64 MiB of log that is not in
//! the index, and a hundred thousand leases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/files.rs"]
mod files;
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::Rig;
use waybill_broker::{Broker, BrokerConfig, FlushDiskType};
use waybill_protocol::message::{BatchItem, encode_batch, properties};
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{Command, SendMessageRequestHeader};

const LEASES: usize = 100_000;
/// Messages of one request.
const BATCH: usize = 1_000;
/// Just below what makes the broker write the index.
const TAIL_BYTES: u64 = 62 << 20;
/// The bar is two seconds; a crowded machine gets more, and a start that reads everything twice does not pass for good.
const START_MAX: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_start_with_a_full_tail_and_a_hundred_thousand_leases_is_quick() {
    let rig = Rig::with(|config| {
        let defaults = BrokerConfig::default();
        config.mapped_file_size_commit_log = defaults.mapped_file_size_commit_log;
        config.index_checkpoint_bytes = defaults.index_checkpoint_bytes;
        config.flush_disk_type = FlushDiskType::Async;
        // All of them are held by one group in four queues.
        config.pop_inflight_message_threshold = 0;
    });
    rig.topic("t", 4).await;
    rig.group("g").await;
    for n in 0..LEASES / BATCH {
        send_batch(&rig, n, BATCH, 16).await;
    }
    let mut held = 0;
    while held < LEASES {
        let got = rig.pop("g", "t", 32, 3_600_000).await.len();
        assert!(got > 0, "only {held} could be had");
        held += got;
    }
    let tail = || {
        let stats = rig.broker.core().store().stats();
        stats.log_end - stats.log_indexed
    };
    // The index may be written meanwhile, for memory or because thirty seconds are over; then the tail begins anew.
    for n in 0..4_000 {
        if tail() >= TAIL_BYTES {
            break;
        }
        send_batch(&rig, n, 16, 32 << 10).await;
    }
    let tail = tail();
    assert!(tail >= TAIL_BYTES, "{tail} bytes are not in the index");
    let sent = rig.broker.core().bounds("t", 0).unwrap();

    let copy = tempfile::tempdir().unwrap();
    files::copy(rig.dir.path(), copy.path());
    let mut config = rig.broker.config().clone();
    config.store_path_root_dir = copy.path().to_owned();
    let began = Instant::now();
    let broker = Broker::open_with_clock(config, rig.clock.clone()).unwrap();
    let took = began.elapsed();
    println!("start with {} KiB of log to read again and {LEASES} leases: {} ms", tail >> 10, took.as_millis());
    assert!(took < START_MAX, "{took:?}");
    rig.broker.close();
    let rig = Rig { broker, dir: Arc::new(copy), ..rig };
    let counts = rig.broker.core().group_counts();
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0].2.in_flight, LEASES as u64, "all of them are held");
    assert_eq!(rig.broker.core().bounds("t", 0).unwrap(), sent);
    let next = rig.pop("g", "t", 1, 10_000).await;
    assert_eq!(next[0].message.body.len(), 32 << 10, "the first that nobody holds");
}

async fn send_batch(rig: &Rig, number: usize, messages: usize, body: usize) {
    let items: Vec<BatchItem> = (0..messages)
        .map(|n| BatchItem {
            flag: 0,
            body: vec![b'x'; body].into(),
            properties: properties::encode([(properties::UNIQ_KEY, format!("{number}-{n}"))]).unwrap(),
        })
        .collect();
    let template = Rig::send_command("t", "x", None, "x");
    let mut header = SendMessageRequestHeader::decode_v2(&template.ext).unwrap();
    header.queue_id = i32::try_from(number % 4).unwrap();
    let body = encode_batch(&items).unwrap();
    rig.ok(Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(body)).await;
}
