"""A small client of the API server: objects as dictionaries, over HTTPS with a certificate. Python's standard library only."""
import http.client
import json
import pathlib
import re
import ssl
import threading
import urllib.parse

ADDRESS, PORT = "10.89.0.1", 6443
TIMEOUT_S = 30
# Where the kinds used here are: the path before the namespace, and the name in paths.
KINDS = {
    "pods": "/api/v1", "services": "/api/v1", "configmaps": "/api/v1", "secrets": "/api/v1", "namespaces": "/api/v1", "events": "/api/v1",
    "persistentvolumes": "/api/v1", "persistentvolumeclaims": "/api/v1", "nodes": "/api/v1", "serviceaccounts": "/api/v1",
    "deployments": "/apis/apps/v1", "statefulsets": "/apis/apps/v1", "replicasets": "/apis/apps/v1", "jobs": "/apis/batch/v1",
    "brokers": "/apis/waybill.dev/v1alpha1", "proxies": "/apis/waybill.dev/v1alpha1", "topics": "/apis/waybill.dev/v1alpha1",
    "consumergroups": "/apis/waybill.dev/v1alpha1", "users": "/apis/waybill.dev/v1alpha1",
    "poddisruptionbudgets": "/apis/policy/v1", "leases": "/apis/coordination.k8s.io/v1",
}


class ApiError(Exception):
    """The API server said no. `code`: the HTTP status; `message`: why, in its words."""

    def __init__(self, code, message):
        self.code, self.message = code, message
        super().__init__(f"{code}: {message}")


class Api:
    """The API server, spoken to as `name` of the certificates. May be used by several threads."""

    def __init__(self, certificates, name="admin"):
        folder = pathlib.Path(certificates)
        self.tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self.tls.load_cert_chain(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
        self.local = threading.local()

    def call(self, method, path, body=None, content_type="application/json"):
        """The answer as a dictionary. Raises ApiError, or OSError when there is no way to it."""
        data = None if body is None else json.dumps(body).encode()
        for last_try in (False, True):
            connection = getattr(self.local, "connection", None)
            fresh = connection is None
            if fresh:
                connection = self.local.connection = http.client.HTTPSConnection(ADDRESS, PORT, timeout=TIMEOUT_S, context=self.tls)
            try:
                connection.request(method, path, data, {"Content-Type": content_type, "Accept": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                self.local.connection = None
                if last_try or fresh:  # one that was kept may have been closed meanwhile
                    raise OSError(f"{method} {path}: {e}") from e
        found = json.loads(text) if text else {}
        if answer.status >= 300:
            raise ApiError(answer.status, found.get("message", text.decode(errors="replace")))
        return found

    @staticmethod
    def path(kind, namespace=None, name=None, part=None, **query):
        """The path of objects: `kind` in plural, `part` a subresource."""
        words = [KINDS[kind], *(["namespaces", namespace] if namespace else []), kind, *filter(None, (name, part))]
        return "/".join(words) + (f"?{urllib.parse.urlencode(query)}" if query else "")

    def get(self, kind, namespace, name):
        """The object, or None."""
        try:
            return self.call("GET", self.path(kind, namespace, name))
        except ApiError as e:
            if e.code == 404:
                return None
            raise

    def list(self, kind, namespace=None, selector=""):
        """All objects of the kind, of one namespace or of all, with these labels."""
        return self.call("GET", self.path(kind, namespace, labelSelector=selector))["items"]

    def create(self, kind, namespace, body):
        return self.call("POST", self.path(kind, namespace), body)

    def patch(self, kind, namespace, name, body, part=None):
        """A merge patch."""
        return self.call("PATCH", self.path(kind, namespace, name, part), body, "application/merge-patch+json")

    def delete(self, kind, namespace, name, grace_s=None):
        """Asks for it to be deleted; nothing when it is not there."""
        try:
            self.call("DELETE", self.path(kind, namespace, name), None if grace_s is None else {"gracePeriodSeconds": grace_s})
        except ApiError as e:
            if e.code != 404:
                raise


def quantity(text):
    """Bytes of a Kubernetes quantity of storage or memory."""
    number, unit = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", text).groups()
    return float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2 ** 10, "Mi": 2 ** 20, "Gi": 2 ** 30, "Ti": 2 ** 40}[unit]
