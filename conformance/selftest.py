#!/usr/bin/env python3
"""Tests of the suite's own judgement: that it fails what it should fail. Standard library only."""
import json
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "raw")]
import checks  # noqa: E402
import compare  # noqa: E402
import remoting  # noqa: E402
from clients import OperationError  # noqa: E402

EXPECTED = compare.expected_answers(strict=False)


def failing(**error):
    def work():
        raise OperationError(error)
    return work


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


if __name__ == "__main__":
    unittest.main()
