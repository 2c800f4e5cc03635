"""Asks a server the raw gRPC questions and compares with what Apache RocketMQ 5.5.0 answered (expected.tsv).

Prints one JSON line a question: check, status (pass, fail, skip), note, seconds. Started by ../run as the client "raw".
expected.tsv and expected-strict.tsv (groups are not created on first use) were recorded from Apache; compare.py says
what is compared. Against Waybill the cases of cases.py are tried too: what users of such systems suffered from.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import grpc  # noqa: E402
import questions  # noqa: E402
import leases  # noqa: E402,F401  registers its scenarios
import remoting  # noqa: E402
from cases import CASES  # noqa: E402
from compare import RACES_APACHE, essence, expected_answers, late, on_purpose, same  # noqa: E402

SCENARIOS_AT_ONCE = 40
# A question that met flow control (a busy server) is asked again that often, one whose call was lost on a busy machine, or
# answered late, this often.
FLOW_CONTROL_TRIES, LOST_TRIES = 5, 2


class Prober:
    def __init__(self, arguments):
        self.target = arguments.target
        # What clients speak with.
        self.waybill = self.target in ("waybill", "waybill-sidecar")
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

    def ask(self, question, work, lost_tries=LOST_TRIES):
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
            if e.code() == grpc.StatusCode.DEADLINE_EXCEEDED and lost_tries and self.waybill:
                return self.ask(question, work, lost_tries - 1)
        except questions.NotAsked as e:
            return self.say(question, "skip", str(e), began)
        except Exception as e:  # a question that could not be put is a failure, not the end
            return self.say(question, "fail", f"could not be asked: {type(e).__name__}: {e}", began)
        answer, wanted = self.plain(answer), self.expected.get(question)
        shown = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        if wanted is None:
            return self.say(question, "fail", f"no expected answer; got {shown}", began)
        apache_answers = not self.waybill
        if same(question, answer, wanted, lite=apache_answers):
            return self.say(question, "pass", "same", began)
        if lost_tries and late(answer, wanted, lite=apache_answers):
            return self.ask(question, work, lost_tries - 1)
        if apache_answers and question in RACES_APACHE and essence(answer, True).startswith(RACES_APACHE[question]):
            return self.say(question, "known", f"{shown} (Apache polls until the call's very deadline)", began)
        reason = on_purpose(question, answer, self.target)
        if reason:
            return self.say(question, "pass", f"different on purpose: {shown[:120]} ({reason})", began)
        return self.say(question, "fail", f"different: got {shown[:220]} | Apache {wanted[:160]}", began)

    def try_case(self, case):
        """A case returns a note, or raises with what went wrong."""
        began, name = time.monotonic(), f"case.{case.__name__}"
        try:
            self.say(name, "pass", case(self.names), began)
        except Exception as e:
            self.say(name, "fail", f"{type(e).__name__}: {e}", began)

    def run(self):
        try:
            self.learn_broker()
        except (grpc.RpcError, IndexError) as e:
            return self.say("route.ok", "fail", f"no route: {e.details() if isinstance(e, grpc.RpcError) else e}", time.monotonic())
        with concurrent.futures.ThreadPoolExecutor(SCENARIOS_AT_ONCE) as pool:
            futures = {pool.submit(s, self.names, self.ask): s for s in questions.PROBES}
            if self.waybill:
                futures |= {pool.submit(self.try_case, c): c for c in CASES}
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
    parser.add_argument("--target", choices=["waybill", "waybill-sidecar", "apache", "apache-proxy"], default="waybill")
    parser.add_argument("--auto-create", default="")
    parser.add_argument("--run-id", default=remoting.run_id())
    Prober(parser.parse_args()).run()


if __name__ == "__main__":
    main()
    import os
    os._exit(0)  # streams of clients that are still open must not keep the process
