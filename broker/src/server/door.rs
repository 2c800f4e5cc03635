//! What a new connection turns out to be: plain text or TLS, as its first byte says.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use waybill_ops::tls::{Acceptor, Stream, TLS_HANDSHAKE};

use super::connection::IDLE;
use crate::config::TlsServerMode;
use crate::limits;
use crate::metrics::Metrics;

/// A handshake that takes longer is given up, the wait for its turn included.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Refused connections are in the log at most so often; those in between are counted.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// TLS did not come about.
    Handshake,
    /// It is plain text where only TLS is served.
    PlainText,
}

impl Refusal {
    /// As the metric has it.
    fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::PlainText => "plaintext",
        }
    }
}

/// Lets connections in.
pub(super) struct Door {
    tls: Option<Acceptor>,
    handshakes: Semaphore,
    said: Mutex<Said>,
}

/// When a refusal was last in the log, and how many were not since.
#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    unsaid: u64,
}

impl Said {
    /// How many were not said since the last line, if it is time for one.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < SAID_EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

impl Door {
    /// Without `tls` everything is plain text.
    pub(super) fn new(tls: Option<Acceptor>) -> Self {
        Self { tls, handshakes: Semaphore::new(limits::HANDSHAKES_MAX), said: Mutex::default() }
    }

    /// The connection, once it is known what it is. None: it is closed.
    pub(super) async fn let_in(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        mode: TlsServerMode,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Option<Stream> {
        let Some(tls) = self.tls.as_ref().filter(|_| mode != TlsServerMode::Disabled) else {
            return Some(Stream::Plain(socket));
        };
        let mut first = [0];
        let said = tokio::select! {
            () = stop.cancelled() => return None,
            said = timeout(IDLE, socket.peek(&mut first)) => said,
        };
        match said {
            Ok(Ok(1..)) if first == [TLS_HANDSHAKE] => {}
            Ok(Ok(1..)) if mode == TlsServerMode::Enforcing => {
                self.refuse(Refusal::PlainText, address, metrics, &"tlsServerMode is enforcing");
                return None;
            }
            Ok(Ok(1..)) => return Some(Stream::Plain(socket)),
            // It said nothing: a check of the port, most often.
            _silent => return None,
        }
        let handshake = async {
            let _turn = self.handshakes.acquire().await.map_err(std::io::Error::other)?;
            tls.accept(socket).await
        };
        let done = tokio::select! {
            () = stop.cancelled() => return None,
            done = timeout(HANDSHAKE, handshake) => done,
        };
        match done {
            Ok(Ok(stream)) => {
                metrics.tls_connection();
                return Some(stream.into());
            }
            Ok(Err(error)) => self.refuse(Refusal::Handshake, address, metrics, &error),
            Err(_late) => self.refuse(Refusal::Handshake, address, metrics, &"it took too long"),
        }
        None
    }

    fn refuse(&self, refusal: Refusal, address: SocketAddr, metrics: &Metrics, why: &dyn fmt::Display) {
        let refusal = refusal.word();
        metrics.tls_refused(refusal);
        if let Some(unsaid) = self.said.lock().due(Instant::now()) {
            warn!(%address, refusal, unsaid, "a connection is closed: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_not_flooded_and_nothing_is_forgotten() {
        let mut said = Said::default();
        let start = Instant::now();
        let mut at = |seconds| said.due(start + Duration::from_secs(seconds));
        assert_eq!((at(0), at(1), at(4)), (Some(0), None, None));
        assert_eq!((at(5), at(9), at(10)), (Some(2), None, Some(1)));
    }
}
