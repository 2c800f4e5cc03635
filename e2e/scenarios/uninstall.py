"""The chart goes and comes back, with less rights."""
from house import ROOT, check, expect, wait_for
from load import pod_spec

from .configuration import identities
from .shop import APPS, BROKERS, OPERATORS, PROXIES, RELEASE, SHOP, make_namespace, new_topic
from .sidecars import LABELS


def trusted(cluster):
    """What the API server trusts at the webhook."""
    found = cluster.api.call("GET", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/waybill-{RELEASE}")
    return found["webhooks"][0]["clientConfig"].get("caBundle")


@check("uninstall", needs=["shop"])
def uninstall(cluster):
    """helm upgrade keeps the webhook's certificate; helm uninstall keeps definitions, resources and pods; installed again, it goes on"""
    wait_for("the webhook is trusted", 90, lambda: trusted(cluster))
    before = trusted(cluster)
    chart = ROOT / "charts" / "waybill"
    cluster.command("helm", "upgrade", RELEASE, chart, "--namespace", RELEASE, "--reuse-values", "--set", "operator.logLevel=debug", "--wait", "--timeout", "90s")
    expect(trusted(cluster) == before, "the upgrade took the certificate away")
    pods = identities(cluster, BROKERS, PROXIES)
    cluster.command("helm", "uninstall", RELEASE, "--namespace", RELEASE, "--wait", "--timeout", "60s")
    wait_for("operators are gone", 60, lambda: not cluster.pods(RELEASE, OPERATORS))
    expect(cluster.api.get("brokers", SHOP, "main"), "the Broker went with the chart")
    expect(identities(cluster, BROKERS, PROXIES) == pods, "pods were touched")
    make_namespace(cluster, APPS)
    # A pod that comes while nobody adds sidecars.
    cluster.api.create("pods", APPS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "early", "labels": LABELS}, "spec": pod_spec(["sleep", "600"], grace_s=1)})
    tag = cluster.pods(SHOP, BROKERS)[0]["spec"]["containers"][0]["image"].rpartition(":")[2]  # another image would replace them rightly
    cluster.command("helm", "install", RELEASE, chart, "--namespace", RELEASE, "--set", f"image.tag={tag}", "--set", f"watchNamespaces={{{SHOP},{APPS}}}",
                    "--wait", "--timeout", "90s")
    new_topic(cluster, "afterwards")
    expect(identities(cluster, BROKERS, PROXIES) == pods, "pods were replaced when it came back")


def may(cluster, verb, group, resource, namespace):
    """Whether the operator has the right."""
    asked = {"user": f"system:serviceaccount:{RELEASE}:waybill-operator", "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": namespace}}
    answer = cluster.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                              {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked})
    return answer["status"]["allowed"]


@check("namespaced", needs=["uninstall"])
def namespaced(cluster):
    """With watchNamespaces the operator has rights there alone and looks after nothing else; pods that came without it are told"""
    for verb, group, resource in (("list", "", "pods"), ("get", "", "secrets"), ("patch", "waybill.dev", "topics"), ("create", "apps", "statefulsets")):
        expect(may(cluster, verb, group, resource, SHOP), f"it may not {verb} {resource} in {SHOP}")
        for namespace in ("default", None):
            expect(not may(cluster, verb, group, resource, namespace), f"it may {verb} {resource} in {namespace or 'all namespaces'}")
    wait_for(lambda: f"the pod is missed: {cluster.condition('proxies', SHOP, 'edge', 'Degraded')}", 90,
             lambda: cluster.condition("proxies", SHOP, "edge", "Degraded")[1] == "InjectionMissed")
    why = cluster.condition("proxies", SHOP, "edge", "Degraded")[2]
    expect(f"{APPS}/early" in why, f"it is not named: {why}")
    cluster.api.delete("pods", APPS, "early", grace_s=0)
    cluster.wait_ready("proxies", SHOP, "edge")
    elsewhere = cluster.api.create("topics", "default", {"apiVersion": "waybill.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "elsewhere"},
                                                         "spec": {"brokerRef": {"name": "main"}}})
    new_topic(cluster, "here")
    expect("status" not in cluster.api.get("topics", "default", elsewhere["metadata"]["name"]), "it looks after another namespace")
    cluster.api.delete("topics", "default", "elsewhere")
    return why
