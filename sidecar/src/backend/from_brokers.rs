//! What brokers ask of this process by themselves.

use std::sync::{Arc, OnceLock};

use waybill_protocol::remoting::Command;

/// Takes what a broker asks, with the broker's address if it is known. It must not wait.
pub type OnRequest = Arc<dyn Fn(&str, Command) + Send + Sync>;

/// The place where whoever wants to hear brokers leaves word. Clones are the same place.
#[derive(Clone, Default)]
pub struct FromBrokers(Arc<OnceLock<OnRequest>>);

impl FromBrokers {
    /// From now on requests are given to `take`. Only the first who wants them gets them.
    pub fn listen(&self, take: OnRequest) {
        if self.0.set(take).is_err() {
            tracing::debug!("somebody hears the requests of brokers already");
        }
    }

    /// Hands over a request. False: nobody wants it.
    pub fn give(&self, address: &str, request: Command) -> bool {
        match self.0.get() {
            Some(take) => {
                take(address, request);
                true
            }
            None => false,
        }
    }
}
