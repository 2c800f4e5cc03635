//! `RemoteTransport` against a TCP server that misbehaves in every way a server can.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Notify, time::timeout};
use waybill_protocol::remoting::{
    Command, Language, SerializeType,
    codes::{request, response},
    encode,
};
use waybill_sidecar::backend::{RemoteOptions, RemoteTransport, Transport, TransportError};

use crate::LONG;
use crate::fake_broker::{BACKLOG, FakeBroker, Out, Reply, echo, places};

const CODE: i32 = 7;

fn options() -> RemoteOptions {
    RemoteOptions { connect_timeout: Duration::from_secs(5), max_in_flight: 10_000, max_frame: 4 << 20 }
}

fn transport() -> RemoteTransport {
    RemoteTransport::new(options())
}

fn request(body: impl Into<Bytes>) -> Command {
    Command::request(CODE).with_body(body)
}

async fn ask(transport: &RemoteTransport, broker: &FakeBroker, body: &str) -> Result<String, TransportError> {
    let answer = transport.call(&broker.address, request(body.to_owned()), LONG).await?;
    Ok(String::from_utf8(answer.body.to_vec()).expect("text"))
}

/// Waits for something that another task does, without saying how long it takes.
async fn until(mut what: impl FnMut() -> bool) {
    timeout(LONG, async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("it happens");
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order() {
    let held: Arc<Mutex<Vec<Command>>> = Arc::default();
    let broker = FakeBroker::start(move |command, reply: &Reply| {
        let mut held = held.lock();
        held.push(command);
        if held.len() == 100 {
            // The last first.
            for request in held.drain(..).rev() {
                reply.send(echo(&request)).expect("open");
            }
        }
    })
    .await;
    let transport = transport();
    let asked = (0..100).map(|n| {
        let (transport, broker) = (&transport, &broker);
        async move { (n.to_string(), ask(transport, broker, &n.to_string()).await) }
    });
    for (sent, answered) in join_all(asked).await {
        assert_eq!(answered, Ok(sent));
    }
    assert_eq!(broker.connections(), 1, "all over one connection");
}

/// How the headers of three requests were written, to a broker that says what it is written in.
async fn headers_to_a_broker_in(language: Language) -> Vec<(i32, SerializeType)> {
    let broker = FakeBroker::start(move |command, reply: &Reply| {
        let answer = Command { language, ..Command::response(response::SUCCESS, "").reply_to(&command) };
        reply.send(Out::Frame(answer)).expect("open");
    })
    .await;
    let transport = transport();
    for _ in 0..3 {
        transport.call(&broker.address, Command::request(request::POP_MESSAGE), LONG).await.expect("an answer");
    }
    broker.seen().iter().map(|command| (command.code, command.serialize)).collect()
}

#[tokio::test]
async fn a_waybill_gets_binary_headers_once_it_is_known_to_be_one() {
    let pop = |serialize| (request::POP_MESSAGE, serialize);
    let (json, binary) = (pop(SerializeType::Json), pop(SerializeType::RocketMq));
    assert_eq!(headers_to_a_broker_in(Language::Rust).await, [json, binary, binary]);
    assert_eq!(headers_to_a_broker_in(Language::Java).await, [json; 3], "Apache's would not know the cut code");
}

#[tokio::test]
async fn a_cut_connection_fails_what_waits_and_is_made_again() {
    let broker = FakeBroker::start(|command, reply: &Reply| match command.body.as_ref() {
        b"wait" => {}
        b"cut" => reply.send(Out::Close).expect("open"),
        _ => reply.send(echo(&command)).expect("open"),
    })
    .await;
    let transport = transport();
    let waiting = join_all((0..10).map(|_| ask(&transport, &broker, "wait")));
    let cut = async {
        until(|| broker.seen().len() == 10).await;
        ask(&transport, &broker, "cut").await
    };
    let (waiting, cut) = tokio::join!(waiting, cut);
    for result in waiting.into_iter().chain([cut]) {
        assert!(matches!(result, Err(TransportError::Connection(_))), "{result:?}");
    }
    assert_eq!(ask(&transport, &broker, "again").await, Ok("again".into()));
    assert_eq!(broker.connections(), 2);
}

#[tokio::test]
async fn a_late_answer_disturbs_nobody() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let broker = FakeBroker::start(move |command, reply: &Reply| {
        let (reply, told) = (reply.clone(), Arc::clone(&told));
        tokio::spawn(async move {
            if command.body == "slow" {
                told.notified().await;
            }
            reply.send(echo(&command)).expect("open");
        });
    })
    .await;
    let transport = transport();
    // What is late is the answer, not the connection.
    assert_eq!(ask(&transport, &broker, "first").await, Ok("first".into()));
    let late = transport.call(&broker.address, request("slow"), Duration::from_millis(30)).await;
    assert_eq!(late, Err(TransportError::Timeout));
    go.notify_one();
    for n in 0..20 {
        assert_eq!(ask(&transport, &broker, &n.to_string()).await, Ok(n.to_string()));
    }
    assert_eq!(broker.connections(), 1, "a time-out is no reason to reconnect");
}

#[tokio::test]
async fn garbage_and_huge_frames_close_the_connection() {
    let mut huge = BytesMut::new();
    huge.put_u32((4 << 20) + 1);
    let mut wrong_length = BytesMut::new();
    wrong_length.put_u32(8);
    wrong_length.put_u32(1_000);
    wrong_length.put_u32(0);
    let mut no_json = BytesMut::new();
    no_json.put_u32(7);
    no_json.put_u32(3);
    no_json.put_slice(b"{x}");
    let negative = Bytes::from_static(&[0xff; 16]);
    for bytes in [huge.freeze(), wrong_length.freeze(), no_json.freeze(), negative] {
        let broker = FakeBroker::start(move |command, reply: &Reply| {
            let out = if command.body == "garbage" { Out::Raw(bytes.clone()) } else { echo(&command) };
            reply.send(out).expect("open");
        })
        .await;
        let transport = transport();
        let result = ask(&transport, &broker, "garbage").await;
        assert!(matches!(result, Err(TransportError::Connection(_))), "{result:?}");
        assert_eq!(ask(&transport, &broker, "good").await, Ok("good".into()));
        assert_eq!(broker.connections(), 2);
    }
}

#[tokio::test]
async fn a_frame_may_come_in_pieces_and_two_in_one() {
    let broker = FakeBroker::start(|command, reply: &Reply| {
        let reply = reply.clone();
        tokio::spawn(async move {
            let mut bytes = BytesMut::new();
            // An answer nobody waits for, directly before the one that is waited for.
            encode(&Command::response(0, "").reply_to(&Command { opaque: 999_999, ..command.clone() }), &mut bytes);
            encode(&Command::response(0, "").with_body(command.body.clone()).reply_to(&command), &mut bytes);
            for piece in bytes.chunks(3) {
                reply.send(Out::Raw(Bytes::copy_from_slice(piece))).expect("open");
                tokio::task::yield_now().await;
            }
        });
    })
    .await;
    assert_eq!(ask(&transport(), &broker, "piecemeal").await, Ok("piecemeal".into()));
}

#[tokio::test]
async fn what_a_broker_asks_is_answered_politely() {
    let broker = FakeBroker::start(|command, reply: &Reply| {
        if command.is_response() {
            return;
        }
        let question = Command { opaque: 77, ..Command::request(220) };
        let told = Command { opaque: 78, ..Command::request(40).oneway() };
        for out in [Out::Frame(told), Out::Frame(question), echo(&command)] {
            reply.send(out).expect("open");
        }
    })
    .await;
    let transport = transport();
    assert_eq!(ask(&transport, &broker, "x").await, Ok("x".into()));
    until(|| broker.seen().len() == 2).await;
    assert_eq!(ask(&transport, &broker, "y").await, Ok("y".into()));
    until(|| broker.seen().len() == 4).await;
    let answers: Vec<_> = broker.seen().into_iter().filter(Command::is_response).collect();
    assert_eq!(answers.len(), 2, "one per question, none for what wants no answer");
    for answer in answers {
        assert_eq!((answer.opaque, answer.code), (77, response::REQUEST_CODE_NOT_SUPPORTED));
    }
}

#[tokio::test]
async fn oneway_requests_are_marked_and_not_waited_for() {
    let broker = FakeBroker::start(|_, _: &Reply| {}).await;
    let transport = transport();
    transport.oneway(&broker.address, request("x"), LONG).await.expect("sent");
    until(|| !broker.seen().is_empty()).await;
    let seen = broker.seen();
    assert!(seen.iter().all(Command::is_oneway), "{seen:?}");
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_places_become_free() {
    let broker = FakeBroker::start(|command, reply: &Reply| {
        if command.body != "wait" {
            reply.send(echo(&command)).expect("open");
        }
    })
    .await;
    let transport = RemoteTransport::new(RemoteOptions { max_in_flight: 2, ..options() });
    {
        let waiting = join_all((0..2).map(|_| ask(&transport, &broker, "wait")));
        let third = async {
            until(|| broker.seen().len() == 2).await;
            ask(&transport, &broker, "third").await
        };
        tokio::select! {
            _ = waiting => panic!("they wait for ever"),
            third = third => assert_eq!(third, Err(TransportError::Overloaded)),
        }
    }
    // Those who waited are gone.
    assert_eq!(ask(&transport, &broker, "now").await, Ok("now".into()));
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let broker = FakeBroker::start(|command, reply: &Reply| reply.send(echo(&command)).expect("open")).await;
    let transport = transport();
    let bodies: Vec<Bytes> =
        (0..40_usize).map(|n| Bytes::from(vec![n as u8; if n % 3 == 0 { 1 << 20 } else { n * 1_000 }])).collect();
    let calls = bodies.iter().map(|body| transport.call(&broker.address, request(body.clone()), LONG));
    for (sent, answer) in bodies.iter().zip(join_all(calls).await) {
        assert!(answer.expect("answered").body == *sent);
    }
}

#[tokio::test]
async fn a_broker_that_says_go_away_is_left() {
    let broker = FakeBroker::start(|command, reply: &Reply| {
        let out = match command.body.as_ref() {
            b"leave" => Out::Frame(Command::response(response::GO_AWAY, "").reply_to(&command)),
            _ => echo(&command),
        };
        reply.send(out).expect("open");
    })
    .await;
    let transport = transport();
    let answer = transport.call(&broker.address, request("leave"), LONG).await.expect("an answer");
    assert_eq!(answer.code, response::GO_AWAY);
    assert_eq!(ask(&transport, &broker, "new").await, Ok("new".into()));
    assert_eq!(broker.connections(), 2);
}

#[tokio::test]
async fn an_unreachable_broker_is_found_again() {
    let (address, [place]) = places();
    let transport = transport();
    for _ in 0..3 {
        let result = transport.call(&address.to_string(), request("x"), LONG).await;
        assert!(matches!(result, Err(TransportError::Unreachable(_))), "{result:?}");
    }
    let listener = place.listen(BACKLOG).expect("listen");
    let broker = FakeBroker::start_on(listener, |command, reply: &Reply| reply.send(echo(&command)).expect("open"));
    // The wait between two tries is at most a second.
    timeout(LONG, async {
        while ask(&transport, &broker, "x").await.is_err() {
            tokio::task::yield_now().await
        }
    })
    .await
    .expect("it is tried again");
    let nowhere = transport.call("no-such-host.invalid:1", request("x"), LONG).await;
    assert!(matches!(nowhere, Err(TransportError::Unreachable(_))), "{nowhere:?}");
}

#[tokio::test]
async fn dropping_the_transport_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    let transport = transport();
    transport.oneway(&address, request("x"), LONG).await.expect("sent");
    let (mut socket, _) = listener.accept().await.expect("a connection");
    drop(transport);
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest);
    timeout(LONG, read).await.expect("it ends").expect("in order");
    assert!(!rest.is_empty(), "what was handed over before is still sent");
}
