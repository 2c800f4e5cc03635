//! How a command reaches a broker: over TCP, or by a call within this process.

use std::time::Duration;

use async_trait::async_trait;
use waybill_protocol::remoting::Command;

use super::from_brokers::OnRequest;

/// Why no answer came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There is no connection and none could be made: nothing was sent, so the same may be asked of another broker.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The connection failed before the answer came. Retryable, but the broker may have acted.
    #[error("connection failed: {0}")]
    Connection(String),
    /// No answer within the time-out; the broker may have acted.
    #[error("no answer in time")]
    Timeout,
    /// Too many requests wait for this address already; nothing was sent.
    #[error("too many requests in flight")]
    Overloaded,
}

/// Carries commands to brokers and name servers.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends `request` to `address` (`host:port`) and waits for the answer at most `timeout`.
    ///
    /// The transport chooses the opaque number. An answer with an error code is `Ok`: it is an answer.
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command, TransportError>;

    /// The number of the connection that leads to `address`, or led there last. Another number: another connection, and
    /// perhaps another program there. 0 where there is none, or where there are no connections.
    fn connection(&self, _address: &str) -> u64 {
        0
    }

    /// From now on requests that brokers send by themselves are given to `take`; nothing comes over a transport that has no way back.
    fn on_request(&self, _take: OnRequest) {}

    /// Sends `request` to `address`, marked as one that needs no answer. `Ok` means that it was handed to the
    /// connection, which may be made first, within `timeout`.
    async fn oneway(&self, address: &str, request: Command, timeout: Duration) -> Result<(), TransportError>;
}
