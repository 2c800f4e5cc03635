"""Sidecars in pods of applications."""
import datetime
import json
import time

from house import check, expect, wait_for
from load import RESULTS, Book, client, pod_spec

from .configuration import send
from .shop import APPS, ENDPOINT, RELEASE, SHOP, broker_address, make_namespace, new_group, new_topic, tool
from .sidecars import LABELS, condition_of_job, has_sidecar, job, make_job, template, with_sidecars

# From the end of a Job's own container until the Job has ended, seconds.
JOB_LIMIT_S = 30


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@check("injected-deployment", needs=["shop"])
def injected_deployment(cluster):
    """A Deployment with injected sidecars works, and its last acknowledgements, while it is being ended, count"""
    make_namespace(cluster, APPS)
    new_topic(cluster, "letters")
    new_group(cluster, "readers")
    RESULTS.mkdir(exist_ok=True)
    spec = pod_spec(client("consume", "letters", topic="letters", group="readers", hold=3))
    cluster.api.create("deployments", APPS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "readers"}, "spec": {
        "selector": {"matchLabels": {"app": "readers"}}, "template": template(spec, app="readers")}})
    pod = with_sidecars(cluster, APPS, "app=readers", 1, (SHOP, "edge"))[0]
    sidecars = [c for c in pod["spec"].get("initContainers", []) if c.get("restartPolicy") == "Always"]
    expect(len(sidecars) == 1, f"no native sidecar: {pod['spec'].get('initContainers')}")
    book = Book("letters")
    wait_for("the consumer started", 90, lambda: any(what == "started" for _, what, _ in book.lines()))
    send(cluster, "letters", 5)
    wait_for("messages came", 30, lambda: book.ids("got"))
    expect(not book.ids("acked"), "nothing was in hand when it was told to end")
    cluster.kubectl("delete", "deployment", "-n", APPS, "readers", "--wait=false")
    wait_for("its pod is gone", 60, lambda: not cluster.api.list("pods", APPS, "app=readers"))
    got, acked = book.ids("got"), book.ids("acked")
    expect(set(got) == set(acked), lambda: f"{len(got)} came, {len(acked)} were acknowledged: {book.failures()}")
    # Another consumer of the group gets what is left, and nothing of what was acknowledged.
    cluster.api.create("pods", APPS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late-reader"}, "spec": {
        **pod_spec(client("consume", "late", ENDPOINT, topic="letters", group="readers"), grace_s=1), "restartPolicy": "Never"}})
    late = Book("late")
    wait_for(lambda: f"the rest comes, {len(acked)} and {len(late.ids('got'))} of 5 came", 60, lambda: len({*acked, *late.ids("acked")}) == 5)
    expect(not set(acked) & set(late.ids("got")), "what was acknowledged came again")
    cluster.kubectl("delete", "pod", "-n", APPS, "late-reader", "--grace-period=1")
    return f"{len(acked)} acknowledged while it was being ended"


@check("injected-jobs", needs=["shop"])
def injected_jobs(cluster):
    """C49: Jobs with a sidecar complete or fail within 30 s of their own container's end; what they sent is stored; no pod goes on"""
    make_namespace(cluster, APPS)
    new_topic(cluster, "reports")
    new_group(cluster, "archive")
    RESULTS.mkdir(exist_ok=True)
    good = pod_spec(client("produce", "job-sends", topic="reports", count=10))
    bad = pod_spec(["sh", "-c", "exit 1"])
    make_job(cluster, "sends", lambda: cluster.api.create("jobs", APPS, job("sends", good)))
    make_job(cluster, "breaks", lambda: cluster.api.create("jobs", APPS, job("breaks", bad)))
    cron = pod_spec(client("produce", "cron-sends", topic="reports", count=10))
    cluster.api.call("POST", f"/apis/batch/v1/namespaces/{APPS}/cronjobs", {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "daily"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("", cron)["spec"]}}})
    make_job(cluster, "cron-sends", lambda: cluster.kubectl("create", "job", "-n", APPS, "cron-sends", "--from=cronjob/daily"))
    slowest = 0.0
    for name, end in (("sends", "Complete"), ("breaks", "Failed"), ("cron-sends", "Complete")):
        wait_for(lambda: f"job {name} has ended", 120, lambda: condition_of_job(cluster, name))
        expect(condition_of_job(cluster, name) == end, lambda: f"job {name} is {condition_of_job(cluster, name)}")
        pod = cluster.api.list("pods", APPS, f"job-name={name}")[0]
        expect(has_sidecar(pod), f"job {name} had no sidecar")
        own = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
        conditions = cluster.api.get("jobs", APPS, name)["status"]["conditions"]
        ended = next(c["lastTransitionTime"] for c in conditions if c["type"] == end)
        slowest = max(slowest, moment(ended) - moment(own))
    expect(slowest <= JOB_LIMIT_S, f"a job ended {slowest:.0f} s after its own container")
    running = [p["metadata"]["name"] for p in cluster.api.list("pods", APPS, "job-name") if p["status"]["phase"] in ("Pending", "Running")]
    expect(not running, f"pods go on: {running}")
    for book in (Book("job-sends"), Book("cron-sends")):
        expect(len(book.ids("sent")) == 10, lambda: f"{len(book.ids('sent'))} of 10 sent: {book.failures()}")
    expect((there := stored(cluster, "reports")) == 20, f"{there} of 20 are stored")
    return f"at most {slowest:.0f} s after their own container"


@check("not-injected", needs=["shop"])
def not_injected(cluster):
    """Pods of namespaces that the Proxy does not name, of the operator's and of the system's come as they are, whatever their labels say"""
    make_namespace(cluster, APPS)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": LABELS}, "spec": pod_spec(["true"])}

    def containers(namespace):
        made = cluster.api.call("POST", cluster.api.path("pods", namespace, dryRun="All"), pod)
        return [c["name"] for c in made["spec"].get("initContainers", [])]

    wait_for("a pod that may have a sidecar has one", 30, lambda: containers(APPS) == ["waybill-sidecar"])
    for namespace in ("default", "kube-system", RELEASE):
        expect(not containers(namespace), f"a pod of {namespace} got {containers(namespace)}")


def stored(cluster, topic):
    """Messages of the topic in the stores of both brokers."""
    told = [json.loads(tool(cluster, "topic", "describe", topic, "--broker", broker_address(n))) for n in range(2)]
    return sum(queue["nextOffset"] - queue["minOffset"] for topic in told for queue in topic["queues"])
