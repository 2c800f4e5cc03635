"""Tests of the scripts that judge all other tests."""

import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import stages
import tree


class Count(unittest.TestCase):
    def test_nextest(self):
        self.assertEqual(stages.count("     Summary [   0.021s] 20 tests run: 20 passed, 3 skipped\n"), (20, 0, 3))
        line = "     Summary [   9.1s] 19/20 tests run: 15 passed (1 slow), 2 failed, 1 exec failed, 1 timed out, 0 skipped"
        self.assertEqual(stages.count(line), (15, 4, 0))
        self.assertEqual(stages.count("\x1b[32m     Summary\x1b[0m [ 1s] 1 test run: 1 passed, 0 skipped"), (1, 0, 0))

    def test_cargo_test(self):
        line = "test result: FAILED. 19 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.42s"
        self.assertEqual(stages.count(line + "\n" + line), (38, 2, 4))

    def test_unittest(self):
        self.assertEqual(stages.count("Ran 11 tests in 0.2s\n\nOK"), (11, 0, 0))
        self.assertEqual(stages.count("Ran 11 tests in 0.2s\n\nFAILED (failures=1, errors=2)"), (8, 3, 0))

    def test_own_lines(self):
        self.assertEqual(stages.count("lint: 8 passed, 1 failed\n10 passed, 0 failed, 2 skipped"), (18, 1, 2))
        self.assertEqual(stages.count("it said 8 passed, 1 failed somewhere"), (0, 0, 0))


class Stages(unittest.TestCase):
    def run_shell(self, script, limit_s=30, **more):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(stages, "LOGS", pathlib.Path(directory)), \
                mock.patch("builtins.print"), mock.patch.object(stages, "show"):
            return stages.run(stages.Stage("example", ["sh", "-c", script], limit_s, **more))

    def test_failure_without_a_count_counts_as_one(self):
        outcome = self.run_shell("exit 3")
        self.assertEqual((outcome.passed, outcome.failed), (0, 1))

    def test_exit_code_outweighs_a_good_count(self):
        outcome = self.run_shell("echo '5 passed, 0 failed' >&2; exit 1")
        self.assertEqual((outcome.passed, outcome.failed), (5, 1))

    def test_success_without_a_count_counts_as_one(self):
        outcome = self.run_shell("true")
        self.assertEqual((outcome.passed, outcome.failed), (1, 0))

    def test_all_skipped_is_no_success_of_its_own(self):
        outcome = self.run_shell("echo '0 passed, 0 failed, 13 skipped'")
        self.assertEqual((outcome.passed, outcome.failed, outcome.skipped), (0, 0, 13))

    def test_time_limit_ends_the_whole_group(self):
        outcome = self.run_shell("sleep 600 & sleep 600", limit_s=0.2)
        self.assertEqual(outcome.failed, 1)
        self.assertLess(outcome.seconds, 60)


class BesideTheStages(unittest.TestCase):
    def test_it_stands_still_beside_a_stage_that_is_alone_and_ends_with_the_stages(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(stages, "LOGS", pathlib.Path(directory)), \
                mock.patch("builtins.print"), mock.patch.object(stages, "show"):
            with stages.Beside("beside", ["sleep", "600"]) as beside:
                def state(wanted):
                    """Tells the state when it is one of these, or after ten seconds: a signal that was sent has its effect a little later."""
                    read = f"s=$(cut -d' ' -f3 /proc/{beside.process.pid}/stat)"
                    return ["sh", "-c", f"for i in $(seq 200); do {read}; case $s in {wanted}) break;; esac; sleep 0.05; done; echo $s"]
                each = [stages.Stage("alone", state("T"), 30, alone=True), stages.Stage("not", state("S|R"), 30)]
                stages.run_all(each, beside)
                seen = [(pathlib.Path(directory) / f"{stage.name}.log").read_text().strip() for stage in each]
            self.assertEqual(seen[0], "T")
            self.assertIn(seen[1], "SR")
            self.assertIsNotNone(beside.process.returncode)


class Tree(unittest.TestCase):
    def check(self, check, name, text):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            subprocess.run(["git", "init", "-q", directory], check=True)
            with mock.patch.object(tree, "ROOT", pathlib.Path(directory)):
                return check()

    def test_unsafe_code(self):
        self.assertTrue(self.check(tree.unsafe_code, "a.rs", "fn a() { unsafe { b() } }\n"))
        self.assertFalse(self.check(tree.unsafe_code, "a.rs", "#![forbid(unsafe_code)]\n// unsafe { is not used }\n"))
        self.assertTrue(self.check(tree.unsafe_code, "a/Cargo.toml", "[package]\nname = 'a'\n"))
        self.assertFalse(self.check(tree.unsafe_code, "a/Cargo.toml", "[package]\n[lints]\nworkspace = true\n"))

    def test_registry_hosts(self):
        host = "registry" + ".npmjs" + ".org"
        self.assertTrue(self.check(tree.registry_hosts, "lock.json", f"resolved: {host}/x"))
        self.assertFalse(self.check(tree.registry_hosts, "lock.json", "x 1.0.0"))

    def test_long_files(self):
        self.assertTrue(self.check(tree.long_files, "a.rs", "\n" * 601))
        self.assertFalse(self.check(tree.long_files, "a.rs", "\n" * 600))

    def test_unread_keys(self):
        table = "    page_size: i64 = 1;\n"

        def unread(code):
            with tempfile.TemporaryDirectory() as directory:
                own = pathlib.Path(directory) / "src" / "config"
                own.mkdir(parents=True)
                (own / "keys.rs").write_text(table)
                (own / "mod.rs").write_text("self.page_size > 0")
                (own.parent / "a.rs").write_text(code)
                subprocess.run(["git", "init", "-q", directory], check=True)
                keys = [(own / "keys.rs", r"^    (\w+): ", own)]
                with mock.patch.object(tree, "ROOT", pathlib.Path(directory)), mock.patch.object(tree, "KEYS", keys):
                    return tree.unread_keys()

        self.assertTrue(unread("// page_size"), "what checks a key does not use it")
        self.assertFalse(unread("config.get().page_size"))

    def test_broken_links(self):
        self.assertTrue(self.check(tree.broken_links, "a.md", "see [b](b.md#top)"))
        self.assertFalse(self.check(tree.broken_links, "a.md", "see [a](a.md#top), [b](https://example.org), [c](#c)"))


if __name__ == "__main__":
    unittest.main()
