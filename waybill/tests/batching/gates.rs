//! A way to a broker that can be shut for a while.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use waybill_protocol::remoting::Command;
use waybill_sidecar::backend::{Transport, TransportError};

/// Requests with these codes wait until it is opened.
pub(crate) struct Gate {
    to: Arc<dyn Transport>,
    codes: [i32; 2],
    open: Semaphore,
}

impl Gate {
    pub(crate) fn shut(to: Arc<dyn Transport>, codes: [i32; 2]) -> Arc<Self> {
        Arc::new(Self { to, codes, open: Semaphore::new(0) })
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(10_000);
    }
}

#[async_trait]
impl Transport for Gate {
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command, TransportError> {
        if self.codes.contains(&request.code) {
            self.open.acquire().await.expect("never closed").forget();
        }
        self.to.call(address, request, timeout).await
    }

    fn connection(&self, address: &str) -> u64 {
        self.to.connection(address)
    }

    async fn oneway(&self, address: &str, request: Command, timeout: Duration) -> Result<(), TransportError> {
        self.to.oneway(address, request, timeout).await
    }
}
