"""Published clients in pods, and what they saw: each writes lines into a file of the node, which outlives its pod. See client.py."""
import collections
import json
import time

from house import HERE, PATIENCE_S, ROOT, STATE, Failed, expect, wait_for
from images import CLIENT

RESULTS = STATE / "results"
VENV = ROOT / "conformance" / ".cache" / "venv"
# Of the machine; the same paths in the pods.
MOUNTS = ["/usr", str(VENV), str(HERE)]


def base_python():
    """Where the virtual environment's interpreter has its library."""
    for line in (VENV / "pyvenv.cfg").read_text().splitlines():
        name, _, value = line.partition(" = ")
        if name == "home":
            return value.rpartition("/")[0]
    raise Failed(f"no home in {VENV}/pyvenv.cfg")


def pod_spec(command, grace_s=30, mounts=(), environment=None):
    """The spec of a pod that runs the command with the machine's files and the published client; `mounts` are further folders."""
    home = base_python()
    mounts = MOUNTS + ([] if home.startswith("/usr/") or home == "/usr" else [home]) + list(map(str, mounts))
    volumes = [{"name": f"m{n}", "hostPath": {"path": path}} for n, path in enumerate(mounts)]
    return {
        "terminationGracePeriodSeconds": grace_s,
        "automountServiceAccountToken": False,
        "volumes": volumes + [{"name": "results", "hostPath": {"path": str(RESULTS), "type": "DirectoryOrCreate"}}],
        "containers": [{
            "name": "app", "image": CLIENT, "imagePullPolicy": "Never", "command": list(map(str, command)),
            "env": [{"name": name, "value": str(value)} for name, value in (environment or {}).items()],
            "volumeMounts": [{"name": f"m{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(mounts)]
            + [{"name": "results", "mountPath": "/results"}],
        }],
    }


def client(work, name, endpoint=None, **options):
    """The command of client.py; its lines go into RESULTS / name. Without an endpoint it is taken from the environment."""
    words = [VENV / "bin" / "python", HERE / "client.py", work, "--out", f"/results/{name}"]
    if endpoint:
        words += ["--endpoint", endpoint]
    for option, value in options.items():
        words += [f"--{option}", value]
    return words


class Book:
    """What clients saw, by the names of their files."""

    def __init__(self, *names):
        self.names = names

    def lines(self):
        """(Unix seconds, what, words) of all of them, by time."""
        found = []
        for name in self.names:
            path = RESULTS / name
            for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
                at, what, *words = line.split(" ", 2)
                found.append((float(at), what, words[0] if words else ""))
        return sorted(found)

    def ids(self, what):
        """Message id → how often."""
        return collections.Counter(words for _, kind, words in self.lines() if kind == what)

    def longest_gap(self, what, since, until=None):
        """The longest time in which nothing of the kind happened, seconds, from `since` until `until` (now)."""
        until = until or time.time()
        times = [since, *(at for at, kind, _ in self.lines() if kind == what and since < at < until), until]
        return max(later - earlier for earlier, later in zip(times, times[1:]))

    def failures(self, since=0.0):
        return [words for at, what, words in self.lines() if what == "failed" and at > since]


class Load:
    """A producer and consumers at work in pods, until it is finished."""

    def __init__(self, cluster, namespace, name, endpoint, topic, group, rate=40, consumers=2):
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.producer, self.consumers = f"{name}-producer", [f"{name}-consumer-{n}" for n in range(consumers)]
        self.sent, self.received = Book(self.producer), Book(*self.consumers)
        RESULTS.mkdir(exist_ok=True)
        for consumer in self.consumers:
            self._pod(consumer, client("consume", consumer, endpoint, topic=topic, group=group))
        self._pod(self.producer, client("produce", self.producer, endpoint, topic=topic, rate=rate))
        wait_for(lambda: f"load {name} flows; failures: {self.failures()}", PATIENCE_S, lambda: len(self.received.ids("acked")) > 10)

    def _pod(self, name, command):
        self.cluster.api.create("pods", self.namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": name, "labels": {"load": self.name}}, "spec": {**pod_spec(command), "restartPolicy": "Never"}})

    def failures(self):
        return json.dumps(collections.Counter(self.sent.failures() + self.received.failures()).most_common(3))

    def wait_flows(self, since, seconds=60, messages=20):
        """Waits until that many messages have been sent, and acknowledged, after `since`."""
        def look():
            return all(sum(at > since and kind == what for at, kind, _ in book.lines()) >= messages
                       for book, what in ((self.sent, "sent"), (self.received, "acked")))
        wait_for(lambda: f"load {self.name} goes on; failures: {self.failures()}", seconds, look)

    def expect_gap(self, since, at_most_s, what):
        """Clients went on within so many seconds, since then."""
        for book, kind in ((self.sent, "sent"), (self.received, "acked")):
            gap = book.longest_gap(kind, since)
            expect(gap <= at_most_s, lambda: f"{what}: nothing was {kind} for {gap:.1f} s; failures: {self.failures()}")
        return max(self.sent.longest_gap("sent", since), self.received.longest_gap("acked", since))

    def lost(self):
        """Ids that were answered OK and not acknowledged yet."""
        return set(self.sent.ids("sent")) - set(self.received.ids("acked"))

    def finish(self, seconds=60):
        """Ends it: the producer, then the consumers when all has come. Failed when something does not come: when for so many seconds nothing
        more did. How many were sent, and how many came more than once."""
        self.cluster.kubectl("delete", "pod", "-n", self.namespace, self.producer)
        while left := len(self.lost()):  # of a slow machine, consumers may be far behind
            wait_for(lambda: f"all of {len(self.sent.ids('sent'))} sent are acknowledged, {len(self.lost())} are not: {sorted(self.lost())[:3]}",
                     seconds, lambda: len(self.lost()) < left, every=1)
        self.cluster.kubectl("delete", "pod", "-n", self.namespace, *self.consumers)
        again = sum(count - 1 for count in self.received.ids("got").values())
        return len(self.sent.ids("sent")), again
