"""Cases that users of such systems reported, tried over raw gRPC against Waybill. Each returns a note or raises.

Apache 5.5 fails most of them (see expected.tsv for its answers), so they are not tried there.
"""
import time

import grpc
from leases import GARBAGE, LEASE_S, Lease
from rawclient import d, s, seconds

CASES = []
OK, MULTIPLE, ILLEGAL_TIME, BAD_HANDLE, NO_SETTINGS, CONFLICT = 20000, 30000, 40011, 40013, 40015, 40014
# How long after the end of a lease a message may still be on its way back, seconds.
LATE_S = 15
TYPES = {"NORMAL": {}, "FIFO": {"message_group": "g"}, "DELAY": {"delivery_timestamp": 1}, "TRANSACTION": {}}


def case(function):
    CASES.append(function)
    return function


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def code(answer):
    return answer.status.code


def ids(messages):
    return {m.system_properties.message_id for m in messages}


def back_within(lease, count, wait_s):
    """Messages that come within the time; acked at once, so that none comes twice for its own lease."""
    found, end = [], time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < end:
        batch = lease.c.receive(lease.group, lease.topic)[1]
        if batch:
            lease.c.ack(lease.group, lease.topic, *(m.system_properties.receipt_handle for m in batch))
        found += batch
    found += lease.c.receive(lease.group, lease.topic)[1]
    return found


def shorten_and_ack(n, name, newest):
    lease = Lease(n, name)
    messages = lease.take(10, invisible_s=20)
    fifth = messages[4].system_properties
    changed = lease.change(fifth.receipt_handle, LEASE_S)
    expect(code(changed) == OK, f"change: {changed.status}")
    acked = lease.c.ack(lease.group, lease.topic, changed.receipt_handle if newest else fifth.receipt_handle)
    expect(code(acked) in ((OK,) if newest else (OK, BAD_HANDLE)), f"ack: {acked.status}")
    found = back_within(lease, 9, 20 + LATE_S)
    gone = {fifth.message_id} if code(acked) == OK else set()
    expect(ids(found) == ids(messages) - gone and len(found) == 10 - len(gone), f"{len(found)} came back")
    return f"{len(found)} of 10 back, ack {code(acked)}"


@case
def C01_changed_then_acked_new(n):
    """Ten leased, one shortened and acked with the new handle: nine come back, that one never."""
    return shorten_and_ack(n, "c01new", True)


@case
def C01_changed_then_acked_old(n):
    """The same with the handle from before: acked for good, or refused; never an OK without effect."""
    return shorten_and_ack(n, "c01old", False)


@case
def C05_simple_without_duration(n):
    """A simple consumer's missing or impossible invisible duration is refused and takes no message."""
    lease = Lease(n, "c05")
    lease.p.send(lease.p.message(lease.topic, b"m"))
    for duration in (None, 0, 0.001, 13 * 3600):
        st, messages, _ = lease.c.receive(lease.group, lease.topic, invisible_s=duration)
        expect(st.code == ILLEGAL_TIME and not messages, f"{duration}: {st}")
    found = lease.c.receive_until(lease.group, lease.topic, 1)
    expect(len(found) == 1 and found[0].system_properties.delivery_attempt == 1, f"then {len(found)} messages")
    return "refused four times, then delivered at attempt 1"


@case
def C05_push_without_duration(n):
    """auto_renew without a duration: the lease is kept past its default of 60 s until the ack; one delivery."""
    topic, group = n.topic("c05push", queues=1), n.group("g-c05push")
    with n.client() as c, n.client() as p, n.client() as other:
        c.open(c.consumer_settings(group, topic, d.ClientType.PUSH_CONSUMER))
        other.open(other.consumer_settings(group, topic, d.ClientType.PUSH_CONSUMER))
        p.open(p.producer_settings(topic))
        p.send(p.message(topic, b"long"))
        found = c.receive_until(group, topic, 1, invisible_s=None, auto_renew=True)
        expect(len(found) == 1, "not received")
        end = time.monotonic() + 75
        while time.monotonic() < end:
            c.heartbeat(d.ClientType.PUSH_CONSUMER, group)
            stolen = other.receive(group, topic, invisible_s=None, auto_renew=True)[1]
            expect(not stolen, f"delivered again {end - time.monotonic():.0f} s before the ack")
        held = found[0].system_properties
        acked = c.ack(group, topic, held.receipt_handle, ids=[held.message_id])
        expect(code(acked) == OK, f"ack after 75 s: {acked.status}")
        expect(not other.receive(group, topic, invisible_s=None, auto_renew=True)[1], "delivered after the ack")
    return "held 75 s, acked, one delivery"


@case
def C08_batch_ack(n):
    """Ten entries: six good, garbage, one stale, two copies of one good. One verdict each, in order; only the unacked come back."""
    lease = Lease(n, "c08")
    stale = lease.take(1, invisible_s=LEASE_S)[0].system_properties
    again, end = [], time.monotonic() + LEASE_S + LATE_S
    while not again and time.monotonic() < end:
        again = lease.c.receive(lease.group, lease.topic, invisible_s=300)[1]
    expect(again and again[0].system_properties.message_id == stale.message_id, "the stale one was not leased again")
    good = [m.system_properties.receipt_handle for m in lease.take(8, invisible_s=20)]
    handles = [*good[:3], GARBAGE, *good[3:6], stale.receipt_handle, good[6], good[6]]
    answer = lease.c.ack(lease.group, lease.topic, *handles)
    verdicts = [e.status.code for e in answer.entries]
    wanted = [OK] * 3 + [BAD_HANDLE] + [OK] * 3 + [BAD_HANDLE, OK, OK]
    expect(verdicts == wanted, f"verdicts {verdicts}")
    expect([e.receipt_handle for e in answer.entries] == handles, "handles are not echoed in order")
    expect(code(answer) == MULTIPLE, f"top status {answer.status}")
    found = back_within(lease, 1, 20 + LATE_S)
    expect(len(found) == 1, f"{len(found)} came back, one was unacked")
    return "8 acked, 2 refused, 1 unacked came back"


@case
def C10_without_settings(n):
    """No telemetry stream: heartbeat and receive say UNRECOGNIZED_CLIENT_TYPE and take nothing; an ack needs only the handle."""
    lease = Lease(n, "c10")
    held = lease.take(1)[0].system_properties.receipt_handle
    lease.p.send(lease.p.message(lease.topic, b"second"))
    with n.client() as stranger:
        expect(code(stranger.heartbeat(d.ClientType.SIMPLE_CONSUMER, lease.group)) == NO_SETTINGS, "heartbeat")
        st, messages, _ = stranger.receive(lease.group, lease.topic)
        expect(st.code == NO_SETTINGS and not messages, f"receive: {st}")
        expect(code(stranger.ack(lease.group, lease.topic, held)) == OK, "ack")
    found = lease.c.receive_until(lease.group, lease.topic, 1)
    expect(len(found) == 1 and found[0].system_properties.delivery_attempt == 1, "the second message was taken")
    return "heartbeat and receive 40015, ack OK"


@case
def C29_odd_requests(n):
    """Empty resources, no client id, unset fields, a huge batch: an answer each time, and a good client goes on."""
    lease = Lease(n, "c29")
    bare = n.client()
    bare.metadata = []
    expect(code(bare.call("NotifyClientTermination", s.NotifyClientTerminationRequest())) >= 40000, "a nameless client was ended")
    requests = {
        "QueryRoute": [s.QueryRouteRequest(), s.QueryRouteRequest(topic=d.Resource())],
        "Heartbeat": [s.HeartbeatRequest()],
        "SendMessage": [s.SendMessageRequest(), s.SendMessageRequest(messages=[d.Message()]),
                        s.SendMessageRequest(messages=[d.Message(topic=d.Resource(name=lease.topic))] * 3000)],
        "QueryAssignment": [s.QueryAssignmentRequest()],
        "ReceiveMessage": [s.ReceiveMessageRequest(), s.ReceiveMessageRequest(batch_size=-1, invisible_duration=seconds(-5))],
        "AckMessage": [s.AckMessageRequest(), s.AckMessageRequest(entries=[s.AckMessageEntry()] * 5000)],
        "ChangeInvisibleDuration": [s.ChangeInvisibleDurationRequest()],
        "ForwardMessageToDeadLetterQueue": [s.ForwardMessageToDeadLetterQueueRequest()],
    }
    asked = 0
    for client in (lease.c, bare):
        for method, odd in requests.items():
            for request in odd:
                try:
                    answer = client.call(method, request)
                    answer = list(answer)[0] if method == "ReceiveMessage" else answer
                    # A known client's heartbeat may leave its type to the settings.
                    fine = method == "Heartbeat" and client is lease.c and code(answer) == OK
                    expect(fine or 40000 <= code(answer) < 50000, f"{method}: {answer.status}")
                except grpc.RpcError as e:
                    expect(e.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED), f"{method}: {e.code()}")
                asked += 1
    found = lease.take(3)
    expect(len(found) == 3, "the good client was disturbed")
    return f"{asked} odd requests refused, the good client goes on"


@case
def C34_topic_types(n):
    """Every topic lists an accepted type (NORMAL when none was said); a mismatch is named as such."""
    checked = 0
    for kind in (None, *TYPES):
        topic = n.topic(f"c34{(kind or 'none').lower()}", kind)
        with n.client() as c:
            c.open(c.producer_settings(topic))
            accepted = [d.MessageType.Name(t) for t in c.route(topic).message_queues[0].accept_message_types]
            expect(accepted == [kind or "NORMAL"], f"{kind}: accepts {accepted}")
            for other, system in TYPES.items():
                if other == (kind or "NORMAL"):
                    continue
                system = {**system}
                if "delivery_timestamp" in system:
                    system["delivery_timestamp"] = {"seconds": int(time.time()) + 60}
                answer = c.send(c.message(topic, b"x", d.MessageType.Value(other), **system))
                text = answer.status.message
                expect(code(answer) == CONFLICT, f"{other} to {kind}: {answer.status}")
                expect(other in text and (kind or "NORMAL") in text, f"the refusal names not both types: {text}")
                checked += 1
    return f"{checked} mismatches refused"
