"""Open transactions whose producer has gone: another one of the topic is asked about each, however many there are, and whoever does not listen.

A question that nobody heard must not count as one: after `transactionCheckMax` a transaction is rolled back.
"""
import base64
import concurrent.futures
import queue
import time

from house import PATIENCE_S, House, expect, wait_for
from rawclient import TIMEOUT_S, RawClient, d, s
from rows import BOTH, Seen, row

# Shorter and fewer than by default (30 s, 15 times), so that what is not heard is soon too late; long enough for a client that answers 30 a second.
CHECKS = {"transactionTimeOut": 1000, "transactionCheckInterval": 10_000, "transactionCheckMax": 7}
SENDS_AT_ONCE = 32


def open_halves(house, endpoint, topic, count, body_bytes=0):
    """So many transactions that nobody ends; their producer goes."""
    house.admin.create_topic(topic, "TRANSACTION")
    producer = RawClient(endpoint)
    producer.open(producer.producer_settings(topic))

    def send(n):
        answer = producer.send(producer.message(topic, b"%d/" % n + b"x" * body_bytes, d.MessageType.TRANSACTION), timeout_s=PATIENCE_S)
        expect(answer.status.code == 20000, f"send: {answer.status}")
    with concurrent.futures.ThreadPoolExecutor(SENDS_AT_ONCE) as pool:
        list(pool.map(send, range(count)))
    producer.close()


def half_messages(house, topic):
    return house.broker.metrics().get(f'rocketmq_half_messages{{topic="{topic}"}}', 0)


def given_up(house):
    return house.broker.metrics().get("waybill_broker_transactions_given_up_total", 0)


def all_committed(house, endpoint, client, name, topic, count):
    """The client is asked about all and commits them, and all can be read. Seconds until the last was committed."""
    began = time.monotonic()
    wait_for(lambda: f"all are decided: {half_messages(house, topic)} of {count} are open, {given_up(house)} given up", 3 * PATIENCE_S,
             lambda: half_messages(house, topic) == 0, every=0.3)
    took = time.monotonic() - began
    asked = client.call("asked", name=name)["ids"]
    expect(len(set(asked)) == count, lambda: f"asked about {len(set(asked))} of {count}, {given_up(house):.0f} were given up")
    house.admin.create_group(f"g-{topic}")
    reader = RawClient(endpoint)
    house.stack.callback(reader.close)
    reader.open(reader.consumer_settings(f"g-{topic}", topic))
    bodies = set()
    while len(bodies) < count:
        found = reader.receive(f"g-{topic}", topic)[1]
        expect(found, lambda: f"{len(bodies)} of {count} can be read, {given_up(house):.0f} were given up")
        reader.ack(f"g-{topic}", topic, *(m.system_properties.receipt_handle for m in found))
        bodies |= {m.body for m in found}
    return took, len(asked) - count


@row("many transactions left open: the next producer is asked about all", kinds=("python", "java", "node"), seconds=40, modes=(BOTH,))
def many(folder, kind, mode):
    """Transactions whose producer has gone; one of a published client comes and commits what it is asked about."""
    count = 2000 if kind == "java" else 500  # which answers a few hundred a second
    with House(folder, broker=CHECKS) as house:
        sidecar = house.sidecar("a")
        open_halves(house, sidecar.endpoint, "orphans", count)
        client = house.client(kind, sidecar.endpoint)
        client.call("producer", name="p", topics=["orphans"], checks="commit")
        took, again = all_committed(house, sidecar.endpoint, client, "p", "orphans", count)
        return Seen(note=f"{count} of {count} committed {took:.1f} s after it came; {again} asked twice")


class Deaf(RawClient):
    """A producer that reads nothing of its telemetry stream but the first answer."""

    def open(self, settings, timeout_s=TIMEOUT_S):
        self.outgoing = queue.Queue()
        self.outgoing.put(s.TelemetryCommand(settings=settings))
        self.stream = self.stub.Telemetry(iter(self.outgoing.get, None), metadata=self.metadata, timeout=600)
        return next(self.stream)


@row("many transactions left open: a producer that does not listen harms no other", kinds=("java",), seconds=40, modes=(BOTH,))
def deaf(folder, kind, mode):
    """The only producer of one topic does not read what it is asked about 1,500 transactions; that of another topic hears all 300 of its own."""
    count, others = 300, 1500
    with House(folder, broker=CHECKS) as house:
        sidecar = house.sidecar("a")
        open_halves(house, sidecar.endpoint, "deaf", others, body_bytes=20_000)
        open_halves(house, sidecar.endpoint, "hears", count)
        stuck = Deaf(sidecar.endpoint)
        house.stack.callback(stuck.close)
        expect(stuck.open(stuck.producer_settings("deaf")).HasField("settings"), "no settings")

        def lost():
            return sum(v for k, v in sidecar.metrics().items() if k.startswith("waybill_sidecar_transaction_questions") and "nobody" in k)
        wait_for("questions find no room", PATIENCE_S, lost)
        client = house.client(kind, sidecar.endpoint)
        client.call("producer", name="p", topics=["hears"], checks="commit")
        took, again = all_committed(house, sidecar.endpoint, client, "p", "hears", count)
        expect(half_messages(house, "deaf") > 0, "somebody answered about the others")
        return Seen(note=f"{count} of {count} committed {took:.1f} s after it came, {again} asked twice, while {lost():.0f} questions to the other were lost")
