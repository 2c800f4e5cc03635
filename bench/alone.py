"""What is measured of Waybill alone. Each stage returns a list of Rows and its raw values."""

import re
import subprocess
import tempfile
import time

import load
import paths
import peers
import servers
import usage
from effort import say
from rows import Bar, Row

IDLE_MIB_MAX = {"sidecar": 12, "broker": 32, "standalone": 40}
START_MS_MAX = 500
START_LIMIT_S = 20
STORE_LIMIT_S = 300
STORE_RATIO_MIN = 0.7


def memory(effort, flush):
    """Resident memory of each process: fresh, after sends and receives, and a while later."""
    seen = {}
    for running in (peers.waybill, peers.standalone):
        with running(flush) as peer:
            look(peer, seen, "idle", effort.settle_s)
            peer.create("bench-send")
            peer.create("bench-receive", load.GROUP)
            load.run(peer, "send", effort.send_s, "--topic", "bench-send", "--in-flight", 64)
            load.run(peer, "receive-ack", effort.receive_s, "--topic", "bench-receive", "--in-flight", 16, "--messages", 20_000)
            look(peer, seen, "after load", 0)
            look(peer, seen, f"{2 * effort.settle_s} s later", 2 * effort.settle_s)
    rows = [Row(f"memory: {name}, {when}", "MiB", [mib], None, Bar(IDLE_MIB_MAX[name]) if when == "idle" else None)
            for name, values in seen.items() for when, mib in values.items()]
    return rows, seen


def look(peer, seen, when, wait_s):
    """Notes the resident memory of each of a server's processes after a wait."""
    time.sleep(wait_s)
    for name, pid in peer.pids.items():
        seen.setdefault(name, {})[when] = usage.resident_mib(pid)
        say(f"  {name}, {when}: {seen[name][when]:.1f} MiB")


def start(effort, flush):
    """From before the start of the process until a message is sent, on an empty directory; the client's own start counts, too."""
    rows, raw = [], {}
    for name, measure in (("standalone", start_standalone), ("broker + sidecar", start_pair)):
        raw[name] = [measure(flush) for _ in range(effort.starts)]
        say(f"  {name}: " + " ".join(f"{ms:.0f}" for ms in raw[name]) + " ms")
        rows.append(Row(f"start: {name} to first send", "ms", raw[name], None, Bar(START_MS_MAX)))
    return rows, raw


def start_standalone(flush):
    """Milliseconds."""
    began = time.monotonic()
    with peers.standalone(flush) as peer:
        return first_send(peer.endpoint, began)


def start_pair(flush):
    """Milliseconds; both processes are started at once."""
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        began = time.monotonic()
        with peers.start_pair(folder, flush, auto_create=True) as pair:
            return first_send(pair.endpoint, began)


def first_send(endpoint, began):
    """Tries until a message is sent; milliseconds since `began`."""
    command = [paths.RELEASE / "waybill", "message", "send", "--endpoint", endpoint, "--topic", "bench-start", "--body", "x"]
    while True:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_LIMIT_S)
        if done.returncode == 0:
            return (time.monotonic() - began) * 1000
        if time.monotonic() - began > START_LIMIT_S:
            raise servers.ServerError(f"nothing could be sent to {endpoint} after {START_LIMIT_S} s: {done.stderr}")


def store(effort, _flush):
    """The store's group-committed appends against a plain append and sync of the same bytes, alternated."""
    code, out, errors = usage.run_first([paths.RELEASE / "examples" / "store_bench", effort.store_rounds], STORE_LIMIT_S)
    if code != 0:
        raise load.LoadError(f"store_bench ended with {code}:\n{out}{errors}")
    for line in out.splitlines():
        say(f"  {line}")
    rounds = re.findall(r"^round .*?store ([\d.]+) MB/s, ([\d.]+) messages/s.*raw ([\d.]+) MB/s", out, re.MULTILINE)
    ours, messages, raw = (list(map(float, values)) for values in zip(*rounds, strict=True))
    micros = [float(number) for number in re.findall(r"([\d.]+) µs of CPU", out)]
    rows = [Row("store: append and sync, of a plain file's", "MB/s", ours, raw, Bar(STORE_RATIO_MIN, at_most=False, of_ratio=True)),
            Row("store: durable appends of 1 KiB", "messages/s", messages),
            Row("store: CPU per append", "µs", micros)]
    return rows, {"stdout": out}
