"""Leases across the two houses, tried over raw gRPC: what is held stays held, what is acked stays acked, what is left comes back.

Prints one JSON line a check, as raw/prober.py does. Started by ./run in the suite's Python environment.

    leases.py sidecar --endpoint … --short … --admin … --metrics http://… --log FILE     Waybill's sidecar before Apache's broker
    leases.py proxy   --endpoint … --admin … --metrics http://…                          Apache's proxy before Waybill's broker
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "raw"), str(HERE.parent)]
import grpc  # noqa: E402
import remoting  # noqa: E402
from questions import Names  # noqa: E402
from rawclient import d  # noqa: E402

OK, BUSY = 20000, 42900
PUSH, SIMPLE = d.ClientType.PUSH_CONSUMER, d.ClientType.SIMPLE_CONSUMER
# Messages of the largest receive and, here, of one AckMessage.
BATCH = 32
# How long after the end of a lease Apache's broker may take to deliver again, seconds.
REVIVE_S = 12


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def send(producer, message):
    """Sends, and obeys flow control: a busy broker is asked again."""
    end = time.monotonic() + 20
    while (answer := producer.send(message)).status.code == BUSY and time.monotonic() < end:
        time.sleep(0.5)
    expect(answer.status.code == OK, f"send: {answer.status}")


class Holder:
    """A topic of four queues with messages, and a consumer that holds all of them."""

    def __init__(self, names, name, kind, count, invisible_s):
        self.kind, self.invisible_s = kind, invisible_s
        self.topic, self.group = names.topic(name), names.group(f"g-{name}")
        self.client, self.other, producer = names.client(), names.client(), names.client()
        producer.open(producer.producer_settings(self.topic))
        for c in (self.client, self.other):
            c.open(c.consumer_settings(self.group, self.topic, kind))
        for i in range(count):
            send(producer, producer.message(self.topic, b"m%d" % i))
        producer.close()
        self.messages, end = [], time.monotonic() + 30
        while len(self.messages) < count and time.monotonic() < end:
            self.messages += self.receive(self.client)
        expect(len(self.messages) == count, f"received {len(self.messages)} of {count}")
        self.held_since = time.monotonic()

    def receive(self, client):
        st, found, _ = client.receive(self.group, self.topic, invisible_s=self.invisible_s, batch=BATCH,
                                      auto_renew=self.invisible_s is None)
        expect(st.code in (OK, 40401), f"receive: {st}")
        return found

    def ids(self):
        return {m.system_properties.message_id for m in self.messages}

    def nothing_for(self, seconds, when):
        """Another consumer of the group asks all the while and is given nothing; both are heard."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for c in (self.client, self.other):
                c.heartbeat(self.kind, self.group)
            found = self.receive(self.other)
            expect(not found, f"{len(found)} delivered again {when}, {end - time.monotonic():.0f} s before the end of the watch")

    def change_all(self, messages, invisible_s):
        """Changes with the handles of the receive; the handles that came of it."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda m: self.client.change(self.group, self.topic, m.system_properties.receipt_handle, invisible_s,
                                                                 m.system_properties.message_id), messages))
        bad = [a.status for a in answers if a.status.code != OK]
        expect(not bad, f"change: {len(bad)} refused, {bad[:1]}")
        return [a.receipt_handle for a in answers]

    def ack_all(self, messages=None):
        """Acks with the handles in the messages: those of the receive, whatever became of them since."""
        messages = self.messages if messages is None else messages
        for start in range(0, len(messages), BATCH):
            held = [m.system_properties for m in messages[start:start + BATCH]]
            answer = self.client.ack(self.group, self.topic, *(m.receipt_handle for m in held), ids=[m.message_id for m in held])
            bad = [e.status for e in answer.entries if e.status.code != OK]
            expect(answer.status.code == OK and not bad, f"ack: {answer.status} {bad[:1]}")

    def back(self, within_s):
        """What another consumer of the group is given until all are there or the time is up; acked at once."""
        found, end = [], time.monotonic() + within_s
        while len(found) < len(self.messages) and time.monotonic() < end:
            batch = self.receive(self.other)
            if batch:
                self.other.ack(self.group, self.topic, *(m.system_properties.receipt_handle for m in batch),
                               ids=[m.system_properties.message_id for m in batch])
            found += batch
        return found

    def expect_all_back(self, within_s):
        began = time.monotonic()
        found = self.back(within_s)
        took = time.monotonic() - began
        expect(len(found) == len(self.messages) and {m.system_properties.message_id for m in found} == self.ids(),
               f"{len(found)} of {len(self.messages)} came back within {took:.0f} s")
        attempts = {m.system_properties.delivery_attempt for m in found}
        expect(attempts == {2}, f"attempts {attempts}")
        return f"{len(found)} of {len(found)} at attempt 2 after {took:.1f} s"


def metrics(url):
    """The samples of an OpenMetrics page: name with labels → number."""
    page = urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", page, re.MULTILINE)}


def family(samples, name):
    """The samples of a metric by their labels. One that the page does not have is an error: a sum of nothing proves nothing."""
    found = {sample[len(name):]: value for sample, value in samples.items() if sample == name or sample.startswith(name + "{")}
    if not found:
        raise AssertionError(f"there is no metric {name}")
    return found


def requests(samples, code, outcome):
    # A label that never occurred is not on the page.
    return family(samples, "waybill_sidecar_broker_requests_total").get(f'{{request="{code}",outcome="{outcome}"}}', 0)


# --- Waybill's sidecar before Apache's broker --------------------------------------------------------------------------

SHORT_LEASE_S = 12  # as ./run configures the sidecar at --short


def renewed_and_acked(a):
    """200 held for 30 s on leases of 12 s that the sidecar renews; half shortened; all acked with the handles of the receive."""
    held = Holder(a.names(a.short), "renewed", PUSH, 200, None)
    held.nothing_for(30, "while held")
    renewals = sum(family(metrics(a.metrics), "waybill_sidecar_receipts_renewed_total").values())
    expect(renewals >= 200, f"{renewals:.0f} renewals")
    held.change_all(held.messages[::2], 10)
    held.ack_all()
    # The first renewal is for a minute.
    held.nothing_for(max(10, held.held_since + SHORT_LEASE_S + 60 - time.monotonic()) + REVIVE_S, "after the ack")
    return f"200 held, {renewals:.0f} renewals one by one, acked with the first handles, none again"


def extended_and_acked(a):
    """100 that a client extends twice, acked with the handles of the receive."""
    held = Holder(a.names(a.short), "extended", SIMPLE, 100, 30)
    held.change_all(held.messages, 40)
    new = held.change_all(held.messages, 12)
    changed = sum(handle != m.system_properties.receipt_handle for handle, m in zip(new, held.messages))
    expect(changed == 100, f"Apache gives each change a new handle; {changed} of 100 did")
    held.ack_all()
    held.nothing_for(12 + REVIVE_S, "after the ack")
    return "100 extended twice, acked with the first handles, none again"


def client_gone(a):
    """The connection of a client that holds 100 breaks: all come back long before their lease of 60 s ends."""
    held = Holder(a.names(a.endpoint), "gone", PUSH, 100, None)
    held.client.close()
    return held.expect_all_back(40)


def fell_back(a):
    """After the other two: each kind of batch was tried, given up, said once; everything went one by one."""
    samples, log = metrics(a.metrics), pathlib.Path(a.log).read_text()
    tried = requests(samples, "BATCH_CHANGE_MESSAGE_INVISIBLETIME", "Refused")
    expect(1 <= tried <= 8, f"BATCH_CHANGE_MESSAGE_INVISIBLETIME was tried {tried:.0f} times")
    acks = requests(samples, "BATCH_ACK_MESSAGE", "Ok")
    expect(1 <= acks <= 2, f"BATCH_ACK_MESSAGE was tried {acks:.0f} times")
    expect(requests(samples, "ACK_MESSAGE", "Ok") >= 300, "fewer than 300 single acks")
    fallbacks = sum(family(samples, "waybill_sidecar_batch_fallbacks_total").values())
    expect(fallbacks >= tried + acks, f"{fallbacks:.0f} fall-backs counted")
    lines = re.findall(r"go one by one (.*)", log)
    expect(len(lines) == len(set(lines)) == 2, f"not one log line for acks and one for changes, but {lines}")
    lost = {cause: n for cause, n in family(samples, "waybill_sidecar_receipts_dropped_total").items()
            if n and re.search("expired|gone|gave_up|shed", cause)}
    for name in ("waybill_sidecar_receipts_failed_total", "waybill_sidecar_receipts_gave_up"):
        lost |= {name + labels: n for labels, n in family(samples, name).items() if n}
    expect(not lost, f"leases were lost: {lost}")
    return f"tried {tried:.0f} and {acks:.0f} times, {fallbacks:.0f} fall-backs counted, one log line each"


# --- Apache's proxy before Waybill's broker ----------------------------------------------------------------------------

def open_at_broker(a, held):
    """What the broker says of the group on the topic: messages not done, and of these those that somebody holds."""
    samples = metrics(a.metrics)
    label = f'{{topic="{held.topic}",consumer_group="{held.group}"}}'
    return tuple(samples.get(f"rocketmq_consumer_{kind}_messages{label}", 0) for kind in ("lag", "inflight"))


def proxy_renewed_and_acked(a):
    """100 held for 40 s on leases of 20 s that Apache's proxy renews, then acked with the handles of the receive."""
    held = Holder(a.names(a.endpoint), "renewed", PUSH, 100, None)
    expect(open_at_broker(a, held) == (100, 100), f"the broker counts {open_at_broker(a, held)}")
    held.nothing_for(40, "while held")
    held.ack_all()
    expect(open_at_broker(a, held) == (0, 0), f"after the acks {open_at_broker(a, held)} are open")
    held.nothing_for(5, "after the ack")
    return "100 held, acked with the first handles, none open at the broker"


def proxy_extended_and_acked(a):
    """100 that a client extends: half acked at once with the old handles, half with the new after the old ones' end.

    The old ones may be used only until then: Apache's proxy itself refuses a handle whose own time is over.
    """
    held, began = Holder(a.names(a.endpoint), "extended", SIMPLE, 100, 30), time.monotonic()
    new = held.change_all(held.messages, 70)
    held.ack_all(held.messages[::2])
    expect(open_at_broker(a, held) == (50, 50), f"after half of the acks {open_at_broker(a, held)} are open")
    held.nothing_for(began + 40 - time.monotonic(), "within the extension")
    for m, handle in zip(held.messages, new):
        m.system_properties.receipt_handle = handle
    held.ack_all(held.messages[1::2])
    expect(open_at_broker(a, held) == (0, 0), f"after the acks {open_at_broker(a, held)} are open")
    return "100 extended, acked with old handles and new, none open at the broker"


def proxy_client_gone(a):
    """A client that holds 50 says goodbye: Apache's proxy gives all back."""
    held = Holder(a.names(a.endpoint), "gone", PUSH, 50, None)
    answer = held.client.terminate(held.group)
    expect(answer.status.code == OK, f"terminate: {answer.status}")
    return held.expect_all_back(15)


def expired(a):
    """10 not acked within 10 s: back at attempt 2; the ack of the first delivery is refused then."""
    held = Holder(a.names(a.endpoint), "expired", SIMPLE, 10, 10)
    held.invisible_s = 60
    found, end = [], time.monotonic() + 25
    while len(found) < 10 and time.monotonic() < end:
        found += held.receive(held.other)
    expect({m.system_properties.message_id for m in found} == held.ids() and len(found) == 10, f"{len(found)} came back")
    old = held.messages[0].system_properties
    answer = held.client.ack(held.group, held.topic, old.receipt_handle, ids=[old.message_id])
    expect(answer.status.code != OK, "the ack of a delivery that is over was answered OK")
    expect(open_at_broker(a, held)[0] == 10, "the refused ack had an effect")
    held.messages = found
    held.client = held.other
    held.ack_all()
    expect(open_at_broker(a, held) == (0, 0), f"after the acks {open_at_broker(a, held)} are open")
    return f"10 back, the stale ack refused with {answer.status.code}, then acked"


# What runs beside each other, then what looks back at it.
CHECKS = {"sidecar": ([renewed_and_acked, extended_and_acked, client_gone], [fell_back]),
          "proxy": ([proxy_renewed_and_acked, proxy_extended_and_acked, proxy_client_gone, expired], [])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=list(CHECKS))
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--short", help="a sidecar with short leases")
    parser.add_argument("--admin", required=True)
    parser.add_argument("--metrics", required=True, help="of the sidecar with short leases, or of the broker")
    parser.add_argument("--log", help="of the sidecar with short leases")
    a = parser.parse_args()
    admin, run_id = remoting.Admin(a.admin), remoting.run_id()
    a.names = lambda endpoint: Names(f"il-{run_id}", admin, endpoint)
    output = threading.Lock()

    def attempt(check):
        began = time.monotonic()
        try:
            status, note = "pass", check(a)
        except (AssertionError, grpc.RpcError, OSError, remoting.RemotingError) as e:
            status, note = "fail", f"{type(e).__name__}: {e}"
        except Exception as e:  # a fault of the suite must show as a failure, not end the run
            status, note = "fail", f"suite: {type(e).__name__}: {e}"
        name = check.__name__.removeprefix("proxy_").replace("_", "-")
        with output:
            print(json.dumps({"check": name, "status": status, "note": " ".join(note.split())[:600], "seconds": time.monotonic() - began}), flush=True)

    beside, after = CHECKS[a.pair]
    with concurrent.futures.ThreadPoolExecutor(len(beside)) as pool:
        list(pool.map(attempt, beside))
    for check in after:
        attempt(check)


if __name__ == "__main__":
    main()
    import os
    os._exit(0)  # streams of clients that are still open must not keep the process
