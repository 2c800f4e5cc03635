"""What is measured against a peer, alternated round by round. Each stage returns a list of Rows and its raw reports."""

import contextlib
import os
import signal
import time

import load
import usage
from effort import say
from rows import Bar, Row

E2E_RATE = 300
# The same on both sides, and more of it where more is done in the same time.
RECEIVED_PER_SECOND = {"Waybill": 2_500, "Apache": 1_000}


def alternate(rounds, peers, measure):
    """Measures each server once in every round, A B A B …; reports by the server's name.

    A round before the first is thrown away: it warms up, above all Apache's compiler.
    """
    reports = {peer.name: [] for peer in peers}
    for number in range(rounds + 1):
        for peer in peers:
            with paused([other for other in peers if other is not peer]):
                report = measure(peer)
            if number > 0:
                reports[peer.name].append(report)
            say(f"  {f'{number}/{rounds}' if number else 'warm'} {line(report)}")
    return reports


@contextlib.contextmanager
def paused(peers):
    """Stops the processes of servers that are not measured: what they do when idle must not disturb those that are."""
    pids = [pid for peer in peers for pid in peer.pids.values()]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def line(report):
    """A report in a line."""
    parts = [f"{report['peer']:8} {report['messagesPerSecond']:8,.0f}/s, {micros(report):7.1f} µs of server CPU each"]
    parts += [f"{what} p50 {seen['p50']:.1f} p99 {seen['p99']:.1f} ms" for what, seen in report["latenciesMs"].items()]
    parts += [f"{report['server']['residentBytesAfter'] / 2**20:.0f} MiB", f"others {report['others']:.2f} cores"]
    parts += [f"ERROR {label}: {count}" for label, count in report["errors"].items()]
    return ", ".join(parts)


def rate(report):
    """Messages a second."""
    return report["messagesPerSecond"]


def micros(report):
    """Server CPU per message, microseconds."""
    return report["server"]["cpuSeconds"] * 1e6 / max(1, report["messages"])


def per_cpu(report):
    """Messages per second of server CPU; a tick at least, so that nothing divides by zero."""
    return report["messages"] / max(1 / usage.TICKS, report["server"]["cpuSeconds"])


def both(reports, value):
    """A value of each report, Waybill's and the peer's."""
    return ([value(report) for report in reports["Waybill"]],
            [value(report) for report in reports["Apache"]] if "Apache" in reports else None)


def throughput(stage, reports, bars):
    """Rows of a closed loop."""
    return [Row(f"{stage}: throughput", "messages/s", *both(reports, rate), Bar(3, at_most=False, of_ratio=True) if bars else None),
            Row(f"{stage}: per server CPU-second", "messages", *both(reports, per_cpu),
                Bar(5, at_most=False, of_ratio=True) if bars else None),
            Row(f"{stage}: server CPU per message", "µs", *both(reports, micros))]


def send(effort, peers, stage="send", bars=True):
    """1 KiB, 64 in flight."""
    for peer in peers:
        peer.create("bench-send")
    options = ["--topic", "bench-send", "--in-flight", 64, "--warmup", "2s"]
    reports = alternate(effort.rounds, peers, lambda peer: load.run(peer, "send", effort.send_s, *options))
    return throughput(stage, reports, bars), reports


def receive(effort, peers, stage="receive", bars=True):
    """16 receives of 32 in flight, 1 KiB, each message acknowledged by a call of its own, as the clients do."""
    for peer in peers:
        peer.create("bench-receive", load.GROUP)
    options = ["--topic", "bench-receive", "--in-flight", 16, "--batch", 32]

    def measure(peer):
        messages = RECEIVED_PER_SECOND[peer.name] * effort.receive_s
        return load.run(peer, "receive-ack", effort.receive_s, *options, "--messages", messages)

    reports = alternate(effort.rounds, peers, measure)
    return throughput(stage, reports, bars), reports


def e2e(effort, peers, stage="e2e", bars=True):
    """From when a message should be sent until it is received, at a fixed rate; then it is acknowledged."""
    for peer in peers:
        peer.create("bench-e2e", load.GROUP)
    options = ["--topic", "bench-e2e", "--in-flight", 64, "--receivers", 8, "--rate", E2E_RATE, "--warmup", "3s"]
    reports = alternate(effort.rounds, peers, lambda peer: load.run(peer, "e2e", effort.e2e_s, *options))

    def row(which, bar=None):
        return Row(f"{stage}: {which} at {E2E_RATE}/s", "ms", *both(reports, lambda r: r["latenciesMs"]["send-receive"][which]), bar)

    p99 = Bar(0.333, of_ratio=True) if bars else None
    lost = Row(f"{stage}: not received", "messages", *both(reports, lambda r: r["more"]["missing"]), Bar(0))
    return [row("p50"), row("p99", p99), lost], reports


def idle(effort, peers):
    """Nobody connected: CPU of all processes of a server over one window, in three parts."""
    say(f"  {effort.settle_s} s to settle, then {effort.idle_s} s")
    time.sleep(effort.settle_s)
    shares = {peer.name: [] for peer in peers}
    for _ in range(3):
        before, began = {peer.name: cpu(peer) for peer in peers}, time.monotonic()
        time.sleep(effort.idle_s / 3)
        for peer in peers:
            shares[peer.name].append((cpu(peer) - before[peer.name]) / (time.monotonic() - began) * 100)
        say("  " + ", ".join(f"{name} {values[-1]:.2f} % of a core" for name, values in shares.items()))
    memory = {peer.name: [sum(map(usage.resident_mib, peer.pids.values()))] for peer in peers}
    rows = [Row("idle: CPU, all processes", "% of a core", shares["Waybill"], shares.get("Apache"), Bar(0.5)),
            Row("idle: memory, all processes", "MiB", memory["Waybill"], memory.get("Apache"))]
    return rows, {"shares": shares, "memory": memory}


def cpu(peer):
    """CPU seconds of all processes of a server since they started."""
    return sum(map(usage.cpu_seconds, peer.pids.values()))
