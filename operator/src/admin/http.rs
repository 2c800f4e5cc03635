//! What a pod says on its admin port.

use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most bytes of an answer.
const ANSWER_MAX: u64 = 1 << 20;
/// How long a pod may take for its whole answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which configuration a program has in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InForce {
    /// The hash of the file as [`crate::hash::of`] makes it; empty without a file.
    pub hash: String,
    /// Why the file as it is now is not in force.
    pub error: Option<String>,
    /// The keys that are other in the file than in the running program, because they count at its start only.
    pub needs_restart: Vec<String>,
}

/// The answer to `/config` of brokers and sidecars, as far as it is used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    needs_restart: Vec<String>,
    file: File,
}

#[derive(Deserialize)]
struct File {
    hash: String,
    error: Option<String>,
}

/// Asks the program at `address` (host:port of its admin port) which configuration it has in force.
///
/// # Errors
/// It does not answer, or something else than that; for people.
pub async fn configuration(address: &str) -> Result<InForce, String> {
    let body = get(address, "/config").await?;
    let answer: Answer =
        serde_json::from_slice(&body).map_err(|error| format!("its configuration cannot be read: {error}"))?;
    Ok(InForce { hash: answer.file.hash, error: answer.file.error, needs_restart: answer.needs_restart })
}

/// The body of the answer 200 to a GET.
///
/// # Errors
/// There is no such answer within [`PATIENCE`]; for people.
pub(crate) async fn get(address: &str, path: &str) -> Result<Vec<u8>, String> {
    match timeout(PATIENCE, ask(address, path)).await {
        Ok(Ok(answer)) => body_of(answer),
        Ok(Err(error)) => Err(error.kind().to_string()),
        Err(_elapsed) => Err("it does not answer in time".to_owned()),
    }
}

/// HTTP/1.0: the answer ends where the connection ends.
async fn ask(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn body_of(answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Err("its answer is no HTTP".to_owned());
    };
    let (head, body) = answer.split_at(end);
    let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("it answers {line}"));
    }
    Ok(body.get(4..).unwrap_or_default().to_vec())
}
