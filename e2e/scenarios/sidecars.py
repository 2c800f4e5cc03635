"""Pods that ask for a sidecar."""
from house import expect, wait_for

from .shop import APPS, SHOP

# A pod of another namespace than the Proxy's, which allows that.
LABELS = {"waybill.dev/inject": "edge", "waybill.dev/inject-namespace": SHOP}
# Pods that may come in the moment in which an operator dies, and so without a sidecar.
MISSED_MAX = 5


def template(spec, **labels):
    return {"metadata": {"labels": {**LABELS, **labels}}, "spec": spec}


def job(name, spec, **more):
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": template({**spec, "restartPolicy": "Never"}), **more}}


def has_sidecar(pod):
    return any(c["name"] == "waybill-sidecar" for c in pod["spec"].get("initContainers", []))


def make_job(cluster, name, make):
    """Makes a Job of one pod. Once more, if the pod came in the moment in which an operator died, and so has no sidecar."""
    for _ in range(MISSED_MAX):
        make()
        pods = wait_for(f"job {name} has a pod", 60, lambda: cluster.api.list("pods", APPS, f"job-name={name}"))
        if has_sidecar(pods[0]):
            return
        cluster.kubectl("delete", "job", "-n", APPS, name)
    expect(False, f"{MISSED_MAX} times the pod of job {name} came without a sidecar")


def with_sidecars(cluster, namespace, selector, count, proxy):
    """Waits for the ready pods of a Deployment. Those that came while an operator died have no sidecar: the Proxy says so, and they are made anew."""
    for _ in range(MISSED_MAX):
        pods = cluster.wait_pods(namespace, selector, count)
        missed = [pod["metadata"]["name"] for pod in pods if not has_sidecar(pod)]
        if not missed:
            return pods
        for name in missed:
            wait_for(f"pod {name} is told to be missed", 90, lambda: f"{namespace}/{name}" in (cluster.condition("proxies", *proxy, "Degraded")[2] or ""))
            cluster.api.delete("pods", namespace, name, grace_s=0)
    return expect(False, f"{MISSED_MAX} times pods {selector} came without a sidecar")


def condition_of_job(cluster, name):
    status = (cluster.api.get("jobs", APPS, name) or {}).get("status", {})
    return next((c["type"] for c in status.get("conditions", []) if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)
