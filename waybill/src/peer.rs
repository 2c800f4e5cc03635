//! Who answers at an address, asked only after something went wrong there: the likeliest mistake is the port next door.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{self, Command};

use crate::exit::Failure;

/// How long each of the three questions may take: whoever is there answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest answer that is read to tell a protocol, in bytes; a broker's list of topics may be longer, and is cut.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How HTTP/2 begins, and an empty SETTINGS frame.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HTTP1: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// Bytes of the head of an HTTP/2 frame, where its kind is among them, and the kind that servers begin with.
const HTTP2_HEAD: usize = 9;
const HTTP2_KIND_AT: usize = 3;
const HTTP2_SETTINGS: u8 = 4;

/// What can be spoken at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/2, on which gRPC is: where clients connect.
    Grpc,
    /// RocketMQ's own, of brokers and name servers.
    Remoting,
    /// HTTP/1: a web server, such as an admin port.
    Http,
}

impl Protocol {
    fn answers(self) -> &'static str {
        match self {
            Self::Grpc => "a gRPC server, where clients connect,",
            Self::Remoting => "a broker or name server, which speaks remoting,",
            Self::Http => "a web server, such as an admin port,",
        }
    }

    /// What was looked for instead, and how to name it.
    fn wanted(self) -> (&'static str, &'static str) {
        match self {
            Self::Remoting => (
                "a broker's remoting port",
                "--broker with the broker's address, 127.0.0.1:10911 unless it was told otherwise",
            ),
            Self::Grpc | Self::Http => (
                "a gRPC endpoint",
                "--endpoint with the address of a sidecar, 127.0.0.1:8081 unless it was told otherwise",
            ),
        }
    }
}

/// Says of a failed connection who answers there, if it is somebody else than was looked for.
pub(crate) async fn explain(failure: Failure) -> Failure {
    let Some((address, wanted)) = failure.looked_for() else { return failure };
    match protocol_at(address).await {
        Some(found) if found != wanted => {
            let (what, hint) = wanted.wanted();
            Failure::unavailable(format!("{} answers at {address}, not {what}", found.answers())).hint(hint)
        }
        _nothing_new => failure,
    }
}

/// What is spoken at an address. None when nobody answers, or in no way that is known here.
async fn protocol_at(address: &str) -> Option<Protocol> {
    // Web servers may speak HTTP/2 as well, gRPC servers never speak HTTP/1.
    let said = ask(address, HTTP1, |said| said.len() >= HTTP2_HEAD).await?;
    if said.starts_with(b"HTTP/") {
        return Some(Protocol::Http);
    }
    let said = ask(address, HTTP2, |said| said.len() >= HTTP2_HEAD).await?;
    if said.get(HTTP2_KIND_AT) == Some(&HTTP2_SETTINGS) {
        return Some(Protocol::Grpc);
    }
    let mut frame = BytesMut::new();
    remoting::encode(&Command::request(request::GET_BROKER_RUNTIME_INFO), &mut frame);
    let is_remoting = |said: &[u8]| matches!(remoting::decode(&mut BytesMut::from(said), ANSWER_BYTES_MAX), Ok(Some(answer)) if answer.is_response());
    is_remoting(&ask(address, &frame, is_remoting).await?).then_some(Protocol::Remoting)
}

/// What is said to `question`, until it is enough, or the end, or the patience's. None when nobody can be reached.
async fn ask(address: &str, question: &[u8], enough: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut stream = timeout(PATIENCE, TcpStream::connect(address)).await.ok()?.ok()?;
    let mut said = Vec::new();
    let answered = async {
        stream.write_all(question).await?;
        while !enough(&said) && said.len() < ANSWER_BYTES_MAX {
            if stream.read_buf(&mut said).await? == 0 {
                break;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    // A connection that is cut, and silence, are answers as well: whatever was said until then counts.
    let _ended = timeout(PATIENCE, answered).await;
    Some(said)
}
