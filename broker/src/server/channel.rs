//! The way from the broker to a client that is connected.

use std::sync::Arc;

use waybill_protocol::remoting::Command;

/// Hands requests that want no answer to the other side of a connection. Clones lead to the same side.
#[derive(Clone, Default)]
pub struct Channel(Option<Arc<dyn Fn(Command) -> bool + Send + Sync>>);

impl Channel {
    /// One that hands requests to `take`, which must not wait; it answers false for what it cannot take.
    pub fn new(take: impl Fn(Command) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    /// One that leads nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Hands over a request. False: the other side is gone or reads too slowly, and will not see it.
    #[must_use]
    pub fn tell(&self, request: Command) -> bool {
        self.0.as_ref().is_some_and(|take| take(request.oneway()))
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Channel" } else { "Channel(none)" })
    }
}
