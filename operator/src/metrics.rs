//! What an operator counts, and what the resources that it looks after tell of themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Resource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tower::{Layer, Service};

use crate::api::{ConditionStatus, ConditionType, Told};

/// Upper bounds of the buckets of a reconciliation's time, seconds.
const RECONCILIATION_S: [f64; 8] = [0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 15.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: &'static str,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Admitted {
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Telling {
    kind: &'static str,
    state: &'static str,
    reason: String,
}

/// What became of a new pod that the API server asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It got a sidecar.
    Injected,
    /// There was nothing to do.
    Unchanged,
    /// It should have got one, and could not.
    Missed,
    /// The question could not be answered.
    Failed,
}

/// Adds resources of one kind to their numbers.
type Count = Box<dyn Fn(&mut BTreeMap<Telling, i64>) + Send + Sync>;

/// Everything that is counted. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    leading: Gauge,
    reconciliations: Family<Ended, Counter>,
    took: Family<OfController, Histogram, fn() -> Histogram>,
    requests: Family<Asked, Counter>,
    admissions: Family<Admitted, Counter>,
    resources: Arc<Mutex<Vec<Count>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            leading: Gauge::default(),
            reconciliations: Family::default(),
            took: Family::new_with_constructor(|| Histogram::new(RECONCILIATION_S)),
            requests: Family::default(),
            admissions: Family::default(),
            resources: Arc::default(),
        }
    }
}

impl Metrics {
    /// Adds everything to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let Self { leading, reconciliations, took, requests, admissions, resources } = self.clone();
        registry.register("waybill_operator_leading", "1 while this operator is the one that works", leading);
        registry.register(
            "waybill_operator_reconciliations",
            "Reconciliations, by whether the API server did its part",
            reconciliations,
        );
        let help = "Time that a reconciliation took";
        registry.register_with_unit("waybill_operator_reconciliation", help, Unit::Seconds, took);
        registry.register(
            "waybill_operator_api_requests",
            "Requests to the API server, by method and code of the answer",
            requests,
        );
        registry.register(
            "waybill_operator_admissions",
            "New pods that the API server asked about, by what became of them",
            admissions,
        );
        registry.register_collector(Box::new(Resources(resources)));
    }

    /// This operator works from now on.
    pub fn leads(&self) {
        self.leading.set(1);
    }

    /// It does not any more, though it still answers the webhook for a moment.
    pub fn leads_no_more(&self) {
        self.leading.set(0);
    }

    /// What counts the requests of a client to the API server.
    #[must_use]
    pub fn requests(&self) -> CountRequests {
        CountRequests(self.clone())
    }

    /// The same reconciliation, counted.
    pub(crate) fn counted<K, C, E, F>(
        &self,
        controller: &'static str,
        mut reconcile: impl FnMut(Arc<K>, Arc<C>) -> F,
    ) -> impl FnMut(Arc<K>, Arc<C>) -> BoxFuture<'static, Result<Action, E>>
    where
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let (reconciliations, took) = (self.reconciliations.clone(), self.took.clone());
        move |object, context| {
            let (reconciliations, took) = (reconciliations.clone(), took.clone());
            let work = reconcile(object, context);
            async move {
                let began = Instant::now();
                let result = work.await;
                let outcome = if result.is_ok() { "done" } else { "failed" };
                reconciliations.get_or_create(&Ended { controller, outcome }).inc();
                took.get_or_create(&OfController { controller }).observe(began.elapsed().as_secs_f64());
                result
            }
            .boxed()
        }
    }

    /// These resources are looked after.
    pub(crate) fn look_at<K>(&self, known: Store<K>)
    where
        K: Resource<DynamicType = ()> + Told + Clone + Send + Sync + 'static,
    {
        self.resources.lock().push(Box::new(move |numbers| {
            for object in known.state() {
                let (state, reason) = told(&*object);
                *numbers.entry(Telling { kind: K::KIND, state, reason }).or_default() += 1;
            }
        }));
    }

    /// A new pod was asked about.
    pub(crate) fn admission(&self, what: Admission) {
        let answer = match what {
            Admission::Injected => "injected",
            Admission::Unchanged => "unchanged",
            Admission::Missed => "missed",
            Admission::Failed => "failed",
        };
        self.admissions.get_or_create(&Admitted { answer }).inc();
    }
}

/// Which of its conditions holds, and why.
fn told(object: &impl Told) -> (&'static str, String) {
    let holds = object.conditions().iter().find(|condition| condition.status == ConditionStatus::True);
    match holds {
        Some(condition) => {
            let state = match condition.kind {
                ConditionType::Ready => "ready",
                ConditionType::Progressing => "progressing",
                ConditionType::Degraded => "degraded",
            };
            (state, format!("{:?}", condition.reason))
        }
        None => ("new", String::new()),
    }
}

/// Counts resources when it is asked.
struct Resources(Arc<Mutex<Vec<Count>>>);

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources").finish_non_exhaustive()
    }
}

impl Collector for Resources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut numbers = BTreeMap::new();
        for count in self.0.lock().iter() {
            count(&mut numbers);
        }
        let help = "Resources that this operator looks after, by what they tell of themselves";
        let mut family = encoder.encode_descriptor("waybill_operator_resources", help, None, MetricType::Gauge)?;
        for (labels, number) in &numbers {
            ConstGauge::new(*number).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

/// Counts the requests of the client that it is put around.
#[derive(Debug, Clone)]
pub struct CountRequests(Metrics);

impl<S> Layer<S> for CountRequests {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, metrics: self.0.clone() }
    }
}

/// Passes requests on, and counts them when they are answered.
#[derive(Debug, Clone)]
pub struct Counting<S> {
    inner: S,
    metrics: Metrics,
}

impl<S, B, R> Service<Request<B>> for Counting<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, task: &mut Task<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (method, requests) = (method(request.method()), self.metrics.requests.clone());
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "none".to_owned(), |response| response.status().as_str().to_owned());
            requests.get_or_create(&Asked { method, code }).inc();
            answer
        }
        .boxed()
    }
}

/// The methods that the API server knows.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
