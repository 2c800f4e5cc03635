//! C29: bytes that mean nothing, sent to every method beside a good client. The server answers, and does not panic.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BufMut, Bytes};
use grpc_common::*;
use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use waybill_protocol::grpc::v2::Code;

const METHODS: [&str; 15] = [
    "QueryRoute",
    "Heartbeat",
    "SendMessage",
    "QueryAssignment",
    "ReceiveMessage",
    "AckMessage",
    "ForwardMessageToDeadLetterQueue",
    "PullMessage",
    "UpdateOffset",
    "EndTransaction",
    "Telemetry",
    "NotifyClientTermination",
    "ChangeInvisibleDuration",
    "RecallMessage",
    "SyncLiteSubscription",
];
const ROUNDS: usize = 60;

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Requests in order, to be spoilt.
fn good_requests() -> Vec<Bytes> {
    let handle = format!("0 {START} 60000 0 0 broker-a 0 0 0");
    vec![
        waybill_protocol::grpc::v2::SendMessageRequest { messages: messages(3) }.encode_to_vec().into(),
        receive().encode_to_vec().into(),
        ack("t", "g", std::slice::from_ref(&handle)).encode_to_vec().into(),
        change("t", "g", &handle, 30_000).encode_to_vec().into(),
        command(simple()).encode_to_vec().into(),
    ]
}

fn garbage(random: &mut StdRng, good: &[Bytes]) -> Bytes {
    if random.random_bool(0.3) {
        return (0..random.random_range(0..200)).map(|_| random.random::<u8>()).collect();
    }
    let mut bytes = good[random.random_range(0..good.len())].to_vec();
    for _ in 0..random.random_range(0..6) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    bytes.truncate(random.random_range(bytes.len() / 2..=bytes.len()));
    bytes.into()
}

#[tokio::test]
async fn bytes_without_meaning_harm_nobody() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        quiet(panic);
    }));
    let world = World::new().await;
    let mut good = world.client("good", simple()).await;
    let mut random = StdRng::seed_from_u64(29);
    let requests = good_requests();
    for _ in 0..ROUNDS {
        let mut calls = tonic::client::Grpc::new(world.channel().await);
        for method in METHODS {
            calls.ready().await.expect("a connection");
            let path = format!("/apache.rocketmq.v2.MessagingService/{method}").parse().expect("a path");
            let garbage = [garbage(&mut random, &requests), garbage(&mut random, &requests)];
            let call = calls.streaming(request_of("bad", tokio_stream::iter(garbage)), path, Raw);
            // Any answer will do, an error too; but there must be one.
            let answered = tokio::time::timeout(PATIENCE, async {
                if let Ok(answer) = call.await {
                    let mut elements = answer.into_inner();
                    while let Ok(Some(_element)) = elements.message().await {}
                }
            });
            assert!(answered.await.is_ok(), "{method} gave no answer");
        }
        let mut socket =
            tokio::net::TcpStream::connect(world.address.trim_start_matches("http://")).await.expect("a port");
        let noise = (0..500).map(|_| random.random()).collect::<Vec<u8>>();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a write");
        let _closed = socket.write_all(&noise).await;
        let mut end = Vec::new();
        let _reset = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut end)).await.expect("it is closed");
        assert_eq!(good.heartbeat().await, Code::Ok);
    }
    assert_eq!(code(good.send(messages(1)).await.status), Code::Ok);
    assert!(!good.receive(receive()).await.messages.is_empty());
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
