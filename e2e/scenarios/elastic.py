"""A Proxy whose number follows its use of the processor. What decides, Kubernetes' autoscaler, takes its time: other checks run meanwhile."""
from house import check
from load import Load
from metrics import Metrics

from .shop import APPS, SHOP, make_namespace, new_group, new_topic

PODS = "app.kubernetes.io/name=waybill-proxy,app.kubernetes.io/instance=elastic"
# Of the 100 thousandths of a core that such a proxy asks for if its resource says nothing else.
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: elastic}
spec: {brokerRef: {name: main}, autoscaling: {minReplicas: 1, maxReplicas: 2, cpuPercent: 2}}
"""


class Work:
    """What goes on until `autoscaled`, in elastic_later.py."""
    metrics = load = None


@check("autoscaling", needs=["shop"])
def autoscaling(cluster):
    """A Proxy with spec.autoscaling begins with the least number of pods; its load begins"""
    make_namespace(cluster, APPS)
    new_topic(cluster, "elastic")
    new_group(cluster, "elastic")
    Work.metrics = Metrics(cluster)
    Work.metrics.start()
    cluster.apply(MANIFEST, SHOP)
    cluster.wait_ready("proxies", SHOP, "elastic")
    cluster.wait_pods(SHOP, PODS, 1)
    Work.load = Load(cluster, APPS, "elastic", f"elastic-proxy.{SHOP}.svc:8081", "elastic", "elastic", rate=20, consumers=1)
