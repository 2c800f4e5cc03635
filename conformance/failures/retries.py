"""Order and attempts when parts die: message groups stay in order, and what nobody gets done ends in the dead-letter topic."""
import base64
import collections
import threading
import time

from house import PATIENCE_S, House, clients, expect, wait_for
from rows import BOTH, Seen, row, switch

GROUPS, MESSAGES = 3, 40
HELD = 5


class Ordered:
    """A producer of several message groups, and a consumer in the order of each: a push consumer, or a simple one that takes a few at a time."""

    def __init__(self, house, kind, endpoint):
        self.house, self.kind, self.client = house, kind, house.client(kind, endpoint)
        self.topic, self.group, self.ended = f"fifo-{kind}", f"g-fifo-{kind}", threading.Event()
        house.admin.create_topic(self.topic, "FIFO", 4)
        house.admin.create_group(self.group, orderly=True)
        self.received = []
        self.client.call("producer", name="p", topics=[self.topic], tls=False)
        if "push" in self.client.features:
            self.client.push("c", self.group, self.topic)
        else:
            self.client.call("consumer", name="c", group=self.group, topic=self.topic, filter="*", tls=False, await_s=self.client.client.await_s)
            threading.Thread(target=self.receive, daemon=True).start()
        self.sender = threading.Thread(target=self.send, daemon=True)
        self.sender.start()

    def send(self):
        """One after the other within a group, each until it is answered: what is sent twice comes twice, in its place."""
        for n in range(MESSAGES):
            for group in range(GROUPS):
                body = base64.b64encode(b"%d/%d" % (group, n)).decode()
                while not self.ended.is_set():
                    try:
                        self.client.call("send", 60, name="p", topic=self.topic, body=body, message_group=f"m{group}")
                        break
                    except (clients.OperationError, TimeoutError, ValueError):
                        time.sleep(0.2)
            self.ended.wait(0.2)

    def receive(self):
        while not self.ended.is_set():
            try:
                for m in self.client.call("receive", 60, name="c", max=4, invisible_s=10)["messages"]:
                    self.received.append(m["body"])
                    self.client.call("ack", 60, name="c", ref=m["ref"])
            except (clients.OperationError, TimeoutError, ValueError):
                time.sleep(0.2)

    def bodies(self):
        if "push" in self.client.features:
            return [e["body"] for e in self.client.events("c")]
        return list(self.received)

    def judge(self):
        """Within each group nothing is skipped: a message comes after its predecessor, or again. How many came twice."""
        came, twice = collections.defaultdict(list), 0
        for body in self.bodies():
            group, n = map(int, base64.b64decode(body).split(b"/"))
            came[group].append(n)
        for group, order in came.items():
            latest = -1
            for n in order:
                expect(n <= latest + 1, f"{self.kind}: of group {group} came {n} after {latest}: {order}")
                twice += n <= latest
                latest = max(latest, n)
        return {group: max(order) + 1 for group, order in came.items()}, twice

    def all_came(self):
        counts, _ = self.judge()
        return counts == dict.fromkeys(range(GROUPS), MESSAGES)


@row("FIFO: broker and sidecar killed and restarted", kinds=("all",), seconds=90, modes=(BOTH,))
def fifo_restarts(folder, kind, mode):
    """Every published client with three message groups, while the broker and the sidecar are killed in turn, twice each."""
    with House(folder, sidecar=switch("on", 10, 5)) as house:
        sidecar = house.sidecar("a")
        ordered = [Ordered(house, kind, sidecar.endpoint) for kind in clients.CLIENTS]
        for o in ordered:
            wait_for(f"{o.kind} receives", PATIENCE_S, lambda o=o: o.bodies())
        for program in (house.broker, sidecar) * 2:
            program.kill()
            time.sleep(0.5)
            program.start()
            time.sleep(3)
        duplicates = 0
        for o in ordered:
            wait_for(lambda o=o: f"{o.kind} receives all: {o.judge()[0]} of {MESSAGES}", 3 * PATIENCE_S, o.all_came)
            duplicates += o.judge()[1]
        for o in ordered:
            o.ended.set()
        return Seen(duplicates=duplicates, note=f"{len(ordered)} clients × {GROUPS} message groups × {MESSAGES} messages in order")


@row("attempts of dead clients end in the dead-letter topic", kinds=("python", "java", "node"), seconds=60, modes=(BOTH,))
def dead_clients(folder, kind, mode):
    """Two deliveries: the first holder dies alone, the second together with its sidecar. One copy of each message is a dead letter."""
    with House(folder, broker={"clientGoneAfter": 15_000}, sidecar=switch("on")) as house:
        topic, group = house.topic_and_group("d", retry_max_times=1)
        a, b = house.sidecar("a"), house.sidecar("b")
        watcher = house.client("python", b.endpoint)
        watcher.call("producer", name="p", topics=[topic])
        sent = {watcher.call("send", name="p", topic=topic, body=base64.b64encode(b"%d" % n).decode())["id"] for n in range(HELD)}
        for attempt, with_sidecar in ((1, False), (2, True)):
            holder = house.client(kind, a.endpoint)
            holder.push("c", group, topic, hold=True)
            wait_for(f"delivery {attempt} is held", 2 * PATIENCE_S, lambda: house.open_at_broker(topic, group) == (HELD, HELD))
            # What is still on its way to a client when that dies was no delivery, and does not count as one.
            wait_for(lambda: f"delivery {attempt} is with the client: {house.handed_out()} handed out", PATIENCE_S,
                     lambda: house.handed_out() >= attempt * HELD)
            wait_for("the listener has one", PATIENCE_S, lambda: holder.events("c"))
            expect({e["attempt"] for e in holder.events("c")} <= {attempt}, lambda: f"attempts {[e['attempt'] for e in holder.events('c')]}")
            if with_sidecar:
                a.kill()
            since = holder.kill()
            wait_for(f"delivery {attempt} is given back", 2 * PATIENCE_S, lambda: house.open_at_broker(topic, group)[1] == 0)
        back = time.time() - since
        watcher.push("o", group, topic)
        dead = f"%DLQ%{group}"
        wait_for("there is a dead-letter topic", PATIENCE_S, lambda: house.admin.topic_routed(dead))
        house.admin.create_group("undertaker")
        watcher.push("u", "undertaker", dead)
        wait_for("all are dead letters", PATIENCE_S, lambda: len(watcher.events("u")) >= HELD)
        time.sleep(2)
        letters = [e["id"] for e in watcher.events("u")]
        expect(sorted(letters) == sorted(sent), f"{len(letters)} dead letters, {len(set(letters) & sent)} of {HELD}")
        expect(not watcher.events("o"), lambda: f"{len(watcher.events('o'))} came a third time")
        return Seen(note=f"{HELD} of {HELD} once; the second holder and its sidecar were missed after {back:.0f} s")
