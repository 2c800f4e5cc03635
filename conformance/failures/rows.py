"""The failure table: what becomes of messages that a consumer holds when a part fails.

Each row is tried with renewal on (short leases that the sidecar extends) and off (leases for the group's consume timeout).
A push consumer holds MESSAGES messages in its listener; another one of its group waits at a second sidecar for whatever comes.
"""
import base64
import collections
import dataclasses
import os
import time

from house import BRISK, PATIENCE_S, House, address, expect, wait_for

MESSAGES = 40
ON, OFF, BOTH = "on", "off", "both"
# What a message is late, at most, on a machine with a core for everybody who wants one, seconds.
LATE_S = 3
# After the last acknowledgement: how long the other consumer is still watched.
WATCH_S = 5


def late_s():
    """What a message is late, at most, now: as many times as long as there are who want a core."""
    return LATE_S * max(1, os.getloadavg()[0] / os.cpu_count())


@dataclasses.dataclass
class Seen:
    """What a row showed: seconds from the failure until the first and the last message came again (None: none may), deliveries
    too many, and what else is worth telling."""
    back: tuple = None
    duplicates: int = 0
    note: str = ""


def switch(mode, lease_s=60, ahead_s=10):
    """Configuration of a sidecar: the switch, and leases for when it is on."""
    return {"enableGrpcChannelReceiptHandleRenew": str(mode == ON).lower(), "defaultInvisibleTimeMills": lease_s * 1000,
            "renewAheadTimeMillis": ahead_s * 1000}


class Held:
    """A push consumer that holds messages, and another one of its group at another sidecar."""

    def __init__(self, house, kind, endpoint, other, count=MESSAGES, **group):
        self.house, self.count = house, count
        self.topic, self.group = house.topic_and_group("t", **group)
        self.client, self.other = house.client(kind, endpoint), house.client("python", other)
        self.other.call("producer", name="p", topics=[self.topic])
        self.client.push("c", self.group, self.topic, hold=True)
        self.first_s = time.time()
        # All at once, so that their leases begin at about the same time however slow the machine.
        sends = [self.other.start("send", name="p", topic=self.topic, body=base64.b64encode(b"%d" % n).decode()) for n in range(count)]
        for answer in sends:
            answer(PATIENCE_S)
        wait_for(lambda: f"all {count} are held: (open, held) = {self.open()}", PATIENCE_S, lambda: self.open() == (count, count))
        # The broker has leased them; what is still on its way to a client when that dies goes back at once.
        wait_for(lambda: f"all {count} are with the client, not only {house.handed_out()}", PATIENCE_S, lambda: house.handed_out() >= count)
        self.last_s = time.time()
        self.other.push("o", self.group, self.topic)

    def open(self):
        return self.house.open_at_broker(self.topic, self.group)

    def until(self, seconds):
        """Waits until so many seconds after all were held; nothing may come again meanwhile."""
        while (left := self.last_s + seconds - time.time()) > 0:
            self.expect_none(f"{seconds - left:.1f} s after the last was received")
            time.sleep(min(0.5, left))

    def expect_none(self, when):
        again = self.other.events("o")
        expect(not again, lambda: f"{len(again)} of {self.count} came again {when}")

    def release(self):
        """Lets the holder finish: all are done with its acks, and none comes again."""
        since = time.time()
        self.client.call("release", name="c")
        wait_for(lambda: f"all are acknowledged: (open, held) = {self.open()}", PATIENCE_S, lambda: self.done())
        took = time.time() - since
        end = time.monotonic() + WATCH_S
        while time.monotonic() < end:
            self.expect_none("after the acks")
            time.sleep(0.5)
        duplicates = sum(collections.Counter(e["body"] for e in self.client.events("c")).values()) - self.count
        expect(duplicates == 0, f"the holder itself was given {duplicates} twice")
        return took

    def done(self):
        self.expect_none("before or during the acks")
        return self.open() == (0, 0)

    def all_back(self, since, seconds):
        """All come to the other consumer; Seen, counted from `since`."""
        def back():
            return len({e["body"] for e in self.other.events("o")}) == self.count
        wait_for(lambda: f"all come again: {len(self.other.events('o'))} of {self.count} did", seconds, back)
        wait_for(lambda: f"all are done: (open, held) = {self.open()}", PATIENCE_S, lambda: self.open() == (0, 0))
        events = self.other.events("o")
        at = [e["at"] - since for e in events]
        attempts = {e["attempt"] for e in events}
        expect(attempts <= {1, 2}, f"attempts {attempts}")
        return Seen((min(at), max(at)), len(events) - self.count)


ROWS = []


@dataclasses.dataclass
class Row:
    """A row, tried with each of these published clients as the holder and each setting of the switch, taking about so long."""
    title: str
    function: object
    kinds: tuple
    seconds: float
    modes: tuple


def row(title, kinds=("python",), seconds=60, modes=(ON, OFF)):
    """Registers a row."""
    def add(function):
        ROWS.append(Row(title, function, kinds, seconds, modes))
        return function
    return add


@row("client killed, sidecar alive", kinds=("python", "java", "node"), seconds=25)
def client_killed(folder, kind, mode):
    """Leases of a minute or a quarter of an hour; all is with the other consumer within 5 s of the detection."""
    with House(folder, sidecar=switch(mode)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint)
        since = held.client.kill()
        detected = wait_for("the sidecar notices", PATIENCE_S, lambda: "the client has left" in a.log() and time.time()) - since
        seen = held.all_back(since, 3 * PATIENCE_S)
        expect(seen.back[1] <= detected + 2 + late_s(), f"the last came {seen.back[1] - detected:.1f} s after the detection")
        seen.note = f"noticed after {detected:.1f} s, all back {seen.back[1] - detected:.1f} s later"
        return seen


@row("sidecar killed, client alive", kinds=("python", "java", "node"), seconds=80)
def sidecar_killed(folder, kind, mode):
    """C02. The client comes back through a second sidecar and acknowledges there with the handles of the first.

    On: leases of 10 s, renewed after 5 s for a minute; the sidecar dies at 20 s, the acks come at 55 s. Off: a consume timeout of
    a minute; the acks come 8 s before its end. Both are later than clientGoneAfter, so the second sidecar must have vouched.
    """
    with House(folder, sidecar=switch(mode, 10, 5)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        service = house.forwarder(a.endpoint)
        held = Held(house, kind, service.address, b.endpoint, consume_timeout_min=1)
        dies_at, at = (20, 55) if mode == ON else (5, 52 - (held.last_s - held.first_s))
        held.until(dies_at)
        renewed = a.metrics().get("waybill_sidecar_receipts_renewed_total", 0)
        expect((renewed >= held.count) == (mode == ON), f"{renewed:.0f} renewals")
        a.kill()
        service.switch(b.endpoint)
        held.until(at)
        took = held.release()
        if mode == ON:
            held.until(70)
        return Seen(note=f"killed after {dies_at} s, {renewed:.0f} renewals; acks at {at:.0f} s through the other, done in {took:.1f} s")


def vouched_since(sidecar):
    """A time, Unix seconds, after which the sidecar told the broker who is there; known when it has told it once more.

    That one was answered is known later than the broker heard it, but the next is only sent afterwards.
    """
    def told():
        # It has no name of Apache's, and nothing else that has none is asked here.
        return sidecar.metrics().get('waybill_sidecar_broker_requests_total{request="OTHER",outcome="Ok"}', 0)
    first, at = told(), time.time()

    def look():
        nonlocal at
        now, count = time.time(), told()
        if count == first:
            at = now
        return count >= first + 2
    wait_for("the sidecar tells the broker who is there", PATIENCE_S, look)
    return at


def both_killed(folder, kind, mode, gone_after_ms, group, lease_s=60):
    # Nothing is renewed before the end.
    with House(folder, broker={"clientGoneAfter": gone_after_ms}, sidecar=switch(mode, lease_s, 1)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint, **group)
        vouched = vouched_since(a) if gone_after_ms else None
        # Before the client is waited for: a sidecar that outlives it by seconds would give everything back.
        a.server.process.kill()
        since = held.client.kill()
        a.kill()
        return held, held.all_back(since, 90), since, vouched


@row("both killed", kinds=("python", "java"), seconds=20)
def both_killed_watched(folder, kind, mode):
    """clientGoneAfter 5 s: all is back within that, and the second between the looks of the broker."""
    held, seen, since, vouched = both_killed(folder, kind, mode, 5000, {})
    expect(seen.back[1] <= 5 + 1 + late_s(), f"the last came after {seen.back[1]:.1f} s")
    earliest = vouched + 5 - since
    expect(seen.back[0] >= earliest, f"the first came after {seen.back[0]:.1f} s, when the word of the sidecar still held for {earliest - seen.back[0]:.1f} s")
    seen.note = "clientGoneAfter 5 s"
    return seen


@row("both killed, liveness off", seconds=75)
def both_killed_unwatched(folder, kind, mode):
    """clientGoneAfter 0: the lease runs to its end, of 12 s (on) or a minute (off), neither shorter nor longer."""
    lease_s = 12 if mode == ON else 60
    held, seen, since, _ = both_killed(folder, kind, mode, 0, {"consume_timeout_min": 1}, lease_s=12)
    earliest, latest = held.first_s + lease_s - since, held.last_s + lease_s - since + late_s()
    expect(earliest <= seen.back[0] and seen.back[1] <= latest,
           f"came after {seen.back[0]:.1f} to {seen.back[1]:.1f} s, not {earliest:.1f} to {latest:.1f} s")
    seen.note = f"lease of {lease_s} s, {since - held.last_s:.1f} s of it gone at the failure"
    return seen


@row("client moves to another sidecar", kinds=("python", "java", "node"), seconds=45)
def client_moves(folder, kind, mode):
    """Both sidecars alive; there, and back again. Leases of 10 s when on, so they need the renewals of the sidecar it left."""
    with House(folder, sidecar=switch(mode, 10, 5)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        service = house.forwarder(a.endpoint)
        held = Held(house, kind, service.address, b.endpoint, consume_timeout_min=1)
        service.switch(b.endpoint)
        moved = wait_for("the first sidecar notices that it moved", PATIENCE_S,
                         lambda: "at another sidecar now" in a.log() or "has left" in a.log())
        expect("has left" not in a.log(), "the first sidecar took it for gone")
        held.until(15)
        service.switch(a.endpoint)
        held.until(25)
        took = held.release()
        expect(moved, "not moved")
        return Seen(note=f"moved at once, back at 15 s, acks at 25 s, done in {took:.1f} s")


@row("client moved to another sidecar, then killed", kinds=("java", "node"), seconds=35)
def moved_and_killed(folder, kind, mode):
    """Both sidecars alive; the first would extend what it gave out for hours. Noticed by the second, all comes back."""
    with House(folder, sidecar=switch(mode)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        service = house.forwarder(a.endpoint)
        held = Held(house, kind, service.address, b.endpoint)
        held.until(2)  # what is on its way when a connection breaks goes back at once
        service.switch(b.endpoint)
        wait_for("the first sidecar notices that it moved", PATIENCE_S, lambda: "at another sidecar now" in a.log())
        since = held.client.kill()
        noticed = wait_for("the second sidecar notices", PATIENCE_S, lambda: "has left" in b.log() and time.time() - since)
        seen = held.all_back(since, 3 * PATIENCE_S)
        expect(seen.back[1] <= noticed + 2 + late_s(), f"noticed after {noticed:.1f} s, back after {seen.back} s")
        seen.note = f"noticed after {noticed:.1f} s, all back {seen.back[1] - noticed:.1f} s later"
        return seen


@row("broker killed and restarted", kinds=("python", "java"), seconds=50)
def broker_restarted(folder, kind, mode):
    """Down for 2 s in the middle; the holder works on for longer than the short lease, then acknowledges."""
    with House(folder, sidecar=switch(mode, 20, 10)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint, consume_timeout_min=1)
        held.until(5)
        house.broker.kill()
        time.sleep(2)
        house.broker.start()
        expect(held.open() == (held.count, held.count), f"after the restart (open, held) = {held.open()}")
        held.until(30)
        renewed = a.metrics().get("waybill_sidecar_receipts_renewed_total", 0)
        expect((renewed >= held.count) == (mode == ON), f"{renewed:.0f} renewals")
        took = held.release()
        return Seen(note=f"down for 2 s at 5 s, {renewed:.0f} renewals, acks at 30 s, done in {took:.1f} s")


@row("broker, sidecar and client killed, broker restarted", seconds=30)
def everything_killed(folder, kind, mode):
    """A restart grants everyone a full clientGoneAfter, here 5 s, and then what is held comes back."""
    with House(folder, broker={"clientGoneAfter": 5000}, sidecar=switch(mode)) as house:
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint)
        held.client.kill()
        a.kill()
        since = house.broker.kill()
        time.sleep(1)
        house.broker.start()
        up = time.time() - since
        seen = held.all_back(since, 60)
        # The start is over before it is seen to be.
        expect(seen.back[0] >= 1 + 5 - 0.5, f"the first came after {seen.back[0]:.1f} s")
        expect(seen.back[1] <= up + 5 + 1 + late_s(), f"the last came after {seen.back[1]:.1f} s, the broker was up after {up:.1f} s")
        seen.note = f"clientGoneAfter 5 s, broker up after {up:.1f} s"
        return seen


def network_cut(folder, kind, mode, sever, mend):
    """Leases of 40 s (on) whose renewal, after 20 s, falls into the cut."""
    forwarded = address()
    with House(folder, sidecar=switch(mode, 40, 20) | BRISK, broker_behind=forwarded) as house:
        network = house.forwarder(house.broker_address, forwarded)
        a, b = house.sidecar("a"), house.sidecar("b")
        held = Held(house, kind, a.endpoint, b.endpoint, consume_timeout_min=1)
        held.until(13)
        before = a.metrics().get("waybill_sidecar_receipts_renewed_total", 0)
        expect(before == 0, f"{before:.0f} renewals before the cut")
        sever(network)
        held.until(23)
        mend(network)
        held.until(45)
        samples = a.metrics()
        renewed = samples.get("waybill_sidecar_receipts_renewed_total", 0)
        expect((renewed >= held.count) == (mode == ON), f"{renewed:.0f} renewals")
        failed = sum(v for k, v in samples.items() if k.startswith("waybill_sidecar_receipts_failed"))
        took = held.release()
        return Seen(note=f"cut from 13 s to 23 s, {failed:.0f} renewals failed and {renewed:.0f} done, acks at 45 s, done in {took:.1f} s")


@row("network to the broker cut for 10 s: silence", seconds=65)
def network_silent(folder, kind, mode):
    """Bytes stop, connections stay."""
    return network_cut(folder, kind, mode, lambda n: n.silence(), lambda n: n.heal())


@row("network to the broker cut for 10 s: connections break", seconds=65)
def network_broken(folder, kind, mode):
    """Connections break and cannot be made."""
    return network_cut(folder, kind, mode, lambda n: n.refuse(), lambda n: n.listen())
