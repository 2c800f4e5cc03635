//! Brokers, an API server, and what the operator does between them when it is told to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube::runtime::controller::Action;
use kube::runtime::{reflector, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use waybill_broker::{Broker, BrokerConfig, Peer};
use waybill_operator::admin::{Hanging, Limits};
use waybill_operator::api::{AppliedStatus, Condition, ConditionType, ConsumerGroup, ImagePullPolicy, Reason, Topic};
use waybill_operator::build::Images;
use waybill_operator::metrics::Metrics;
use waybill_operator::reconcile::{
    ApiError, Context, Deleting, Events, Kind, OnBrokers, Pace, count_groups, reconcile, reconcile_broker,
};
use waybill_operator::term::Term;
use waybill_ops::clock::ManualClock;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{self, Command, SendMessageRequestHeader, SubscriptionGroupConfig, TopicConfig};

use crate::cluster::{Cluster, Sick};
use crate::fake_api::FakeApi;

pub(crate) const START_MS: i64 = 1_800_000_000_000;
pub(crate) const TOPICS: &str = "topics";
pub(crate) const GROUPS: &str = "consumergroups";

pub(crate) struct TestBroker {
    pub(crate) broker: Arc<Broker>,
    pub(crate) address: String,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl TestBroker {
    pub(crate) async fn start() -> Self {
        Self::named("broker-a").await
    }

    pub(crate) async fn named(name: &str) -> Self {
        Self::with(name, |_| {}).await
    }

    pub(crate) async fn with(name: &str, adjust: impl FnOnce(&mut BrokerConfig)) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let mut config = BrokerConfig {
            broker_name: name.to_owned(),
            store_path_root_dir: dir.path().to_owned(),
            mapped_file_size_commit_log: 1 << 20,
            max_message_size: 1 << 16,
            ..BrokerConfig::default()
        };
        adjust(&mut config);
        let broker = Broker::open(config).expect("a broker");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let stop = CancellationToken::new();
        let (serving, stopping) = (broker.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopping).await });
        Self { broker, address, stop, _dir: dir }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<TopicConfig> {
        self.broker.core().catalog().topic(name).map(|topic| topic.config.clone())
    }

    pub(crate) fn group(&self, name: &str) -> Option<SubscriptionGroupConfig> {
        self.broker.core().catalog().group(name).map(|group| group.config.clone())
    }

    /// The counts of the requests that create or change topics and groups: they rise also if nothing changes.
    pub(crate) fn changes(&self) -> Vec<String> {
        let mut text = String::new();
        let registry = self.broker.metrics().registry();
        prometheus_client::encoding::text::encode(&mut text, &registry.lock()).expect("text");
        let codes = [request::UPDATE_AND_CREATE_TOPIC, request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP];
        let counts = |line: &&str| codes.iter().any(|code| line.contains(&format!("request_code=\"{code}\"")));
        text.lines().filter(counts).map(str::to_owned).collect()
    }

    /// Somebody changes a topic behind the operator's back.
    pub(crate) async fn set_queues(&self, name: &str, queues: i32) {
        let set = |old: Option<&TopicConfig>| {
            Ok(TopicConfig { write_queue_nums: queues, read_queue_nums: queues, ..old.cloned().expect("it is there") })
        };
        self.broker.core().put_topic(name, set).await.expect("set");
    }

    /// Somebody changes an attribute of a topic behind the operator's back; None takes it away.
    pub(crate) async fn set_attribute(&self, name: &str, key: &str, value: Option<&str>) {
        let set = |old: Option<&TopicConfig>| {
            let mut config = old.cloned().expect("it is there");
            match value {
                Some(value) => config.attributes.insert(key.to_owned(), value.to_owned()),
                None => config.attributes.remove(key),
            };
            Ok(config)
        };
        self.broker.core().put_topic(name, set).await.expect("set");
    }

    pub(crate) async fn send(&self, topic: &str) {
        assert_eq!(self.send_with(topic, 0, "").await, response::SUCCESS);
    }

    /// Sends a message with these flags and further properties (`NAME\u{1}value\u{2}`); answers the code of the answer.
    pub(crate) async fn send_with(&self, topic: &str, sys_flag: i32, more: &str) -> i32 {
        let header = SendMessageRequestHeader {
            producer_group: "p".into(),
            topic: topic.into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 4,
            queue_id: 0,
            sys_flag,
            born_timestamp: START_MS,
            properties: Some(format!("UNIQ_KEY\u{1}0100000000000000000000000000000001\u{2}{more}")),
            ..Default::default()
        };
        let command = Command::request(request::SEND_MESSAGE_V2).with_header(&header);
        let answer = self.broker.handle(&Peer::local(), command.with_body(Bytes::from_static(b"one"))).await;
        answer.expect("an answer").code
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Somebody who answers every request with `code`.
pub(crate) async fn refuse_all(code: i32, remark: &'static str) -> String {
    answer_all(move |_asked| Command::response(code, remark)).await
}

/// Somebody who answers as the test says.
pub(crate) async fn answer_all(answer: impl Fn(&Command) -> Command + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = bytes::BytesMut::new();
            while stream.read_buf(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                while let Ok(Some(asked)) = remoting::decode(&mut read, remoting::DEFAULT_MAX_FRAME) {
                    let mut frame = bytes::BytesMut::new();
                    remoting::encode(&answer(&asked).reply_to(&asked), &mut frame);
                    let _closed = stream.write_all(&frame).await;
                }
            }
        }
    });
    address
}

/// An address where nobody is.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").to_string()
}

pub(crate) struct Rig {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) api: FakeApi,
    pub(crate) addresses: Arc<Mutex<Vec<String>>>,
    pub(crate) sick: Sick,
    pub(crate) deleting: Deleting,
}

impl Rig {
    /// A Broker "main" whose brokers are at these addresses.
    pub(crate) fn new<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let addresses: Vec<String> = addresses.into_iter().map(str::to_owned).collect();
        let rig = Self {
            api: FakeApi::new(clock.clone()),
            clock,
            addresses: Arc::default(),
            sick: Sick::default(),
            deleting: Deleting::default(),
        };
        rig.scale(addresses.len());
        *rig.addresses.lock() = addresses;
        rig
    }

    /// The Broker "main" has so many replicas.
    pub(crate) fn scale(&self, replicas: usize) {
        self.api.put(&broker("main", replicas));
    }

    pub(crate) fn context(&self) -> Context {
        let client = self.api.client();
        let addresses = self.addresses.clone();
        Context {
            events: Events::new(client.clone()),
            client,
            clock: self.clock.clone(),
            limits: Limits::default(),
            hanging: Hanging::default(),
            deleting: self.deleting.clone(),
            term: Term::default(),
            address: Arc::new(move |_broker, number| {
                let number = usize::try_from(number).expect("a number");
                addresses.lock().get(number).cloned().unwrap_or_else(|| "127.0.0.1:1".to_owned())
            }),
            configuration: self.cluster().asked(),
            images: Images {
                broker: "waybill-broker:1".to_owned(),
                sidecar: "waybill-sidecar:1".to_owned(),
                pull_policy: ImagePullPolicy::IfNotPresent,
            },
            metrics: Metrics::default(),
            pace: Pace { settling: Duration::from_millis(1), leaving: Duration::ZERO, ..Pace::default() },
        }
    }

    /// The rest of Kubernetes, as far as pods go.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { api: self.api.clone(), sick: self.sick.clone() }
    }

    /// One reconciliation of the Broker "main".
    pub(crate) async fn broker(&self) -> Action {
        self.broker_or_error().await.expect("the API server is well")
    }

    pub(crate) async fn broker_or_error(&self) -> Result<Action, ApiError> {
        let broker = Arc::new(self.api.typed("brokers", "main"));
        reconcile_broker(broker, Arc::new(self.context())).await
    }

    /// Reconciliations of the Broker "main" and what the rest of Kubernetes does, until both do nothing any more.
    pub(crate) async fn settle(&self) -> Action {
        for _round in 0..20 {
            let writes = self.api.writes().len();
            let next = self.broker().await;
            if !self.cluster().acts() && self.api.writes().len() == writes {
                return next;
            }
        }
        panic!("it does not settle: {:#?}", self.api.writes());
    }

    /// One reconciliation, as the controller would do it.
    pub(crate) async fn reconcile<K>(&self, plural: &str, name: &str) -> Result<Action, ApiError>
    where
        K: OnBrokers,
    {
        self.reconcile_this(self.api.typed::<K>(plural, name)).await
    }

    /// One of a resource as it was read at some time.
    pub(crate) async fn reconcile_this<K: OnBrokers>(&self, object: K) -> Result<Action, ApiError> {
        reconcile(Arc::new(object), Arc::new(self.kind())).await
    }

    /// What reconciliations of a kind know.
    fn kind<K: OnBrokers>(&self) -> Kind<K> {
        let (known, mut writer) = reflector::store();
        let plural = K::plural(&());
        for object in self.api.all(&plural) {
            let object: K = serde_json::from_value(object).expect("its type");
            writer.apply_watcher_event(&watcher::Event::Apply(object));
        }
        Kind { context: self.context(), known }
    }

    /// Counts once what groups have before them.
    pub(crate) async fn count_groups(&self) {
        count_groups(&self.kind()).await;
    }

    pub(crate) async fn topic(&self, name: &str) -> Action {
        self.reconcile::<Topic>(TOPICS, name).await.expect("the API server is well")
    }

    pub(crate) async fn group(&self, name: &str) -> Action {
        self.reconcile::<ConsumerGroup>(GROUPS, name).await.expect("the API server is well")
    }

    pub(crate) fn status(&self, plural: &str, name: &str) -> AppliedStatus {
        serde_json::from_value(self.api.get(plural, name).expect("it is there")["status"].clone()).expect("a status")
    }

    /// Which condition holds, and why.
    pub(crate) fn told(&self, plural: &str, name: &str) -> (ConditionType, Reason, String) {
        let status = &self.api.get(plural, name).expect("it is there")["status"];
        let conditions: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).expect("conditions");
        let holding: Vec<_> = conditions
            .iter()
            .filter(|condition| condition.status == waybill_operator::api::ConditionStatus::True)
            .collect();
        let [one] = holding.as_slice() else { panic!("not one condition that holds: {status:#?}") };
        (one.kind, one.reason, one.message.clone())
    }
}

pub(crate) fn broker(name: &str, replicas: usize) -> Value {
    json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "Broker", "metadata": { "name": name },
            "spec": { "replicas": replicas } })
}

/// What a person writes; `spec` without the reference to the Broker "main".
pub(crate) fn topic(name: &str, spec: Value) -> Value {
    resource("Topic", name, spec)
}

pub(crate) fn group(name: &str, spec: Value) -> Value {
    resource("ConsumerGroup", name, spec)
}

fn resource(kind: &str, name: &str, mut spec: Value) -> Value {
    if spec["brokerRef"].is_null() {
        spec["brokerRef"] = json!({ "name": "main" });
    }
    json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// What the operator does next when nothing happens.
pub(crate) fn after(seconds: u64) -> Action {
    Action::requeue(Duration::from_secs(seconds))
}
