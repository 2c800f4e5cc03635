"""What is changed in a resource counts in pods that run."""
import concurrent.futures
import re
import time
import urllib.request

from house import check, condition_of, expect, wait_for
from load import Book, client, pod_spec

from .shop import APPS, BROKERS, ENDPOINT, PROXIES, SHOP, make_namespace, new_group, new_topic, restarts, tool

# From `kubectl apply` until it counts, seconds.
LIMIT_S = 10
# The same when all operators are killed at that moment.
KILLED_LIMIT_S = 30
HELD = 12
# A lease of 10 s that is renewed 8 s before its end, as the Proxy of the shop says.
FIRST_RENEWAL_S = 2


def metrics(address):
    """The samples of an admin port: name with labels → number."""
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", page, re.MULTILINE)}


def of_proxies(cluster, *names):
    """The sums of these samples over all proxies."""
    pages = [metrics(f"{pod['status']['podIP']}:8082") for pod in cluster.pods(SHOP, PROXIES)]
    return tuple(sum(page.get(name, 0) for page in pages) for name in names)


def identities(cluster, *selectors):
    return {(pod["metadata"]["uid"], restarts(pod)) for selector in selectors for pod in cluster.pods(SHOP, selector)}


def send(cluster, topic, count):
    """All at the same time, so that they come to be renewed together."""
    with concurrent.futures.ThreadPoolExecutor(count) as sending:
        list(sending.map(lambda n: tool(cluster, "message", "send", "--endpoint", ENDPOINT, "--topic", topic, "--body", f"message {n}"), range(count)))


def in_force(what, applied, look):
    """Waits until `look` sees it; how many seconds after `applied` it began to look then. On a slow machine a look takes its time, but one that
    begins more than LIMIT_S after must see it."""
    while True:
        began = time.monotonic() - applied
        if look():
            return began
        expect(began <= LIMIT_S, f"not within {LIMIT_S} s: {what}")
        time.sleep(0.3)


def push_client(cluster, name, topic, group, hold):
    """A push consumer in a pod; what it saw."""
    make_namespace(cluster, APPS)
    command = client("push", name, ENDPOINT, topic=topic, group=group, hold=hold)
    cluster.api.create("pods", APPS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                                      "spec": {**pod_spec(command, grace_s=1), "restartPolicy": "Never"}})
    book = Book(name)
    wait_for(f"{name} started", 90, lambda: any(what == "started" for _, what, _ in book.lines()))
    return book


@check("group-settings", needs=["shop"], calm="it measures seconds")
def group_settings(cluster):
    """kubectl apply of a ConsumerGroup with a batch limit and renewal off counts in the running sidecars within 10 s, no restart"""
    new_topic(cluster, "parcels")
    new_group(cluster, "shipping")
    push_client(cluster, "shipping", "parcels", "shipping", hold=600)
    before = identities(cluster, BROKERS, PROXIES)
    entries = 'waybill_sidecar_lease_request_entries_{}{{kind="Change",caller="Renewal"}}'
    sizes = (entries.format("sum"), entries.format("count"))

    def mean_size():
        """Of requests that renew new messages; 0 if there was none."""
        held, first = of_proxies(cluster, "waybill_sidecar_receipts_held")[0], of_proxies(cluster, *sizes)
        send(cluster, "parcels", HELD)
        wait_for(f"{HELD} more are held", 90, lambda: of_proxies(cluster, "waybill_sidecar_receipts_held")[0] >= held + HELD)
        time.sleep(FIRST_RENEWAL_S + 1)
        leases, requests = (b - a for a, b in zip(first, of_proxies(cluster, *sizes)))
        return leases / requests if requests else 0

    wait_for("many are renewed with one request", 120, lambda: mean_size() > 2)
    applied = time.monotonic()
    new_group(cluster, "shipping", leases="{batchMax: 2}")
    limit_s = in_force("a request renews two at most", applied, lambda: 0 < mean_size() <= 2)
    applied = time.monotonic()
    new_group(cluster, "shipping", leases="{batchMax: 2, renew: false}")

    def kept():
        send(cluster, "parcels", 1)
        return of_proxies(cluster, "waybill_sidecar_receipts_kept")[0] > 0

    switch_s = in_force("what comes now is not renewed", applied, kept)
    expect(identities(cluster, BROKERS, PROXIES) == before, "a pod was started again")
    cluster.kubectl("delete", "pod", "-n", APPS, "shipping", "--grace-period=1")
    return f"the limit within {limit_s:.1f} s, the switch within {switch_s:.1f} s"


@check("proxy-settings", needs=["shop"], calm="it measures seconds, and kills all of them itself")
def proxy_settings(cluster):
    """A changed switch of a Proxy is in force in all its pods within 10 s, 30 s if all operators are killed at that moment, without a restart, and status says so"""
    before = identities(cluster, PROXIES)
    applied = time.monotonic()
    changed = cluster.api.patch("proxies", SHOP, "edge", {"spec": {"batch": {"enableBatchAck": True, "maxEntries": 512}}})

    def all_have(entries):
        for pod in cluster.pods(SHOP, PROXIES):
            page = urllib.request.urlopen(f"http://{pod['status']['podIP']}:8082/config", timeout=10).read().decode()
            if not re.search(rf'"batchChangeInvisibleTimeMaxNum"[^}}]*\b{entries}\b', page):
                return False
        return True

    in_force_s = in_force("all pods have it", applied, lambda: all_have(512))
    generation = changed["metadata"]["generation"]

    def told():
        pods = cluster.api.get("proxies", SHOP, "edge")["status"].get("pods", [])
        return len(pods) == 2 and all(pod.get("appliedGeneration", 0) >= generation for pod in pods)

    wait_for(lambda: f"status tells it of each pod: {cluster.api.get('proxies', SHOP, 'edge')['status']}", 30, told)
    cluster.killer.kill_all()
    applied = time.monotonic()
    cluster.api.patch("proxies", SHOP, "edge", {"spec": {"batch": {"maxEntries": 384}}})
    wait_for("all pods have it though the operators were killed", KILLED_LIMIT_S, lambda: all_have(384))
    expect(identities(cluster, PROXIES) == before, "a pod was started again")
    return f"within {in_force_s:.1f} s, with all operators killed within {time.monotonic() - applied:.1f} s"


@check("bad-image", needs=["shop"])
def bad_image(cluster):
    """A Broker with an image that is not there stops at its first pod, and says why; corrected, it goes on without another hand"""
    others = [pod for pod in identities(cluster, BROKERS) if pod not in of_pod(cluster, "main-broker-1")]
    cluster.api.patch("brokers", SHOP, "main", {"spec": {"image": "waybill-e2e/nothing:1", "imagePullPolicy": "Never"}})
    wait_for(lambda: f"it says that it stopped: {cluster.condition('brokers', SHOP, 'main', 'Degraded')}", 90,
             lambda: cluster.condition("brokers", SHOP, "main", "Degraded")[:2] == ("True", "RolloutStopped"))
    why = cluster.condition("brokers", SHOP, "main", "Degraded")[2]
    expect("main-broker-1" in why, f"the pod is not named: {why}")
    cluster.api.patch("brokers", SHOP, "main", {"spec": {"image": None, "imagePullPolicy": None}})
    cluster.wait_ready("brokers", SHOP, "main")
    expect(set(others) <= identities(cluster, BROKERS), "the other broker was touched")
    return why


@check("volume-size", needs=["shop"])
def volume_size(cluster):
    """A size that the storage class does not allow is told, and may be taken back"""
    for size, condition, reason in (("2Gi", "Degraded", "ObjectRefused"), ("1Gi", "Ready", "PodsReady")):
        changed = cluster.api.patch("brokers", SHOP, "main", {"spec": {"storage": {"size": size}}})

        def look():
            status = cluster.api.get("brokers", SHOP, "main")["status"]
            return status["observedGeneration"] == changed["metadata"]["generation"] and condition_of({"status": status}, condition)[:2] == ("True", reason)

        wait_for(lambda: f"{size}: {reason}; it is {cluster.condition('brokers', SHOP, 'main')}", 90, look)


def of_pod(cluster, name):
    """The identity of one broker's pod, in a set."""
    return {(pod["metadata"]["uid"], restarts(pod)) for pod in cluster.pods(SHOP, BROKERS) if pod["metadata"]["name"] == name}
