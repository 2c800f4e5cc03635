"""Compares answers of the raw questions with those recorded from Apache RocketMQ 5.5.0.

Compared are codes, entries, the number and order of stream elements, times, gRPC statuses and whole structures; texts
of messages are not (they name Java classes). Hosts, ports and times are made equal first.
"""
import json
import pathlib
import re

from purpose import PURPOSE

HERE = pathlib.Path(__file__).resolve().parent
# How far a measured time may be off, seconds.
TOOK_TOLERANCE_S = 3
# Apache polls until the very deadline of the call, so its answer and the client's own end of waiting race.
RACES_APACHE = {"receive.lp_20s_deadline_5": ("grpc DEADLINE_EXCEEDED", "40018 ")}
# Lines of expected-strict.tsv that speak of groups that are not created on first use.
STRICT = {"telemetry.consumer.missing_group.reply", "receive.missing_group", "receive.missing_group_after_telemetry"}
# Fields whose values are the moment's; and those that only Apache 5.5's lite topics have.
MOMENT = {"message_id", "transaction_id", "born_timestamp", "store_timestamp", "receipt_handle", "queue_offset", "checksum",
          "body", "store_host", "recall_handle", "offset"}
LITE = {"lite_subscription_quota", "max_lite_topic_size"}


def expected_answers(strict):
    answers = {}
    for file, wanted in (("expected.tsv", lambda q: True), ("expected-strict.tsv", lambda q: strict and q in STRICT)):
        for line in (HERE / file).read_text().splitlines():
            question, _, answer = line.partition("\t")
            if answer and not line.startswith("#") and wanted(question):
                answers[question] = answer
    return answers


def tidy(value, key=None, lite=True):
    """Structures with the moment's values, hosts, ports and defaults made equal."""
    if isinstance(value, dict):
        return {k: tidy(v, k, lite) for k, v in value.items()
                if k not in ("queue_id",) and (lite or k not in LITE)}
    if isinstance(value, list):
        return [tidy(v, None, lite) for v in value]
    if key in MOMENT:
        return "*"
    if key == "host":
        return "<host>"
    if key == "port":
        return 8081
    return value


def essence(answer, lite):
    """What is compared of an answer; a text or a structure."""
    if isinstance(answer, dict):
        return tidy(answer, lite=lite)
    if answer.startswith("{"):
        return tidy(json.loads(answer), lite=lite)
    failed = re.search(r"StatusCode\.(\w+)|grpc (\w+):", answer)
    if failed:
        return "grpc " + (failed[1] or failed[2])
    found = re.findall(r"(?:^|\[|\s)(\d{5}) [A-Z_]+", answer)
    if not found:
        return answer
    rest = re.findall(r"messages=\d+|order=\S+|handle=\w+", answer)
    return " ".join(found + rest)


def took(answer):
    found = isinstance(answer, str) and re.search(r"took~(\d+)s", answer)
    return int(found[1]) if found else None


def same(question, got, wanted, lite):
    if question == "send.ok.json":  # the answer names the id that was sent
        entry = got["answer"]["entries"][0]
        if entry.get("message_id") != got["id"]:
            return False
        got = got["answer"]
        for e in (got, wanted := json.loads(wanted)):
            e["entries"][0].pop("offset", None)
        return tidy(got) == tidy(wanted)
    times = took(got), took(wanted)
    if None not in times and abs(times[0] - times[1]) > TOOK_TOLERANCE_S:
        return False
    return essence(got, lite) == essence(wanted, lite)


def late(got, wanted, lite):
    """Whether the answer is the one that is wanted and only came later: once, that may be the machine's fault."""
    times = took(got), took(wanted)
    return None not in times and times[0] - times[1] > TOOK_TOLERANCE_S and essence(got, lite) == essence(wanted, lite)


def on_purpose(question, got, target):
    """Why the answer may be another than Apache's with this target; None: it may not."""
    text = json.dumps(got) if isinstance(got, dict) else got
    codes = essence(text, True)
    codes = re.sub(r" (messages|order|handle)=.*", "", codes.removeprefix("grpc ")) if isinstance(codes, str) else text
    for pattern, accepted, reason in PURPOSE.get(target, ()):
        if re.fullmatch(pattern, question) and re.fullmatch(accepted, codes, re.DOTALL):
            return reason
    return None
