#!/usr/bin/env python3
"""Tests of the suite's own judgement: that it fails what it should fail. Standard library only."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "raw"), str(HERE / "apache")]
import apache  # noqa: E402
import checks  # noqa: E402
import compare  # noqa: E402
import environment  # noqa: E402
import logs  # noqa: E402
import purpose  # noqa: E402
import remoting  # noqa: E402
from clients import OperationError  # noqa: E402

EXPECTED = compare.expected_answers(strict=False)


def failing(**error):
    def work():
        raise OperationError(error)
    return work


class Compatibility(unittest.TestCase):
    """docs/compatibility.md names each question whose answer may differ on purpose, and no other."""

    def test_the_page_names_what_may_differ(self):
        page = (HERE.parent / "docs/compatibility.md").read_text()
        tables = page.split("## Behaviour")[0]
        named = {q for line in tables.splitlines() if line.startswith("| `") for q in re.findall(r"`([^`]+)`", line.split(" | ")[0])}
        for pattern, _, _ in purpose.WAYBILL:
            questions = {q for q in EXPECTED if re.fullmatch(pattern, q)}
            self.assertTrue(questions & named, f"{pattern}: {sorted(questions)}")
        asked = {q for pattern, _, _ in purpose.PURPOSE["waybill"] for q in EXPECTED if re.fullmatch(pattern, q)}
        self.assertEqual(named - asked, set())


class Comparison(unittest.TestCase):
    def test_every_recorded_answer_equals_itself_and_no_other_code(self):
        for question, answer in EXPECTED.items():
            if question == "send.ok.json":
                continue
            self.assertTrue(compare.same(question, answer, answer, True), question)
            changed = re.sub(r"^\d{5}", "77777", answer)
            if changed != answer:
                self.assertFalse(compare.same(question, changed, answer, True), f"{question}: {changed}")

    def test_an_entry_that_differs_is_seen(self):
        question = "ack.batch_one_bad"
        self.assertFalse(compare.same(question, EXPECTED[question].replace("entry[20000 OK", "entry[40013 X"), EXPECTED[question], True))

    def test_a_field_that_differs_is_seen(self):
        question = "telemetry.push_consumer.custom_retry_group.reply"
        reply = json.loads(EXPECTED[question])
        self.assertTrue(compare.same(question, reply, EXPECTED[question], False))
        reply["settings"]["backoff_policy"]["max_attempts"] = 5
        self.assertFalse(compare.same(question, reply, EXPECTED[question], False))

    def test_lite_fields_matter_only_for_apache(self):
        question = "telemetry.simple_consumer.reply"
        reply = json.loads(EXPECTED[question])
        del reply["settings"]["subscription"]["lite_subscription_quota"]
        self.assertTrue(compare.same(question, reply, EXPECTED[question], False))
        self.assertFalse(compare.same(question, reply, EXPECTED[question], True))

    def test_a_wait_that_is_off_is_seen(self):
        question = "receive.lp_none"
        self.assertFalse(compare.same(question, EXPECTED[question].replace("took~20s", "took~5s"), EXPECTED[question], True))

    def test_the_order_of_a_stream_matters(self):
        question = "receive.status_ok"
        changed = EXPECTED[question].replace("status>message>delivery_timestamp", "message>status>delivery_timestamp")
        self.assertFalse(compare.same(question, changed, EXPECTED[question], True))

    def test_purpose_takes_only_the_precise_code(self):
        self.assertTrue(compare.on_purpose("receive.no_telemetry", "40015 UNRECOGNIZED_CLIENT_TYPE 'x' messages=0 order=status", "waybill"))
        self.assertIsNone(compare.on_purpose("receive.no_telemetry", "50001 INTERNAL_SERVER_ERROR 'x' messages=0", "waybill"))
        self.assertIsNone(compare.on_purpose("ack.batch_one_bad", "30000 MULTIPLE_RESULTS 'x' entry[40013 X 'x'] entry[20000 OK 'OK']", "waybill"))
        self.assertIsNone(compare.on_purpose("send.ok", "50100 NOT_IMPLEMENTED 'x'", "waybill"))


class Refusals(unittest.TestCase):
    def test_accepted_fails(self):
        with self.assertRaises(checks.Failed):
            checks.refused(lambda: None, 40002, "x")

    def test_another_code_fails(self):
        with self.assertRaises(checks.Failed):
            checks.refused(failing(code=50001, type="T", text="t"), 40002, "x")

    def test_a_lost_call_or_a_dead_agent_fails(self):
        for kind, text in (("E", "UNAVAILABLE: connection refused"), ("E", "DEADLINE_EXCEEDED"), ("Agent", "ended"), ("Panic", "p")):
            with self.assertRaises(checks.Failed):
                checks.refused(failing(code=None, type=kind, text=text), 40002, "x")

    def test_the_code_passes_by_number_and_name(self):
        checks.refused(failing(code=40002, type="T", text="t"), 40002, "x")
        checks.refused(failing(code=None, code_name="ILLEGAL_TOPIC", type="T", text="t"), 40002, "x")

    def test_a_client_refusal_passes_and_is_named(self):
        self.assertIn("client itself", checks.refused(failing(code=None, type="ValueError", text="bad"), 40002, "x"))


class Frames(unittest.TestCase):
    def test_golden_frames_decode_to_the_index(self):
        golden = HERE.parent / "protocol" / "tests" / "golden"
        index = json.loads((golden / "index.json").read_text())
        frames = {k: v for k, v in index.items() if "code" in v}
        self.assertGreater(len(frames), 80)
        for name, wanted in frames.items():
            frame = remoting.decode((golden / name).read_bytes())
            self.assertEqual((frame.code, frame.ext, frame.remark, len(frame.body)),
                             (wanted["code"], wanted["ext"], wanted["remark"], wanted["body_bytes"]), name)

    def test_both_header_forms_round_trip(self):
        for encode in (remoting.encode_json, remoting.encode_binary):
            frame = remoting.decode(encode(17, {"topic": "Grüße", "n": 5}, b"body", opaque=7))
            self.assertEqual((frame.code, frame.ext, frame.body, frame.opaque), (17, {"topic": "Grüße", "n": "5"}, b"body", 7))


class Disk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_what_programs_said_is_kept_and_their_stores_are_not(self):
        run, kept = self.folder / "run", self.folder / "kept"
        for file in ("one/broker.log", "one/sidecar.yaml", "one/data/log/0.log", "two/apache/store/commitlog/0.log"):
            (run / file).parent.mkdir(parents=True, exist_ok=True)
            (run / file).write_text(file)
        logs.keep(run, kept)
        self.assertEqual({str(f.relative_to(kept)) for f in kept.rglob("*") if f.is_file()}, {"one/broker.log", "one/sidecar.yaml"})
        logs.drop_stores(run)
        self.assertEqual({str(f.relative_to(run)) for f in run.rglob("*") if f.is_file()}, {"one/broker.log", "one/sidecar.yaml"})

    def store(self, used, flush):
        store = self.folder / "store"
        with unittest.mock.patch.object(apache, "disk_used", lambda _: used), unittest.mock.patch.object(apache, "MEMORY", self.folder):
            apache.make_store(store, flush)
        return store

    def test_apaches_store_is_on_the_disk_while_there_is_room(self):
        self.assertFalse(self.store(0.79, "async").is_symlink())

    def test_apaches_store_is_in_memory_when_the_broker_would_refuse_and_goes_when_it_stops(self):
        store = self.store(0.85, "async")
        target = store.resolve()
        self.assertTrue(store.is_symlink() and target.is_dir())
        apache.Apache(dir=self.folder).stop()
        self.assertFalse(store.is_symlink() or target.exists())

    def test_what_waits_for_the_disk_is_not_moved_and_a_full_disk_is_said(self):
        self.assertFalse(self.store(0.85, "sync").is_symlink())
        (self.folder / "store").rmdir()
        with self.assertRaisesRegex(RuntimeError, "make room"):
            self.store(0.95, "sync")


class Names(unittest.TestCase):
    def test_two_runs_in_one_second_have_names_of_their_own(self):
        with unittest.mock.patch("time.time", return_value=1_800_000_000):
            self.assertEqual(len({remoting.run_id() for _ in range(3)}), 3)


class Making(unittest.TestCase):
    def test_a_busy_broker_is_asked_again_and_another_refusal_is_told(self):
        admin = remoting.Admin("")
        admin.brokers.append("broker:1")
        answers = [remoting.Busy("later"), TimeoutError(), None, remoting.RemotingError("no")]
        with unittest.mock.patch("remoting.call", side_effect=answers) as call, unittest.mock.patch("time.sleep"):
            admin.create_topic("t")
            self.assertEqual(call.call_count, 3)
            self.assertRaises(remoting.RemotingError, admin.create_group, "g")
        with unittest.mock.patch("remoting.call", side_effect=remoting.Busy("never")), \
                unittest.mock.patch("time.sleep"), unittest.mock.patch("remoting.BUSY_S", -1):
            self.assertRaises(remoting.Busy, admin.create_topic, "t")


class Installing(unittest.TestCase):
    def test_a_download_that_failed_is_tried_again_and_a_lasting_failure_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            once = ["sh", "-c", 'test -e done || { touch done; exit 3; }']
            environment.install(once, 10, pauses_s=(0,), cwd=folder)
            with self.assertRaises(subprocess.CalledProcessError) as failed:
                environment.install(["sh", "-c", "echo >>tries; exit 4"], 10, pauses_s=(0, 0), cwd=folder)
            self.assertEqual(failed.exception.returncode, 4)
            self.assertEqual(len(pathlib.Path(folder, "tries").read_text().splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
