"""Extending leases: Apache's broker one by one, Waybill's one by one and in batches. And what a client leaves behind.

Apache keeps its leases in RocksDB (popConsumerKVServiceInit, popConsumerKVServiceEnable), which syncs every write, whatever the
flush mode of messages is; so Waybill is held against it with SYNC_FLUSH, its default. With ASYNC_FLUSH it is shown beside.
"""

import contextlib
import dataclasses
import math
import tempfile

import against
import load
import page
import paths
import peers
import syncs
from effort import say
from rows import Bar, Row, spread

TOPIC = "bench-leases"
BAR_N = 256
CPU_N = 1024
# 256 first: what is thrown away to warm up is of that size.
SIZES = (256, 1024, 32, 8, 1)
ASYNC_SIZES = (256, 1024)
# Batches of BAR_N in flight, to see how many are best; a short measurement of each in so many rounds.
SWEEP = (1, 2, 4, 8, 16)
SWEEP_ROUNDS = 3
LEFT_BEHIND = 10_000
ENTRIES_MAX = 1024
CHANGE, BATCH_CHANGE = 200053, 200153
SYNCS = "waybill_store_syncs_total"
DETAILS = paths.HERE / "LEASES.md"
MEMORY = "/dev/shm"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to extend messages at a server."""

    server: str
    how: str
    in_flight: int

    def under_way(self, n):
        """Requests in flight when n messages are extended: no message is in two of them."""
        return self.in_flight if self.how == "batch" else min(self.in_flight, n)

    def name(self, n):
        """As the tables say it."""
        if self.how == "batch":
            return f"batches of {n}, {self.in_flight} in flight"
        return "one by one, serial" if self.in_flight == 1 else f"one by one, {self.under_way(n)} in flight"


A_SERIAL, A_MANY = Kind("Apache", "each", 1), Kind("Apache", "each", 128)
B_SERIAL, B_MANY = Kind("Waybill", "each", 1), Kind("Waybill", "each", 128)
C_ONE, C_FOUR = Kind("Waybill", "batch", 1), Kind("Waybill", "batch", 4)
KINDS = (A_SERIAL, B_SERIAL, A_MANY, B_MANY, C_ONE, C_FOUR)
ASYNC = "Waybill async"
ASYNC_KINDS = tuple(dataclasses.replace(kind, server=ASYNC) for kind in (B_MANY, C_ONE, C_FOUR))


def kinds(n, servers):
    """What is measured with n messages: with one, many in flight are the same as one."""
    wanted = KINDS + (ASYNC_KINDS if n in ASYNC_SIZES else ())
    return [kind for kind in wanted if kind.server in servers and (kind.in_flight == 1 or kind.under_way(n) > 1)]


def leases(effort, alone, keep):
    """All of it; rows and raw values. `keep`: write the page with the details."""
    with contextlib.ExitStack() as stack:
        say("  starting brokers, which takes a while")
        servers = [stack.enter_context(peers.broker("Waybill", "sync")), stack.enter_context(peers.broker(ASYNC, "async"))]
        if not alone:
            servers.append(stack.enter_context(peers.apache_broker()))
        servers = {server.name: server for server in servers}
        for server in servers.values():
            server.create(TOPIC, load.GROUP)
        seen = alternate(effort, servers)
        synced = watched(effort, servers)
        swept = sweep(effort, servers["Waybill"], [server for name, server in servers.items() if name != "Waybill"])
    rows = throughput(seen) + synced_rows(seen, synced)
    if keep:
        DETAILS.write_text(details(seen, synced, swept))
    cpu = without_disk(effort)
    gone = left_behind(effort)
    rows += [Row(f"leases: extended per CPU-second of the broker, batches of {CPU_N}, no disk", "messages",
                 [against.per_cpu(report) for report in cpu], None, Bar(300_000, at_most=False)), *gone_rows(gone)]
    raw = {f"{n} {kind.server} {kind.name(n)}": reports for (n, kind), reports in seen.items()}
    raw["in flight"] = {str(in_flight): reports for in_flight, reports in swept.items()}
    return rows, {**raw, "synced": {str(kind): value for kind, value in synced.items()}, "no disk": cpu, "left behind": gone}


def alternate(effort, servers):
    """{(n, kind): reports of all rounds}. In a round each kind has its turn, and the others' servers are paused."""
    seen = {}
    for n in SIZES:
        for number in range(0 if n == SIZES[0] else 1, effort.rounds + 1):
            for kind in kinds(n, servers):
                with against.paused([server for name, server in servers.items() if name != kind.server]):
                    report = extend(servers[kind.server], kind, n, effort.lease_s)
                if number > 0:
                    seen.setdefault((n, kind), []).append(report)
                say(f"  {f'{number}/{effort.rounds}' if number else 'warm'} {kind.name(n):28} {against.line(report)}")
    return seen


def sweep(effort, server, others):
    """{batches in flight: reports} of batches of BAR_N at Waybill's broker, alternated."""
    seen = {in_flight: [] for in_flight in SWEEP}
    with against.paused(others):
        for number in range(min(effort.rounds, SWEEP_ROUNDS)):
            for in_flight in SWEEP:
                seen[in_flight].append(extend(server, Kind("Waybill", "batch", in_flight), BAR_N, effort.lease_s))
                say(f"  {number + 1} {in_flight:2} batches of {BAR_N} in flight {against.line(seen[in_flight][-1])}")
    return seen


def extend(server, kind, n, seconds):
    """One measurement; its report."""
    under_way = kind.under_way(n)
    options = ["--topic", TOPIC, "--how", kind.how, "--messages", n, "--in-flight", under_way, "--warmup", "500ms",
               *(["--admin", server.metrics] if server.metrics else [])]
    return load.run(server, "leases", seconds, *options, at=["--namesrv", server.endpoint],
                    connections=min(load.CONNECTIONS, under_way))


def watched(effort, servers):
    """{kind of Apache: syncs per message}, by strace; empty without strace or Apache."""
    if "Apache" not in servers or not syncs.available():
        return {}
    seen, apache = {}, servers["Apache"]
    with against.paused([server for server in servers.values() if server is not apache]), \
            syncs.watching(apache.pids["broker"]) as watch:
        for kind in (A_SERIAL, A_MANY):
            report = extend(apache, kind, BAR_N, effort.lease_s)
            seen[kind] = watch.during(report) / max(1, report["messages"])
            say(f"  strace {kind.name(BAR_N)}: {seen[kind]:.2f} syncs a message, {against.rate(report):,.0f}/s")
    return seen


def throughput(seen):
    """Waybill's messages a second against Apache's, and its errors."""
    rows = []
    for n in sorted(SIZES):
        for ours, theirs, factor in ((B_SERIAL, A_SERIAL, None), (B_MANY, A_MANY, 2), (C_FOUR, A_SERIAL, 150), (C_FOUR, A_MANY, 20)):
            if (n, ours) not in seen or theirs.in_flight > theirs.under_way(n) == 1:
                continue  # with one message, many in flight are the same as one
            other = seen.get((n, theirs))
            against_what = f"; Apache {theirs.name(n)}" if ours.how != theirs.how else ""
            bar = Bar(factor, at_most=False, of_ratio=True) if factor and n == BAR_N else None
            rows.append(Row(f"leases: {n} message{'s' * (n > 1)}, {ours.name(n)}{against_what}", "messages/s", rates(seen[n, ours]),
                            rates(other) if other else None, bar))
    for (n, kind), reports in seen.items():
        if kind.server == ASYNC and n == BAR_N:
            rows.append(Row(f"leases: async, {n} messages, {kind.name(n)}", "messages/s", rates(reports)))
    errors = [sum(sum(report["errors"].values()) for (_, kind), reports in seen.items() if kind.server == server for report in reports)
              for server in ("Waybill", "Apache")]
    return [*rows, Row("leases: errors of all requests", "", errors[:1], errors[1:] if any(k == A_SERIAL for _, k in seen) else None, Bar(0))]


def rates(reports):
    """Messages a second of each."""
    return [against.rate(report) for report in reports]


def synced_rows(seen, synced):
    """Syncs: of Waybill per batch and per message, by its own count; of Apache per message, by strace."""
    batch = [value for kind in (C_ONE, C_FOUR) for n in SIZES for report in seen[n, kind] if (value := per_batch(report, kind)) is not None]
    rows = [Row("leases: syncs per batch, most of all runs", "syncs", [max(batch)] if batch else [], None, Bar(1))]
    for ours, theirs in ((B_SERIAL, A_SERIAL), (B_MANY, A_MANY), (C_FOUR, A_MANY)):
        rows.append(Row(f"leases: {BAR_N} messages, syncs per message, {ours.name(BAR_N)}", "syncs",
                        [per_message(report) for report in seen[BAR_N, ours]], [synced[theirs]] if theirs in synced else None))
    return rows


def per_batch(report, kind):
    """Syncs per batch. A batch that is under way when it is counted may have its sync and not its answer yet."""
    batches = asked(report, BATCH_CHANGE)
    return max(0, report["counters"].get(SYNCS, 0) - kind.in_flight) / batches if batches else None


def per_message(report):
    """Syncs per message."""
    return report["counters"].get(SYNCS, 0) / max(1, report["messages"])


def details(seen, synced, swept):
    """The page with everything that was measured of each kind and size."""
    columns = ["messages", "broker", "how", "messages/s", "p50 of a request, ms", "p99, ms", "broker CPU per message, µs", "syncs per message"]
    cells = []
    for n in sorted(SIZES):
        for kind in (kind for size, kind in seen if size == n):
            reports = seen[n, kind]
            latencies = [report["latenciesMs"].get("change", {"p50": 0, "p99": 0}) for report in reports]
            counted = [synced[kind]] if n == BAR_N and kind in synced else []
            if kind.server != "Apache":
                counted = [per_message(report) for report in reports]
            cells.append([str(n), {"Waybill": "Waybill, SYNC_FLUSH", ASYNC: "Waybill, ASYNC_FLUSH"}.get(kind.server, "Apache, RocksDB"),
                          kind.name(n), spread(rates(reports)), spread([l["p50"] for l in latencies]), spread([l["p99"] for l in latencies]),
                          spread([against.micros(report) for report in reports]), spread(counted)])
    return "\n".join(["# Extending leases", "", *__doc__.splitlines()[2:],
                      "Written by `bench/run --only leases`: the median of the rounds and, in parentheses, the lowest and the highest. Latency is that",
                      "of a request, of one message or of a batch. Syncs are Waybill's own count; of Apache's broker, strace's, in a run of its own.",
                      "", *page.table(columns, cells), "", *sweep_lines(swept)]) + "\n"


def sweep_lines(swept):
    """How many batches in flight are best: the part of the page of details."""
    columns = ["batches in flight", "messages/s", "p50 of a batch, ms", "p99, ms", "broker CPU per message, µs", "syncs per batch"]
    cells = []
    for in_flight, reports in swept.items():
        latencies = [report["latenciesMs"].get("change", {"p50": 0, "p99": 0}) for report in reports]
        counted = [value for report in reports if (value := per_batch(report, Kind("Waybill", "batch", in_flight))) is not None]
        cells.append([str(in_flight), spread(rates(reports)), spread([l["p50"] for l in latencies]), spread([l["p99"] for l in latencies]),
                      spread([against.micros(report) for report in reports]), spread(counted)])
    return ["## How many batches in flight", "",
            f"Batches of {BAR_N} at Waybill's broker with SYNC_FLUSH, alternated. More in flight share a sync, and each waits longer for it.",
            "The sidecar has at most 4 of a target in flight (`BATCHES_OF_TARGET_IN_FLIGHT`), which is well past one, whose time the disk",
            "alone decides. It does not need more to be fast: what arrives while 4 are under way makes the next batch larger, up to 1,024,",
            "and large batches do more than many small ones (see above).", "", *page.table(columns, cells)]


def without_disk(effort):
    """Reports of large batches with the log in memory: what the broker's CPU alone can do."""
    with peers.broker("Waybill", "async", within=MEMORY) as server:
        server.create(TOPIC, load.GROUP)
        reports = [extend(server, C_FOUR, CPU_N, effort.lease_s) for _ in range(effort.rounds + 1)][1:]
    for report in reports:
        say(f"  no disk, batches of {CPU_N}: {against.per_cpu(report):,.0f} per CPU-second; {against.line(report)}")
    return reports


def left_behind(effort):
    """Reports of a client that leaves a sidecar, which batches, with many messages."""
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder, \
            peers.start_pair(folder, "sync", settings={"enableBatchChangeInvisibleTime": True}) as pair:
        peer = pair.ready()
        peer.create(TOPIC, load.GROUP)
        reports = [load.run(peer, "disconnect", 1, "--topic", TOPIC, "--messages", LEFT_BEHIND, "--in-flight", 16,
                            "--admin", pair.admins[0]) for _ in range(effort.rounds)]
    for report in reports:
        say(f"  {LEFT_BEHIND:,} left behind: all visible after {all_visible(report):.2f} s, {requests(report)} requests")
    return reports


def gone_rows(reports):
    """What the bars ask of a client that left."""
    return [Row(f"leases: a client left {LEFT_BEHIND:,} messages, until another has all", "s", [all_visible(r) for r in reports], None, Bar(2)),
            Row(f"leases: a client left {LEFT_BEHIND:,} messages, requests to return them", "", [requests(r) for r in reports], None,
                Bar(math.ceil(LEFT_BEHIND / ENTRIES_MAX))),
            Row(f"leases: a client left {LEFT_BEHIND:,} messages, not seen again", "messages", [r["more"]["missing"] for r in reports], None, Bar(0))]


def all_visible(report):
    """Seconds from when the client said that it leaves."""
    return report["latenciesMs"]["visible"]["max"] / 1000


def requests(report):
    """Changes that the broker was asked for, single ones and batches."""
    return asked(report, CHANGE) + asked(report, BATCH_CHANGE)


def asked(report, code):
    """Requests with a code that the broker has counted, however it answered."""
    return sum(rise for name, rise in report["counters"].items()
               if name.startswith("waybill_broker_requests_total{") and f'request_code="{code}"' in name)
