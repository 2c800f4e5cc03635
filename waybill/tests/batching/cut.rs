//! Clients that reset a receive, or whose connection breaks, while messages are written.

use futures::future::join_all;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2::receive_message_response::Content;
use waybill_protocol::grpc::v2::{ReceiveMessageRequest, ReceiveMessageResponse};
use waybill_protocol::remoting::codes::request;
use waybill_sidecar::config::Config;

use crate::gates::Gate;
use crate::grpc::{Client, Sidecar, announce, receive_request, signed};
use crate::rig::{BrokerRig, introduce, send_to, take};

const COUNT: usize = 1_000;
const OF_RECEIVE: usize = 32;
const MOST: usize = 256;
/// Requests with which leases go back to one broker at a time.
const UNDER_WAY: u64 = 8;
/// What a client takes before it reads: much less than an answer has.
const WINDOW: u32 = 65_535;
const BODY: &str = match std::str::from_utf8(&[b'x'; 16 * 1024]) {
    Ok(body) => body,
    Err(_) => "",
};

/// An answer of which the status and one message were read; the server cannot write the rest.
struct Half {
    client: Client,
    answer: tonic::Streaming<ReceiveMessageResponse>,
}

async fn half(sidecar: &Sidecar, request: ReceiveMessageRequest) -> Half {
    let endpoint = sidecar.endpoint.clone();
    let narrow = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let mut client = Client::connect(narrow).await.expect("a connection");
    let mut answer = client.receive_message(signed(request)).await.expect("a stream").into_inner();
    while let Some(element) = answer.message().await.expect("an element") {
        if let Some(Content::Message(message)) = element.content {
            assert_eq!(message.body.len(), BODY.len());
            return Half { client, answer };
        }
    }
    panic!("no message came");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_answer_had_goes_back_at_once_and_uncounted() {
    let rig = BrokerRig::start().await;
    let direct = rig.service(rig.remote(), |_| {});
    introduce(&direct, &["g"], "t").await;
    for _ in 0..COUNT / 100 {
        send_to(&direct, "t", 100, BODY).await;
    }
    let changes = [request::CHANGE_MESSAGE_INVISIBLETIME, request::BATCH_CHANGE_MESSAGE_INVISIBLETIME];
    let gate = Gate::shut(rig.remote(), changes);
    let config = Config {
        enable_batch_change_invisible_time: true,
        batch_change_invisible_time_max_num: MOST as i64,
        ..rig.config()
    };
    let sidecar = Sidecar::start(Live::fixed(config), gate.clone()).await;
    let mut known = sidecar.client().await;
    let _telemetry = announce(&mut known).await;
    // Leases that the sidecar extends, and such that it does not.
    let requests = (0..).map(|n| ReceiveMessageRequest { auto_renew: n % 2 == 0, ..receive_request() });
    let halves = requests.take(COUNT / OF_RECEIVE).map(|request| half(&sidecar, request));
    let halves = join_all(halves).await;
    // One after the other resets its call and keeps the connection, or lets the connection go.
    let mut kept = Vec::new();
    for (n, Half { client, answer }) in halves.into_iter().enumerate() {
        drop(answer);
        if n % 4 < 2 {
            kept.push(client);
        }
    }
    let leased = (COUNT / OF_RECEIVE * OF_RECEIVE) as u64;
    sidecar.until("waybill_messages_undelivered_total", leased).await;
    assert_eq!(rig.changes(), (0, 0), "the gate is shut");
    gate.open();
    // Leases were for ten minutes and more.
    let again = take(&direct, "d", COUNT, 600_000).await;
    assert!(again.iter().all(|message| message.message.reconsume_times == 0), "nobody had them");
    let (single, batches) = rig.changes();
    assert_eq!(single, 0);
    let few = UNDER_WAY + (COUNT - OF_RECEIVE).div_ceil(MOST) as u64;
    assert!(batches <= few, "{batches} requests");
    sidecar.stop().await;
}
