//! A broker in this very process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::time::timeout;
use waybill_protocol::remoting::{Command, FLAG_ONEWAY};

use super::{
    from_brokers::{FromBrokers, OnRequest},
    transport::{Transport, TransportError},
};

type Handler = dyn Fn(Command) -> BoxFuture<'static, Command> + Send + Sync;

/// Hands every command, whatever its address, to one function.
///
/// As over TCP, a caller that stops waiting does not stop the work. Must be used within a tokio runtime.
pub struct LocalTransport {
    handler: Arc<Handler>,
    next_opaque: AtomicI32,
    from_broker: FromBrokers,
}

impl LocalTransport {
    /// Commands go to `handler`, which answers each.
    pub fn new(handler: impl Fn(Command) -> BoxFuture<'static, Command> + Send + Sync + 'static) -> Self {
        Self { handler: Arc::new(handler), next_opaque: AtomicI32::new(1), from_broker: FromBrokers::default() }
    }

    /// What the broker asks by itself is given to `from_broker` by whoever made the handler.
    #[must_use]
    pub fn with_requests(self, from_broker: FromBrokers) -> Self {
        Self { from_broker, ..self }
    }

    fn spawn(&self, mut request: Command) -> tokio::task::JoinHandle<Command> {
        request.opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        tokio::spawn((self.handler)(request))
    }
}

#[async_trait]
impl Transport for LocalTransport {
    async fn call(&self, _address: &str, request: Command, limit: Duration) -> Result<Command, TransportError> {
        match timeout(limit, self.spawn(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failed)) => Err(TransportError::Connection(failed.to_string())),
            Err(_late) => Err(TransportError::Timeout),
        }
    }

    fn on_request(&self, take: OnRequest) {
        self.from_broker.listen(take);
    }

    async fn oneway(&self, _address: &str, mut request: Command, _limit: Duration) -> Result<(), TransportError> {
        request.flag |= FLAG_ONEWAY;
        drop(self.spawn(request));
        Ok(())
    }
}
