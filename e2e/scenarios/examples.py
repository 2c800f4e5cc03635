"""Every file of examples/."""
import re

from house import ROOT, check, expect, wait_for

from .shop import make_namespace
from .sidecars import with_sidecars

EXAMPLES = "examples"
PLURALS = {"Broker": "brokers", "Proxy": "proxies", "Topic": "topics", "ConsumerGroup": "consumergroups", "User": "users"}


def files():
    """The files, each after those that its head says it needs."""
    left, ordered = {path.name: path for path in sorted((ROOT / "examples").glob("*.yaml"))}, []

    def take(name):
        if path := left.pop(name, None):
            for need in re.findall(r"^# e2e: needs (\S+)", path.read_text(), re.MULTILINE):
                take(need)
            ordered.append(path)

    for name in list(left):
        take(name)
    return ordered


@check("examples", needs=["install"])
def examples(cluster):
    """Every file of examples/ is taken and answered; what quickstart.yaml makes is Ready, the Job completes, the Deployment is up"""
    make_namespace(cluster, EXAMPLES)
    applied = files()
    for path in applied:
        cluster.kubectl("apply", "-n", EXAMPLES, "-f", path)
        if path.name == "quickstart.yaml":
            for kind, name in re.findall(r"^kind: (\w+)\nmetadata:\n  name: (\S+)", path.read_text(), re.MULTILINE):
                cluster.wait_ready(PLURALS[kind], EXAMPLES, name)

    def unanswered():
        """Resources whose state is not told yet."""
        return [f"{kind}/{one['metadata']['name']}" for kind in ("brokers", "proxies", "topics", "consumergroups")
                for one in cluster.api.list(kind, EXAMPLES)
                if one.get("status", {}).get("observedGeneration") != one["metadata"]["generation"]]

    wait_for(lambda: f"all are answered: {unanswered()}", 90, lambda: not unanswered())
    cluster.kubectl("wait", "-n", EXAMPLES, "--for=condition=Complete", "job", "--all", "--timeout=60s")
    with_sidecars(cluster, EXAMPLES, "app=shop", 2, (EXAMPLES, "main"))
    cluster.kubectl("wait", "-n", EXAMPLES, "--for=condition=Available", "deployment/shop", "--timeout=60s")
    expect(applied, "there are no examples")
    cluster.kubectl("delete", "namespace", EXAMPLES, "--wait=false")  # it takes a while: the applications are given their time to end
    return f"{len(applied)} files"
