"""What runs in the pods of the tests: the published Python client, sending or receiving until it is told to end.

Its access key and secret key are those of WAYBILL_ACCESS_KEY and WAYBILL_SECRET_KEY, if they are set.
Each thing that happened becomes a line of the file --out: "<Unix seconds> <what> <message id or words>". `sent` and `acked` mean that the
server answered OK. SIGTERM ends it after what it has in hand; exit code 0.
"""
import argparse
import os
import signal
import socket
import sys
import threading
import time

from rocketmq.grpc_protocol import FilterType, TransactionResolution
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer.push.message_listener import ConsumeResult, MessageListener
from rocketmq.v5.consumer.push.push_consumer import PushConsumer
from rocketmq.v5.consumer.simple.simple_consumer import SimpleConsumer
from rocketmq.v5.model.filter_expression import FilterExpression
from rocketmq.v5.model.message import Message
from rocketmq.v5.producer.producer import Producer, TransactionChecker

REQUEST_TIMEOUT_S = 5
PAUSE_S = 0.5
AT_ONCE = 32
INVISIBLE_S = 20
ended = threading.Event()


class Book:
    """The lines."""

    def __init__(self, path):
        self.file, self.lock = open(path, "a", buffering=1), threading.Lock()

    def add(self, what, words=""):
        with self.lock:
            self.file.write(f"{time.time():.3f} {what} {words}".rstrip().replace("\n", " ") + "\n")


def started(book, make):
    """A client that has started. One that could not is made anew: some clients cannot be started twice."""
    while not ended.is_set():
        try:
            client = make()
            client.startup()
            book.add("started")
            return client
        except Exception as e:  # whatever the published client throws
            book.add("failed", f"start: {type(e).__name__}: {e}")
            ended.wait(PAUSE_S)
    return None


def configuration(options):
    credentials = Credentials(os.environ.get("WAYBILL_ACCESS_KEY", ""), os.environ.get("WAYBILL_SECRET_KEY", ""))
    return ClientConfiguration(options.endpoint, credentials, request_timeout=REQUEST_TIMEOUT_S)


def produce(options, book):
    """Sends `--count` messages, or until it is told to end, `--rate` a second. A send that failed is tried again as a new message."""
    producer = started(book, lambda: Producer(configuration(options), [options.topic]))
    number, begun = 0, time.monotonic()
    while producer and not ended.is_set() and (not options.count or number < options.count):
        message = Message()
        message.topic, message.body = options.topic, f"{socket.gethostname()} {number}".encode()
        if options.delay:
            message.delivery_timestamp = int(time.time() + options.delay)  # this client's unit, whatever its documentation says
        try:
            book.add("sent", producer.send(message).message_id)
            number += 1
        except Exception as e:  # the same
            book.add("failed", f"send: {type(e).__name__}: {e}")
            ended.wait(PAUSE_S)
        ended.wait(max(0.0, begun + number / options.rate - time.monotonic()))
    if producer:
        producer.shutdown()


def halves(options, book):
    """Sends `--count` messages of transactions, and commits them when `--hold` seconds are over, or it is told to end."""

    class Checker(TransactionChecker):
        def check(self, message):
            return TransactionResolution.COMMIT

    producer = started(book, lambda: Producer(configuration(options), [options.topic], checker=Checker()))
    begun = []
    for number in range(options.count if producer else 0):
        message = Message()
        message.topic, message.body = options.topic, f"half {number}".encode()
        transaction = producer.begin_transaction()
        receipt = producer.send(message, transaction)
        begun.append((transaction, receipt.message_id))
        book.add("half", receipt.message_id)
    ended.wait(options.hold)
    for transaction, message_id in begun:
        transaction.commit()
        book.add("sent", message_id)
    if producer:
        producer.shutdown()


def acknowledge(consumer, message, book):
    """Until the server says OK, or the lease must be over."""
    end = time.monotonic() + INVISIBLE_S
    while time.monotonic() < end:
        try:
            consumer.ack(message)
            book.add("acked", message.message_id)
            return
        except Exception as e:  # the same
            book.add("failed", f"ack: {type(e).__name__}: {e}")
            time.sleep(PAUSE_S)


def consume(options, book):
    """Receives and acknowledges, each message `--hold` seconds after it came."""
    subscription = {options.topic: FilterExpression("*", FilterType.TAG)}
    consumer = started(book, lambda: SimpleConsumer(configuration(options), options.group, subscription, await_duration=5))
    while consumer and not ended.is_set():
        try:
            messages = consumer.receive(AT_ONCE, INVISIBLE_S)
        except Exception as e:  # the same
            book.add("failed", f"receive: {type(e).__name__}: {e}")
            ended.wait(PAUSE_S)
            continue
        for message in messages:
            book.add("got", message.message_id)
        if messages and options.hold:
            time.sleep(options.hold)  # also when it is told to end meanwhile: what it has in hand is finished
        for message in messages:
            acknowledge(consumer, message, book)
    if consumer:
        consumer.shutdown()


def push(options, book):
    """A listener that takes `--hold` seconds for each message."""

    class Listener(MessageListener):
        def consume(self, message):
            book.add("got", message.message_id)
            time.sleep(options.hold)
            book.add("acked", message.message_id)  # so says the listener; whether it was is seen by what comes again
            return ConsumeResult.SUCCESS

    subscription = {options.topic: FilterExpression("*", FilterType.TAG)}
    consumer = started(book, lambda: PushConsumer(configuration(options), options.group, Listener(), subscription))
    while not ended.wait(PAUSE_S):
        pass
    if consumer:
        consumer.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("produce", "halves", "consume", "push"))
    parser.add_argument("--endpoint", default=os.environ.get("ROCKETMQ_ENDPOINTS"))
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--hold", type=float, default=0.0)
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    book = Book(options.out)
    {"produce": produce, "halves": halves, "consume": consume, "push": push}[options.work](options, book)
    book.add("ended")
    # The client's own threads would keep the process alive.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
