"""Cases that users reported, tried with many messages or many clients over raw gRPC against a broker and sidecars of their own."""
import concurrent.futures
import json
import random
import signal
import sys
import threading
import time

import grpc

from house import BRISK, HERE, PATIENCE_S, House, address, expect, go_on, wait_for
from rawclient import RawClient, d
from rows import ON, Held, Seen, late_s, row, switch

OK, BAD_HANDLE = 20000, 40013
PUSH, SIMPLE = d.ClientType.PUSH_CONSUMER, d.ClientType.SIMPLE_CONSUMER
BATCH = 32


def client_of(house, endpoint, group, topic, kind):
    client = RawClient(endpoint)
    house.stack.callback(client.close)
    client.open(client.consumer_settings(group, topic, kind))
    return client


def send_all(house, endpoint, topic, count, at_once=500):
    producer = RawClient(endpoint)
    producer.open(producer.producer_settings(topic))
    for start in range(0, count, at_once):
        messages = [producer.message(topic, b"%d" % n) for n in range(start, min(start + at_once, count))]
        answer = producer.send(*messages, timeout_s=PATIENCE_S)
        expect(answer.status.code == OK, f"send: {answer.status}")
    producer.close()


def code_of(call):
    """The code of an answer, or None when there was none in time."""
    try:
        return call().status.code
    except grpc.RpcError:
        return None


def crowd_of(house, endpoint, topic, group, count):
    """A process with so many push consumers that hold one message each."""
    crowd = house.process([sys.executable, HERE / "crowd.py", endpoint, topic, group, count])
    held = json.loads(crowd.stdout.readline() or "{}").get("held")
    expect(held == count, f"the crowd holds {held} of {count}")
    return crowd


def take_all(client, group, topic, count, since, seconds):
    """Receives and acknowledges until all came; seconds from `since` until each delivery, and the bodies."""
    at, bodies = [], []
    while len(set(bodies)) < count and time.time() < since + seconds:
        go_on()
        found = client.receive(group, topic, invisible_s=60, batch=BATCH)[1]
        at += [time.time() - since] * len(found)
        bodies += [m.body for m in found]
        if found:
            client.ack(group, topic, *(m.system_properties.receipt_handle for m in found))
    expect(len(set(bodies)) == count, f"{len(set(bodies))} of {count} came within {seconds} s")
    return at, bodies


@row("C03: acks meet renewals, broker frozen", kinds=("raw",), seconds=45, modes=(ON,))
def c03(folder, kind, mode):
    """1,000 held on leases of 24 s, renewed after half of it; each acknowledged at a random moment around its renewal while the broker is
    frozen for 3 s three times; asked again with the same handle until there is a final answer."""
    # What is left of a lease then is more than all the time that the broker stands still.
    count, renewed_after_s = 1000, 12
    with House(folder, sidecar=switch(mode, 2 * renewed_after_s, renewed_after_s)) as house:
        a, b = house.sidecar("a", **BRISK), house.sidecar("b")
        topic, group = house.topic_and_group("c03")
        send_all(house, b.endpoint, topic, count)
        client, other = (client_of(house, s.endpoint, group, topic, PUSH) for s in (a, b))
        held, again, tries, codes = [], [], [], {}
        pool, done = concurrent.futures.ThreadPoolExecutor(128), threading.Event()
        house.stack.callback(pool.shutdown, wait=False, cancel_futures=True)

        def ack_at(m, at):
            time.sleep(max(at - time.monotonic(), 0))
            for attempt in range(1, 40):
                code = code_of(lambda: client.ack(group, topic, m.receipt_handle, ids=[m.message_id]))
                if code in (OK, BAD_HANDLE):
                    tries.append(attempt)
                    codes[m.message_id] = code
                    return
                time.sleep(0.3)

        def watch():
            while not done.is_set():
                try:
                    again.extend(other.receive(group, topic, invisible_s=None, auto_renew=True, polling_s=5)[1])
                except grpc.RpcError:
                    time.sleep(0.2)

        acks, began = [], time.monotonic()
        while len(held) < count:
            status, found, _ = client.receive(group, topic, invisible_s=None, auto_renew=True, batch=BATCH)
            expect(found, f"received {len(held)} of {count}: {status}")
            held += found
            acks += [(m.system_properties, time.monotonic() + renewed_after_s + random.uniform(-1, 4)) for m in found]
            time.sleep(0.1)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        futures = [pool.submit(ack_at, *ack) for ack in sorted(acks, key=lambda ack: ack[1])]
        freeze = house.broker.server.process
        time.sleep(max(renewed_after_s - 1.5 - (time.monotonic() - began), 0))
        for _ in range(3):
            freeze.send_signal(signal.SIGSTOP)
            time.sleep(3)
            freeze.send_signal(signal.SIGCONT)
            time.sleep(1)
        concurrent.futures.wait(futures, timeout=2 * PATIENCE_S)
        refused = sum(code == BAD_HANDLE for code in codes.values())
        expect(len(codes) == count and not refused, f"{len(codes)} of {count} got a final answer, {refused} INVALID_RECEIPT_HANDLE")
        once_more = {code_of(lambda m=m: client.ack(group, topic, m.system_properties.receipt_handle)) for m in held[:20]}
        expect(house.open_at_broker(topic, group) == (0, 0), f"(open, held) = {house.open_at_broker(topic, group)}")
        time.sleep(3)
        done.set()
        watcher.join(15)
        expect(not again, f"{len(again)} delivered again")
        renewed = a.metrics().get("waybill_sidecar_receipts_renewed_total", 0)
        return Seen(note=f"{renewed:.0f} renewals; {sum(t > 1 for t in tries)} acks needed more than one try, {max(tries)} at most; "
                         f"an ack of the acknowledged is answered {sorted(once_more, key=str)}")


@row("C09: broker unreachable while the sidecar cleans up", seconds=35)
def c09_unreachable(folder, kind, mode):
    """The client dies, and for 10 s the sidecars cannot reach the broker: all is back soon after they can."""
    forwarded = address()
    with House(folder, sidecar=switch(mode), broker_behind=forwarded) as house:
        network = house.forwarder(house.broker_address, forwarded)
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint)
        since = held.client.kill()
        network.refuse()
        time.sleep(10)
        network.listen()
        seen = held.all_back(since, 2 * PATIENCE_S)
        expect(10 <= seen.back[0] and seen.back[1] <= 10 + 12 + late_s(), f"back after {seen.back} s")
        seen.note = f"unreachable for 10 s, all back {seen.back[1] - 10:.1f} s later"
        return seen


@row("C09: two thousand clients gone at once", kinds=("raw",), seconds=40)
def c09_crowd(folder, kind, mode):
    """A process with 2,000 clients that hold a message each is killed: one other consumer gets all. With renewal on, batches are on too."""
    count, batches = 2000, mode == ON
    with House(folder, sidecar=switch(mode) | {"enableBatchChangeInvisibleTime": str(batches).lower()}) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        topic, group = house.topic_and_group("c09")
        send_all(house, b.endpoint, topic, count)
        crowd = crowd_of(house, a.endpoint, topic, group, count)
        expect(house.open_at_broker(topic, group) == (count, count), f"(open, held) = {house.open_at_broker(topic, group)}")
        other = client_of(house, b.endpoint, group, topic, SIMPLE)
        crowd.kill()
        since = time.time()
        # Before anybody takes them: how fast a client takes two thousand is not the question.
        wait_for(lambda: f"all are given back, {house.open_at_broker(topic, group)[1]} are held", PATIENCE_S,
                 lambda: house.open_at_broker(topic, group)[1] == 0)
        back = time.time() - since
        at, bodies = take_all(other, group, topic, count, since, 3 * PATIENCE_S)
        wait_for("all are done", PATIENCE_S, lambda: house.open_at_broker(topic, group) == (0, 0))
        changes = sum(v for k, v in a.metrics().items() if k.startswith("waybill_sidecar_broker_requests_total") and "CHANGE" in k)
        expect(changes <= (count / 10 if batches else 2 * count), f"{changes} requests to the broker about {count} leases")
        expect(back <= 5 + 1 + 5 + late_s(), f"the last was given back after {back:.1f} s")
        return Seen((min(at), max(at)), len(bodies) - count, f"all given back after {back:.1f} s with {changes:.0f} requests to the broker about leases")


@row("C12: acks near the end of leases, broker killed", kinds=("raw",), seconds=60, modes=(ON,))
def c12(folder, kind, mode):
    """50,000 messages on leases of 1 s, acknowledged from 50 ms before their end to 50 ms after it, every tenth not; kill -9 three
    times. What was acknowledged never comes again, everything else does."""
    count, consumers = 50_000, 48
    with House(folder, broker={"indexCheckpointBytes": 1 << 20}, sidecar={"minInvisibleTimeMillsForRecv": 1000, "enableBatchAck": "true"}) as house:
        a = house.sidecar("a")
        topic, group = house.topic_and_group("c12", retry_max_times=10_000)
        send_all(house, a.endpoint, topic, count)
        acked, delivered, unsure, lock, stop = {}, {}, set(), threading.Lock(), threading.Event()
        client = client_of(house, a.endpoint, group, topic, SIMPLE)

        def consume(seed):
            chance = random.Random(seed)
            while not stop.is_set():
                began = time.monotonic()
                try:
                    found = client.receive(group, topic, invisible_s=1, batch=BATCH, polling_s=5)[1]
                except grpc.RpcError:
                    time.sleep(0.1)
                    continue
                took = [m.system_properties for m in found]
                with lock:
                    delivered.update((m.message_id, max(m.delivery_attempt, delivered.get(m.message_id, 0))) for m in took)
                mine = [m for m in took if chance.random() < 0.9]
                if not mine:
                    continue
                time.sleep(max(began + 1 + chance.uniform(-0.05, 0.05) - time.monotonic(), 0))
                try:
                    answer = client.ack(group, topic, *(m.receipt_handle for m in mine), ids=[m.message_id for m in mine])
                    codes = [e.status.code for e in answer.entries]
                except grpc.RpcError:
                    codes = [None] * len(mine)
                with lock:
                    acked.update((m.message_id, m.delivery_attempt) for m, code in zip(mine, codes, strict=True) if code == OK)
                    # Neither done nor refused: it may count, or not.
                    unsure.update(m.message_id for m, code in zip(mine, codes, strict=True) if code not in (OK, BAD_HANDLE))

        threads = [threading.Thread(target=consume, args=(n,), daemon=True) for n in range(consumers)]
        for thread in threads:
            thread.start()
        chance, kills, end = random.Random(12), 0, time.monotonic() + 90
        while kills < 3:
            time.sleep(chance.uniform(1.5, 3))
            house.broker.kill()
            house.broker.start()
            kills += 1
        wait_for(lambda: f"most are acknowledged: {len(acked)}", end - time.monotonic(), lambda: len(acked) > count * 0.9, every=0.5)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        left = house.open_at_broker(topic, group)[0]
        drained, end = set(), time.monotonic() + PATIENCE_S
        while house.open_at_broker(topic, group) != (0, 0) and time.monotonic() < end:
            found = [m.system_properties for m in client.receive(group, topic, invisible_s=30, batch=BATCH)[1]]
            delivered.update((m.message_id, m.delivery_attempt) for m in found)
            drained |= {m.message_id for m in found}
            if found:
                client.ack(group, topic, *(m.receipt_handle for m in found))
        expect(house.open_at_broker(topic, group) == (0, 0), f"(open, held) = {house.open_at_broker(topic, group)}")
        # Whenever it came: the one that was acknowledged was the last.
        returned = [i for i, attempt in acked.items() if delivered[i] > attempt]
        expect(not returned, f"{len(returned)} of {len(acked)} acknowledged came again")
        expect(len(delivered) == count, f"{count - len(delivered)} of {count} never came")
        missing = delivered.keys() - acked.keys() - drained
        expect(missing <= unsure, f"{len(missing - unsure)} neither acknowledged nor come again, and no ack of them was left without an answer")
        return Seen(note=f"{kills} times kill -9, {len(acked)} acknowledged, none of them came again; {left:.0f} were left and all came; "
                         f"{len(missing)} of {len(unsure)} acks without an answer counted")
