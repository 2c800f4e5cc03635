"""What became of the Proxy of elastic.py while other checks ran."""
from house import check, expect, wait_for

from .elastic import Work
from .shop import APPS, SHOP


@check("autoscaled", needs=["autoscaling"])
def autoscaled(cluster):
    """The autoscaler has made it two, and the operator leaves that alone when images or the Proxy are changed"""
    def pods():
        found = cluster.api.get("deployments", SHOP, "elastic-proxy")
        return found["spec"]["replicas"], found["status"].get("readyReplicas")

    try:
        wait_for(lambda: f"there are two, it has (wanted, ready) {pods()}; {cluster.kubectl('describe', 'hpa', '-n', SHOP)}", 180, lambda: pods() == (2, 2))
        # A change that pods take while they run; with another image all of them have been replaced by `upgrade`.
        cluster.api.patch("proxies", SHOP, "elastic", {"spec": {"batch": {"maxEntries": 200}}})
        cluster.wait_ready("proxies", SHOP, "elastic")
        expect(pods()[0] == 2, lambda: f"the operator has set the number: {pods()}")
        status = cluster.api.get("proxies", SHOP, "elastic")["status"]
        expect(status["replicas"] == 2, f"its status tells something else: {status}")
        return f"after {len(Work.load.sent.ids('sent'))} messages"
    finally:
        Work.metrics.stop()
        cluster.kubectl("delete", "pods", "-n", APPS, "-l", "load=elastic", "--grace-period=1", "--wait=false")
        cluster.kubectl("delete", "-n", SHOP, "proxy/elastic", "--wait=false")
