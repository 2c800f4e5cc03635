"""A message's way through Waybill, told step by step, with the published Python client of RocketMQ.

Usage: demo.py <waybill binary> <endpoint> <broker>. Exit code 0 only when every step did what it says.
"""

import json
import subprocess
import sys
import time

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer.simple.simple_consumer import SimpleConsumer
from rocketmq.v5.exception import ClientException
from rocketmq.v5.model.filter_expression import FilterExpression
from rocketmq.v5.model.message import Message
from rocketmq.v5.producer.producer import Producer

TOPIC, GROUP = "greetings", "readers"
INVISIBLE_S, EXTENDED_S = 15, 60
RECEIVE_LIMIT_S = 60


class Step:
    """Numbers the steps."""

    count = 0

    def __new__(cls, text):
        cls.count += 1
        print(f"\n{cls.count}. {text}", flush=True)


def tell(text):
    """What happened in a step."""
    print(f"   {text}", flush=True)


def must(condition, what):
    """Ends the demonstration when something is not as told."""
    if not condition:
        sys.exit(f"   this is not as it should be: {what}")


def waybill(binary, broker, *arguments):
    """Runs the command line tool and returns what it answers."""
    tell("$ waybill " + " ".join(arguments))
    done = subprocess.run([binary, *arguments, "--broker", broker, "--output", "json"], capture_output=True, text=True, timeout=60)
    must(done.returncode == 0, done.stderr.strip())
    return json.loads(done.stdout)


def leases(binary, broker):
    """The messages that the group has received and not acknowledged."""
    return waybill(binary, broker, "lease", "list", "--group", GROUP)["leases"]


def receive(consumer):
    """The next message. A client that has just started may be told that there is nothing yet."""
    end = time.monotonic() + RECEIVE_LIMIT_S
    while time.monotonic() < end:
        try:
            messages = consumer.receive(1, INVISIBLE_S)
        except ClientException as e:
            tell(f"(the client says: {e}; trying again)")
            time.sleep(1)
            continue
        if messages:
            return messages[0]
    sys.exit("   no message came")


def main():
    binary, endpoint, broker = sys.argv[1:]
    print(f"Waybill is running: clients connect to {endpoint}, as they would to Apache RocketMQ.")

    Step(f"Create the topic '{TOPIC}': a named place that messages are sent to.")
    created = waybill(binary, broker, "topic", "create", TOPIC)
    tell(f"Created, with {created['topic']['readQueues']} queues to spread the messages over.")

    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, [TOPIC])
    producer.startup()
    consumer = SimpleConsumer(configuration, GROUP, {TOPIC: FilterExpression("*")}, await_duration=10)
    consumer.startup()
    try:
        Step("Send a message.")
        message = Message()
        message.topic, message.body, message.tag = TOPIC, "Hello from Python!".encode(), "demo"
        sent = producer.send(message)
        tell(f"Waybill answered OK: message {sent.message_id} is on disk.")

        Step(f"Receive it, as one of the consumer group '{GROUP}'.")
        received = receive(consumer)
        must(received.message_id == sent.message_id, f"another message came: {received.message_id}")
        must(received.body == message.body, f"another body came: {received.body}")
        must(received.delivery_attempt == 1, f"it is delivery {received.delivery_attempt}")
        tell(f"Got '{received.body.decode()}', delivery {received.delivery_attempt}.")
        tell(f"For {INVISIBLE_S} seconds nobody else in the group sees it. Should this program crash now, it comes back for another.")
        held = leases(binary, broker)
        must(len(held) == 1, f"the broker knows {len(held)} leases")
        first_deadline = held[0]["deadline"]
        tell(f"The broker keeps a lease on it: it ends {first_deadline - held[0]['popTime']} ms after the receive.")

        Step(f"The work takes longer than expected: extend the lease to {EXTENDED_S} seconds from now.")
        consumer.change_invisible_duration(received, EXTENDED_S)
        held = leases(binary, broker)
        must(len(held) == 1 and held[0]["changes"] == 1, f"the broker knows of {held}")
        later_s = (held[0]["deadline"] - first_deadline) / 1000
        must(later_s > EXTENDED_S - INVISIBLE_S - 1, f"the lease ends only {later_s} s later")
        tell(f"Extended: it now ends {later_s:.0f} seconds later. One request, one write to disk.")

        Step("Done: acknowledge the message.")
        consumer.ack(received)
        held = leases(binary, broker)
        must(not held, f"the broker still knows {held}")
        tell("Acknowledged. The lease is gone and the message will not be delivered to this group again.")
    finally:
        consumer.shutdown()
        producer.shutdown()
    print("\nThat was the whole way: create, send, receive, extend, acknowledge.", flush=True)


if __name__ == "__main__":
    main()
