"""Agent of the published Python client (PyPI rocketmq-python-client): does what ../run tells it on standard input.

One JSON object a line in, one a line out; see "Agents" in ../README.md. Each command runs on a thread of its own.
"""
import argparse
import base64
import json
import sys
import threading
import time

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer.push.message_listener import ConsumeResult, MessageListener
from rocketmq.v5.consumer.push.push_consumer import PushConsumer
from rocketmq.v5.consumer.simple.simple_consumer import SimpleConsumer
from rocketmq.v5.exception import ClientException
from rocketmq.grpc_protocol import FilterType, TransactionResolution
from rocketmq.v5.model.filter_expression import FilterExpression
from rocketmq.v5.model.message import Message
from rocketmq.v5.producer.producer import Producer, TransactionChecker


def subscription(c):
    return {c["topic"]: FilterExpression(c["filter"], FilterType.SQL if c.get("sql") else FilterType.TAG)}


class Agent:
    def __init__(self, endpoint, request_timeout_s):
        self.endpoint, self.request_timeout_s = endpoint, request_timeout_s
        self.clients, self.received, self.events, self.gates = {}, {}, {}, {}
        self.halves, self.questions = {}, {}
        self.output = threading.Lock()

    def configuration(self, c):
        return ClientConfiguration(self.endpoint, Credentials(*c.get("credentials", ())), c.get("namespace", ""), request_timeout=self.request_timeout_s)

    def producer(self, c):
        client = Producer(self.configuration(c), c["topics"], checker=self.checker(c) if "checks" in c else None,
                          tls_enable=c.get("tls", False))
        client.startup()
        self.clients[c["name"]] = client

    def send(self, c):
        m = Message()
        m.topic = c["topic"]
        m.body = base64.b64decode(c["body"])
        if "tag" in c:
            m.tag = c["tag"]
        if "message_group" in c:
            m.message_group = c["message_group"]
        for key in c.get("keys", []):
            m.keys = key
        for key, value in c.get("properties", {}).items():
            m.add_property(key, value)
        if "deliver_at_s" in c:
            m.delivery_timestamp = c["deliver_at_s"]  # this client's unit, whatever its documentation says
        receipt = self.clients[c["name"]].send(m)
        return {"id": receipt.message_id, "recall": receipt.recall_handle}

    def recall(self, c):
        return {"id": self.clients[c["name"]].recall_message(c["topic"], c["handle"])}

    def checker(self, c):
        asked = self.questions[c["name"]] = []

        class Checker(TransactionChecker):
            def check(self, m):
                asked.append(m.message_id)
                return {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}.get(
                    c["checks"], TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)

        return Checker()

    def half(self, c):
        producer, m = self.clients[c["name"]], Message()
        m.topic = c["topic"]
        m.body = base64.b64decode(c["body"])
        transaction = producer.begin_transaction()
        receipt = producer.send(m, transaction)
        self.halves[receipt.message_id] = transaction
        return {"id": receipt.message_id, "ref": receipt.message_id}

    def end(self, c):
        transaction = self.halves[c["ref"]]
        transaction.commit() if c["commit"] else transaction.rollback()

    def asked(self, c):
        return {"ids": list(self.questions[c["name"]])}

    def consumer(self, c):
        client = SimpleConsumer(self.configuration(c), c["group"], subscription(c),
                                await_duration=c["await_s"], tls_enable=c.get("tls", False))
        client.startup()
        self.clients[c["name"]] = client

    @staticmethod
    def show(m):
        return {"id": m.message_id, "topic": m.topic, "tag": m.tag, "keys": sorted(m.keys), "properties": m.properties,
                "body": base64.b64encode(m.body).decode(), "attempt": m.delivery_attempt, "corrupted": m.corrupted}

    def receive(self, c):
        shown = []
        for m in self.clients[c["name"]].receive(c["max"], c["invisible_s"]):
            ref = f"{c['name']}/{len(self.received)}"
            self.received[ref] = [m, m.receipt_handle]
            shown.append(self.show(m) | {"ref": ref})
        return {"messages": shown}

    def ack(self, c):
        m, first_handle = self.received[c["ref"]]
        if c.get("handle") == "old":
            m.receipt_handle = first_handle
        self.clients[c["name"]].ack(m)

    def change(self, c):
        m, first_handle = self.received[c["ref"]]
        self.clients[c["name"]].change_invisible_duration(m, c["invisible_s"])
        return {"changed": m.receipt_handle != first_handle}

    def push(self, c):
        seen = self.events[c["name"]] = []
        gate = self.gates[c["name"]] = threading.Event()
        if not c.get("hold"):
            gate.set()
        agent = self

        class Listener(MessageListener):
            def consume(self, m):
                seen.append(agent.show(m) | {"at": time.time()})
                gate.wait()
                return ConsumeResult.FAILURE if m.delivery_attempt <= c["fail_attempts"] else ConsumeResult.SUCCESS

        for attempts_left in (2, 1, 0):
            client = PushConsumer(self.configuration(c), c["group"], Listener(), subscription(c),
                                  tls_enable=c.get("tls", False))
            try:
                client.startup()
                break
            except AttributeError:
                # This client breaks at its start when the answer about the route is there before it waits for it, and once more when it cleans up.
                if not attempts_left:
                    raise
        self.clients[c["name"]] = client

    def release(self, c):
        self.gates[c["name"]].set()

    def seen(self, c):
        return {"events": list(self.events[c["name"]])}

    def close(self, c):
        self.clients.pop(c["name"]).shutdown()

    def handle(self, c):
        try:
            answer = getattr(self, c["op"])(c) or {}
        except Exception as e:  # the orchestrator judges every failure
            answer = {"error": {"code": int(e.code) if isinstance(e, ClientException) and e.code else None,
                                "type": type(e).__name__, "text": str(e)[:500]}}
        with self.output:
            print(json.dumps({"n": c["n"]} | answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--request-timeout", type=int, required=True, metavar="SECONDS")
    arguments = parser.parse_args()
    agent = Agent(arguments.endpoint, arguments.request_timeout)
    for line in sys.stdin:
        threading.Thread(target=agent.handle, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
    import os
    os._exit(0)  # the client's own threads would keep the process alive
