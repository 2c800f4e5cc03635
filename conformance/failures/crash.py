"""The whole life of messages over crashes: delays, recalls, transactions, acks, dead letters and their redrive, while the broker is killed, now
and then with its index gone. What was answered OK holds, and nothing comes twice; what was not answered may count or not."""
import collections
import random
import shutil
import subprocess
import threading
import time

import grpc

from house import PATIENCE_S, House, expect, wait_for
from rawclient import RawClient, d
from rows import BOTH, Seen, row
from servers import BIN

OK = 20000
KILLS, WITHOUT_INDEX = 8, 3  # each third time the index is lost, too
LEASE_S, BATCH = 2, 16
# Topics: delayed messages, messages of transactions, and those of which each fifth fails until it is a dead letter.
LATER, HALVES, PLAIN = "later", "halves", "plain"
TOPICS = {LATER: "DELAY", HALVES: "TRANSACTION", PLAIN: "NORMAL"}
# Two deliveries may both be cut off by chance. That makes a dead letter, which comes back as a message of its own: only where it is meant to.
GROUPS = {LATER: "patient", HALVES: "patient", PLAIN: "g"}
POISON = b"poison"
# How long each worker rests between two messages: the machine has other checks to run.
REST_S = 0.03
# Times are told in milliseconds.
TICK_S = 0.002


def final(code):
    """Whether an answer is the last word: what has no time or no broker now may be asked again."""
    return code is not None and code < 50000 and code not in (40800, 42900)


class Story:
    """What clients were told, and what they were given. Places are (topic, queue, offset)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.due = {}  # id → earliest time, Unix seconds
        self.must, self.never, self.may = set(), set(), set()
        self.places = collections.defaultdict(set)  # id → where it was
        self.given = collections.defaultdict(set)  # place → attempts that came
        self.acked = {}  # place → attempt
        self.faults = []

    def told(self, what, message_id):
        with self.lock:
            what.add(message_id)

    def took(self, topic, message, now):
        """A message was given out; its place."""
        m = message.system_properties
        place = (topic, m.queue_id, m.queue_offset)
        with self.lock:
            self.places[m.message_id].add(place)
            # Each delivery is another attempt; which of two is heard of first is a matter of chance when an answer takes longer than a lease.
            if m.delivery_attempt in self.given[place]:
                self.faults.append(f"{place} was given out again as attempt {m.delivery_attempt}")
            self.given[place].add(m.delivery_attempt)
            if now < self.due.get(m.message_id, 0) - TICK_S:
                self.faults.append(f"{m.message_id} came {self.due[m.message_id] - now:.3f} s early")
        return place

    def judge(self):
        faults = list(self.faults)
        faults += [f"{place} came again after its ack" for place, attempt in self.acked.items() if max(self.given[place]) > attempt]
        came = set(self.places)
        faults += [f"{i} was answered OK and never came" for i in self.must - came]
        faults += [f"{i} came though it was recalled or rolled back" for i in self.never & came]
        faults += [f"{i} came and nobody sent it" for i in came - self.must - self.may]
        # A dead letter that was sent back is a message of its own.
        faults += [f"{i} is there {len(p)} times: {p}" for i, p in self.places.items() if len(p) > 1 and not all(topic == PLAIN for topic, *_ in p)]
        expect(not faults, lambda: f"{len(faults)} faults: {'; '.join(faults[:8])}")


class Client:
    """A raw client that asks until there is a last word."""

    def __init__(self, house, endpoint, settings):
        """`settings`: makes them, given the raw client."""
        self.raw = RawClient(endpoint)
        house.stack.callback(self.raw.close)
        self.raw.open(settings(self.raw))

    def once(self, call):
        """The answer, or None."""
        try:
            return call()
        except grpc.RpcError:
            return None

    def until_final(self, call):
        """(code, how often there was no last word before it)."""
        for unsure in range(200):
            answer = self.once(call)
            if answer is not None and final(answer.status.code):
                return answer.status.code, unsure
            time.sleep(0.1)
        return None, 200


def send_later(story, client, chance):
    """A delayed message, which may be recalled."""
    due = time.time() + chance.uniform(0.5, 6)
    message = client.raw.message(LATER, b"x" * 200, d.MessageType.DELAY)
    message.system_properties.delivery_timestamp.FromMilliseconds(int(due * 1000))
    i = message.system_properties.message_id
    with story.lock:
        story.due[i] = int(due * 1000) / 1000
    answer = client.once(lambda: client.raw.send(message))
    if answer is None or answer.status.code != OK:
        return story.told(story.may, i)
    if chance.random() > 0.2:
        return story.told(story.must, i)
    time.sleep(chance.uniform(0, 1))
    code, unsure = client.until_final(lambda: client.raw.recall(LATER, answer.entries[0].recall_handle))
    story.told(story.never if code == OK else story.may if unsure else story.must, i)


def transact(story, client, chance):
    """A half, and its end. An end that was answered OK holds; the same one again is answered in the same way."""
    message = client.raw.message(HALVES, b"x" * 200, d.MessageType.TRANSACTION)
    i = message.system_properties.message_id
    answer = client.once(lambda: client.raw.send(message))
    if answer is None or answer.status.code != OK:
        return  # nobody decides about it: it is no message
    commit = chance.random() < 0.7
    resolution = d.TransactionResolution.COMMIT if commit else d.TransactionResolution.ROLLBACK
    code, _ = client.until_final(lambda: client.raw.end_transaction(HALVES, i, answer.entries[0].transaction_id, resolution))
    if code != OK:
        story.faults.append(f"the end of {i} is answered {code}")
    story.told(story.must if commit else story.never, i)


def send_plain(story, client, chance):
    message = client.raw.message(PLAIN, POISON if chance.random() < 0.2 else b"x" * 200)
    answer = client.once(lambda: client.raw.send(message))
    story.told(story.must if answer is not None and answer.status.code == OK else story.may, message.system_properties.message_id)


def consume(story, client, topic, done):
    """Takes and acknowledges, but for poison where it was sent to: only what came back from the dead letters."""
    while not done.is_set():
        try:
            found = client.raw.receive(GROUPS[topic], topic, invisible_s=LEASE_S, batch=BATCH, polling_s=5)[1]
        except grpc.RpcError:
            time.sleep(0.1)
            continue
        now, handles = time.time(), {}
        for m in found:
            place = story.took(topic, m, now)
            if m.body != POISON or len(story.places[m.system_properties.message_id]) > 1:
                handles[m.system_properties.receipt_handle] = (place, m.system_properties.delivery_attempt)
        answer = client.once(lambda: client.raw.ack(GROUPS[topic], topic, *handles)) if handles else None
        with story.lock:
            for entry, (place, attempt) in zip(answer.entries if answer else (), handles.values(), strict=False):
                if entry.status.code == OK:
                    story.acked[place] = attempt


def redrive(house):
    """Sends all dead letters back, if the broker is there."""
    subprocess.run([BIN / "waybill", "message", "redrive", "--broker", house.broker_address, "--group", GROUPS[PLAIN], "--all"],
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)


def worker(work, story, client, seed, stop):
    chance = random.Random(seed)
    while not stop.is_set():
        work(story, client, chance)
        time.sleep(REST_S)


@row("life of messages: broker killed, with and without its index", kinds=("raw",), seconds=65, modes=(BOTH,))
def life(folder, kind, mode):
    """Delays, recalls, transactions, acks, dead letters and redrives at once; kill -9 eight times, and every third time the index is gone."""
    broker = {"indexCheckpointBytes": 1 << 20, "mappedFileSizeCommitLog": 8 << 20, "timerPrecisionMs": 100}
    with House(folder, broker=broker, sidecar={"minInvisibleTimeMillsForRecv": 1000, "enableBatchAck": "true"}) as house:
        sidecar, story, stop, done = house.sidecar("a"), Story(), threading.Event(), threading.Event()
        house.stack.callback(done.set)
        house.stack.callback(stop.set)
        for topic, message_type in TOPICS.items():
            house.admin.create_topic(topic, message_type)
        house.admin.create_group(GROUPS[PLAIN], retry_max_times=1)
        house.admin.create_group(GROUPS[LATER], retry_max_times=10_000)

        def client(settings):
            return Client(house, sidecar.endpoint, settings)
        threads = [threading.Thread(target=worker, args=(work, story, client(lambda raw, t=topic: raw.producer_settings(t)), n, stop), daemon=True)
                   for n, (work, topic) in enumerate([(send_later, LATER)] * 3 + [(transact, HALVES)] * 3 + [(send_plain, PLAIN)] * 2)]
        consumers = [threading.Thread(target=consume, args=(story, client(lambda raw, t=topic: raw.consumer_settings(GROUPS[t], t)), topic, done), daemon=True)
                     for topic in TOPICS for _ in range(2)]
        for thread in threads + consumers:
            thread.start()
        chance = random.Random(8)
        for kill in range(1, KILLS + 1):
            time.sleep(chance.uniform(1, 2.5))
            house.broker.kill()
            if kill % WITHOUT_INDEX == 0:
                shutil.rmtree(folder / "data" / "index")
            house.broker.start()
            redrive(house)
        stop.set()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            expect(not thread.is_alive(), "a client does not end")

        def counts():
            samples = house.broker.metrics()
            letters = samples.get(f'waybill_consumer_dead_letters{{consumer_group="{GROUPS[PLAIN]}"}}', 0)
            timing = sum(v for k, v in samples.items() if k.startswith("rocketmq_timing_messages"))
            return [house.open_at_broker(topic, GROUPS[topic]) for topic in TOPICS], letters, timing

        def over():
            redrive(house)
            return counts() == ([(0, 0)] * len(TOPICS), 0, 0)
        wait_for(lambda: f"nothing is left: (open, held), dead letters, delayed = {counts()}", 3 * PATIENCE_S, over, every=1)
        time.sleep(LEASE_S + 1)  # what would come again comes now
        done.set()
        for thread in consumers:
            thread.join(PATIENCE_S)
        expect(counts() == ([(0, 0)] * len(TOPICS), 0, 0), lambda: f"(open, held), dead letters, delayed = {counts()}")
        story.judge()
        back = sum(len(p) > 1 for p in story.places.values())
        expect(back and story.never and story.acked, f"{back} came back from the dead letters, {len(story.never)} recalled or rolled back")
        return Seen(note=f"{KILLS} times kill -9: {len(story.must)} answered OK came, {len(story.never)} recalled or rolled back did not; {back} were dead "
                         f"letters and came back; of {len(story.may)} without an answer {len(story.may & set(story.places))} came")
