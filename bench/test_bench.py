"""What the harness itself decides: bars, ratios, and that a run keeps the rows of the stages it did not measure."""

import json
import pathlib
import tempfile
import unittest
from unittest import mock

import callgrind
import page
import paths
from rows import Bar, Row, number, spread


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


class Page(unittest.TestCase):
    def test_a_stage_replaces_its_own_rows_only(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(paths, "PAGE", pathlib.Path(folder) / "RESULTS.md"):
            order = ["send", "sync", "start"]
            page.write(order, {"start": [Row("start: x", "ms", [400], None, Bar(500))], "sync": [Row("sync, send: y", "", [1])]}, "one", [])
            page.write(order, {"send": [Row("send: z", "/s", [6], [2], Bar(3, False, True))]}, "two", [0.5, 1.5])
            page.write(order, {"start": [Row("start: x", "ms", [300], None, Bar(500))]}, "three", [])
            rows, history = page.read()
            self.assertEqual([row[:2] for row in rows], [["send: z, /s", "6.00"], ["sync, send: y", "1.00"], ["start: x, ms", "300"]])
            self.assertEqual([row[2] for row in history], ["start: x 300", "send: z 3 ×", "start: x 400"])


class Instructions(unittest.TestCase):
    def test_a_rise_over_five_percent_is_broken(self):
        self.assertEqual(callgrind.broken({"a": 100, "b": 100}, {"a": 105, "b": 106}), ["b"])
        self.assertEqual(callgrind.broken({"a": 100}, {"a": 10}), [])

    def test_every_path_has_a_gate_and_every_gate_a_path(self):
        self.assertEqual(callgrind.broken({"gone": 1}, {"new": 1}), ["new", "gone"])

    def test_the_gates_are_of_what_make_test_builds(self):
        gates = json.loads(callgrind.GATES.read_text())
        self.assertGreaterEqual(len(gates["debug"]["paths"]), 13)


if __name__ == "__main__":
    unittest.main()
