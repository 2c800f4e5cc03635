"""Checks with names, what they need of each other, and how they are run and reported."""
import dataclasses
import pathlib
import shutil
import subprocess
import time
import traceback

from kube import Api, ApiError

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CLUSTER = HERE / "cluster"
STATE = ROOT / ".cache" / "e2e" / "run"
LOGS = ROOT / ".cache" / "logs" / "e2e"
# How long what takes a moment may take on a busy machine, seconds.
PATIENCE_S = 90


class Failed(Exception):
    """What was to be shown is not so."""


class Skipped(Exception):
    """What is to be shown cannot be, on this machine, and why. Nothing is wrong."""


@dataclasses.dataclass
class Check:
    """`needs`: names of checks that must have passed before. `calm`: why no operator is killed at random meanwhile, if none is. `function` is
    given the Cluster and gives a note for the report, or None."""
    name: str
    says: str
    needs: tuple
    function: object
    calm: str = ""


CHECKS = []


def check(name, needs=(), calm=""):
    """Registers the function as a check; the first line of its docstring says what it shows."""
    def register(function):
        CHECKS.append(Check(name, function.__doc__.splitlines()[0], tuple(needs), function, calm))
        return function
    return register


def chosen(names):
    """All checks in their order; with names: those, and what they need. Raises KeyError with an unknown name."""
    known = {c.name: c for c in CHECKS}
    wanted = set()

    def take(name):
        if name not in wanted:
            wanted.add(name)
            for need in known[name].needs:
                take(need)

    for name in names or known:
        take(name)
    return [c for c in CHECKS if c.name in wanted]


def expect(condition, message):
    if not condition:
        raise Failed(message() if callable(message) else message)


def wait_for(what, seconds, look, every=0.3):
    """What `look` gives, when it gives something; Failed after so many seconds. That something cannot be reached, or is not so, is nothing
    yet."""
    end, last = time.monotonic() + seconds, None
    while True:
        try:
            if found := look():
                return found
        except (ApiError, OSError, Failed) as e:
            last = e
        expect(time.monotonic() < end, lambda: f"not within {seconds:.0f} s: {what() if callable(what) else what}" + (f" ({last})" if last else ""))
        time.sleep(every)


class Cluster:
    """The cluster as checks see it."""

    def __init__(self):
        self.api = Api(STATE / "pki")
        self.killer = None

    @staticmethod
    def command(*words, text=None, seconds=PATIENCE_S):
        """Runs a command; what it wrote. Failed with what it said when it fails. `text` goes to its standard input."""
        try:
            done = subprocess.run(list(map(str, words)), input=text, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(map(str, words))}: not done after {seconds} s") from None
        expect(done.returncode == 0, lambda: f"{' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def kubectl(self, *words, **how):
        return self.command("kubectl", *words, **how)

    def apply(self, manifest, namespace=None):
        """`kubectl apply` of YAML text."""
        return self.kubectl("apply", "-f", "-", *(["-n", namespace] if namespace else []), text=manifest)

    def condition(self, kind, namespace, name, condition="Ready"):
        """The condition of an object as (status, reason, message); Nones when there is none."""
        return condition_of(self.api.get(kind, namespace, name) or {}, condition)

    def wait_ready(self, kind, namespace, name, seconds=PATIENCE_S):
        """Waits until the condition Ready is there for the generation that is there now."""
        def look():
            found = self.api.get(kind, namespace, name)
            ready = found and condition_of(found, "Ready")[0] == "True"
            return ready and found["status"].get("observedGeneration") == found["metadata"]["generation"]
        wait_for(lambda: f"{kind} {namespace}/{name} is ready, it is {self.condition(kind, namespace, name)}", seconds, look)

    def pods(self, namespace, selector=""):
        """Those that are not about to end."""
        return [p for p in self.api.list("pods", namespace, selector) if not p["metadata"].get("deletionTimestamp")]

    def wait_pods(self, namespace, selector, count, seconds=PATIENCE_S):
        """Waits until there are so many pods and all of them are ready; the pods."""
        def look():
            pods = self.pods(namespace, selector)
            return len(pods) == count and all(map(is_ready, pods)) and (pods or True)
        return wait_for(lambda: f"{count} ready pods {selector} in {namespace}; there are {describe(self.pods(namespace, selector))}", seconds, look)


def condition_of(found, condition):
    """The condition of an object as (status, reason, message); Nones when there is none."""
    for one in found.get("status", {}).get("conditions", []):
        if one["type"] == condition:
            return one["status"], one.get("reason"), one.get("message")
    return None, None, None


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def describe(pods):
    """Pods in a few words."""
    def state(pod):
        waiting = [s["state"]["waiting"]["reason"] for s in pod["status"].get("containerStatuses", []) if "waiting" in s["state"]]
        return " ".join([pod["metadata"]["name"], pod["status"].get("phase", "?"), "ready" if is_ready(pod) else "not ready", *waiting])
    return "; ".join(map(state, pods)) or "none"


def run(checks, killer=None):
    """Runs them one after the other; how many passed, failed and were skipped. `killer` makes, for the Cluster, what kills operators meanwhile."""
    cluster, passed, skipped, began = Cluster(), set(), set(), time.monotonic()
    if killer:
        cluster.killer = killer(cluster)
        cluster.killer.start()
    for one in checks:
        started, killed = time.monotonic(), killer and cluster.killer.count()
        missing = [need for need in one.needs if need not in passed]
        try:
            expect(not missing, f"not tried: it needs {', '.join(missing)}")
            if killer and one.calm:
                cluster.killer.rest()
            note, ok = one.function(cluster) or "", True
        except Skipped as e:
            note, ok = str(e), None
        except Failed as e:
            note, ok = str(e), False
        except Exception:  # a fault of the tests must show as a failure, not end the run
            note, ok = traceback.format_exc(), False
        if ok is None:
            skipped.add(one.name)
        elif ok:
            passed.add(one.name)
        elif not missing:
            keep(one.name)
        if killer:
            cluster.killer.go_on()
            note += f" [{cluster.killer.count() - killed} operators killed]"
        print(f"{time.monotonic() - began:6.1f}s {one.name:32} {'skip' if ok is None else '✓' if ok else 'FAIL':5} {time.monotonic() - started:5.1f}s {note}", flush=True)
    if killer:
        cluster.killer.end()
        print(f"        {cluster.killer.told()}; none during {', '.join(one.name for one in checks if one.calm) or '-'}", flush=True)
    return len(passed), len(checks) - len(passed) - len(skipped), len(skipped)


def keep(name):
    """Keeps what tells why a check failed: objects, events, and the logs of all pods."""
    folder = LOGS / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, words in {
        "objects.txt": ["get", "all,pvc,configmap,waybill", "-A", "-o", "wide"], "waybill.yaml": ["get", "waybill", "-A", "-o", "yaml"],
        "events.txt": ["get", "events", "-A", "--sort-by=.lastTimestamp"], "pods.txt": ["describe", "pods", "-A"],
    }.items():
        with open(folder / file, "w") as out:
            subprocess.run(["kubectl", *words], stdout=out, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
    shutil.copytree(STATE / "pod-logs", folder / "pod-logs", dirs_exist_ok=True)
    if (STATE / "results").exists():
        shutil.copytree(STATE / "results", folder / "results", dirs_exist_ok=True)
