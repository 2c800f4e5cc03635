"""Asks a server the raw gRPC questions and compares with what Apache RocketMQ 5.5.0 answered (expected.tsv).

Prints one JSON line a question: check, status (pass, fail, skip), note, seconds. Started by ../run as the client "raw".
expected.tsv and expected-strict.tsv (groups are not created on first use) were recorded from Apache.
Compared are codes, entries, the number and order of stream elements, times, gRPC statuses and whole structures; texts
of messages are not (they name Java classes). Names, hosts, ports and times are made equal first.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import grpc  # noqa: E402
import questions  # noqa: E402
import leases  # noqa: E402,F401  registers its scenarios
import remoting  # noqa: E402
from purpose import PURPOSE  # noqa: E402

# How far a measured time may be off, seconds.
TOOK_TOLERANCE_S = 3
# Apache polls until the very deadline of the call, so its answer and the client's own end of waiting race.
RACES_APACHE = {"receive.lp_20s_deadline_5": "grpc DEADLINE_EXCEEDED"}
SCENARIOS_AT_ONCE = 40
# A question that met flow control (a busy server) is asked again that often.
FLOW_CONTROL_TRIES = 5
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


def on_purpose(question, got):
    text = json.dumps(got) if isinstance(got, dict) else got
    codes = essence(text, True)
    codes = re.sub(r" (messages|order|handle)=.*", "", codes.removeprefix("grpc ")) if isinstance(codes, str) else ""
    for pattern, accepted, reason in PURPOSE:
        if re.fullmatch(pattern, question) and re.fullmatch(accepted, codes):
            return reason
    return None


class Prober:
    def __init__(self, arguments):
        self.target = arguments.target
        self.expected = expected_answers("group" not in arguments.auto_create.split(","))
        self.names = questions.Names(arguments.run_id, remoting.Admin(arguments.admin), arguments.endpoint)
        self.asked, self.lock = set(), threading.Lock()
        self.broker = "broker-a"

    def plain(self, answer):
        """An answer without the run's marks and with the broker's name as Apache's."""
        text = json.dumps(answer) if isinstance(answer, dict) else answer
        text = text.replace(self.names.mark, "raw-").replace(self.broker, "broker-a")
        return json.loads(text) if isinstance(answer, dict) else text

    def learn_broker(self):
        """The broker's name, which is part of routes and handles."""
        route = self.names.client().route(self.names.topic("broker"))
        self.broker = route.message_queues[0].broker.name

    def say(self, question, status, note, began):
        with self.lock:
            self.asked.add(question)
            print(json.dumps({"check": question, "status": status, "note": note[:400], "seconds": time.monotonic() - began}), flush=True)

    def ask(self, question, work):
        began = time.monotonic()
        try:
            answer = work()
            for _ in range(FLOW_CONTROL_TRIES):
                if not isinstance(answer, str) or not answer.startswith("42900"):
                    break
                time.sleep(0.5)
                answer = work()
        except grpc.RpcError as e:
            answer = questions.error(e)
        except questions.NotAsked as e:
            return self.say(question, "skip", str(e), began)
        except Exception as e:  # a question that could not be put is a failure, not the end
            return self.say(question, "fail", f"could not be asked: {type(e).__name__}: {e}", began)
        answer, wanted = self.plain(answer), self.expected.get(question)
        shown = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        if wanted is None:
            return self.say(question, "fail", f"no expected answer; got {shown}", began)
        if same(question, answer, wanted, lite=self.target == "apache"):
            return self.say(question, "pass", "same", began)
        if self.target == "apache" and RACES_APACHE.get(question) == essence(answer, True):
            return self.say(question, "known", f"{shown} (Apache polls until the call's very deadline)", began)
        reason = self.target == "waybill" and on_purpose(question, answer)
        if reason:
            return self.say(question, "pass", f"different on purpose: {shown[:120]} ({reason})", began)
        return self.say(question, "fail", f"different: got {shown[:220]} | Apache {wanted[:160]}", began)

    def run(self):
        try:
            self.learn_broker()
        except (grpc.RpcError, IndexError) as e:
            return self.say("route.ok", "fail", f"no route: {e.details() if isinstance(e, grpc.RpcError) else e}", time.monotonic())
        with concurrent.futures.ThreadPoolExecutor(SCENARIOS_AT_ONCE) as pool:
            futures = {pool.submit(s, self.names, self.ask): s for s in questions.PROBES}
            for future in concurrent.futures.as_completed(futures):
                if future.exception():
                    e = future.exception()
                    self.say(f"scenario.{futures[future].__name__}", "fail", f"{type(e).__name__}: {e}", time.monotonic())
        for question in self.expected:
            if question not in self.asked:
                self.say(question, "skip", "not asked", time.monotonic())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--admin", required=True)
    parser.add_argument("--target", choices=["waybill", "apache"], default="waybill")
    parser.add_argument("--auto-create", default="")
    parser.add_argument("--run-id", default=f"{int(time.time()):x}")
    Prober(parser.parse_args()).run()


if __name__ == "__main__":
    main()
    import os
    os._exit(0)  # streams of clients that are still open must not keep the process
