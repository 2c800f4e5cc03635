"""Ends operators at random, at once and without warning, while the checks run."""
import random
import threading

from house import CLUSTER, PATIENCE_S, ApiError, Failed, expect, is_ready, wait_for

NAMESPACE = "waybill"
OPERATORS = "app.kubernetes.io/name=waybill-operator"
# Between two deaths, seconds.
LIVES_S = (10, 20)
# One of so many loses its pod; the others are started again where they were, by the same name and at the same address.
PODS = 4


class Killer(threading.Thread):
    """One operator every 10 to 20 s, if another is ready: what the webhook does when none is there is told by `namespaced`."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.seed = cluster, random.randrange(2 ** 32)
        self.random = random.Random(self.seed)
        self.ended, self.resting, self.turn = threading.Event(), threading.Event(), threading.Lock()
        self.killed = {"container": 0, "pod": 0}

    def run(self):
        while not self.ended.wait(self.random.uniform(*LIVES_S)):
            with self.turn:
                if not self.resting.is_set():
                    self.strike()

    def strike(self):
        """One of at least two that are ready."""
        try:
            pods = self.ready()
            if len(pods) >= 2:
                self.kill(self.random.choice(pods), "pod" if self.random.randrange(PODS) == 0 else "container")
        except (ApiError, OSError, Failed):
            pass  # it went by itself meanwhile; the next time

    def ready(self):
        return [pod for pod in self.cluster.pods(NAMESPACE, OPERATORS) if is_ready(pod)]

    def kill(self, pod, what):
        """Its process with SIGKILL, or all of it."""
        if what == "pod":
            self.cluster.api.delete("pods", NAMESPACE, pod["metadata"]["name"], grace_s=0)
        else:
            container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
            self.cluster.command(CLUSTER / "inside", "--all", "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container)
        self.killed[what] += 1

    def kill_all(self):
        """All of them, where they are; for a check that others do not disturb."""
        pods = self.ready()
        expect(pods, "there is no operator to kill")
        for pod in pods:
            self.kill(pod, "container")

    def rest(self):
        """Until `go_on`; all operators are there when this returns, if there are any."""
        with self.turn:
            self.resting.set()
        if any(self.killed.values()) and self.cluster.pods(NAMESPACE, OPERATORS):
            wait_for("an operator leads", PATIENCE_S, self.one_leads)

    def one_leads(self):
        pods, ready = self.cluster.pods(NAMESPACE, OPERATORS), self.ready()
        lease = self.cluster.api.get("leases", NAMESPACE, "waybill-operator")
        return len(pods) == len(ready) and lease["spec"].get("holderIdentity") in [pod["metadata"]["name"] for pod in ready]

    def go_on(self):
        self.resting.clear()

    def end(self):
        self.ended.set()

    def count(self):
        return sum(self.killed.values())

    def told(self):
        return f"{self.count()} operators killed ({self.killed['container']} containers, {self.killed['pod']} pods), seed {self.seed}"
