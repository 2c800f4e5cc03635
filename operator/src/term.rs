//! For how long an operator certainly leads, and a way to the API server that writes only then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::service_fn;
use waybill_ops::clock::Clock;

/// What a request may need on its way to whoever acts on it.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// For how long an operator certainly leads. What it does was decided a moment before; if its process was stopped in between for longer
/// than the Lease lasts, another leads by then and may have decided otherwise. The default: for ever, where nobody else is to lead.
#[derive(Clone, Default)]
pub struct Term(Option<Arc<Limited>>);

struct Limited {
    clock: Arc<dyn Clock>,
    lasts: Duration,
    renewed: Mutex<Option<Moment>>,
}

/// By both clocks: the one may stand still while a machine sleeps, the other may be set.
#[derive(Clone, Copy)]
struct Moment {
    instant: Instant,
    ms: i64,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

impl Term {
    /// One that does not hold yet; it holds for `lasts` after each renewal.
    pub(crate) fn of(lasts: Duration, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(Limited { clock, lasts, renewed: Mutex::default() })))
    }

    /// Asks for a renewal now: [`Term::renewed`] counts from here, since the Lease may be written long before that is heard.
    pub(crate) fn asks(&self) -> Asked {
        let ms = self.0.as_ref().map_or(0, |limited| limited.clock.now_ms());
        Asked(Moment { instant: Instant::now(), ms })
    }

    /// The Lease was renewed.
    pub(crate) fn renewed(&self, asked: &Asked) {
        if let Some(limited) = &self.0 {
            *limited.renewed.lock() = Some(asked.0);
        }
    }

    /// It ends now.
    pub(crate) fn ends(&self) {
        if let Some(limited) = &self.0 {
            *limited.renewed.lock() = None;
        }
    }

    /// Whether nobody else can lead yet.
    #[must_use]
    pub fn holds(&self) -> bool {
        let Some(limited) = &self.0 else { return true };
        let Some(renewed) = *limited.renewed.lock() else { return false };
        let by_wall = limited.clock.now_ms().saturating_sub(renewed.ms);
        let by_wall = Duration::from_millis(u64::try_from(by_wall).unwrap_or(0));
        renewed.instant.elapsed().max(by_wall) + ON_ITS_WAY < limited.lasts
    }

    /// The same API server, which is only read from while the term does not hold.
    #[must_use]
    pub fn fence(&self, client: Client) -> Client {
        let (term, namespace) = (self.clone(), client.default_namespace().to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let (client, term) = (client.clone(), term.clone());
            async move {
                if request.method() != Method::GET && !term.holds() {
                    return Err(kube::Error::Service("another operator leads, or may lead, now".into()));
                }
                client.send(request).await
            }
        });
        Client::new(service, namespace)
    }
}

/// When a renewal was asked for.
pub(crate) struct Asked(Moment);

impl Asked {
    /// How long ago.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.instant.elapsed()
    }
}
