"""Runs the load generator, `waybill bench`, against a server, and looks at the machine meanwhile."""

import json
import resource

import paths
import usage

GROUP = "bench-readers"
# Connections are clients of their own; what is in flight is dealt out over them.
CONNECTIONS = 4
SIZE = 1024
SPARE_S = 150


class LoadError(Exception):
    """The load generator failed."""


def run(peer, scenario, duration_s, *options, at=None, connections=CONNECTIONS, size=SIZE):
    """One measurement. Its report, with `others`: cores that neither this server nor the client used.

    `at`: options that say where; by default the peer's gRPC endpoint.
    """
    command = [paths.RELEASE / "waybill", "--output", "json", "bench", scenario, *(at or ["--endpoint", peer.endpoint]),
               "--group", GROUP, "--connections", connections, "--size", size, "--duration", f"{duration_s}s",
               "--pid", ",".join(map(str, peer.pids.values())), *options]
    machine, ours = usage.Machine.now(), accounted(peer)
    code, out, errors = usage.run_first(command, duration_s + SPARE_S)
    if code != 0:
        raise LoadError(f"waybill bench {scenario} at {peer.name} ended with {code}:\n{out}{errors}")
    report = json.loads(out)
    report["others"] = machine.cores_since(accounted(peer) - ours)
    report["peer"] = peer.name
    return report


def accounted(peer):
    """CPU seconds of the server and of all load generators so far."""
    clients = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(map(usage.cpu_seconds, peer.pids.values())) + clients.ru_utime + clients.ru_stime
