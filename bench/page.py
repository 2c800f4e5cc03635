"""RESULTS.md: the latest rows of every stage, whenever each was measured, and a short history."""

import datetime
import os
import subprocess

import paths
import usage

HEAD = """# Results

Written by `make bench` (`bench/run`; `bench/run --help` for parts of it). Not to be edited: what a run measures replaces what
stood here.

Waybill's broker and sidecar and Apache RocketMQ 5.5.0's name server, broker and cluster-mode proxy run side by side on loopback.
The same load generator, `waybill bench`, over gRPC and on the same cores, with the same payloads and the same flush mode, measures
one after the other in every round: A B A B …, after a round that is thrown away. Each server process
and the load generator have a session of their own, all with the same precedence over what else runs on the machine. Server CPU is that of all processes of a server, from `/proc/<pid>/stat`.
A cell is the median of the rounds and, in parentheses, the lowest and the highest. A ratio is Waybill's value divided by the other's
in the same round. The median is held against the bar.

A row stays until its stage is measured again. Its commit is marked † if the last run was of another one, and ends in `-dirty` if what
was built or what measured had changes that were not committed: such a row proves nothing about the commit. Which command measured it
is in the history below, under the same time. All of it was measured on the machine that the last run names.
"""
FOOT = """Rows without a bar say more about the row above. Flush is `async` on both sides unless a row says `sync`, which is Waybill's
default. While one server is measured, the processes of the other are paused (SIGSTOP), except for `idle`, which looks at both at once.
`leases` asks the brokers themselves, over remoting: Waybill's with `sync` flush unless a row says `async`, Apache's with its leases in
RocksDB; all sizes, with latencies, CPU and syncs, are in `bench/LEASES.md`. `latency` is of Waybill alone, with and without its sidecar.
Instruction counts are kept apart, in `instructions.json`: `bench/run --instructions` fails if one rises by more than 5 %.
"""
COLUMNS = ["measured", "Waybill", "Apache (store: a plain file)", "ratio", "bar", "met", "when", "commit"]
HISTORY = ["when", "commit", "command", "medians of the rows with a bar: Waybill's, or the ratio (×)"]
HISTORY_MAX = 12
# What a result depends on.
MEASURED = ["protocol", "ops", "broker", "sidecar", "waybill", "Cargo.toml", "Cargo.lock", "bench/run", "bench/*.py", "scripts",
            "conformance/apache"]
OTHER = " †"


class Run:
    """One run of the command: when it began, and what it measures, which what is edited meanwhile does not change."""

    def __init__(self, command):
        self.command, self.commit = command, built_from()
        self.when = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")


def write(order, results, run, others):
    """Puts {stage: rows} into the page; once more as often as there are more. `order`: all stages; `others`: cores that everybody else used,
    a number a measurement."""
    rows, history = read()
    when, commit, command = run.when, run.commit, run.command
    for stage, measured in results.items():
        rows = [row for row in rows if stage_of(row) != stage] + [[*row.cells(), when, commit] for row in measured]
    rows.sort(key=lambda row: order.index(stage_of(row)) if stage_of(row) in order else len(order))
    rows = [[*row[:-1], marked(row[-1], commit)] for row in rows]
    entry = [when, commit, f"`{command}`"]
    # What this run wrote before is part of what it writes now.
    history = [[*entry, medians(results)], *[other for other in history if other[:3] != entry]][:HISTORY_MAX]
    noise = f", where all others used {min(others):.1f} to {max(others):.1f} cores meanwhile" if others else ""
    last = (f"Last run: {when}, `{command}`, commit {commit}, {output('rustc', '--version')}; on {usage.describe()}{noise}; "
            f"load average at the end {os.getloadavg()[0]:.1f}.")
    parts = [HEAD, last, "", *table(COLUMNS, rows), "", FOOT, "## History", "", *table(HISTORY, history)]
    paths.PAGE.write_text("\n".join(parts) + "\n")


def marked(commit, last):
    """The commit of a row, with a mark unless it is that of the last run."""
    commit = commit.removesuffix(OTHER)
    return commit if commit == last else commit + OTHER


def built_from():
    """The commit, and whether what is measured, or what measures, differs from it."""
    changed = output("git", "status", "--porcelain", "--", *MEASURED)
    return output("git", "rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def read():
    """The rows and the history that the page has now."""
    text = paths.PAGE.read_text() if paths.PAGE.exists() else ""
    before, _, after = text.partition("## History")
    return parse(before), parse(after)


def parse(text):
    """Cells of the rows of a table, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def table(columns, rows):
    """Lines of a table."""
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *("| " + " | ".join(row) + " |" for row in rows)]


def stage_of(row):
    """The stage that measured a row, which its name begins with."""
    return row[0].partition(":")[0].partition(",")[0]


def medians(results):
    """The rows with a bar, in a line."""
    return "; ".join(f"{row.name} {row.median():.3g}{' ×' if row.bar.of_ratio else ''}"
                     for rows in results.values() for row in rows if row.met() is not None)


def output(*command):
    """What a command prints."""
    return subprocess.run(command, cwd=paths.ROOT, check=True, capture_output=True, text=True).stdout.strip()
