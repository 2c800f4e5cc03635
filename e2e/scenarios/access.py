"""Users: who may send and consume through a Proxy that asks for them."""
import base64
import time

from house import check, expect, wait_for
from load import RESULTS, Book, client, pod_spec

from .configuration import identities, metrics
from .shop import APPS, SHOP, make_namespace, new_group, new_topic

ENDPOINT = f"guarded-proxy.{SHOP}.svc:8081"
PROXIES = "app.kubernetes.io/name=waybill-proxy,app.kubernetes.io/instance=guarded"
# From a change of a User until it counts, seconds: 30, and as long again since operators are killed meanwhile.
LIMIT_S = 60
MANIFEST = """
apiVersion: waybill.dev/v1alpha1
kind: Proxy
metadata: {name: guarded}
spec: {brokerRef: {name: main}, replicas: 1, accessControl: {authentication: true}}
---
apiVersion: waybill.dev/v1alpha1
kind: User
metadata: {name: clerk}
spec: {proxyRef: {name: guarded}, permissions: [{topic: invoices, actions: [PUB]}]}
"""
ALL = [{"topic": "invoices", "actions": ["PUB", "SUB"]}, {"group": "clerks"}]


def refused(cluster):
    """Why the proxy has refused calls: not every client tells the code that it got."""
    pages = [metrics(f"{pod['status']['podIP']}:8082") for pod in cluster.pods(SHOP, PROXIES)]
    names = ("unsigned", "wrong_signature", "unknown_access_key", "forbidden")
    return {name for name in names for page in pages if page.get(f'waybill_access_refused_total{{reason="{name}"}}')}


def start(cluster, name, work, environment, **options):
    command = client(work, name, ENDPOINT, topic="invoices", **options)
    cluster.api.create("pods", APPS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"load": "users"}}, "spec": {
        **pod_spec(command, grace_s=1, environment=environment), "restartPolicy": "Never"}})
    return Book(name)


@check("users", needs=["shop"])
def users(cluster):
    """A Proxy that asks for Users: strangers are refused; what a User may do, and whether there is one, counts within 30 s, without a restart"""
    make_namespace(cluster, APPS)
    new_topic(cluster, "invoices")
    new_group(cluster, "clerks")
    RESULTS.mkdir(exist_ok=True)
    cluster.apply(MANIFEST, SHOP)
    cluster.wait_ready("proxies", SHOP, "guarded")
    cluster.wait_ready("users", SHOP, "clerk")
    secret = cluster.api.get("secrets", SHOP, "clerk-credentials")["data"]
    access_key, secret_key = (base64.b64decode(secret[name]).decode() for name in ("accessKey", "secretKey"))
    known = {"WAYBILL_ACCESS_KEY": access_key, "WAYBILL_SECRET_KEY": secret_key}
    before = identities(cluster, PROXIES)
    stranger = start(cluster, "stranger", "produce", {})
    liar = start(cluster, "liar", "produce", {**known, "WAYBILL_SECRET_KEY": "guessed"})
    sender = start(cluster, "sender", "produce", known, rate=5)
    reader = start(cluster, "reader", "consume", known, group="clerks")
    wait_for(lambda: f"the user may send: {sender.failures()[-1:]}", 60, lambda: len(sender.ids("sent")) > 5)
    wait_for(lambda: f"the others are refused: {refused(cluster)}", 60, lambda: refused(cluster) == {"unsigned", "wrong_signature", "forbidden"})
    wait_for("they hear of it", 60, lambda: all(book.failures() for book in (stranger, liar, reader)))
    expect(not (*stranger.ids("sent"), *liar.ids("sent"), *reader.ids("got")), "somebody was let in")
    changed = time.monotonic()
    cluster.api.patch("users", SHOP, "clerk", {"spec": {"permissions": ALL}})
    wait_for(lambda: f"the user may consume: {reader.failures()[-1:]}", LIMIT_S, lambda: reader.ids("acked"))
    more_s = time.monotonic() - changed
    deleted = time.time()
    cluster.kubectl("delete", "-n", SHOP, "user.waybill.dev/clerk")
    wait_for("who is no user any more may do nothing", LIMIT_S, lambda: sender.failures(deleted) and "unknown_access_key" in refused(cluster))
    less_s = time.time() - deleted
    expect(identities(cluster, PROXIES) == before, "the proxy was started again")
    cluster.kubectl("delete", "pods", "-n", APPS, "-l", "load=users", "--grace-period=1", "--wait=false")
    cluster.kubectl("delete", "-n", SHOP, "proxy/guarded")
    return f"a permission within {more_s:.1f} s, the end within {less_s:.1f} s"
