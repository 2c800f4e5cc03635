"""Pods are deleted, scaled and replaced while published clients are at work."""
import json
import time

from house import CLUSTER, ROOT, check, expect, wait_for
from load import Load

from .configuration import identities, metrics, push_client, send
from .elsewhere import announced
from .shop import APPS, BROKERS, ENDPOINT, GROUP, OPERATORS, PROXIES, RELEASE, SHOP, TOPIC, broker_address, make_namespace, new_group, new_topic, tool

# Within which clients go on after whatever happens to pods, seconds.
GAP_S = 30
NEXT_TAG = "next"


class Work:
    """What goes on during all checks of this file."""
    load = None


@check("load", needs=["shop"])
def load(cluster):
    """Published clients send and receive through the Service of the proxies"""
    make_namespace(cluster, APPS)
    Work.load = Load(cluster, APPS, "load", ENDPOINT, TOPIC, GROUP)


def recovered(cluster, since, what):
    """Both brokers and proxies are ready again, and the clients went on."""
    cluster.wait_pods(SHOP, BROKERS, 2)
    cluster.wait_pods(SHOP, PROXIES, 2)
    Work.load.wait_flows(max(since, time.time() - 1))
    return Work.load.expect_gap(since, GAP_S, what)


def delete(cluster, namespace, pods):
    for pod in pods:
        cluster.api.delete("pods", namespace, pod["metadata"]["name"])
    for pod in pods:
        wait_for(f"{pod['metadata']['name']} is gone", 60, lambda: (cluster.api.get("pods", namespace, pod["metadata"]["name"]) or {
            "metadata": {"uid": None}})["metadata"]["uid"] != pod["metadata"]["uid"])


@check("pods-deleted", needs=["load"])
def pods_deleted(cluster):
    """Each proxy and each broker is deleted, one by one and all at once: clients go on within 30 s, by names that stay (C40)"""
    gaps = {}
    for kind, selector, other in (("proxy", PROXIES, BROKERS), ("broker", BROKERS, PROXIES)):
        untouched = identities(cluster, other)
        for number, pod in enumerate(cluster.wait_pods(SHOP, selector, 2)):
            since = time.time()
            delete(cluster, SHOP, [pod])
            gaps[f"{kind} {number}"] = recovered(cluster, since, f"{pod['metadata']['name']} deleted")
        expect(identities(cluster, other) == untouched, f"others were started again when each {kind} was deleted")
    since = time.time()
    delete(cluster, SHOP, cluster.pods(SHOP, BROKERS) + cluster.pods(SHOP, PROXIES))
    gaps["all"] = recovered(cluster, since, "all pods deleted at once")
    addresses = [broker_address(n) for n in range(2)]
    expect((names := announced(*addresses, topic=TOPIC)) == set(addresses), f"brokers are announced as {names}")
    return "longest pauses: " + ", ".join(f"{what} {gap:.1f} s" for what, gap in gaps.items())


@check("scale", needs=["load"])
def scale(cluster):
    """kubectl scale of Broker and Proxy up and down under load: clients go on"""
    since = time.time()
    cluster.kubectl("scale", "-n", SHOP, "broker/main", "proxy/edge", "--replicas=3")
    cluster.wait_pods(SHOP, BROKERS, 3)
    cluster.wait_pods(SHOP, PROXIES, 3)
    wait_for("the new broker has the topic and gets messages", 60, lambda: stored_on(cluster, 2), every=1)
    cluster.kubectl("scale", "-n", SHOP, "proxy/edge", "--replicas=1")
    cluster.wait_pods(SHOP, PROXIES, 1)
    cluster.kubectl("scale", "-n", SHOP, "broker/main", "proxy/edge", "--replicas=2")
    cluster.wait_pods(SHOP, BROKERS, 2, 240)  # consumers of a slow machine may be far behind
    return f"longest pause {recovered(cluster, since, 'scaled up and down'):.1f} s"


def stored_on(cluster, number):
    """How many messages of the topic the broker has got."""
    told = json.loads(tool(cluster, "topic", "describe", TOPIC, "--broker", broker_address(number)))
    return sum(queue["nextOffset"] for queue in told["queues"])


@check("upgrade", needs=["load"])
def upgrade(cluster):
    """helm upgrade with other images and other limits under load: pods are replaced one by one, clients go on"""
    renamed = set()
    for pod in cluster.pods(SHOP, BROKERS) + cluster.pods(SHOP, PROXIES) + cluster.pods(RELEASE, OPERATORS):
        image = pod["spec"]["containers"][0]["image"]
        if image not in renamed:  # the same image by another name, which is what a Kubernetes looks at
            renamed.add(image)
            full = f"docker.io/library/{image}"
            cluster.command(CLUSTER / "inside", "--all", "ctr", "-n", "k8s.io", "images", "tag", full, f"{full.rpartition(':')[0]}:{NEXT_TAG}")
    since = time.time()
    cluster.command("helm", "upgrade", RELEASE, ROOT / "charts" / "waybill", "--namespace", RELEASE, "--reuse-values",
                    "--set", f"image.tag={NEXT_TAG}", "--set", "operator.resources.limits.memory=160Mi", "--wait", "--timeout", "120s")

    def replaced():
        pods = cluster.pods(SHOP, BROKERS) + cluster.pods(SHOP, PROXIES)
        return len(pods) == 4 and all(pod["spec"]["containers"][0]["image"].endswith(f":{NEXT_TAG}") for pod in pods)

    wait_for("all pods have the new image", 120, replaced)
    return f"longest pause {recovered(cluster, since, 'upgraded'):.1f} s"


@check("nothing-lost", needs=["load"])
def nothing_lost(cluster):
    """Of all that was answered OK during all of this, nothing was lost"""
    wait_for("the ConsumerGroup tells of its members", 90, lambda: cluster.api.get("consumergroups", SHOP, GROUP)["status"]["members"] >= 2)
    sent, again = Work.load.finish()
    return f"{sent} sent, {again} came more than once"


@check("proxy-dies", needs=["shop"])
def proxy_dies(cluster):
    """C02: the proxy that renews a message dies while its consumer works on: it is acknowledged through another, and never comes again"""
    new_topic(cluster, "contracts")
    new_group(cluster, "lawyers")
    book = push_client(cluster, "lawyers", "contracts", "lawyers", hold=30)
    send(cluster, "contracts", 1)
    wait_for("it came", 30, lambda: book.ids("got"))
    began = time.monotonic()

    def serving():
        """The one proxy that holds something."""
        found = [p for p in cluster.pods(SHOP, PROXIES) if metrics(f"{p['status']['podIP']}:8082").get("waybill_sidecar_receipts_held")]
        return len(found) == 1 and found

    holder = wait_for("one proxy holds something", 10, serving)[0]
    time.sleep(max(0.0, 15 - (time.monotonic() - began)))
    cluster.api.delete("pods", SHOP, holder["metadata"]["name"], grace_s=0)
    wait_for("its consumer was done", 60, lambda: book.ids("acked"))
    label = '{topic="contracts",consumer_group="lawyers"}'

    def open_messages():
        return sum(metrics(broker_address(n).replace("10911", "10915")).get(f"rocketmq_consumer_lag_messages{label}", 0) for n in range(2))

    wait_for(lambda: f"it is acknowledged, {open_messages()} are open", 20, lambda: open_messages() == 0)
    time.sleep(15)  # longer than the lease
    expect(sum(book.ids("got").values()) == 1, lambda: f"it came {sum(book.ids('got').values())} times")
    cluster.kubectl("delete", "pod", "-n", APPS, "lawyers", "--grace-period=1")
    cluster.wait_pods(SHOP, PROXIES, 2)
