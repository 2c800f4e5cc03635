//! The whole sidecar on loopback with real gRPC clients, its brokers played by a function.

use std::{net::SocketAddr, sync::Arc};

use futures::FutureExt;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};
use tower::service_fn;
use waybill_ops::{clock::SystemClock, config::Live};
use waybill_protocol::{
    grpc::v2::{
        Code, Message, QueryRouteRequest, Resource, SendMessageRequest, SystemProperties,
        messaging_service_client::MessagingServiceClient,
    },
    message::properties,
    remoting::{
        JsonBody, TopicConfig,
        codes::{request, response},
    },
};
use waybill_sidecar::{App, Ended, Listeners, config::Config};

use crate::{
    scripted::{Scripted, cluster, ok, refuse, route},
    serve::connect_tls,
    service::sent,
    soon,
};

struct Running {
    grpc: SocketAddr,
    admin: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Ended>,
}

async fn start(transport: Arc<Scripted>, change: impl FnOnce(&mut Config)) -> Running {
    let mut config =
        Config { namesrv_addr: "ns:9876".into(), use_endpoint_port_from_request: true, ..Config::default() };
    change(&mut config);
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners = Listeners { grpc: bind().await.expect("bind"), admin: Some(bind().await.expect("bind")) };
    let clock = Arc::new(SystemClock::new());
    let app = App::build(Arc::new(Live::fixed(config)), transport, clock, listeners).await.expect("builds");
    let (grpc, admin) = (app.grpc_address(), app.admin_address().expect("an admin port"));
    let stop = CancellationToken::new();
    let ended = tokio::spawn(app.run(stop.clone()));
    Running { grpc, admin, stop, ended }
}

impl Running {
    async fn end(self) -> Ended {
        self.stop.cancel();
        soon(self.ended).await.expect("no panic")
    }
}

/// A broker named `a` that stores what it gets; a send waits for `go` if there is one.
fn broker(go: Option<Arc<Notify>>, arrived: Arc<Notify>) -> Arc<Scripted> {
    Scripted::waiting(move |_, command| {
        let (go, arrived) = (go.clone(), Arc::clone(&arrived));
        async move {
            match command.code {
                request::GET_ROUTEINFO_BY_TOPIC => route(&["a"], 4),
                request::GET_BROKER_CLUSTER_INFO => cluster(&["a"]),
                request::GET_TOPIC_CONFIG => Ok(ok().with_body(TopicConfig::default().to_json())),
                request::SEND_MESSAGE_V2 => {
                    arrived.notify_one();
                    if let Some(go) = go {
                        go.notified().await;
                    }
                    Ok(sent(1))
                }
                _ => refuse(response::REQUEST_CODE_NOT_SUPPORTED, ""),
            }
        }
        .boxed()
    })
}

async fn plaintext(address: SocketAddr) -> MessagingServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an endpoint");
    MessagingServiceClient::new(soon(endpoint.connect()).await.expect("connect"))
}

async fn with_tls(address: SocketAddr) -> MessagingServiceClient<Channel> {
    let connector = service_fn(move |_| async move { connect_tls(address).await.map(TokioIo::new) });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an endpoint");
    MessagingServiceClient::new(soon(endpoint.connect_with_connector(connector)).await.expect("connect"))
}

fn called<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in [("x-mq-client-id", "client-1"), ("x-mq-language", "RUST")] {
        request.metadata_mut().insert(name, value.parse().expect("ascii"));
    }
    request
}

fn topic() -> Option<Resource> {
    Some(Resource { name: "T".into(), ..Resource::default() })
}

fn query_route() -> Request<QueryRouteRequest> {
    use waybill_protocol::grpc::v2::{Address, AddressScheme, Endpoints};
    let addresses = vec![Address { host: "127.0.0.1".into(), port: 8081 }];
    let endpoints = Endpoints { scheme: AddressScheme::IPv4.into(), addresses };
    called(QueryRouteRequest { topic: topic(), endpoints: Some(endpoints) })
}

fn send_message() -> Request<SendMessageRequest> {
    let system = SystemProperties { message_id: "0100".into(), ..SystemProperties::default() };
    let message = Message {
        topic: topic(),
        system_properties: Some(system),
        body: b"hello".to_vec().into(),
        ..Message::default()
    };
    called(SendMessageRequest { messages: vec![message] })
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_with_tls_and_without_use_the_same_port() {
    let transport = broker(None, Arc::default());
    let running = start(transport.clone(), |_| {}).await;
    for mut client in [plaintext(running.grpc).await, with_tls(running.grpc).await] {
        let route = soon(client.query_route(query_route())).await.expect("answered").into_inner();
        assert_eq!(route.status.map(|status| status.code), Some(Code::Ok.into()));
        assert_eq!(route.message_queues.len(), 4);
        let sent = soon(client.send_message(send_message())).await.expect("answered").into_inner();
        assert_eq!(sent.status.map(|status| status.code), Some(Code::Ok.into()));
    }
    for (_, command) in transport.asked(request::SEND_MESSAGE_V2) {
        let stored = command.ext.get("i").expect("properties");
        let born = properties::get(stored, properties::BORN_HOST).expect("a born host");
        assert!(born.starts_with("127.0.0.1"), "the client's address is kept: {born}");
    }
    assert_eq!(running.end().await, Ended::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_port_says_how_it_is() {
    let running = start(broker(None, Arc::default()), |config| config.enable_batch_ack = true).await;
    soon(async { while !get(running.admin, "/readyz").await.starts_with("HTTP/1.1 200") {} }).await;
    let config = get(running.admin, "/config").await;
    assert!(config.contains("\"enableBatchAck\": true"), "{config}");
    soon(plaintext(running.grpc).await.query_route(query_route())).await.expect("answered");
    let metrics = get(running.admin, "/metrics").await;
    for wanted in ["waybill_sidecar_broker_requests_total{", "GET_ROUTEINFO_BY_TOPIC", "waybill_sidecar_connections "] {
        assert!(metrics.contains(wanted), "{wanted} is missing in {metrics}");
    }
    assert_eq!(running.end().await, Ended::Clean);

    let silent = Scripted::waiting(|_, _| std::future::pending().boxed());
    let running = start(silent, |_| {}).await;
    assert!(get(running.admin, "/healthz").await.starts_with("HTTP/1.1 200"), "alive");
    let answer = get(running.admin, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("namesrvAddr"), "{answer}");
    assert_eq!(running.end().await, Ended::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_progress_is_finished_before_the_end() {
    let (go, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = start(broker(Some(Arc::clone(&go)), Arc::clone(&arrived)), |_| {}).await;
    let mut client = plaintext(running.grpc).await;
    let sending = tokio::spawn(async move { client.send_message(send_message()).await });
    soon(arrived.notified()).await;
    let address = running.grpc;
    running.stop.cancel();
    soon(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    go.notify_one();
    let answer = soon(sending).await.expect("no panic").expect("answered").into_inner();
    assert_eq!(answer.status.map(|status| status.code), Some(Code::Ok.into()));
    assert_eq!(running.end().await, Ended::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_until_whatever_sends_clients_has_noticed() {
    let running = start(broker(None, Arc::default()), |config| config.shutdown_notice_seconds = 3_600).await;
    soon(async { while !get(running.admin, "/readyz").await.starts_with("HTTP/1.1 200") {} }).await;
    running.stop.cancel();
    soon(async { while !get(running.admin, "/readyz").await.starts_with("HTTP/1.1 503") {} }).await;
    let sent = soon(plaintext(running.grpc).await.send_message(send_message())).await.expect("answered").into_inner();
    assert_eq!(sent.status.map(|status| status.code), Some(Code::Ok.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grace_time_ends_what_does_not_end_by_itself() {
    let (go, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = start(broker(Some(go), Arc::clone(&arrived)), |config| {
        config.grpc_shutdown_time_seconds = 0;
        config.backend_request_timeout_ms = 600_000;
    })
    .await;
    let mut client = plaintext(running.grpc).await;
    let sending = tokio::spawn(async move { client.send_message(send_message()).await });
    soon(arrived.notified()).await;
    assert_eq!(running.end().await, Ended::CutShort);
    assert!(soon(sending).await.expect("no panic").is_err(), "the connection is closed");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_no_start() {
    let config = Config {
        namesrv_addr: "ns:9876".into(),
        tls_cert_path: "/nowhere/tls.crt".into(),
        tls_key_path: "/nowhere/tls.key".into(),
        ..Config::default()
    };
    let listeners = Listeners { grpc: TcpListener::bind("127.0.0.1:0").await.expect("bind"), admin: None };
    let transport = broker(None, Arc::default());
    let app = App::build(Arc::new(Live::fixed(config)), transport, Arc::new(SystemClock::new()), listeners).await;
    assert!(app.err().is_some_and(|error| error.to_string().contains("/nowhere/tls.crt")));
}
