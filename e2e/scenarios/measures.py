"""What the operator costs with a thousand topics and a thousand groups."""
import time

from house import ROOT, check, expect, wait_for

from .configuration import metrics
from .shop import OPERATORS, RELEASE, broker_address, make_namespace, tool

MANY = "many"
EACH = 1000
IDLE_S = 15
IMAGE_MIB = 40
RESIDENT_MIB = 20
# The code of a program counts as its memory where it was run, and that of the development profile is three times as much: programs with
# such images are only held to what a thousand of each may add, which is the same.
DEVELOPMENT_IMAGE_MIB = 25
ADDED_MIB = 9
# Seconds of processor for each resource, from its creation until its status is written.
CPU_S = 0.010
# Share of a core while nothing changes, in which each resource is compared once in five minutes; and for programs of the development profile,
# in which the operator is not optimised.
IDLE_SHARE, IDLE_SHARE_DEVELOPMENT = 0.01, 0.03
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Broker
metadata: {name: main}
spec: {storage: {ephemeral: true}}
"""


def operators(cluster):
    """(resident bytes of the largest, seconds of processor of all) of the operator's pods."""
    pages = [metrics(f"{pod['status']['podIP']}:10925") for pod in cluster.wait_pods(RELEASE, OPERATORS, 2)]
    return max(page["process_resident_memory_bytes"] for page in pages), sum(page["process_cpu_seconds_total"] for page in pages)


def versions(cluster):
    """Of all resources of the namespace: they change with each write."""
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"]
            for kind in ("brokers", "topics", "consumergroups") for one in cluster.api.list(kind, MANY)}


def quiet(cluster):
    """Whether nothing was written in the last seconds."""
    before = versions(cluster)
    time.sleep(3)
    return versions(cluster) == before


@check("measures", needs=["install"], calm="it measures what operators cost")
def measures(cluster):
    """A thousand Topics and a thousand ConsumerGroups: memory, processor, silence when nothing changes, a topic on its broker within a second"""
    make_namespace(cluster, MANY)
    cluster.apply(MANIFEST, MANY)
    cluster.wait_ready("brokers", MANY, "main")
    before, cpu_before = operators(cluster)
    began = time.monotonic()
    for n in range(EACH):
        for kind, plural in (("Topic", "topics"), ("ConsumerGroup", "consumergroups")):
            cluster.api.create(plural, MANY, {"apiVersion": "waybill.dev/v1alpha1", "kind": kind, "metadata": {"name": f"{kind[0].lower()}{n}"},
                                              "spec": {"brokerRef": {"name": "main"}}})

    def unready():
        return sum(one.get("status", {}).get("appliedBrokers") != 1 for kind in ("topics", "consumergroups") for one in cluster.api.list(kind, MANY))

    wait_for(lambda: f"all are on the broker, {unready()} are not", 120, lambda: unready() == 0, every=1)
    took = time.monotonic() - began
    time.sleep(2)
    resident, cpu = operators(cluster)
    each_s = (cpu - cpu_before) / (2 * EACH)
    wait_for("nothing is written any more", 60, lambda: quiet(cluster), every=0)
    written, started = versions(cluster), time.monotonic()
    _, cpu = operators(cluster)
    time.sleep(IDLE_S)
    _, cpu_idle = operators(cluster)
    share = (cpu_idle - cpu) / (time.monotonic() - started)
    silent = versions(cluster) == written
    applied = time.monotonic()
    cluster.apply("apiVersion: waybill.dev/v1alpha1\nkind: Topic\nmetadata: {name: late}\nspec: {brokerRef: {name: main}}\n", MANY)
    done = time.monotonic()
    wait_for("the topic is on its broker", 30, lambda: tool(cluster, "topic", "describe", "late", "--broker", broker_address(0, namespace=MANY)), every=0.05)
    applied_s = time.monotonic() - applied
    images = {path.stem: path.stat().st_size / 2 ** 20 for path in (ROOT / ".cache" / "images").glob("waybill*.tar")}
    told = (f"{2 * EACH} in {took:.0f} s, {each_s * 1000:.1f} ms of processor each, {share * 100:.2f} % of a core when idle, resident {before / 2 ** 20:.1f} then "
            f"{resident / 2 ** 20:.1f} MiB, a topic on its broker {applied_s:.2f} s after kubectl began and {time.monotonic() - done:.2f} s after it ended, "
            f"images {', '.join(f'{name} {size:.0f}' for name, size in sorted(images.items()))} MiB")
    expect(silent, f"something was written while nothing changed: {told}")
    expect(each_s <= CPU_S, told)
    development = images["waybill-operator"] > DEVELOPMENT_IMAGE_MIB
    expect(share <= (IDLE_SHARE_DEVELOPMENT if development else IDLE_SHARE), told)
    expect(max(images.values()) <= IMAGE_MIB, told)
    expect((resident - before) / 2 ** 20 <= ADDED_MIB, told)
    expect(resident / 2 ** 20 <= RESIDENT_MIB or development, told)
    cluster.kubectl("delete", "namespace", MANY, "--wait=false")
    return told
