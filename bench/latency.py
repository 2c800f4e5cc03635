"""What the sidecar adds: sends and acknowledgements through it and at the broker itself, at a fixed rate, alternated."""

import contextlib
import tempfile

import load
import peers
from effort import say
from rows import Bar, Row

RATE = 300
TOPIC = "bench-latency"
ADDED_P99_MS_MAX = 1


def latency(effort, flush):
    """Rows and raw values of one pair of broker and sidecar."""
    reports = {"broker": [], "sidecar": []}
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder, contextlib.ExitStack() as stack:
        pair = stack.enter_context(peers.start_pair(folder, flush))
        peer = pair.ready()
        peer.create(TOPIC, load.GROUP)
        ways = {"broker": ["--direct", pair.remoting_at], "sidecar": ["--endpoint", pair.endpoint]}
        for number in range(effort.rounds + 1):
            for way, at in ways.items():
                report = load.run(peer, "latency", effort.latency_s, "--topic", TOPIC, "--rate", RATE, "--in-flight", 16, at=at)
                if number > 0:
                    reports[way].append(report)
                seen = ", ".join(f"{call} p50 {ms['p50']:.2f} p99 {ms['p99']:.2f} ms" for call, ms in report["latenciesMs"].items())
                errors = "".join(f", ERROR {label}: {count}" for label, count in report["errors"].items())
                say(f"  {f'{number}/{effort.rounds}' if number else 'warm'} {way:8} {seen}, others {report['others']:.2f} cores{errors}")
    return rows(reports), reports


def rows(reports):
    """Of send and ack: at the broker, through the sidecar, and the difference in the same round."""
    made = []
    for call in ("send", "ack"):
        for which in ("p50", "p99"):
            direct, through = ([report["latenciesMs"][call][which] for report in reports[way]] for way in ("broker", "sidecar"))
            made += [Row(f"latency: {call} at the broker, {which} at {RATE}/s", "ms", direct),
                     Row(f"latency: {call} through the sidecar, {which} at {RATE}/s", "ms", through),
                     Row(f"latency: {call}, {which} that the sidecar adds", "ms", [b - a for a, b in zip(direct, through)], None,
                         Bar(ADDED_P99_MS_MAX) if which == "p99" else None)]
    errors = [sum(sum(report["errors"].values()) for way in reports.values() for report in way)]
    return [*made, Row("latency: errors", "", errors, None, Bar(0))]
