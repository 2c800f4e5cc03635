"""C41: a broker that still has messages is taken away."""
import time

from house import check, expect, wait_for
from load import RESULTS, Book, client, pod_spec

from .shop import APPS, OPERATORS, RELEASE, SHOP, make_namespace

THREE = "app.kubernetes.io/name=waybill-broker,app.kubernetes.io/instance=depot"
ENDPOINT = f"depot-proxy.{SHOP}.svc:8081"
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Broker
metadata: {name: depot}
spec: {replicas: 3, storage: {size: 1Gi}}
---
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: depot}
spec: {brokerRef: {name: depot}}
---
apiVersion: waybill.dev/v1alpha1
kind: Topic
metadata: {name: depot}
spec: {brokerRef: {name: depot}, messageType: MIXED}
---
apiVersion: waybill.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: depot}
spec: {brokerRef: {name: depot}}
"""
# A third of each is on the broker that goes.
UNREAD, DELAYED, HALVES = 3000, 300, 30
DELAY_S, COMMIT_S, HOLD_S = 30, 25, 12


def start(cluster, name, work, **options):
    command = client(work, name, ENDPOINT, topic="depot", **options)
    cluster.api.create("pods", APPS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"load": "depot"}},
                                      "spec": {**pod_spec(command), "restartPolicy": "Never"}})
    return Book(name)


@check("broker-taken-away", needs=["install"])
def broker_taken_away(cluster):
    """C41: the last of three brokers, with messages unread, held, delayed and half, is drained before it goes; its volume stays"""
    make_namespace(cluster, SHOP)
    make_namespace(cluster, APPS)
    RESULTS.mkdir(exist_ok=True)
    cluster.apply(MANIFEST, SHOP)
    for kind in ("brokers", "proxies", "topics", "consumergroups"):
        cluster.wait_ready(kind, SHOP, "depot")
    unread = [start(cluster, f"depot-unread-{n}", "produce", count=UNREAD // 3, rate=1000) for n in range(3)]
    delayed = start(cluster, "depot-delayed", "produce", count=DELAYED, rate=500, delay=DELAY_S)
    halves = start(cluster, "depot-halves", "halves", count=HALVES, hold=COMMIT_S)
    sent = [*unread, delayed, halves]
    wait_for("all are sent", 120, lambda: sum(len(book.ids("sent")) for book in (*unread, delayed)) == UNREAD + DELAYED and len(halves.ids("half")) == HALVES)
    # What these get first, they hold for a while.
    got = [start(cluster, f"depot-consumer-{n}", "consume", group="depot", hold=HOLD_S) for n in range(3)]
    wait_for("some are held", 60, lambda: sum(len(book.ids("got")) for book in got) >= 90)
    cluster.kubectl("scale", "-n", SHOP, "broker/depot", "--replicas=2")
    wait_for(lambda: f"it says what it waits for: {cluster.condition('brokers', SHOP, 'depot', 'Progressing')}", 90,
             lambda: cluster.condition("brokers", SHOP, "depot", "Progressing")[1] == "DrainingBroker")
    for pod in cluster.pods(RELEASE, OPERATORS):
        cluster.api.delete("pods", RELEASE, pod["metadata"]["name"], grace_s=0)
    time.sleep(5)
    expect(len(cluster.pods(SHOP, THREE)) == 3, "it went with what it had")
    why = cluster.condition("brokers", SHOP, "depot", "Progressing")[2]
    got += [start(cluster, f"depot-fast-{n}", "consume", group="depot") for n in range(2)]

    def left():
        return {one for book in sent for one in book.ids("sent")} - {one for book in got for one in book.ids("acked")}

    cluster.wait_pods(SHOP, THREE, 2, 300)
    total = sum(len(book.ids("sent")) for book in sent)
    expect(total == UNREAD + DELAYED + HALVES, f"{total} were sent")
    wait_for(lambda: f"all of {total} came, {len(left())} did not", 60, lambda: not left(), every=1)
    claims = [c["metadata"]["name"] for c in cluster.api.list("persistentvolumeclaims", SHOP) if c["metadata"]["name"].endswith("depot-broker-2")]
    expect(len(claims) == 1, f"its volume is gone: {claims}")
    cluster.kubectl("delete", "pods", "-n", APPS, "-l", "load=depot", "--grace-period=1")
    cluster.kubectl("delete", "-n", SHOP, "broker/depot", "proxy/depot", "topic/depot", "consumergroup/depot")
    return f"{total} came; it waited for {why}"
