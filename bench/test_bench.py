"""What the harness itself decides: bars, ratios, and that a run keeps the rows of the stages it did not measure."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest
from unittest import mock

import callgrind
import latency
import leases
import page
import paths
import receipts
import syncs
from rows import Bar, Row, number, spread

# The command itself, which has no .py.
loader = importlib.machinery.SourceFileLoader("bench_run", str(paths.HERE / "run"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
loader.exec_module(bench)


class Rows(unittest.TestCase):
    def test_a_ratio_is_taken_round_by_round(self):
        row = Row("send: throughput", "messages/s", [30, 20, 90], [10, 10, 10], Bar(3, at_most=False, of_ratio=True))
        self.assertEqual(row.ratios(), [3, 2, 9])
        self.assertTrue(row.met(), "the median is the bar exactly")
        self.assertEqual(row.cells()[3:], ["3.00 × (2.00–9.00)", "≥ 3 ×", "yes"])

    def test_a_median_over_the_bar_is_not_met(self):
        self.assertIs(Row("idle: CPU", "%", [0.4, 0.6, 0.7], None, Bar(0.5)).met(), False)
        self.assertIs(Row("idle: CPU", "%", [0.4, 0.5, 0.7], None, Bar(0.5)).met(), True)

    def test_without_a_peer_or_a_bar_nothing_is_said(self):
        self.assertIs(Row("send: throughput", "", [1], None, Bar(3, at_most=False, of_ratio=True)).met(), None)
        self.assertIs(Row("send: throughput", "", [1]).met(), None)

    def test_numbers_have_the_digits_that_count(self):
        self.assertEqual([number(n) for n in (0, 0.0123, 0.5, 12.34, 123.4, 12345)], ["0", "0.012", "0.50", "12.3", "123", "12,345"])
        self.assertEqual(spread([2, 1, 3], " ms"), "2.00 ms (1.00–3.00)")


class Receipts(unittest.TestCase):
    def test_what_the_core_costs_is_read(self):
        core = receipts.read_core("memory: 162 MiB for 1000000 handles of 1500000 at most, 170 bytes each\n"
                                  "memory: 182 MiB for 1000000 handles of 1000000 at most, 191 bytes each\n"
                                  "tick, 1000 held of 1500000 at most, 100 due, Scattered: median 38.4µs, p99 81.8µs\n"
                                  "tick, 1000000 held of 1500000 at most, 100 due, Scattered: median 50.1µs, p99 90.7µs\n"
                                  "  with 1000000 held it costs 1.30 times as much\n"
                                  "tick, 1000000 held of 1000000 at most, 100 due, Scattered: median 90.1µs, p99 99.7µs\n"
                                  "a message at the limit of all: 3.4µs, the slowest 82µs\n"
                                  "1000000 held, 10000 renewed per second for 10 s: 3.6 % of one core\n")
        self.assertEqual(core, {"bytes": 170, "ratios": {"scattered": 1.3}, "percent": 3.6})


class Page(unittest.TestCase):
    def test_a_stage_replaces_its_own_rows_only(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(paths, "PAGE", pathlib.Path(folder) / "RESULTS.md"):
            order = ["send", "sync", "start"]
            one, two, three = (page.Run(command) for command in ("one", "two", "three"))
            page.write(order, {"start": [Row("start: x", "ms", [400], None, Bar(500))], "sync": [Row("sync, send: y", "", [1])]}, one, [])
            page.write(order, {"send": [Row("send: z", "/s", [6], [2], Bar(3, False, True))]}, two, [0.5, 1.5])
            page.write(order, {"start": [Row("start: x", "ms", [300], None, Bar(500))]}, three, [])
            rows, history = page.read()
            self.assertEqual([row[:2] for row in rows], [["send: z, /s", "6.00"], ["sync, send: y", "1.00"], ["start: x, ms", "300"]])
            self.assertEqual([row[3] for row in history], ["start: x 300", "send: z 3 ×", "start: x 400"])
            self.assertEqual([row[2] for row in history], ["`three`", "`two`", "`one`"])

    def test_what_was_measured_before_a_stage_failed_is_there(self):
        stages = {"store": lambda *_: ([Row("store: x", "", [1], None, Bar(2))], {"raw": 1}),
                  "start": lambda *_: ([Row("start: y", "", [3], None, Bar(2))], {"raw": 2}),
                  "memory": lambda *_: sys.exit("it fails")}
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(paths, "PAGE", pathlib.Path(folder) / "RESULTS.md"), \
                mock.patch.object(paths, "RAW", pathlib.Path(folder) / "results.json"), \
                mock.patch.dict(bench.ALONE, stages), mock.patch.object(bench, "say", lambda _: None), \
                mock.patch.object(os, "chdir"), mock.patch.object(signal, "signal"), \
                mock.patch.object(sys, "argv", ["bench/run", "--no-build", "--only", "store,start,memory"]):
            with self.assertRaises(SystemExit):
                bench.main()
            rows, history = page.read()
            self.assertEqual([row[:2] for row in rows], [["store: x", "1.00"], ["start: y", "3.00"]])
            self.assertEqual([row[2:] for row in history], [["`bench/run --no-build --only store,start,memory`", "store: x 1; start: y 3"]])
            self.assertEqual(json.loads(paths.RAW.read_text())["stages"], {"store": {"raw": 1}, "start": {"raw": 2}})

    def test_rows_of_other_commits_are_marked(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(paths, "PAGE", pathlib.Path(folder) / "RESULTS.md"):
            for commit, stage in (("aaa", "send"), ("bbb-dirty", "start"), ("bbb-dirty", "idle"), ("ccc", "idle")):
                with mock.patch.object(page, "built_from", lambda commit=commit: commit):
                    page.write(["send", "start", "idle"], {stage: [Row(f"{stage}: x", "ms", [1])]}, page.Run("run"), [])
            self.assertEqual([row[-1] for row in page.read()[0]], ["aaa †", "bbb-dirty †", "ccc"])
            with mock.patch.object(page, "built_from", lambda: "aaa"):
                page.write(["send", "start", "idle"], {}, page.Run("run"), [])
            self.assertEqual([row[-1] for row in page.read()[0]], ["aaa", "bbb-dirty †", "ccc †"])


class Instructions(unittest.TestCase):
    def test_a_rise_over_five_percent_is_broken(self):
        self.assertEqual(callgrind.broken({"a": 100, "b": 100}, {"a": 105, "b": 106}), ["b"])
        self.assertEqual(callgrind.broken({"a": 100}, {"a": 10}), [])

    def test_the_lowest_run_counts_and_what_is_over_its_gate_is_run_more_often(self):
        def count(gate, *runs):
            left = list(runs)
            return callgrind.count("program", "broker-send", 10, gate, lambda *_: left.pop(0)), len(left)
        self.assertEqual(count(100, 1000, 1050, 1300, 1200, 1100, 900), (100, 1))
        self.assertEqual(count(100, 1100, 1100, 1100, 1100, 1100, 1060, 1040, 900), (104, 1))
        self.assertEqual(count(100, *[1100] * 30), (110, 30 - callgrind.RUNS - callgrind.RUNS_MORE))
        self.assertEqual(count(None, *[1100] * 30), (110, 30 - callgrind.RUNS))

    def test_every_path_has_a_gate_and_every_gate_a_path(self):
        self.assertEqual(callgrind.broken({"gone": 1}, {"new": 1}), ["new", "gone"])

    def test_the_gates_are_of_what_make_test_builds(self):
        gates = json.loads(callgrind.GATES.read_text())
        self.assertGreaterEqual(len(gates["debug"]["paths"]), 13)


COUNTED = 'waybill_broker_requests_total{{request_code="{}",response_code="0"}}'


def extended(rate, n, kind, syncs_seen):
    """What the load generator says of extending leases."""
    batches = rate * 2 / n
    return {"messagesPerSecond": rate, "messages": rate * 2, "server": {"cpuSeconds": 1.0}, "errors": {},
            "latenciesMs": {"change": {"p50": 1.0, "p99": 2.0}}, "beganMs": 1000, "seconds": 2.0,
            "counters": {leases.SYNCS: syncs_seen, COUNTED.format(200153): batches if kind.how == "batch" else 0}}


class Leases(unittest.TestCase):
    RATES = {leases.A_SERIAL: 100, leases.A_MANY: 1_000, leases.B_SERIAL: 300, leases.B_MANY: 2_500, leases.C_ONE: 10_000,
             leases.C_FOUR: 19_000}

    def seen(self):
        return {(n, kind): [extended(self.RATES[kind], n, kind, 5)] for n in leases.SIZES for kind in leases.kinds(n, {"Apache", "Waybill"})}

    def test_no_message_is_in_two_requests(self):
        self.assertEqual([leases.B_MANY.under_way(n) for n in (8, 1024)], [8, 128])
        self.assertEqual(leases.C_FOUR.under_way(8), 4)
        self.assertNotIn(leases.B_MANY, leases.kinds(1, {"Apache", "Waybill"}))
        self.assertEqual({kind.server for kind in leases.kinds(256, {"Waybill"})}, {"Waybill"})

    def test_bars_are_held_against_the_right_way_of_apache(self):
        bars = {row.name: row for row in leases.throughput(self.seen()) if row.bar}
        met = {name: (row.median(), row.met()) for name, row in bars.items()}
        self.assertEqual(met, {
            "leases: 256 messages, one by one, 128 in flight": (2.5, True),
            "leases: 256 messages, batches of 256, 4 in flight; Apache one by one, serial": (190, True),
            "leases: 256 messages, batches of 256, 4 in flight; Apache one by one, 128 in flight": (19, False),
            "leases: errors of all requests": (0, True)})

    def test_a_sync_that_is_under_way_counts_for_no_batch_yet(self):
        report = {"counters": {leases.SYNCS: 104, COUNTED.format(200153): 100}}
        self.assertEqual(leases.per_batch(report, leases.C_FOUR), 1)
        self.assertGreater(leases.per_batch(report, leases.C_ONE), 1)
        self.assertIsNone(leases.per_batch({"counters": {}}, leases.C_ONE))

    def test_every_measurement_is_on_the_page_of_details(self):
        seen = self.seen()
        lines = [line for line in leases.details(seen, {leases.A_SERIAL: 2.0}, {}).splitlines() if line.startswith("| ")][1:-1]
        self.assertEqual(len(lines), len(seen))
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        self.assertIn(["256", "Apache, RocksDB", "one by one, serial", "2.00"], [[*line[1:4], line[-2]] for line in cells])

    def test_every_number_of_batches_in_flight_is_on_the_page(self):
        swept = {n: [extended(1000 * n, 256, leases.C_ONE, 0)] for n in leases.SWEEP}
        cells = [[cell.strip() for cell in line.split("|")][1:3] for line in leases.sweep_lines(swept) if line.startswith("| ")][1:]
        self.assertEqual(cells, [["1", "1,000"], ["2", "2,000"], ["4", "4,000"], ["8", "8,000"], ["16", "16,000"]])

    def test_requests_for_what_a_client_left_are_all_counted(self):
        report = {"counters": {COUNTED.format(200053): 2, COUNTED.format(200153): 10, "other_total": 7},
                  "latenciesMs": {"visible": {"max": 1_500}}, "more": {"missing": 0}}
        self.assertEqual([row.met() for row in leases.gone_rows([report])], [True, False, True])


class Syncs(unittest.TestCase):
    OUT = ("12 1.500000 fdatasync(7)  = 0\n"
           "13 2.000000 fsync(8 <unfinished ...>\n"
           "12 2.100000 msync(0x7f, 4096, MS_SYNC) = 0\n"
           "13 2.200000 <... fsync resumed>) = 0\n"
           "12 2.300000 --- SIGSTOP {si_signo=SIGSTOP} ---\n"
           "12 3.000000 fdatasync(7)  = 0\n")

    def test_calls_of_the_time_are_counted_once(self):
        self.assertEqual(syncs.count(self.OUT, 2, 3), 2)
        self.assertEqual(syncs.count(self.OUT, 0, 9), 4)


class Latency(unittest.TestCase):
    def test_what_is_added_is_taken_round_by_round(self):
        def report(p50, p99):
            return {"latenciesMs": {call: {"p50": p50, "p99": p99} for call in ("send", "ack")}, "errors": {}}

        rows = latency.rows({"broker": [report(1, 2), report(1, 5)], "sidecar": [report(1.5, 2.5), report(1.5, 6.5)]})
        added = {row.name: row for row in rows if "adds" in row.name}
        self.assertEqual(added["latency: ack, p99 that the sidecar adds"].ours, [0.5, 1.5])
        self.assertEqual(added["latency: ack, p99 that the sidecar adds"].met(), True)
        self.assertIsNone(added["latency: send, p50 that the sidecar adds"].met())


if __name__ == "__main__":
    unittest.main()
