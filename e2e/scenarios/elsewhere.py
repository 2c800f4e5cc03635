"""C40: another cluster with the same names, whose broker has the network of its node."""
import json
import time

import remoting
from house import check, expect, wait_for

from .shop import BROKERS, SHOP, broker_address, make_namespace, tool

METAL = "metal"
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Broker
metadata: {name: main}
spec: {storage: {size: 1Gi, className: growing}, pod: {hostNetwork: true}}
---
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: edge}
spec: {brokerRef: {name: main}, replicas: 1}
---
apiVersion: waybill.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {brokerRef: {name: main}}
---
apiVersion: waybill.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec: {brokerRef: {name: main}}
"""
# From the end of a broker until it is found again, seconds.
LIMIT_S = 60


def announced(*addresses, topic="orders"):
    """The addresses of brokers in the route of a topic, as the brokers at these addresses tell it."""
    found = set()
    for address in addresses:
        answer = remoting.call(address, remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        for one in json.loads(answer.body)["brokerDatas"]:
            found.update(one["brokerAddrs"].values())
    return found


def there_and_back(cluster):
    """Sends a message to the other cluster and receives it there."""
    endpoint = ("--endpoint", f"edge-proxy.{METAL}.svc:8081", "--topic", "orders")
    tool(cluster, "message", "send", *endpoint, "--body", "elsewhere")
    return "elsewhere" in tool(cluster, "message", "receive", *endpoint, "--group", "billing", "--wait", "5s", "--ack")


def stored(cluster):
    """What the brokers of the shop have of the topic."""
    told = [json.loads(tool(cluster, "topic", "describe", "orders", "--broker", broker_address(n))) for n in range(2)]
    return [[queue["nextOffset"] for queue in one["queues"]] for one in told]


@check("host-network", needs=["shop"])
def host_network(cluster):
    """C40: a broker on its node's network announces a name that stays, or another that is said; its volume grows; clusters of the same names do not mix"""
    make_namespace(cluster, METAL)
    before = stored(cluster)
    cluster.apply(MANIFEST, METAL)
    for kind, name in (("brokers", "main"), ("proxies", "edge"), ("topics", "orders"), ("consumergroups", "billing")):
        cluster.wait_ready(kind, METAL, name)
    pod = cluster.pods(METAL, BROKERS)[0]
    expect(pod["status"]["podIP"] == pod["status"]["hostIP"], f"it has an address of its own: {pod['status']}")
    address = broker_address(0, namespace=METAL)
    expect((names := announced(address)) == {address}, f"it is announced as {names}")
    wait_for("a message goes there and back", LIMIT_S, lambda: there_and_back(cluster))
    changed = time.monotonic()
    cluster.api.patch("brokers", METAL, "main", {"spec": {"announcedHost": f"{{pod}}.main-broker.{METAL}.svc.cluster.local", "storage": {"size": "2Gi"}}})
    said = address.replace(".svc:", ".svc.cluster.local:")
    wait_for(lambda: f"it is announced as {said}", LIMIT_S, lambda: announced(address) == {said})
    wait_for("a message goes there and back again", LIMIT_S, lambda: there_and_back(cluster))
    took = time.monotonic() - changed
    expect(took <= LIMIT_S, f"it took {took:.0f} s")
    expect(stored(cluster) == before, "the shop got some of it")
    wait_for("its volume has grown", 90, lambda: [c["status"]["capacity"] for c in cluster.api.list("persistentvolumeclaims", METAL)] == [{"storage": "2Gi"}])
    cluster.kubectl("delete", "namespace", METAL, "--wait=false")
    return f"found again under the other name after {took:.0f} s"
