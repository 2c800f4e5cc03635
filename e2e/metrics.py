"""What pods use of the processor, as metrics.k8s.io tells it to autoscalers: read from the kubelet, served to the API server by threads of the tests."""
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request

from house import STATE, ApiError
from kube import ADDRESS

PKI = STATE / "pki"
PORT, KUBELET_PORT = 4443, 10250
EVERY_S = 3
NAME = "v1beta1.metrics.k8s.io"
MANIFEST = f"""
apiVersion: v1
kind: Service
metadata: {{name: metrics, namespace: kube-system}}
spec: {{ports: [{{name: https, port: 443, targetPort: {PORT}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: metrics, namespace: kube-system, labels: {{kubernetes.io/service-name: metrics}}}}
addressType: IPv4
ports: [{{name: https, port: {PORT}, protocol: TCP}}]
endpoints: [{{addresses: ["{ADDRESS}"], conditions: {{ready: true}}}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {NAME}}}
spec:
  group: metrics.k8s.io
  version: v1beta1
  service: {{namespace: kube-system, name: metrics}}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
"""
RESOURCES = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
    {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}]}
READING = re.compile(r'^container_cpu_usage_seconds_total\{container="(.*?)",namespace="(.*?)",pod="(.*?)"\} (\S+) (\d+)$', re.MULTILINE)


class Metrics:
    """Served from `start` to `stop`."""

    def __init__(self, cluster):
        self.cluster, self.stopped = cluster, threading.Event()
        # (container, namespace, pod) → its last two readings: (Unix ms, seconds of processor).
        self.readings = {}
        metrics = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                try:
                    status, found = metrics.answer(urllib.parse.urlsplit(self.path))
                except (ApiError, OSError) as e:
                    status, found = 503, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(e), "code": 503}
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((ADDRESS, PORT), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(str(PKI / "node1.crt"), str(PKI / "node1.key"))
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)

    def start(self):
        for work in (self.server.serve_forever, self.follow):
            threading.Thread(target=work, daemon=True).start()
        self.cluster.apply(MANIFEST)

    def stop(self):
        """Nothing asks for it any more: what asks for all kinds there are would wait."""
        self.cluster.kubectl("delete", f"apiservice/{NAME}")
        self.cluster.kubectl("delete", "-n", "kube-system", "service/metrics")
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()

    def follow(self):
        tls = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        tls.load_cert_chain(str(PKI / "to-kubelet.crt"), str(PKI / "to-kubelet.key"))
        while not self.stopped.wait(EVERY_S):
            try:
                page = urllib.request.urlopen(f"https://{ADDRESS}:{KUBELET_PORT}/metrics/resource", timeout=10, context=tls).read().decode()
            except OSError:
                continue  # the next time
            found = {}
            for *key, seconds, at_ms in READING.findall(page):
                before, now = self.readings.get(tuple(key), ()), (int(at_ms), float(seconds))
                found[tuple(key)] = before if before and before[-1][0] == now[0] else (*before[-1:], now)
            self.readings = found

    def answer(self, url):
        """(HTTP status, object)."""
        words = url.path.strip("/").split("/")[1:]
        if words == ["metrics.k8s.io", "v1beta1"]:
            return 200, RESOURCES
        if len(words) == 5 and words[2] == "namespaces" and words[4] == "pods":
            selector = urllib.parse.parse_qs(url.query).get("labelSelector", [""])[0]
            names = [pod["metadata"]["name"] for pod in self.cluster.api.list("pods", words[3], selector)]
            return 200, {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
                         "items": [found for found in (self.of_pod(words[3], name) for name in names) if found]}
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    def of_pod(self, namespace, pod):
        """PodMetrics; None until there are two readings of each container."""
        containers = {key[0]: readings for key, readings in self.readings.items() if key[1:] == (namespace, pod)}
        if not containers or any(len(readings) < 2 for readings in containers.values()):
            return None
        (before_ms, _), (at_ms, _) = next(iter(containers.values()))
        return {
            "metadata": {"name": pod, "namespace": namespace},
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000)), "window": f"{(at_ms - before_ms) / 1000:.3f}s",
            "containers": [{"name": name, "usage": {"cpu": f"{nanocores(*readings)}n", "memory": "0"}} for name, readings in containers.items()],
        }


def nanocores(before, now):
    return max(0, round((now[1] - before[1]) / (now[0] - before[0]) * 1e12))
