//! The operator as it runs: watches and controllers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use waybill_operator::api::Reason;
use waybill_operator::{Scope, run};

use crate::fake_api::{FakeApi, Fault};
use crate::rig::{GROUPS, Rig, TOPICS, TestBroker, broker, group, topic};

struct Running {
    rig: Arc<Rig>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(rig: Rig, scope: Scope) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(scope, rig.context(), stop.clone()));
        Self { rig: Arc::new(rig), stop, task }
    }

    async fn until_applied(&self, plural: &'static str, name: &str, brokers: i64) {
        let ready = |api: &FakeApi| {
            api.get(plural, name).is_some_and(|object| {
                let status = &object["status"];
                status["appliedBrokers"] == json!(brokers)
                    && status["conditions"][0]["reason"] == json!(Reason::Applied)
            })
        };
        self.rig.api.until(&format!("{plural} {name} on {brokers} brokers"), ready).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends by itself");
    }
}

#[tokio::test]
async fn topics_and_groups_that_come_while_it_runs_get_to_all_brokers_and_to_new_ones() {
    let (one, two) = (TestBroker::start().await, TestBroker::start().await);
    let rig = Rig::new([one.address.as_str(), &two.address]);
    rig.scale(1);
    rig.api.put(&topic("early", json!({})));
    let operator = Running::start(rig, Scope::Cluster);
    operator.until_applied(TOPICS, "early", 1).await;
    operator.rig.api.put(&topic("late", json!({ "deletionPolicy": "Delete" })));
    operator.rig.api.put(&group("billing", json!({})));
    operator.until_applied(TOPICS, "late", 1).await;
    operator.until_applied(GROUPS, "billing", 1).await;
    operator.rig.scale(2);
    for name in ["early", "late"] {
        operator.until_applied(TOPICS, name, 2).await;
        assert!(two.topic(name).is_some());
    }
    operator.until_applied(GROUPS, "billing", 2).await;
    operator.rig.api.delete(TOPICS, "late");
    operator.rig.api.until("it goes", |api| api.get(TOPICS, "late").is_none()).await;
    assert!(one.topic("late").is_none() && two.topic("late").is_none() && two.topic("early").is_some());
    operator.stop().await;
}

#[tokio::test]
async fn it_sees_what_happened_while_its_watches_were_lost() {
    let broker = TestBroker::start().await;
    let operator = Running::start(Rig::new([broker.address.as_str()]), Scope::Cluster);
    operator.rig.api.put(&topic("one", json!({})));
    operator.until_applied(TOPICS, "one", 1).await;
    for code in [410, 429, 500] {
        let name = format!("topic-{code}");
        operator.rig.api.fail(Fault { method: "GET", path: "/topics", code, times: 1 });
        operator.rig.api.lose_history();
        operator.rig.api.put(&topic(&name, json!({})));
        operator.until_applied(TOPICS, &name, 1).await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn it_ends_when_it_is_told_to_also_if_it_never_got_a_list() {
    let rig = Rig::new([]);
    rig.api.fail(Fault { method: "GET", path: "/topics", code: 500, times: 1_000_000 });
    let (stop, mut context) = (CancellationToken::new(), rig.context());
    context.pace.stopping = Duration::from_millis(1);
    let task = tokio::spawn(run(Scope::Cluster, context, stop.clone()));
    rig.api.until_faulty().await;
    stop.cancel();
    task.await.expect("it ends by itself");
}

#[tokio::test]
async fn of_other_namespaces_it_knows_nothing() {
    let served = TestBroker::start().await;
    let rig = Rig::new([served.address.as_str()]);
    let mut elsewhere = topic("orders", json!({}));
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    rig.api.put(&elsewhere);
    let mut theirs = broker("main", 1);
    theirs["metadata"]["namespace"] = json!("elsewhere");
    rig.api.put(&theirs);
    let operator = Running::start(rig, Scope::Namespaces(vec!["default".to_owned()]));
    operator.rig.api.put(&topic("mine", json!({})));
    operator.until_applied(TOPICS, "mine", 1).await;
    operator.stop().await;
    assert!(served.topic("orders").is_none() && served.topic("mine").is_some());
}
