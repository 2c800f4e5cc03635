"""What the other checks work with: the chart, and in the namespace `shop` two brokers, two proxies, a topic and a group."""
import time

from house import PATIENCE_S, ROOT, check
from killer import NAMESPACE as RELEASE, OPERATORS

# The namespace of Broker and Proxy, and that of the applications.
SHOP, APPS = "shop", "apps"
TOPIC, GROUP = "orders", "billing"
ENDPOINT = f"edge-proxy.{SHOP}.svc:8081"
BROKERS = "app.kubernetes.io/name=waybill-broker,app.kubernetes.io/instance=main"
PROXIES = "app.kubernetes.io/name=waybill-proxy,app.kubernetes.io/instance=edge"
# Injection may add to pods of clients what they do not allow themselves; Waybill's own are held to the strictest standard.
RESTRICTED = "{pod-security.kubernetes.io/enforce: restricted}"

MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Broker
metadata: {name: main}
spec: {replicas: 2, storage: {size: 1Gi}}
---
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: edge}
spec:
  brokerRef: {name: main}
  replicas: 2
  # Short, so that a check sees several renewals.
  renewal: {defaultInvisibleTimeMills: 10000, renewAheadTimeMillis: 8000}
  batch: {enableBatchChangeInvisibleTime: true}
  injection: {namespaces: [apps]}
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


def broker_address(number, name="main", namespace=SHOP):
    return f"{name}-broker-{number}.{name}-broker.{namespace}.svc:10911"


def make_namespace(cluster, name, labels="{}"):
    cluster.apply(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n")


def new_group(cluster, name, **spec):
    """A ConsumerGroup in the shop, on the brokers when this returns."""
    fields = "".join(f", {key}: {value}" for key, value in spec.items())
    cluster.apply(f"apiVersion: waybill.dev/v1alpha1\nkind: ConsumerGroup\nmetadata: {{name: {name}}}\nspec: {{brokerRef: {{name: main}}{fields}}}\n", SHOP)
    cluster.wait_ready("consumergroups", SHOP, name)


def new_topic(cluster, name, **spec):
    """The same for a Topic."""
    fields = "".join(f", {key}: {value}" for key, value in spec.items())
    cluster.apply(f"apiVersion: waybill.dev/v1alpha1\nkind: Topic\nmetadata: {{name: {name}}}\nspec: {{brokerRef: {{name: main}}{fields}}}\n", SHOP)
    cluster.wait_ready("topics", SHOP, name)


def tool(cluster, *words, seconds=PATIENCE_S):
    """Runs `waybill` and gives its JSON as text."""
    return cluster.command(ROOT / "target" / "debug" / "waybill", "--output", "json", *words, seconds=seconds)


@check("install", needs=())
def install(cluster):
    """helm install of the chart: the operator is there, and is silent where there is nothing to do"""
    if not cluster.command("helm", "list", "-A", "-q").split():
        cluster.command("helm", "install", RELEASE, ROOT / "charts" / "waybill", "--namespace", RELEASE, "--create-namespace", "--wait", "--timeout", "90s")
    cluster.wait_pods(RELEASE, OPERATORS, 2)


@check("shop", needs=["install"])
def shop(cluster):
    """kubectl apply of a Broker, a Proxy, a Topic and a ConsumerGroup: pods that satisfy the restricted standard, all conditions Ready"""
    make_namespace(cluster, SHOP, RESTRICTED)
    began = time.monotonic()
    cluster.apply(MANIFEST, SHOP)
    for kind, name in (("brokers", "main"), ("proxies", "edge"), ("topics", "orders"), ("consumergroups", "billing")):
        cluster.wait_ready(kind, SHOP, name)
    cluster.wait_pods(SHOP, BROKERS, 2)
    cluster.wait_pods(SHOP, PROXIES, 2)
    return f"ready after {time.monotonic() - began:.0f} s"


def restarts(pod):
    """How often containers of the pod were started again."""
    status = pod["status"]
    return sum(s["restartCount"] for s in status.get("containerStatuses", []) + status.get("initContainerStatuses", []))
