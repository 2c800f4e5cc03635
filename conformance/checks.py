"""The checks: what is done through a client and what must come of it. Each gets a Test, returns a note or raises."""
import base64
import concurrent.futures
import re
import threading
import time
import zlib

from clients import OperationError

# Shortest and longest invisible duration a server accepts, seconds.
INVISIBLE_MIN_S, INVISIBLE_MAX_S = 10, 43_200
BODY_BYTES_MAX = 4 * 1024 * 1024
# How late a redelivery may be before a check calls it lost, seconds (a busy machine; Apache needs up to 5).
LATE_S = 20
# How long a client may take to open its settings stream, seconds (see Test.receive).
SETTLE_S = 8
# A client that is still starting after this is taken to wait for ever.
START_S = 30

CHECKS = {}
# Sends in flight at once: Apache's broker turns away a burst of 200 when it flushes synchronously.
SENDS_AT_ONCE = 16
# Known failures of Apache's programs: target -> (client or None for all, check) -> (what the failure says, why).
# Where Apache's proxy stands before Waybill's broker, the failures of Apache's broker are none; where Waybill's sidecar stands before
# Apache's broker (waybill-sidecar), those of Apache's proxy.
NULL_SETTINGS = {("python", "missing-group"): ('"settings" is null', "Apache answers a null pointer to a receive whose settings it refused")}
OLD_HANDLE = {(None, "extend-old"): ("came back", "Apache answers OK to an ack with the handle from before the extension and redelivers the message")}
BAD_FILTER = {(None, "bad-filter"): ("50001", "Apache takes a filter that it cannot parse for a fault of its own")}
NAMESPACES = {(None, "namespaces"): ("namespace", "Apache does not look at namespaces")}
RECALL = {(None, "recall"): ("forbidden", "Apache's broker recalls nothing unless it is told to (recallMessageEnable)")}
ZLIB = {("node", "compressed"): ("incorrect header check", "Apache calls zlib gzip, and the client can only read that"),
        ("rust", "compressed"): ("compressed to", "Apache calls zlib gzip, and the client reads neither")}
OF_PROXY = NULL_SETTINGS | BAD_FILTER | NAMESPACES | ZLIB
KNOWN = {"waybill": {}, "waybill-sidecar": RECALL, "apache": OLD_HANDLE | RECALL | OF_PROXY, "apache-proxy": OF_PROXY}


class Failed(Exception):
    """The server or the client did something else than the check demands."""


class Skip(Exception):
    """The check does not apply."""


def check(name, needs=(), timeout_s=90):
    def register(function):
        CHECKS[name] = {"run": function, "needs": set(needs), "timeout_s": timeout_s, "doc": function.__doc__.strip().splitlines()[0]}
        return function
    return register


def expect(condition, message):
    if not condition:
        raise Failed(message)


class Test:
    """What a check works with: an agent, and topics and groups of its own."""

    def __init__(self, agent, admin, prefix, deadline, auto_create):
        self.agent, self.admin, self.prefix, self.deadline, self.auto_create = agent, admin, prefix, deadline, auto_create
        self.open, self.count, self.lock = [], 0, threading.Lock()

    def _next(self, kind):
        with self.lock:
            self.count += 1
            return f"{self.prefix}-{kind}{self.count}"

    def name(self, kind):
        """A name no other check uses."""
        return self._next(kind)

    def left(self):
        return self.deadline - time.monotonic()

    def call(self, op, **arguments):
        start = op in ("producer", "consumer", "push")
        return self.agent.start(op, **arguments)(min(START_S, self.left()) if start else self.left())

    def topic(self, queues=4, kind="NORMAL"):
        topic = self._next("t")
        self.admin.create_topic(topic, kind, queues)
        while not self.admin.topic_routed(topic):
            if self.left() < 0:
                raise TimeoutError(f"no route of {topic}")
            time.sleep(0.1)
        return topic

    def group(self, **settings):
        group = self._next("g")
        self.admin.create_group(group, **settings)
        return group

    def client(self, op, **arguments):
        name = self._next(op)
        self.call(op, name=name, **arguments)
        self.open.append(name)
        return name

    def producer(self, topic, **more):
        return self.client("producer", topics=[topic], **more)

    def consumer(self, group, topic, filter="*", **more):
        return self.client("consumer", group=group, topic=topic, filter=filter,
                           await_s=self.agent.client.await_s, **more)

    def send(self, producer, topic, body, **more):
        encoded = base64.b64encode(body).decode()
        return self.call("send", name=producer, topic=topic, body=encoded, **more)["id"]

    def send_later(self, producer, topic, body, at_s):
        """Sends a message that is to be delivered at this Unix second: its id, and what recalls it if the client tells."""
        encoded = base64.b64encode(body).decode()
        answer = self.call("send", name=producer, topic=topic, body=encoded, deliver_at_s=at_s)
        return answer["id"], answer.get("recall")

    def send_many(self, producer, topic, bodies):
        """Sends some at a time; ids in the order of the bodies. Flow control is obeyed: wait and send again."""
        def send(body):
            while True:
                try:
                    return self.send(producer, topic, body)
                except OperationError as e:
                    if e.code != 42900 or self.left() < 0:
                        raise
                    time.sleep(0.2)

        with concurrent.futures.ThreadPoolExecutor(SENDS_AT_ONCE) as pool:
            return list(pool.map(send, bodies))

    def receive(self, consumer, max=32, invisible_s=30):
        """One receive. A long poll that ended empty in the client's own time-out is an empty answer.

        Some clients receive before the server has their settings: what a server says to that
        (UNRECOGNIZED_CLIENT_TYPE; Apache: a null pointer) is passed over for a while.
        """
        settled = time.monotonic() + SETTLE_S
        while True:
            try:
                messages = self.call("receive", name=consumer, max=max, invisible_s=invisible_s)["messages"]
                break
            except OperationError as e:
                if e.code is None and any(t in e.text for t in ("DEADLINE_EXCEEDED", "Deadline", "Timeout expired", "timed out")):
                    return []
                early = e.code == 40015 or e.code == 50001 and '"settings" is null' in e.text
                if not early or time.monotonic() > settled:
                    raise
                time.sleep(0.2)
        expect(not any(m["corrupted"] for m in messages), "the client says a message is corrupted")
        for m in messages:
            m["body"] = base64.b64decode(m["body"])
        return messages

    def receive_until(self, consumer, count, within_s=30, ack=False, **more):
        """Receives until that many messages came or the time is up; acks each batch at once if told to."""
        found, end = [], time.monotonic() + min(within_s, self.left())
        while len(found) < count and time.monotonic() < end:
            batch = self.receive(consumer, **more)
            if ack:
                self.ack_all(consumer, batch)
            found += batch
        return found

    def ack_all(self, consumer, batch):
        waits = [self.agent.start("ack", name=consumer, ref=m["ref"]) for m in batch]
        for wait in waits:
            wait(self.left())

    def nothing_until(self, consumer, end, **more):
        """Receives until the moment `end` (monotonic); fails at the first message."""
        while time.monotonic() < end:
            for m in self.receive(consumer, **more):
                raise Failed(f"came back (attempt {m['attempt']})")

    def ack(self, consumer, message, **more):
        self.call("ack", name=consumer, ref=message["ref"], **more)

    def change(self, consumer, message, invisible_s):
        return self.call("change", name=consumer, ref=message["ref"], invisible_s=invisible_s)["changed"]

    def events(self, push, ready, within_s=45):
        """What a push consumer's listener saw, once `ready(events)` or the time is up."""
        end = time.monotonic() + min(within_s, self.left())
        while True:
            events = self.call("seen", name=push)["events"]
            if ready(events) or time.monotonic() > end:
                return events
            time.sleep(0.3)

    def close(self):
        """Shuts the clients down; failures here are not the check's."""
        waits = [self.agent.start("close", name=name) for name in self.open]
        for wait in waits:
            try:
                wait(5)
            except (OperationError, TimeoutError):
                pass


def refused(work, code, what, tries=3):
    """Runs work, which must fail with the server's code or be refused by the client itself; the note.

    A call that the transport lost proves nothing and is made again.
    """
    try:
        work()
    except TimeoutError as e:
        # A client that waits for ever at its start has not been let through either.
        expect("no answer to consumer" in str(e), str(e))
        return f"{what}: not accepted, the client waits for ever at its start"
    except OperationError as e:
        lost = e.code is None and any(t in e.text for t in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "Deadline Exceeded", "CANCELLED"))
        if lost and tries > 1:
            return refused(work, code, what, tries - 1)
        if e.code is None and not lost and e.kind not in ("Agent", "Panic"):
            reason = re.sub(r"([\w.]+(Exception|Error): )+", "", e.text).strip().splitlines() or [e.kind]
            return f"{what}: refused by the client itself ({reason[0][:90]})"
        expect(e.code == code, f"{what}: {e}, expected {code}")
        return f"{what}: {code}"
    raise Failed(f"{what}: accepted, expected {code}")


# --- the way of a message --------------------------------------------------------------------------------------------

def round_trip(t, count, **more):
    topic, group = t.topic(), t.group()
    producer, consumer = t.producer(topic, **more), t.consumer(group, topic, **more)
    bodies = [b"m%d" % i for i in range(count)]
    ids = t.send_many(producer, topic, bodies)
    found = t.receive_until(consumer, count, ack=True, invisible_s=INVISIBLE_MIN_S)
    expect(sorted(m["id"] for m in found) == sorted(ids), f"sent {count}, received {len(found)}")
    expect(sorted(m["body"] for m in found) == sorted(bodies), "bodies differ")
    expect(all(m["attempt"] == 1 for m in found), f"attempts {sorted({m['attempt'] for m in found})}")
    return consumer


@check("normal")
def normal(t):
    """10 sent, 10 received at attempt 1, acked; nothing comes back within 14 s (lease 10 s)."""
    consumer = round_trip(t, 10)
    t.nothing_until(consumer, time.monotonic() + INVISIBLE_MIN_S + 4)
    return "10 of 10, no redelivery"


@check("plaintext", needs=["tls-default"])
def plaintext(t):
    """The client that uses TLS by default, with TLS off: 3 sent, received, acked."""
    round_trip(t, 3, tls=False)
    return "3 of 3 without TLS"


@check("tls", needs=["tls"])
def tls(t):
    """3 sent, received, acked over TLS."""
    round_trip(t, 3, tls=True)
    return "3 of 3 over TLS"


@check("batch-32")
def batch_32(t):
    """96 sent, received in batches of at most 32; 32 at once is possible."""
    topic, group = t.topic(), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    t.send_many(producer, topic, [b"b%d" % i for i in range(96)])
    sizes, seen, end = [], set(), time.monotonic() + 40
    while len(seen) < 96 and time.monotonic() < end:
        found = t.receive(consumer, max=32, invisible_s=60)
        if found:
            sizes.append(len(found))
        expect(not seen & {m["id"] for m in found}, "a message came twice")
        seen |= {m["id"] for m in found}
        t.ack_all(consumer, found)
    expect(len(seen) == 96, f"{len(seen)} of 96, batches {sizes}")
    expect(max(sizes) == 32, f"largest batch {max(sizes)}: {sizes}")
    return f"batches {sizes}"


def filtered(t, expression, tags, wanted):
    topic, group = t.topic(), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic, filter=expression)
    for i, tag in enumerate(tags):
        t.send(producer, topic, b"%d" % i, **({"tag": tag} if tag else {}))
    found = t.receive_until(consumer, len(wanted), ack=True)
    found += t.receive(consumer)  # and nothing more
    got = sorted(m["tag"] or "" for m in found)
    expect(got == sorted(wanted), f"got tags {got}")
    return f"{expression}: {len(found)} of {len(tags)}"


@check("tag-filter")
def tag_filter(t):
    """Filter "A||C" over the tags A, B, C and none: only A and C arrive."""
    return filtered(t, "A||C", ["A", "B", "C", None] * 3, ["A", "C"] * 3)


@check("tag-hash")
def tag_hash(t):
    """Tags AaAa and BBBB have the same Java hash: the filter AaAa lets only AaAa through."""
    return filtered(t, "AaAa", ["AaAa", "BBBB", "BBBB", "AaAa"], ["AaAa", "AaAa"])


@check("sql-filter")
def sql_filter(t):
    """Condition over numbers, texts, NULL and a tag: only what meets it arrives."""
    topic, group = t.topic(), t.group()
    condition = "(a > 5 AND b = 'Grüße') OR (c IS NOT NULL AND TAGS IN ('C'))"
    producer, consumer = t.producer(topic), t.consumer(group, topic, filter=condition, sql=True)
    sent = [({"a": "6", "b": "Grüße"}, None), ({"a": "5", "b": "Grüße"}, None), ({"a": "6", "b": "x"}, None), ({"a": "10", "b": "Grüße"}, "B"),
            ({"b": "Grüße"}, None), ({"c": "1"}, "C"), ({"c": "1"}, "D"), ({"d": "1"}, "C"), ({}, None)]
    for i, (properties, tag) in enumerate(sent):
        t.send(producer, topic, b"%d" % i, **({"properties": properties} if properties else {}), **({"tag": tag} if tag else {}))
    found = t.receive_until(consumer, 3, ack=True)
    found += t.receive(consumer)  # and nothing more
    got = sorted(m["body"] for m in found)
    expect(got == [b"0", b"3", b"5"], f"got {got}")
    return f"{len(found)} of {len(sent)}"


@check("properties")
def properties(t):
    """Body, tag, keys and properties with unicode arrive byte for byte; the id is the one of the receipt."""
    topic, group = t.topic(), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    text = "Grüße 你好 🚚 \u200d e\u0301"
    body = text.encode() + bytes(range(256))
    sent = {"Schlüssel 键": text, "plain": "a=b;c d\"'\\", "long": "x" * 4000}
    message_id = t.send(producer, topic, body, tag="Tag-你好", keys=["key-1", "键🚚"], properties=sent)
    found = t.receive_until(consumer, 1)
    expect(len(found) == 1, f"received {len(found)}")
    m = found[0]
    t.ack(consumer, m)
    expect(m["id"] == message_id, f"id {m['id']}, receipt {message_id}")
    expect(m["body"] == body, "body differs")
    expect(m["tag"] == "Tag-你好", f"tag {m['tag']!r}")
    expect(m["keys"] == sorted(["key-1", "键🚚"]), f"keys {m['keys']}")
    differing = {k: m["properties"].get(k) for k, v in sent.items() if m["properties"].get(k) != v}
    expect(not differing, f"properties differ: {differing}")
    more = sorted(set(m["properties"]) - set(sent))
    return "byte for byte" + (f"; the server adds {more}" if more else "")


@check("large-body", timeout_s=120)
def large_body(t):
    """A body of 4,190,208 bytes (4 MiB less 4 KiB for headers) arrives whole."""
    topic, group = t.topic(), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    body = bytes(i * 7 % 251 for i in range(4096)) * ((BODY_BYTES_MAX - 4096) // 4096)
    t.send(producer, topic, body)
    found = t.receive_until(consumer, 1, max=1)
    expect(len(found) == 1 and found[0]["body"] == body, "not received whole")
    t.ack(consumer, found[0])
    return f"{len(body):,} bytes"


@check("compressed")
def compressed(t):
    """2 bodies that 4.x producers compressed with zlib, with the flags of new producers and of old ones, are readable."""
    topic, group = t.topic(), t.group()
    consumer = t.consumer(group, topic)
    body = b"what a 4.x producer compresses: " * 200
    for number, flags in enumerate([0x1 | 0x300, 0x1]):
        t.admin.send(topic, f"{topic}-{number}", zlib.compress(body, 5), flags)
    found = t.receive_until(consumer, 2, ack=True)
    expect(len(found) == 2, f"sent 2, received {len(found)}")
    expect(all(m["body"] == body for m in found), "the body is what it was compressed to")
    return "2 of 2"


# --- leases ----------------------------------------------------------------------------------------------------------

def extended(t, handle):
    topic, group = t.topic(queues=1), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    t.send(producer, topic, b"lease")
    found = t.receive_until(consumer, 1, max=1, invisible_s=INVISIBLE_MIN_S)
    expect(len(found) == 1, "not received")
    changed = t.change(consumer, found[0], INVISIBLE_MIN_S + 2)
    extended_at = time.monotonic()
    t.ack(consumer, found[0], handle=handle)
    t.nothing_until(consumer, extended_at + INVISIBLE_MIN_S + 2 + 10, invisible_s=INVISIBLE_MIN_S)
    return f"the handle {'changed' if changed else 'stayed'}; acked for good"


@check("extend-new", needs=["change"])
def extend_new(t):
    """Extend the lease, ack with the handle the extension gave: the message never comes back."""
    return extended(t, "new")


@check("extend-old", needs=["change"])
def extend_old(t):
    """Extend the lease, ack with the handle from before: acked for good."""
    return extended(t, "old")


@check("redelivery")
def redelivery(t):
    """Not acked within its 10 s: comes back with attempt 2 and the same id, not earlier."""
    topic, group = t.topic(queues=1), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    # An answer that a busy client gave up waiting for may have had the message, and then that was a delivery as well: seen, it proves
    # nothing, and another message is sent. One that is counted wrong is so each time.
    for tries_left in (2, 1, 0):
        note, counted = redelivered(t, topic, producer, consumer)
        if counted == (1, 2):
            return note
        expect(tries_left and min(counted) >= 1 and counted[0] < counted[1], f"attempts {counted}")


def redelivered(t, topic, producer, consumer):
    """A message that is received and not acknowledged comes back after its lease; a note, and which attempts both deliveries were."""
    message_id = t.send(producer, topic, b"again")
    first, received_at = [], 0.0
    while not first and t.left() > 0:
        before = time.monotonic()
        first, received_at = t.receive(consumer, max=1, invisible_s=INVISIBLE_MIN_S), before
    expect(len(first) == 1, "not received")
    second = t.receive_until(consumer, 1, within_s=INVISIBLE_MIN_S + LATE_S, invisible_s=INVISIBLE_MIN_S)
    after = time.monotonic() - received_at
    expect(len(second) == 1, f"not back after {after:.1f} s")
    expect(second[0]["id"] == message_id == first[0]["id"], "another id")
    expect(after >= INVISIBLE_MIN_S, f"back after {after:.1f} s")
    t.ack(consumer, second[0])
    return f"back after {after:.1f} s", (first[0]["attempt"], second[0]["attempt"])


@check("share")
def share(t):
    """Two consumers of one group take 200 messages: each once, both get some."""
    topic, group = t.topic(), t.group()
    producer = t.producer(topic)
    consumers = [t.consumer(group, topic) for _ in range(2)]
    ids = set(t.send_many(producer, topic, [b"s%d" % i for i in range(200)]))
    taken, errors, end = [[], []], [], time.monotonic() + 40
    first = [threading.Event(), threading.Event()]

    def take(number):
        try:
            while len(taken[0]) + len(taken[1]) < 200 and time.monotonic() < end:
                batch = t.receive(consumers[number], max=8, invisible_s=60)
                t.ack_all(consumers[number], batch)
                taken[number] += [m["id"] for m in batch]
                if batch:
                    # Whoever is ready sooner, on a busy machine by seconds, would have taken all by then.
                    first[number].set()
                    first[1 - number].wait(max(end - time.monotonic(), 0))
        except Exception as e:  # handed to the check's own thread
            errors.append(e)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    both = taken[0] + taken[1]
    expect(len(both) == len(set(both)), f"{len(both) - len(set(both))} came twice")
    expect(set(both) == ids, f"{len(ids - set(both))} missing")
    expect(taken[0] and taken[1], "one consumer got nothing")
    return f"{len(taken[0])} + {len(taken[1])}"


# --- later -----------------------------------------------------------------------------------------------------------

@check("delay")
def delay(t):
    """6 messages for 4 to 6 s ahead: each arrives once, at attempt 1, none before its time."""
    topic, group = t.topic(kind="DELAY"), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    base = int(time.time())
    due = {t.send_later(producer, topic, b"d%d" % i, base + 4 + i % 3)[0]: base + 4 + i % 3 for i in range(6)}
    late, seen, end = [], [], time.monotonic() + 45
    while len(seen) < len(due) and time.monotonic() < end:
        batch = t.receive(consumer)
        now = time.time()
        t.ack_all(consumer, batch)
        for m in batch:
            expect(m["id"] in due, "a message of another id")
            expect(now >= due[m["id"]], f"{due[m['id']] - now:.2f} s early")
            expect(m["attempt"] == 1, f"attempt {m['attempt']}")
            late.append(now - due[m["id"]])
        seen += [m["id"] for m in batch]
    seen += [m["id"] for m in t.receive(consumer)]  # and nothing more
    expect(sorted(seen) == sorted(due), f"sent {len(due)}, received {len(seen)}, {len(set(seen))} different")
    return f"{min(late):.1f} to {max(late):.1f} s after their time"


@check("delay-range")
def delay_range(t):
    """25 h ahead: ILLEGAL_DELIVERY_TIME 40012, nothing stored; 5 s ago: at once; to a NORMAL topic: refused (40014)."""
    topic, group = t.topic(kind="DELAY"), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    now = int(time.time())
    notes = [refused(lambda: t.send_later(producer, topic, b"far", now + 25 * 3600), 40012, "25 h ahead")]
    message_id, _ = t.send_later(producer, topic, b"past", now - 5)
    found = t.receive_until(consumer, 1, ack=True)
    found += t.receive(consumer)  # and nothing more
    expect([m["id"] for m in found] == [message_id], f"received {[m['body'] for m in found]}")
    normal, to_normal = working_producer(t)
    notes.append(refused(lambda: t.send_later(to_normal, normal, b"typed", now + 60), 40014, "NORMAL topic"))
    return "; ".join(notes)


@check("recall", needs=["recall"])
def recall(t):
    """Of two messages for 20 s ahead one is recalled: only the other arrives; neither can be recalled afterwards."""
    topic, group = t.topic(kind="DELAY"), t.group()
    producer, consumer = t.producer(topic), t.consumer(group, topic)
    at = int(time.time()) + 20
    gone, handle = t.send_later(producer, topic, b"gone", at)
    kept, kept_handle = t.send_later(producer, topic, b"kept", at)
    expect(handle and kept_handle, "no recall handle")
    answer = t.call("recall", name=producer, topic=topic, handle=handle)
    expect(answer["id"] == gone, f"recalled {answer['id']}, sent {gone}")
    found = t.receive_until(consumer, 1, within_s=20 + LATE_S, ack=True)
    found += t.receive(consumer)  # and nothing more
    expect([m["id"] for m in found] == [kept], f"received {[m['body'] for m in found]}")
    for what, spent in (("recalled", handle), ("delivered", kept_handle)):
        try:
            t.call("recall", name=producer, topic=topic, handle=spent)
        except OperationError:
            continue
        raise Failed(f"a message that was {what} could be recalled")
    return "recalled: gone; too late: refused"


# --- push ------------------------------------------------------------------------------------------------------------

@check("push-success", needs=["push"])
def push_success(t):
    """A push consumer's listener sees each of 10 messages once."""
    topic, group = t.topic(), t.group()
    producer = t.producer(topic)
    push = t.client("push", group=group, topic=topic, filter="*", fail_attempts=0)
    ids = t.send_many(producer, topic, [b"p%d" % i for i in range(10)])
    t.events(push, lambda e: len(e) >= 10)
    time.sleep(5)
    seen = [e["id"] for e in t.call("seen", name=push)["events"]]
    expect(sorted(seen) == sorted(ids), f"10 sent, the listener saw {len(seen)}, {len(set(seen))} different")
    return "10 of 10, each once"


@check("push-retry", needs=["push"])
def push_retry(t):
    """The listener fails the first delivery (group's back-off 1, 2, 3 s): delivered again with attempt 2, then no more.

    Node has no customised back-off and asks for 0 s, so the wait is not judged there.
    """
    topic, group = t.topic(), t.group(retry_ms=[1000, 2000, 3000])
    producer = t.producer(topic)
    push = t.client("push", group=group, topic=topic, filter="*", fail_attempts=1)
    ids = t.send_many(producer, topic, [b"r%d" % i for i in range(3)])
    t.events(push, lambda e: len(e) >= 6)
    time.sleep(5)
    gaps = []
    events = t.call("seen", name=push)["events"]
    for i in ids:
        mine = [e for e in events if e["id"] == i]
        expect([e["attempt"] for e in mine] == [1, 2], f"attempts {[e['attempt'] for e in mine]}")
        gaps.append(mine[1]["at"] - mine[0]["at"])
    if "backoff" in t.agent.features:
        expect(min(gaps) >= 1.0, f"again after {min(gaps):.1f} s, the back-off is 1 s")
    return f"attempt 2 after {min(gaps):.1f} to {max(gaps):.1f} s"


# --- transactions ----------------------------------------------------------------------------------------------------

def half(t, producer, topic, body):
    return t.call("half", name=producer, topic=topic, body=base64.b64encode(body).decode())


@check("transaction", needs=["transaction"])
def transaction(t):
    """3 transactions committed, 3 rolled back, 1 left open: what is committed arrives once, nothing else within 5 s."""
    topic, group = t.topic(kind="TRANSACTION"), t.group()
    producer, consumer = t.producer(topic, checks="unknown"), t.consumer(group, topic)
    committed = []
    for n in range(7):
        sent = half(t, producer, topic, b"m%d" % n)
        if n < 6:
            t.call("end", ref=sent["ref"], commit=n % 2 == 0)
        if n % 2 == 0 and n < 6:
            committed.append(sent["id"])
    found = t.receive_until(consumer, 3, ack=True)
    expect(sorted(m["id"] for m in found) == sorted(committed), f"committed 3, received {len(found)}")
    expect(sorted(m["body"] for m in found) == [b"m0", b"m2", b"m4"], "bodies differ")
    t.nothing_until(consumer, time.monotonic() + 5)
    return "3 of 7"


@check("transaction-check", needs=["transaction"], timeout_s=150)
def transaction_check(t):
    """Two transactions are not ended: their producers are asked; one answers commit and its message arrives, one rollback."""
    topics = {answer: t.topic(kind="TRANSACTION") for answer in ("commit", "rollback")}
    producers = {answer: t.producer(topic, checks=answer) for answer, topic in topics.items()}
    consumers = {answer: t.consumer(t.group(), topic) for answer, topic in topics.items()}
    began = time.monotonic()
    ids = {answer: half(t, producers[answer], topic, answer.encode())["id"] for answer, topic in topics.items()}
    found = t.receive_until(consumers["commit"], 1, within_s=100, ack=True)
    expect([m["id"] for m in found] == [ids["commit"]], f"received {len(found)}")
    took = time.monotonic() - began
    while ids["rollback"] not in t.call("asked", name=producers["rollback"])["ids"]:
        expect(t.left() > 10, "the producer that would roll back was not asked")
        time.sleep(0.2)
    t.nothing_until(consumers["rollback"], time.monotonic() + 3)
    return f"asked and delivered after {took:.0f} s"


# --- types of topics --------------------------------------------------------------------------------------------------

@check("topic-types", needs=["transaction"], timeout_s=120)
def topic_types(t):
    """C34: to a topic of no type, and of each, a producer sends what fits; the other kinds: MESSAGE_PROPERTY_CONFLICT_WITH_TYPE 40014."""
    ways = {"NORMAL": {}, "FIFO": {"message_group": "m"}, "DELAY": {"deliver_at_s": int(time.time()) + 3600}}
    refusals = []
    for kind in (None, *ways, "TRANSACTION"):
        topic = t.topic(kind=kind)
        producer = t.producer(topic, checks="rollback")

        def send(way):
            if way == "TRANSACTION":
                t.call("end", ref=half(t, producer, topic, b"half")["ref"], commit=False)
            else:
                t.send(producer, topic, way.encode(), **ways[way])
        send(kind or "NORMAL")
        for way in (*ways, "TRANSACTION"):
            if way != (kind or "NORMAL"):
                refusals.append(refused(lambda way=way: send(way), 40014, f"{way} to {kind or 'no type'}"))
        if kind is None:
            found = t.receive_until(t.consumer(t.group(), topic), 1, ack=True)
            expect([m["body"] for m in found] == [b"NORMAL"], f"received {[m['body'] for m in found]}")
    return f"5 sent, {len(refusals)} refused: {refusals[-1]}"


@check("namespaces", needs=["namespace"])
def namespaces(t):
    """One topic and one group in two namespaces and in none: each sees its own messages, by the names that its client knows."""
    topic, group = t.topic(), t.group()
    spaces, ids = ["", "red", "blue"], {}
    for space in spaces[1:]:
        t.admin.create_topic(f"{space}%{topic}")
        t.admin.create_group(f"{space}%{group}")
    within = {space: {"namespace": space} if space else {} for space in spaces}
    for space in spaces:
        try:
            producer = t.producer(topic, **within[space])
            ids[space] = t.send_many(producer, topic, [b"%d in %s" % (n, space.encode()) for n in range(5)])
        except OperationError as e:
            raise Failed(f"in namespace {space!r}: {e}") from None
    for space in spaces:
        consumer = t.consumer(group, topic, **within[space])
        found = t.receive_until(consumer, 5, ack=True)
        got, names = sorted(m["id"] for m in found), {m["topic"] for m in found}
        expect(got == sorted(ids[space]), f"namespace {space!r}: {len(set(got) & set(ids[space]))} of 5, {len(set(got) - set(ids[space]))} of others")
        expect(names == {topic}, f"namespace {space!r}: topic is {names}")
        t.nothing_until(consumer, time.monotonic() + 2)
    return "5 in each of 2 and outside"


@check("dead-letters", timeout_s=150)
def dead_letters(t):
    """Two deliveries fail, by time-out and by answers of both kinds of consumers: one copy in the dead-letter topic, none in the group."""
    topic = t.topic()
    producer = t.producer(topic)
    ways = ["time-out"] + (["answer"] if "change" in t.agent.features else []) + (["push"] if "push" in t.agent.features else [])
    groups = {way: t.group(retry_max_times=1, retry_ms=[1000]) for way in ways}
    push = "push" in ways and t.client("push", group=groups["push"], topic=topic, filter="*", fail_attempts=9)
    consumers = {way: t.consumer(groups[way], topic) for way in ways if way != "push"}
    sent = t.send(producer, topic, b"poison", keys=["k"], properties={"p": "v"})
    for attempt in (1, 2):
        for way, consumer in consumers.items():
            found = t.receive_until(consumer, 1, within_s=INVISIBLE_MIN_S + LATE_S, invisible_s=INVISIBLE_MIN_S)
            expect([(m["id"], m["attempt"]) for m in found] == [(sent, attempt)], f"{way}: {[(m['id'] == sent, m['attempt']) for m in found]}, wanted attempt {attempt}")
            if way == "answer":
                t.change(consumer, found[0], 1)
    if push:
        events = t.events(push, lambda e: len(e) >= 2)
        expect([(e["id"], e["attempt"]) for e in events] == [(sent, 1), (sent, 2)], f"push: attempts {[e['attempt'] for e in events]}")
    for way, group in groups.items():
        end = time.monotonic() + min(t.left(), INVISIBLE_MIN_S + LATE_S)
        # It goes there when somebody asks for messages of the group: a push consumer does so all the time.
        while not t.admin.topic_routed(f"%DLQ%{group}"):
            expect(time.monotonic() < end, f"{way}: there is no dead-letter topic")
            for m in t.receive(consumers[way], invisible_s=INVISIBLE_MIN_S) if way in consumers else []:
                raise Failed(f"{way}: came once more (attempt {m['attempt']})")
            time.sleep(0.2)
        dead = t.receive_until(t.consumer(t.group(), f"%DLQ%{group}"), 1, ack=True)
        kept = [(m["id"], m["body"], m["keys"], m["properties"].get("p")) for m in dead]
        expect(kept == [(sent, b"poison", ["k"], "v")], f"{way}: in the dead-letter topic {kept}")
    return ", ".join(ways)


# --- refusals --------------------------------------------------------------------------------------------------------

def working_producer(t):
    """A topic and a producer that has sent to it: what is refused afterwards is not refused for a broken server."""
    topic = t.topic()
    producer = t.producer(topic)
    t.send(producer, topic, b"works")
    return topic, producer


@check("missing-topic")
def missing_topic(t):
    """Sending to a topic that does not exist: TOPIC_NOT_FOUND 40402 (unless the server creates topics on first use)."""
    _, producer = working_producer(t)
    absent = t.name("absent")
    if "topic" in t.auto_create:
        t.send(producer, absent, b"x")
        return "created on first use"
    return refused(lambda: t.send(producer, absent, b"x"), 40402, "send")


@check("missing-group")
def missing_group(t):
    """Receiving for a group that does not exist: CONSUMER_GROUP_NOT_FOUND 40403 (unless created on first use: accepted)."""
    topic, _ = working_producer(t)
    absent = t.name("absent")
    if "group" in t.auto_create:
        t.receive(t.consumer(absent, topic), max=1)
        return "created on first use"
    return refused(lambda: t.receive(t.consumer(absent, topic)), 40403, "receive")


@check("illegal-names")
def illegal_names(t):
    """Topic "bad topic!" → ILLEGAL_TOPIC 40002, group "bad group!" → ILLEGAL_CONSUMER_GROUP 40003."""
    topic, producer = working_producer(t)
    one = refused(lambda: t.send(producer, "bad topic!", b"x"), 40002, "topic")
    two = refused(lambda: t.receive(t.consumer("bad group!", topic)), 40003, "group")
    return f"{one}; {two}"


@check("bad-filter")
def bad_filter(t):
    """Receiving with the condition "a >>> 5": ILLEGAL_FILTER_EXPRESSION 40010."""
    topic, _ = working_producer(t)
    return refused(lambda: t.receive(t.consumer(t.group(), topic, filter="a >>> 5", sql=True)), 40010, "receive")


@check("oversize")
def oversize(t):
    """A body of 4 MiB + 1: MESSAGE_BODY_TOO_LARGE 41301."""
    topic, producer = working_producer(t)
    return refused(lambda: t.send(producer, topic, b"x" * (BODY_BYTES_MAX + 1)), 41301, "send")


@check("invisible-range")
def invisible_range(t):
    """Invisible durations of 5 s and 43,201 s: ILLEGAL_INVISIBLE_TIME 40011, for receive and (the long one) for change."""
    topic, _ = working_producer(t)
    consumer = t.consumer(t.group(), topic)
    notes = [refused(lambda s=s: t.receive(consumer, max=1, invisible_s=s), 40011, f"receive {s} s")
             for s in (5, INVISIBLE_MAX_S + 1)]
    found = t.receive_until(consumer, 1, max=1)
    expect(len(found) == 1, "not received")
    if "change" in t.agent.features:
        notes.append(refused(lambda: t.change(consumer, found[0], INVISIBLE_MAX_S + 1), 40011, f"change {INVISIBLE_MAX_S + 1} s"))
    t.ack(consumer, found[0], handle="old")
    return "; ".join(notes)
