"""Runs the rows of rows.py and the cases beside them: one line a check as it happens, a table, a closing line.

Exit code 0 only when nothing failed. Every program is a process of its own on loopback, ended by its id.
"""
import argparse
import concurrent.futures
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import grpc

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import house  # noqa: E402
import logs  # noqa: E402
import rows  # noqa: E402
import restart  # noqa: E402,F401  (registers its rows)
import reported  # noqa: E402,F401  (the same)
import before_apache  # noqa: E402,F401  (the same)
import retries  # noqa: E402,F401  (the same)
import access  # noqa: E402,F401  (the same)
import cold_starts  # noqa: E402,F401  (the same)
import orphans  # noqa: E402,F401  (the same)
import crash  # noqa: E402,F401  (the same)
from house import SUITE, clients  # noqa: E402

KEPT_LOGS = SUITE / ".cache" / "logs" / "failures"


class Report:
    """Prints results as they come and keeps them for the table."""

    def __init__(self):
        self.lock, self.began, self.results = threading.Lock(), time.monotonic(), []

    def add(self, row, kind, mode, ok, seen, note):
        with self.lock:
            self.results.append((row, kind, mode, ok, seen))
            back = describe(seen) if ok else ""
            print(f"{time.monotonic() - self.began:6.1f}s {row.title:50} {kind:7} {mode:4} {'✓' if ok else 'FAIL':5} {back}{note}", flush=True)

    def failed(self):
        return sum(not ok for *_, ok, _ in self.results)

    def table(self):
        lines = ["| failure | client | renewal | back after | duplicates | |", "|---|---|---|---|---|---|"]
        order = {id(row): n for n, row in enumerate(rows.ROWS)}
        for row, kind, mode, ok, seen in sorted(self.results, key=lambda r: (order[id(r[0])], r[1], r[2] != rows.ON)):
            back, duplicates, note = (span(seen), seen.duplicates, seen.note) if ok else ("FAIL", "", "")
            lines.append(f"| {row.title} | {kind} | {mode} | {back} | {duplicates} | {note} |")
        return "\n".join(lines)


def span(seen):
    return f"{seen.back[0]:.1f}–{seen.back[1]:.1f} s" if seen.back else "none came"


def describe(seen):
    return f"{'back after ' if seen.back else ''}{span(seen)}, {seen.duplicates} duplicates; "


def attempt(report, row, kind, mode, folder, patience):
    if patience.is_set():
        return
    try:
        seen = row.function(folder, kind, mode)
        report.add(row, kind, mode, True, seen, seen.note)
    except (house.Failed, house.ServerError, clients.OperationError, TimeoutError, OSError, grpc.RpcError) as e:
        report.add(row, kind, mode, False, None, f"{type(e).__name__}: {e} (logs: {folder.name})")
    except Exception:  # a fault of the suite must show as a failure, not end the run
        report.add(row, kind, mode, False, None, f"suite: {traceback.format_exc()} (logs: {folder.name})")
    finally:
        logs.drop_stores(folder)


def main():
    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="\n".join(f"  {row.title}" for row in rows.ROWS))
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose title contains this")
    parser.add_argument("--clients", help="only these holders, separated by commas")
    parser.add_argument("--modes", nargs="+", choices=[rows.ON, rows.OFF], default=[rows.ON, rows.OFF], help="of the renewal switch")
    parser.add_argument("--no-apache", action="store_true", help="leave out what needs Apache's broker")
    parser.add_argument("--parallel", type=int, default=12, help="checks at once; they mostly wait (default %(default)s)")
    parser.add_argument("--keep-logs", action="store_true", help="also when nothing failed")
    arguments = parser.parse_args()

    chosen = [(row, kind, mode) for row in rows.ROWS if arguments.rows in row.title and not (arguments.no_apache and "Apache" in row.title) for kind in row.kinds
              for mode in row.modes if mode in [*arguments.modes, rows.BOTH] and (not arguments.clients or kind in arguments.clients.split(","))]
    # What takes longest begins first.
    chosen.sort(key=lambda check: -check[0].seconds)
    # The clients are installed before anything is timed, by one process.
    subprocess.run([SUITE / "run", "--endpoint", "none:0", "--admin", "none:0", "--install-only"], check=True, timeout=1200,
                   stdin=subprocess.DEVNULL, stdout=sys.stderr)
    report, ended = Report(), threading.Event()

    def end(*_):
        ended.set()
        house.end_all()
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="waybill-failures-"))
    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
            for n, (row, kind, mode) in enumerate(chosen):
                name = f"{n:02}-{row.function.__name__}-{kind}-{mode}"
                pool.submit(attempt, report, row, kind, mode, folder / name, ended)
        print(f"\n{report.table()}\n", flush=True)
        if report.failed() or arguments.keep_logs:
            logs.keep(folder, KEPT_LOGS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = report.failed()
    print(f"failures: {len(report.results) - failed} passed, {failed} failed, {len(chosen) - len(report.results)} skipped", flush=True)
    return 1 if failed or len(report.results) < len(chosen) or not chosen else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    import os
    os._exit(code)  # threads of clients that are gone must not keep the process
