"""What became of the Proxy of elastic.py while other checks ran."""
from house import check, expect, wait_for

from .elastic import PODS, Work
from .shop import SHOP


@check("autoscaled", needs=["autoscaling"])
def autoscaled(cluster):
    """The autoscaler has made it two, and the operator leaves that alone when the Proxy is changed"""
    def pods():
        found = cluster.api.get("deployments", SHOP, "elastic-proxy")
        return found["spec"]["replicas"], found["status"].get("readyReplicas")

    try:
        wait_for(lambda: f"there are two, it has (wanted, ready) {pods()}; {cluster.kubectl('describe', 'hpa', '-n', SHOP)}", 180, lambda: pods() == (2, 2))
        cluster.api.patch("proxies", SHOP, "elastic", {"spec": {"pod": {"annotations": {"e2e": "changed"}}}})
        cluster.wait_ready("proxies", SHOP, "elastic")
        replaced = [pod["metadata"]["annotations"].get("e2e") for pod in cluster.wait_pods(SHOP, PODS, 2)]
        expect(replaced == ["changed"] * 2 and pods()[0] == 2, lambda: f"after a change {replaced} are there, and {pods()[0]} are to be")
        status = cluster.api.get("proxies", SHOP, "elastic")["status"]
        expect(status["replicas"] == 2, f"its status tells something else: {status}")
        sent, again = Work.load.finish()
        return f"{sent} sent, {again} came more than once"
    finally:
        Work.metrics.stop()
        cluster.kubectl("delete", "-n", SHOP, "proxy/elastic", "--wait=false")
