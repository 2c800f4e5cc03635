"""Tests of the scripts that judge all other tests."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from unittest import mock

import failed
import stages
import tree


class Help(unittest.TestCase):
    def test_every_command_says_what_it_is_for_and_does_nothing(self):
        folders = [stages.ROOT / folder for folder in ("scripts", "bench", "e2e", "e2e/cluster")]
        commands = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file() and os.access(path, os.X_OK)]
        self.assertGreater(len(commands), 15)
        for command in commands:
            # These two give it to the programs that they are named after.
            if command.name in ("kubectl", "helm"):
                continue
            with self.subTest(command=command.relative_to(stages.ROOT)):
                # The first sentence of what stands at its head.
                head = re.search(r'(?:"""|^# )(\w.+?)(?:[.:,;]|\n|"""|$)', command.read_text(), re.MULTILINE)[1]
                done = subprocess.run([command, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(" ".join(head.split()), " ".join(done.stdout.split()))


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


class Failed(unittest.TestCase):
    def told(self, *lines, most=40):
        return failed.told("\n".join(lines), most)

    def test_nextest_says_it_twice(self):
        head = "\x1b[31m        FAIL\x1b[0m [   1.129s] ( 76/997) waybill::program a::b"
        self.assertEqual(
            self.told("        PASS [   0.1s] (1/997) waybill::program a::a", head, "  stdout ───", "", "    running 1 test", "    test a::b ... FAILED", "",
                      "  stderr ───", "", "    thread 'a::b' (7) panicked at waybill/a.rs:1:2:", "    left is not right", "    stack backtrace:", "       0: panic",
                      "     TIMEOUT [ 120.002s] (78/997) waybill::program a::d", "        PASS [   0.1s] (79/997) waybill::program a::e",
                      "     Summary [ 9.1s] 3 tests run: 1 passed, 1 failed, 1 timed out, 0 skipped", head, "error: test run failed"),
            ["waybill::program a::b", "    thread 'a::b' (7) panicked at waybill/a.rs:1:2:", "    left is not right", "waybill::program a::d (TIMEOUT)"])

    def test_cargo(self):
        self.assertEqual(self.told("test a::b ... FAILED", "", "failures:", "", "---- a::b stdout ----", "it said", "thread 'a::b' (7) panicked at a.rs:1:2:", "bad"),
                         ["a::b", "    thread 'a::b' (7) panicked at a.rs:1:2:", "    bad"])
        self.assertEqual(self.told("   Compiling a", "error[E0308]: mismatched types", " --> a.rs:1:2"), ["error[E0308]: mismatched types", "    --> a.rs:1:2"])

    def test_unittest(self):
        lines = ["F.", "=" * 70, "FAIL: test_a (b.C.test_a)", "-" * 70, "Traceback (most recent call last):", '  File "b.py", line 1, in test_a', "AssertionError: 1 != 2", "",
                 "-" * 70, "Ran 2 tests in 0.1s", "FAILED (failures=1)"]
        self.assertEqual(self.told(*lines), ["FAIL: test_a (b.C.test_a)", "    AssertionError: 1 != 2"])

    def test_own_lines(self):
        self.assertEqual(
            self.told("  9.1s java    missing-group    ✓     refused (Expected the service [FAILED] to be RUNNING)", "proxy   9.9s python  recall           FAIL  40300 no",
                      "  16.9s quickstart                       FAIL   16.9s Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 'a'",
                      "lint: ok      format (1.0 s)", "lint: FAILED  links (0.1 s)", "a.md: b is not there", "seed 7 FAILED, see trace", "    BROKEN order",
                      "| recall | FAIL |", "e2e: 18 passed, 2 failed, 0 skipped"),
            ["proxy 9.9s python recall FAIL 40300 no", "16.9s quickstart FAIL 16.9s Traceback (most recent call last):", "    KeyError: 'a'",
             "lint: FAILED links (0.1 s)", "    a.md: b is not there", "seed 7 FAILED, see trace", "    BROKEN order"])

    def test_names_go_before_reasons_and_the_end_before_nothing(self):
        many = [line for n in range(9) for line in (f"lint: FAILED  a{n} (0.1 s)", "why", "more", "still more")]
        self.assertEqual(len(self.told(*many, most=20)), 18)
        self.assertEqual(self.told(*many, most=4)[2:], ["lint: FAILED a2 (0.1 s)", "and 6 more"])
        self.assertEqual(self.told("one", "", "two"), ["one", "two"])


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
        self.assertIn("may take at most 0.2 s", failed.told(outcome.said, 1)[0])

    def test_the_end_of_all_says_again_what_failed(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(stages, "LOGS", pathlib.Path(directory)), \
                mock.patch("builtins.print") as printed, mock.patch.object(stages, "show"):
            each = [stages.Stage(name, ["sh", "-c", script], 30) for name, script in (("bad", "echo 'lint: FAILED  links (0 s)'; exit 1"), ("good", "true"))]
            self.assertEqual(stages.run_all(each), 1)
            said = "\n".join(str(call.args[0]) for call in printed.call_args_list if call.args)
        table = said.index("GB left\n")
        self.assertIn("failed in bad", said[table:])
        self.assertIn("lint: FAILED links (0 s)", said[table:])
        self.assertNotIn("failed in good", said)
        self.assertEqual(said.splitlines()[-1], "1 passed, 1 failed")


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
