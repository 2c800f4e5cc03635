"""What the API server refuses, and what it makes of the least that it takes."""
from house import ApiError, check, expect, wait_for

from .shop import OPERATORS, RELEASE, SHOP, make_namespace

BY_MAIN = {"brokerRef": {"name": "main"}}
# Kind, spec, and what the refusal must name.
BAD = [
    ("Broker", {"replicas": -1}, "spec.replicas"),
    ("Broker", {"replicas": "two"}, "replicas"),
    ("Broker", {"storage": {"size": "abc"}}, "spec.storage.size"),
    ("Broker", {"storage": {"reclaim": "Perhaps"}}, "spec.storage.reclaim"),
    ("Broker", {"flush": "Never"}, "spec.flush"),
    ("Broker", {"replica": 1}, "spec.replica"),
    ("Broker", {"batchMaxEntries": 0}, "spec.batchMaxEntries"),
    ("Broker", {"retention": {"hours": 0}}, "spec.retention.hours"),
    ("Broker", {"announcedHost": "127.0.0.1"}, "spec.announcedHost"),
    ("Broker", {"replicas": 2, "announcedHost": "broker.example"}, "spec: Invalid value"),
    ("Broker", {"pod": {"hostnetwork": True}}, "spec.pod.hostnetwork"),
    ("Proxy", {}, "spec: Invalid value"),
    ("Proxy", {**BY_MAIN, "nameServers": ["a:9876"]}, "spec: Invalid value"),
    ("Proxy", {"nameServers": ["no port"]}, "spec.nameServers[0]"),
    ("Proxy", {**BY_MAIN, "replicas": -1}, "spec.replicas"),
    ("Proxy", {**BY_MAIN, "autoscaling": {"minReplicas": 3, "maxReplicas": 2}}, "spec.autoscaling"),
    ("Proxy", {**BY_MAIN, "autoscaling": {}}, "spec.autoscaling.maxReplicas"),
    ("Proxy", {**BY_MAIN, "batch": {"maxEntries": 0}}, "spec.batch.maxEntries"),
    ("Proxy", {**BY_MAIN, "renewal": {"defaultInvisibleTimeMills": 1}}, "spec.renewal.defaultInvisibleTimeMills"),
    ("Proxy", {**BY_MAIN, "shutdown": {"policy": "Run"}}, "spec.shutdown.policy"),
    ("Topic", {}, "spec.brokerRef"),
    ("Topic", {**BY_MAIN, "messageType": "LIFO"}, "spec.messageType"),
    ("Topic", {**BY_MAIN, "queues": 0}, "spec.queues"),
    ("Topic", {**BY_MAIN, "topicName": "TBW102"}, "spec.topicName"),
    ("Topic", {**BY_MAIN, "queue": 8}, "spec.queue"),
    ("ConsumerGroup", {}, "spec.brokerRef"),
    ("ConsumerGroup", {**BY_MAIN, "consumeTimeoutMinutes": 0}, "spec.consumeTimeoutMinutes"),
    ("ConsumerGroup", {**BY_MAIN, "retry": {"delaysMs": [1000], "exponential": {}}}, "spec.retry"),
    ("ConsumerGroup", {**BY_MAIN, "leases": {"batchMax": 0}}, "spec.leases.batchMax"),
    ("ConsumerGroup", {**BY_MAIN, "leases": {"renew": "off"}}, "spec.leases.renew"),
    ("User", {}, "spec: Invalid value"),
    ("User", {**BY_MAIN, "proxyRef": {"name": "edge"}}, "spec: Invalid value"),
    ("User", {**BY_MAIN, "accessKey": "a b"}, "spec.accessKey"),
    ("User", {**BY_MAIN, "permissions": [{"topic": "orders"}]}, "spec.permissions[0]"),
    ("User", {**BY_MAIN, "permissions": [{"group": "billing", "actions": ["PUB"]}]}, "spec.permissions[0]"),
]
# Kind, name, a change of what is there, and what the refusal must name.
IMMUTABLE = [
    ("Broker", "main", {"storage": {"size": "1Mi"}}, "spec.storage.size"),
    ("Broker", "main", {"storage": {"className": "another"}}, "spec.storage"),
    ("Topic", "orders", {"brokerRef": {"name": "another"}}, "spec.brokerRef"),
    ("Topic", "orders", {"topicName": "another"}, "spec"),
    ("ConsumerGroup", "billing", {"brokerRef": {"name": "another"}}, "spec.brokerRef"),
]
PLURALS = {"Broker": "brokers", "Proxy": "proxies", "Topic": "topics", "ConsumerGroup": "consumergroups", "User": "users"}


def manifest(kind, name, spec):
    return {"apiVersion": "waybill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def refusal(call, what):
    """Why the API server said no."""
    try:
        call()
    except ApiError as e:
        expect(e.code in (400, 422), lambda: f"{what}: answered {e}")
        return e.message
    return expect(False, f"{what}: it was taken")


@check("bad-resources", needs=["shop"])
def bad_resources(cluster):
    """Bad resources of each kind, and changes of what cannot be changed, are refused with the path of the field (C43)"""
    api, tried = cluster.api, {"dryRun": "All", "fieldValidation": "Strict"}
    for kind, spec, path in BAD:
        where = api.path(PLURALS[kind], SHOP, **tried)
        why = refusal(lambda: api.call("POST", where, manifest(kind, "bad", spec)), f"{kind} {spec}")
        expect(path in why, f"{kind} {spec}: {path} is not named: {why}")
    for kind, name, change, path in IMMUTABLE:
        where = api.path(PLURALS[kind], SHOP, name, **tried)
        why = refusal(lambda: api.call("PATCH", where, {"spec": change}, "application/merge-patch+json"), f"{kind} {name} {change}")
        expect(path in why, f"{kind} {name} {change}: {path} is not named: {why}")
    return f"{len(BAD) + len(IMMUTABLE)} refused"


@check("least-resources", needs=["shop"])
def least_resources(cluster):
    """C43: the least of each kind that is legal gets its defaults and a whole status; its namespace can be deleted at once"""
    make_namespace(cluster, "least")
    api = cluster.api
    least = (("Broker", {"storage": {"ephemeral": True}}), ("Proxy", {**BY_MAIN, "accessControl": {"authentication": True}}), ("Topic", BY_MAIN),
             ("ConsumerGroup", BY_MAIN), ("User", BY_MAIN))
    for kind, spec in least:
        made = api.create(PLURALS[kind], "least", manifest(kind, "main", spec))
        expect(len(made["spec"]) > len(spec), f"{kind}: no default is to be seen: {made['spec']}")
    for kind in ("brokers", "proxies", "topics", "consumergroups", "users"):
        cluster.wait_ready(kind, "least", "main")
        status = api.get(kind, "least", "main")["status"]
        expect({c["type"] for c in status["conditions"]} >= {"Ready", "Progressing", "Degraded"}, f"{kind}: conditions are missing: {status}")
    for pod in cluster.pods(RELEASE, OPERATORS):
        said = cluster.kubectl("logs", "-n", RELEASE, pod["metadata"]["name"])
        expect("status" not in "".join(line for line in said.splitlines() if "ERROR" in line), f"the operator could not write a status: {said}")
    cluster.kubectl("delete", "namespace", "least", "--wait=false")
    wait_for("the namespace is gone", 120, lambda: api.get("namespaces", None, "least") is None)
