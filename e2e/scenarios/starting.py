"""C50: applications start when their sidecar takes connections, and wait for what comes late."""
import time

from house import CLUSTER, check, expect, wait_for
from load import RESULTS, Book, client, pod_spec

from .shop import APPS, BROKERS, PROXIES, SHOP, make_namespace, restarts
from .sidecars import MISSED_MAX, condition_of_job, has_sidecar, job

STARTS = 50
# Applications whose sidecar and broker come late, and what each sends.
LATE, SENDS = 3, 5
# Connects once, and ends when that fails.
CONNECT = "exec 3<>/dev/tcp/127.0.0.1/8081 && exec 3<&-"
# Images that are not there yet, and a broker that has little of a processor when it is.
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Broker
metadata: {name: late}
spec: {image: "waybill-e2e/late-broker:1", imagePullPolicy: Never, storage: {ephemeral: true}, resources: {limits: {cpu: 100m}}}
---
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: late}
spec: {brokerRef: {name: late}, replicas: 1, image: "waybill-e2e/late-sidecar:1", imagePullPolicy: Never, injection: {namespaces: [apps]}}
---
apiVersion: waybill.dev/v1alpha1
kind: Topic
metadata: {name: late}
spec: {brokerRef: {name: late}}
"""


def comes(cluster, what):
    """The image of the late broker or sidecar is on the node from now on: that of the shop, by another name."""
    image = cluster.pods(SHOP, {"broker": BROKERS, "sidecar": PROXIES}[what])[0]["spec"]["containers"][0]["image"]
    cluster.command(CLUSTER / "inside", "--all", "ctr", "-n", "k8s.io", "images", "tag", f"docker.io/library/{image}", f"docker.io/waybill-e2e/late-{what}:1")


def expect_all_started(pods, count, what):
    """So many ended well; none of those with a sidecar failed or was started again. Those without came while an operator died."""
    failed = [pod["metadata"]["name"] for pod in pods if has_sidecar(pod) and (pod["status"]["phase"] == "Failed" or restarts(pod))]
    good = sum(pod["status"]["phase"] == "Succeeded" and has_sidecar(pod) for pod in pods)
    expect(not failed and good == count, f"{what}: of {len(pods)} {good} ended well, these did not: {failed}")


@check("start-order", needs=["shop"])
def start_order(cluster):
    """C50: fifty applications that connect once, at their start: none fails. Sidecars whose images come late, before a slow broker that comes later, too"""
    make_namespace(cluster, APPS)
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    cluster.apply(MANIFEST, SHOP)
    sends = " ".join(map(str, client("produce", "$HOSTNAME", topic="late", count=SENDS)))
    late = job("late", pod_spec(["bash", "-c", f"{CONNECT} && exec {sends}"]), completions=LATE, parallelism=LATE, backoffLimit=MISSED_MAX)
    late["spec"]["template"]["metadata"]["labels"]["waybill.dev/inject"] = "late"
    cluster.api.create("jobs", APPS, late)
    connects = pod_spec(["bash", "-c", f"{CONNECT} && curl -sf http://127.0.0.1:8082/readyz"])
    cluster.api.create("jobs", APPS, job("starts", connects, completions=STARTS, parallelism=8, backoffLimit=MISSED_MAX))

    def starts():
        return (cluster.api.get("jobs", APPS, "starts") or {}).get("status", {})

    def waiting():
        """The late applications: their pods, as they are."""
        return [pod for pod in cluster.api.list("pods", APPS, "job-name=late") if has_sidecar(pod)]

    wait_for(lambda: f"some have started: {starts()}", 120, lambda: starts().get("succeeded", 0) >= STARTS // 5, every=1)
    expect(all(pod["status"]["phase"] == "Pending" for pod in waiting()), "an application started without its sidecar")
    comes(cluster, "sidecar")
    wait_for(lambda: f"all have ended: {starts()}", 240, lambda: condition_of_job(cluster, "starts"), every=1)
    took = time.monotonic() - began
    expect_all_started(cluster.api.list("pods", APPS, "job-name=starts"), STARTS, "fifty at once")
    wait_for("applications run before there is a broker", 60, lambda: sum(pod["status"]["phase"] == "Running" for pod in waiting()) >= LATE)
    early = [book for book in (Book(pod["metadata"]["name"]) for pod in waiting()) if book.ids("sent")]
    expect(not early, "something was sent before there was a broker")
    comes(cluster, "broker")
    late_s = time.monotonic() - began
    wait_for(lambda: f"the late ones have ended: {(cluster.api.get('jobs', APPS, 'late') or {}).get('status')}", 120, lambda: condition_of_job(cluster, "late"))
    pods = cluster.api.list("pods", APPS, "job-name=late")
    expect_all_started(pods, LATE, "before a broker that came late")
    sent = [len(Book(pod["metadata"]["name"]).ids("sent")) for pod in pods if has_sidecar(pod)]
    expect(sent == [SENDS] * LATE, f"they sent {sent}")
    cluster.wait_ready("proxies", SHOP, "late")
    proxy = cluster.pods(SHOP, PROXIES.replace("=edge", "=late"))
    expect(not any(map(restarts, proxy)), "a proxy was started again because there was no broker")
    for name in ("starts", "late"):
        cluster.api.call("DELETE", cluster.api.path("jobs", APPS, name), {"propagationPolicy": "Background"})
    cluster.kubectl("delete", "-n", SHOP, "broker/late", "proxy/late", "topic/late", "--wait=false")
    return f"{STARTS} in {took:.0f} s; the broker came after {late_s:.0f} s, and all had sent {time.monotonic() - began - late_s:.0f} s later"
