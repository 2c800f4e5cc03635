"""C40: addresses of IPv6 beside those of IPv4."""
import contextlib
import json
import subprocess
import urllib.request

from house import HERE, PATIENCE_S, STATE, Failed, Skipped, check, expect, wait_for
from load import RESULTS, VENV, Book

from .shop import BROKERS, OPERATORS, PROXIES, RELEASE, SHOP, new_group, new_topic, tool

NAME, MESSAGES = "by-ipv6", 5
# The proxies by IPv6 alone: a client that is told this name has no other way.
SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: {NAME}}}
spec:
  ipFamilyPolicy: SingleStack
  ipFamilies: [IPv6]
  selector: {{{PROXIES.replace("=", ": ")}}}
  ports: [{{port: 8081}}]
"""


def addresses_of(pod):
    return [one["ip"] for one in pod["status"]["podIPs"]]


def of_ipv6(pod):
    """Its address of IPv6."""
    return next(address for address in addresses_of(pod) if ":" in address)


def alive(pod, port):
    """Whether its admin port answers by every address. Raises OSError when it does not."""
    hosts = [f"[{address}]" if ":" in address else address for address in addresses_of(pod)]
    return len(hosts) == 2 and all(urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=10).read() == b"ok\n" for host in hosts)


@contextlib.contextmanager
def published_client(work, **options):
    """The published Python client at work in the network of the cluster; what it saw. It ends with this. By the whole name: outside of pods, its
    own way of looking up names ends at the first server that fails."""
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    RESULTS.mkdir(exist_ok=True)
    client = subprocess.Popen([VENV / "bin" / "python", HERE / "client.py", work, "--out", RESULTS / f"{NAME}-{work}",
                               "--endpoint", f"{NAME}.{SHOP}.svc.cluster.local:8081", "--topic", NAME, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Book(f"{NAME}-{work}")
    finally:
        client.kill()
        client.wait()


def comes_from(cluster, message, brokers):
    """From which address the proxy came to the broker that has the message; it is asked for by IPv6."""
    for pod in brokers:
        broker = f"[{of_ipv6(pod)}]:10911"
        with contextlib.suppress(Failed):  # another broker has it
            found = json.loads(tool(cluster, "message", "describe", "--id", message, "--topic", NAME, "--broker", broker))
            return found[0]["bornHost"].rpartition(":")[0].strip("[]")
    raise Failed(f"no broker has {message}")


@check("both-families", needs=["shop"])
def both_families(cluster):
    """C40: by IPv6 a published client sends and receives, brokers are found, and every port answers; Services have addresses of both families"""
    if why := (STATE / "no-ipv6").read_text():
        raise Skipped(why)
    services = {name: cluster.api.get("services", namespace, name) for namespace, name in
                ((SHOP, "main-broker"), (SHOP, "edge-proxy"), (RELEASE, "waybill-operator"))}
    for name, service in services.items():
        expect(service["spec"]["ipFamilies"] == ["IPv4", "IPv6"], f"{name} has {service['spec']['ipFamilies']}")
    proxies, brokers = cluster.pods(SHOP, PROXIES), cluster.pods(SHOP, BROKERS)
    for namespace, selector, port in ((SHOP, PROXIES, 8082), (SHOP, BROKERS, 10915), (RELEASE, OPERATORS, 10925)):
        wait_for(f"{selector} answers by all addresses", PATIENCE_S, lambda: all(alive(pod, port) for pod in cluster.pods(namespace, selector)))
    new_topic(cluster, NAME)
    new_group(cluster, NAME)
    cluster.apply(SERVICE, SHOP)
    with published_client("produce", count=MESSAGES) as producer, published_client("consume", group=NAME) as consumer:
        wait_for(lambda: f"{MESSAGES} are sent: {producer.lines()}", PATIENCE_S, lambda: len(producer.ids("sent")) == MESSAGES)
        wait_for(lambda: f"all are acknowledged: {consumer.lines()}", PATIENCE_S, lambda: producer.ids("sent").keys() <= consumer.ids("acked").keys())
    endpoint = ["--endpoint", f"[{services['edge-proxy']['spec']['clusterIPs'][1]}]:8081", "--topic", NAME]
    message = json.loads(tool(cluster, "message", "send", *endpoint, "--body", "six"))["messageId"]
    # One receive asks one of the brokers.
    wait_for(f"{message} comes", PATIENCE_S, lambda: message in tool(cluster, "message", "receive", *endpoint, "--group", NAME, "--wait", "5s", "--ack"))
    proxy = comes_from(cluster, message, brokers)
    expect(proxy in [address for pod in proxies for address in addresses_of(pod)], f"{proxy} is no proxy's")
    return f"proxies come to brokers from {proxy}"
