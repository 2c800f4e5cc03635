"""Questions about handles, dead letters, transactions and recalls (part of the raw prober)."""
import re
import time

from questions import HOUR_S, n_a, one, scenario, status, tree
from rawclient import d

GARBAGE = "garbage"
LEASE_S = 10


class Lease:
    """A topic and group with a consumer and a producer; `take` sends and receives messages."""

    def __init__(self, n, name, kind="NORMAL"):
        self.topic, self.group = n.topic(name, kind, queues=1), n.group(f"g-{name}")
        self.c, self.p = n.client(), n.client()
        self.c.open(self.c.consumer_settings(self.group, self.topic))
        self.p.open(self.p.producer_settings(self.topic))

    def take(self, count=1, invisible_s=60.0):
        """Messages just sent and received."""
        for i in range(count):
            self.p.send(self.p.message(self.topic, b"m%d" % i))
        found = self.c.receive_until(self.group, self.topic, count, invisible_s=invisible_s)
        if len(found) != count:
            raise RuntimeError(f"received {len(found)} of {count}")
        return found

    def handle(self, **more):
        return self.take(**more)[0].system_properties.receipt_handle

    def ack(self, *handles, group=None, topic=None):
        return status(self.c.ack(group or self.group, topic or self.topic, *handles))

    def change(self, handle, invisible_s, group=None, topic=None):
        return self.c.change(group or self.group, topic or self.topic, handle, invisible_s)


@scenario
def first_receive(n, ask):
    lease = Lease(n, "cid")
    lease.p.send(lease.p.message(lease.topic, b"m"))
    got = {}

    def receive():
        end = time.monotonic() + 20
        st, messages, order = lease.c.receive(lease.group, lease.topic)
        while not messages and time.monotonic() < end:
            st, messages, order = lease.c.receive(lease.group, lease.topic)
        got["m"] = messages[0]
        return f"{one(st)} messages={len(messages)} order={'>'.join(order)}"

    ask("receive.status_ok", receive)
    ask("receive.message.json", lambda: tree(got["m"]))
    ask("receive.handle.form", lambda: re.sub(r"(?<!\S)\d+(?!\S)", "N", got["m"].system_properties.receipt_handle))


@scenario
def acks(n, ask):
    lease = Lease(n, "ack")
    # The other topic reaches the offsets of the handles too, so that only the topic is wrong.
    other = Lease(n, "other")
    other_group, other_topic = other.group, other.topic
    other.take(16)
    ask("ack.garbage_handle", lambda: lease.ack(GARBAGE))
    ask("ack.empty_handle", lambda: lease.ack(""))
    ask("ack.no_entries", lambda: lease.ack())
    ask("ack.wrong_group", lambda: lease.ack(lease.handle(), group=other_group))
    ask("ack.missing_group", lambda: lease.ack(lease.handle(), group=n("g-nosuch5")))
    ask("ack.wrong_topic", lambda: lease.ack(lease.handle(), topic=other_topic))
    ask("ack.missing_topic", lambda: lease.ack(lease.handle(), topic=n("nosuch")))
    ask("ack.batch_ok", lambda: lease.ack(lease.handle()))
    ask("ack.batch_one_bad", lambda: lease.ack(lease.handle(), GARBAGE))


@scenario
def changes(n, ask):
    lease = Lease(n, "change")
    ask("cid.garbage", lambda: one(lease.change(GARBAGE, 30).status))
    ask("cid.12h+1", lambda: one(lease.change(lease.handle(), 12 * HOUR_S + 1).status))
    ask("cid.negative", lambda: one(lease.change(lease.handle(), -1).status))
    ask("cid.missing_group", lambda: one(lease.change(lease.handle(), 30, group=n("g-nosuch6")).status))
    ask("cid.missing_topic", lambda: one(lease.change(lease.handle(), 30, topic=n("nosuch")).status))
    handles = {}

    def changed():
        handles["old"] = lease.handle()
        answer = lease.change(handles["old"], 30)
        handles["new"] = answer.receipt_handle
        return f"{answer.status.code} new handle differs={handles['new'] != handles['old']}"

    ask("cid.ok", changed)
    ask("cid.again_with_old_handle", lambda: one(lease.change(handles["old"], 40).status))
    ask("ack.old_handle", lambda: lease.ack(handles["old"]))

    def chain():
        handle = lease.handle()
        for duration in (20, 30, 40):
            answer = lease.change(handle, duration)
            handle = answer.receipt_handle
        handles["chain"] = handle
        return f"{answer.status.code} {d.Code.Name(answer.status.code)}"

    ask("cid.chain", chain)
    ask("ack.new_handle", lambda: lease.ack(handles["chain"]))
    ask("ack.twice", lambda: lease.ack(handles["chain"]))
    ask("cid.after_ack", lambda: one(lease.change(handles["chain"], 30).status))


@scenario
def change_to_zero(n, ask):
    lease = Lease(n, "zero")

    def zero():
        answer = lease.change(lease.handle(), 0)
        return f"{answer.status.code} {d.Code.Name(answer.status.code)} {answer.status.message} handle={'yes' if answer.receipt_handle else 'no'}"

    ask("cid.zero", zero)

    def again():
        found = lease.c.receive_until(lease.group, lease.topic, 1, deadline_s=20)
        return f"{bool(found)} attempt={found[0].system_properties.delivery_attempt if found else '-'}"

    ask("cid.zero.redelivered", again)


@scenario
def expired(n, ask):
    lease = Lease(n, "expired")
    handle = lease.handle(invisible_s=LEASE_S)
    time.sleep(LEASE_S + 3)
    ask("ack.expired_handle(13s after 10s)", lambda: lease.ack(handle))
    ask("cid.expired_handle", lambda: one(lease.change(handle, 30).status))


@scenario
def dead_letters(n, ask):
    lease = Lease(n, "dlq")
    m = lease.take()[0]
    sp = m.system_properties

    def forward(handle):
        return one(lease.c.forward(lease.group, lease.topic, handle, sp.message_id).status)

    ask("dlq.forward", lambda: forward(sp.receipt_handle))
    ask("dlq.forward_twice", lambda: forward(sp.receipt_handle))
    ask("dlq.forward_garbage", lambda: forward(GARBAGE))
    dead = "%DLQ%" + lease.group
    found = []

    def read():
        reader_group = n.group("g-dlqreader")
        reader = n.client()
        reader.open(reader.consumer_settings(reader_group, dead))
        found.extend(reader.receive_until(reader_group, dead, 1, deadline_s=20))
        return str(bool(found))

    ask("dlq.read.%DLQ%group", read)
    ask("dlq.message.json", lambda: tree(found[0]) if found else n_a("no dead letter to read"))


@scenario
def transactions(n, ask):
    topic = n.topic("trans", "TRANSACTION")
    p = n.client()
    p.open(p.producer_settings(topic))
    message = p.message(topic, b"tx", d.MessageType.TRANSACTION)
    sent, commit = {}, d.TransactionResolution.COMMIT

    def send():
        answer = p.send(message)
        sent["id"] = answer.entries[0].transaction_id if answer.entries else ""
        return status(answer)

    def end(transaction_id, resolution=commit, where=topic):
        return status(p.end_transaction(where, message.system_properties.message_id, transaction_id, resolution))

    ask("tx.send", send)
    ask("tx.entry.form", lambda: f"transaction_id={'yes' if sent['id'] else 'no'} len={len(sent['id'])}")
    ask("tx.end.commit", lambda: end(sent["id"]))
    ask("tx.end.commit_twice", lambda: end(sent["id"]))
    ask("tx.end.garbage_id", lambda: end(GARBAGE))
    ask("tx.end.empty_id", lambda: end(""))
    ask("tx.end.unspecified", lambda: end(sent["id"], d.TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED))
    ask("tx.end.missing_topic", lambda: end(sent["id"], where=n("nosuch")))


@scenario
def recalls(n, ask):
    topic, normal = n.topic("recall", "DELAY"), n.topic("normal")
    p = n.client()
    p.open(p.producer_settings(topic))
    handle = {}

    def present():
        answer = p.send(p.message(topic, b"later", d.MessageType.DELAY, delivery_timestamp={"seconds": int(time.time()) + 60}))
        handle["h"] = answer.entries[0].recall_handle if answer.entries else ""
        return str(bool(handle["h"]))

    ask("recall.handle_present", present)
    ask("recall.ok", lambda: status(p.recall(topic, handle["h"])))
    ask("recall.twice", lambda: status(p.recall(topic, handle["h"])))
    ask("recall.garbage", lambda: status(p.recall(topic, GARBAGE)))
    ask("recall.wrong_topic", lambda: status(p.recall(normal, handle["h"])))
