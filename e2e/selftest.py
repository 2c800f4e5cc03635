"""Tests of what judges the scenarios: under a second, without a cluster."""
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "cluster"), str(HERE.parent / "scripts"), str(HERE.parent / "conformance")]
import house  # noqa: E402
import layers  # noqa: E402
import load  # noqa: E402
import scenarios  # noqa: E402,F401


class Checks(unittest.TestCase):
    def test_every_need_is_there_and_comes_before(self):
        seen = set()
        for one in house.CHECKS:
            self.assertLessEqual(set(one.needs), seen, one.name)
            self.assertNotIn(one.name, seen)
            seen.add(one.name)

    def test_what_is_needed_is_chosen_too(self):
        self.assertEqual([c.name for c in house.chosen(["upgrade"])], ["install", "shop", "load", "upgrade"])
        self.assertRaises(KeyError, house.chosen, ["no such check"])

    def run_checks(self, *functions):
        checks = [house.Check(f"c{n}", "", needs, function) for n, (needs, function) in enumerate(functions)]
        with mock.patch.object(house, "Cluster"), mock.patch.object(house, "keep"), mock.patch("builtins.print"):
            return house.run(checks)

    def test_failures_faults_and_what_needs_them_count_as_failed(self):
        def fails(_):
            raise house.Failed("so")

        self.assertEqual(self.run_checks(((), lambda _: None), ((), fails), (("c1",), lambda _: None), ((), lambda _: 1 / 0)), (1, 3, 0))

    def test_what_is_not_possible_here_is_no_failure(self):
        def skips(_):
            raise house.Skipped("so")

        self.assertEqual(self.run_checks(((), skips), ((), lambda _: None)), (1, 0, 1))


class Books(unittest.TestCase):
    def book(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "b").write_text(text)
        patch = mock.patch.object(load, "RESULTS", pathlib.Path(folder.name))
        patch.start()
        self.addCleanup(patch.stop)
        return load.Book("b", "missing")

    def test_counts(self):
        book = self.book("1.0 got A\n2.0 got A\n3.0 acked A\n2.5 failed send: Oh: no way\n")
        self.assertEqual((book.ids("got"), book.ids("acked"), book.failures()), ({"A": 2}, {"A": 1}, ["send: Oh: no way"]))

    def test_the_longest_gap_has_its_ends(self):
        book = self.book("10.0 sent A\n11.0 sent B\n15.0 sent C\n")
        self.assertEqual(book.longest_gap("sent", 9.0, 16.0), 4.0)
        self.assertEqual(book.longest_gap("sent", 14.0, 30.0), 15.0)
        self.assertEqual(book.longest_gap("acked", 1.0, 5.0), 4.0)


class Images(unittest.TestCase):
    def test_libraries_of_a_program(self):
        found = dict(layers.libraries(pathlib.Path(sys.executable).resolve()))
        self.assertTrue(any("libc.so" in path for path in found), found)

    def test_the_same_contents_give_the_same_bytes(self):
        def data():
            layer = layers.Layer()
            layer.text("a/b", "c")
            return layer.finish()

        self.assertEqual(data(), data())


if __name__ == "__main__":
    unittest.main()
