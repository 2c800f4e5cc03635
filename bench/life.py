"""Delayed messages, leases that end, message groups, and what a broker costs when it is old. All at the broker, over remoting."""

import contextlib
import tempfile
import time

import against
import load
import peers
import servers
from effort import say
from rows import Bar, Row

# Longer than any of these measurements takes; what ends them is that all messages have come.
LIMIT_S = 900
DELAYED, TRICKLE, PLAIN = "bench-delay", "bench-delay-trickle", "bench-delay-plain"
DELAY_ROUNDS = 3
# What a broker takes in of delayed messages until they are due; and as many as that is measured with.
ACCEPTED_PER_SECOND = {"Waybill": 12_000, "Apache": 2_500}
REDELIVER_ROUNDS = 3
FIFO_ROUNDS = 5
AGED_SIZE = 100
RESTARTS = 3


def run(peer, scenario, *options, **more_options):
    """One measurement at a broker."""
    report = load.run(peer, scenario, LIMIT_S, *options, at=["--namesrv", peer.endpoint], **more_options)
    say(f"  {against.line(report)}, {report['more']}")
    return report


@contextlib.contextmanager
def brokers(flush, alone, pop="fs"):
    """Waybill's broker and, unless alone, Apache's."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(peers.broker("Waybill", flush))]
        if not alone:
            running.append(stack.enter_context(peers.apache_broker(pop)))
        yield running


def more(name):
    """What only a scenario knows."""
    return lambda report: report["more"][name]


def lateness(what, which):
    """Milliseconds."""
    return lambda report: report["latenciesMs"][what][which]


def delay(effort, flush, alone):
    """As many messages due at the same second as the effort says, with a trickle beside them; and what a delay costs a send."""
    with brokers(flush, alone) as running:
        for peer in running:
            for topic in (DELAYED, TRICKLE):
                peer.create(topic, load.GROUP, "DELAY")
            peer.create(PLAIN, load.GROUP)
        seen = {peer.name: [] for peer in running}
        plain = {peer.name: [] for peer in running}
        for number in range(min(effort.rounds, DELAY_ROUNDS)):
            for peer in running:
                count = effort.delayed if peer.name == "Waybill" else effort.delayed // 10
                due_s = 10 + count // ACCEPTED_PER_SECOND[peer.name]
                # As many of each, and each goes first in its turn: what lies in the broker from before is then the same for both.
                measured = [(plain, ["--topic", PLAIN, "--plain"]),
                            (seen, ["--topic", DELAYED, "--due-in", f"{due_s}s", "--trickle-topic", TRICKLE, "--trickle", 20])]
                with against.paused([other for other in running if other is not peer]):
                    for topic in (PLAIN, DELAYED, TRICKLE):
                        peer.await_route(topic)
                    for reports, options in measured if number % 2 == 0 else reversed(measured):
                        reports[peer.name].append(run(peer, "delay", "--messages", count, *options))
    accepted = {name: [d["more"]["acceptedPerSecond"] / p["more"]["acceptedPerSecond"] for d, p in zip(seen[name], plain[name])]
                for name in seen}
    many = f"{effort.delayed:,} due at once"
    rows = [Row(f"delay: {many}, drained", "messages/s", *against.both(seen, against.rate), Bar(5, at_most=False, of_ratio=True)),
            *(Row(f"delay: {many}, late, {which}", "ms", *against.both(seen, lateness("lateness", which))) for which in ("p50", "p99", "max")),
            Row(f"delay: {many}, early or missing", "messages", *against.both(seen, lambda r: r["more"]["early"] + r["more"]["missing"]), Bar(0)),
            *(Row(f"delay: a trickle meanwhile, late, {which}", "ms", *against.both(seen, lateness("trickle", which)), bar)
              for which, bar in (("p50", None), ("p99", Bar(1000)), ("max", None))),
            Row("delay: accepted, of as many without a delay", "×", accepted["Waybill"], accepted.get("Apache"),
                Bar(0.8, at_most=False))]
    return rows, {"delayed": seen, "plain": plain}


def redeliver(effort, flush, alone):
    """Many leases that end at once: how fast all messages are given out again, and what that writes."""
    with brokers(flush, alone) as running:
        for peer in running:
            peer.create("bench-redeliver", load.GROUP)
        seen = {peer.name: [] for peer in running}
        for number in range(min(effort.rounds, REDELIVER_ROUNDS)):
            for peer in running:
                with against.paused([other for other in running if other is not peer]):
                    counters = ["--admin", peer.metrics] if peer.metrics else []
                    seen[peer.name].append(run(peer, "redeliver", "--topic", "bench-redeliver", "--messages", effort.expired,
                                               "--end-in", f"{20 + effort.expired // 2_500}s", *counters))
    written = [sum(n for name, n in r["counters"].items() if name.startswith("waybill_store_bytes_total")) / r["messages"]
               for r in seen["Waybill"]]
    many = f"{effort.expired:,} leases that end at once"
    rows = [Row(f"redeliver: {many}", "messages/s", *against.both(seen, against.rate), Bar(10, at_most=False, of_ratio=True)),
            Row(f"redeliver: {many}, bytes in the log for each", "bytes", written, None, Bar(100)),
            Row(f"redeliver: {many}, missing", "messages", *against.both(seen, more("missing")), Bar(0))]
    return rows, seen


def fifo(effort, flush, _alone):
    """1,000 message groups in 8 queues, with and without one that is stuck."""
    rounds = []
    with peers.broker("Waybill", flush) as peer:
        for number in range(min(effort.rounds, FIFO_ROUNDS) + 1):
            seen = {"free": [], "stuck": []}
            # A run takes a second, and what earlier ones left in the broker weighs on later ones: so both come as early and as late.
            for place, name in enumerate(("free", "stuck", "stuck", "free")):
                # A stuck group stays stuck, so each run has a topic of its own.
                topic = f"bench-fifo-{number}-{place}"
                peer.create(topic, load.GROUP, "FIFO", orderly=True)
                stuck = ["--stuck"] if name == "stuck" else []
                seen[name].append(run(peer, "fifo", "--topic", topic, "--each", effort.fifo_each, *stuck))
            if number > 0:
                rounds.append(seen)
    free, ratios = [], []
    for seen in rounds:
        rates = {name: sum(r["messages"] for r in reports) / sum(r["seconds"] for r in reports) for name, reports in seen.items()}
        free.append(rates["free"])
        ratios.append(rates["stuck"] / rates["free"])
    wrong = [r["more"]["missing"] + r["more"]["tooMany"] for seen in rounds for reports in seen.values() for r in reports]
    rows = [Row("fifo: 1,000 message groups", "messages/s", free),
            Row("fifo: with one group stuck, of that", "×", ratios, None, Bar(0.95, at_most=False)),
            Row("fifo: missing, or of the stuck group", "messages", wrong, None, Bar(0))]
    return rows, rounds


def age(effort, flush, _alone):
    """Millions of messages sent, received and acknowledged; then the start after kill -9, with leases and delayed messages."""
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        with running_broker(folder, flush) as peer:
            peer.create("bench-age", load.GROUP)
            report = run(peer, "age", "--topic", "bench-age", "--messages", effort.aged, "--leased", effort.aged // 100,
                         size=AGED_SIZE, connections=8)
            peer.create(DELAYED, load.GROUP, "DELAY")
            run(peer, "delay", "--topic", DELAYED, "--messages", effort.aged // 100, "--due-in", "60m", "--leave",
                size=AGED_SIZE)
        starts = []
        for _ in range(RESTARTS):
            began = time.monotonic()
            with running_broker(folder, flush):
                starts.append(time.monotonic() - began)
        say(f"  starts after kill -9: {', '.join(f'{s:.2f} s' for s in starts)}")
    ratio = report["latenciesMs"]["last"]["p99"] / report["latenciesMs"]["first"]["p99"]
    rows = [Row(f"age: {effort.aged:,} messages sent, received, acknowledged", "messages/s", [against.rate(report)]),
            Row("age: receive p99 of the last 100,000, of that of the first", "×", [ratio], None, Bar(2)),
            Row(f"age: start after kill -9, with {effort.aged // 100:,} leases and as many delayed, the slowest", "s", [max(starts)], None, Bar(3))]
    return rows, {"age": report, "starts": starts}


@contextlib.contextmanager
def running_broker(folder, flush):
    """A broker on a folder that stays; killed at the end."""
    where, admin = (f"127.0.0.1:{port}" for port in servers.free_ports(2))
    server = peers.start_broker(folder, flush, where, admin)
    try:
        server.wait_ready(admin)
        yield peers.Peer("Waybill", where, {"broker": server.process.pid}, where, admin)
    finally:
        server.process.kill()
        server.process.wait()
