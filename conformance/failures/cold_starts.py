"""C17: order from the first message on, when a consumer starts on a backlog, and when only the first of several held messages is extended."""
import base64
import concurrent.futures
import time

from house import PATIENCE_S, House, expect, wait_for
from rawclient import RawClient, d
from rows import BOTH, Seen, row, switch

STARTS, AT_ONCE, MESSAGES = 20, 5, 100
# The simple consumer's: leases, and what the first is extended to.
LEASE_S, EXTENDED_S = 10, 20


def send_in_order(house, endpoint, topic, count):
    """Numbers from 1 on, of one message group."""
    house.admin.create_topic(topic, "FIFO")
    producer = RawClient(endpoint)
    producer.open(producer.producer_settings(topic))
    for n in range(1, count + 1):
        answer = producer.send(producer.message(topic, b"%d" % n, d.MessageType.FIFO, message_group="m"), timeout_s=PATIENCE_S)
        expect(answer.status.code == 20000, f"send: {answer.status}")
    producer.close()


def numbers(messages):
    return [int(base64.b64decode(m["body"])) for m in messages]


def first_settings(house, endpoint, topic):
    """What a push consumer of a group that nobody asked for before is told first."""
    for n in range(STARTS):
        group = f"told-{n}"
        house.admin.create_group(group, orderly=True)
        client = RawClient(endpoint)
        first = client.open(client.consumer_settings(group, topic, d.ClientType.PUSH_CONSUMER))
        client.close()
        expect(first.settings.subscription.fifo, f"the first answer does not say that {group} is ordered: {first}")


def cold_start(house, client, topic, n):
    """A push consumer of a new group gets all, in order, each once. It stays: to close one takes as long as its last poll may wait."""
    name = f"cold-{n}"
    house.admin.create_group(name, orderly=True)
    client.push(name, name, topic)

    def came():
        seen = numbers(client.events(name))
        expect(seen == list(range(1, len(seen) + 1)), f"start {n}: {seen}")
        return seen
    wait_for(lambda: f"start {n} gets {MESSAGES}: {came()}", 4 * PATIENCE_S, lambda: len(came()) == MESSAGES, every=0.3)


def one_extended(house, client):
    """Of three of a message group that are held for LEASE_S the first is extended: nothing comes before that one's time, then all in order."""
    topic, group = "three", "extends"
    house.admin.create_group(group, orderly=True)
    client.call("consumer", name="s", group=group, topic=topic, filter="*", await_s=client.client.await_s)

    def receive():
        return client.receive("s", max=3, invisible_s=LEASE_S)
    held = wait_for("three come", PATIENCE_S, receive)
    expect(numbers(held) == [1, 2, 3], f"received {numbers(held)}")
    asked = time.monotonic()
    client.call("change", name="s", ref=held[0]["ref"], invisible_s=EXTENDED_S)
    time.sleep(max(asked + LEASE_S + 2 - time.monotonic(), 0))
    found, end = [], time.monotonic() + EXTENDED_S + PATIENCE_S
    while len(found) < 3:
        expect(time.monotonic() < end, f"only {numbers(found)} came again")
        more = receive()
        after = time.monotonic() - asked
        expect(not more or after >= EXTENDED_S, f"{numbers(more)} came {after:.1f} s after the first was extended to {EXTENDED_S} s")
        for m in more:
            client.call("ack", name="s", ref=m["ref"])
        found += more
    expect(numbers(found) == [1, 2, 3], f"came again as {numbers(found)}")


@row("C17: consumers start on a backlog in order", kinds=("python", "java", "node"), seconds=45, modes=(BOTH,))
def cold_starts(folder, kind, mode):
    """Twenty push consumers of new groups, some at a time, with 100 messages of one message group each; and one that extends the first of three."""
    with House(folder, sidecar=switch("on")) as house:
        sidecar = house.sidecar("a")
        send_in_order(house, sidecar.endpoint, "three", 3)
        send_in_order(house, sidecar.endpoint, "backlog", MESSAGES)
        client = house.client(kind, sidecar.endpoint)
        with concurrent.futures.ThreadPoolExecutor(1 + AT_ONCE) as pool:
            done = [pool.submit(one_extended, house, client)]
            done += [pool.submit(cold_start, house, client, "backlog", n) for n in range(STARTS)]
            first_settings(house, sidecar.endpoint, "backlog")
            for one in done:
                one.result()
        return Seen(note=f"{STARTS} starts, 1 to {MESSAGES} in order each time; the first settings say so; nothing past an extended message")
