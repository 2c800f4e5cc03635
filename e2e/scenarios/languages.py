"""The clients of examples/clients, as they are there, in pods with a sidecar of their own."""
import glob
import os
import shutil

from house import ROOT, check, expect, wait_for
from load import VENV, pod_spec

from .shop import APPS, make_namespace
from .sidecars import condition_of_job, job, make_job

FOLDER = ROOT / "examples" / "clients"
NODE_MODULES = ROOT / "conformance" / "node" / "node_modules"
JAVA_LIBRARIES = ROOT / "conformance" / "java" / ".cache" / "lib"
LIMIT_S = 120


def machine(name):
    """A program of this machine, by the path that pods have it at, too."""
    return os.path.realpath(shutil.which(name))


def programs():
    """Language → the spec of a pod that runs its example."""
    java = [machine("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JAVA_LIBRARIES}/*", FOLDER / "Client.java"]
    return {
        "python": pod_spec([VENV / "bin" / "python", FOLDER / "client.py"], mounts=[FOLDER]),
        "node": pod_spec([machine("node"), FOLDER / "client.js"], mounts=[FOLDER, NODE_MODULES], environment={"NODE_PATH": NODE_MODULES}),
        # Debian keeps the configuration of Java outside of it.
        "java": pod_spec(java, mounts=[FOLDER, JAVA_LIBRARIES, *glob.glob("/etc/java-*-openjdk")]),
    }


@check("languages", needs=["shop"])
def languages(cluster):
    """The examples in Python, Node and Java, word for word, each a Job with a sidecar: each sends, receives, asks for time, acknowledges"""
    make_namespace(cluster, APPS)
    for language, spec in programs().items():
        make_job(cluster, f"example-{language}", lambda: cluster.api.create("jobs", APPS, job(f"example-{language}", spec)))
    for language in programs():
        name = f"example-{language}"
        wait_for(lambda: f"job {name} has ended", LIMIT_S, lambda: condition_of_job(cluster, name))
        said = cluster.kubectl("logs", "-n", APPS, f"job/{name}", "-c", "app")
        expect(condition_of_job(cluster, name) == "Complete", lambda: f"{name}: {said}")
        for words in ("sent ", "received one coffee", "done"):
            expect(words in said, lambda: f"{name} does not say {words!r}: {said}")
