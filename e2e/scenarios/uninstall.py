"""The chart goes and comes back."""
from house import ROOT, check, expect, wait_for

from .configuration import identities
from .shop import BROKERS, OPERATORS, PROXIES, RELEASE, SHOP, new_topic


def trusted(cluster):
    """What the API server trusts at the webhook."""
    found = cluster.api.call("GET", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/waybill-{RELEASE}")
    return found["webhooks"][0]["clientConfig"].get("caBundle")


@check("uninstall", needs=["shop"])
def uninstall(cluster):
    """helm upgrade keeps the webhook's certificate; helm uninstall keeps definitions, resources and pods; installed again, it goes on"""
    wait_for("the webhook is trusted", 30, lambda: trusted(cluster))
    before = trusted(cluster)
    chart = ROOT / "charts" / "waybill"
    cluster.command("helm", "upgrade", RELEASE, chart, "--namespace", RELEASE, "--reuse-values", "--set", "operator.logLevel=debug", "--wait", "--timeout", "90s")
    expect(trusted(cluster) == before, "the upgrade took the certificate away")
    pods = identities(cluster, BROKERS, PROXIES)
    cluster.command("helm", "uninstall", RELEASE, "--namespace", RELEASE, "--wait", "--timeout", "60s")
    wait_for("operators are gone", 60, lambda: not cluster.pods(RELEASE, OPERATORS))
    expect(cluster.api.get("brokers", SHOP, "main"), "the Broker went with the chart")
    expect(identities(cluster, BROKERS, PROXIES) == pods, "pods were touched")
    tag = cluster.pods(SHOP, BROKERS)[0]["spec"]["containers"][0]["image"].rpartition(":")[2]  # another image would replace them rightly
    cluster.command("helm", "install", RELEASE, chart, "--namespace", RELEASE, "--set", f"image.tag={tag}", "--wait", "--timeout", "90s")
    new_topic(cluster, "afterwards")
    expect(identities(cluster, BROKERS, PROXIES) == pods, "pods were replaced when it came back")
