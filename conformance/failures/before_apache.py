"""The row of the table that is different before Apache's broker, which does not know which clients are alive.

That the sidecar's map keeps acks working there, where the handle changes at each renewal, is shown by ../interop/leases.py.
"""
import concurrent.futures
import sys
import time

from house import PATIENCE_S, SUITE, Processes, expect, remoting, wait_for

sys.path.insert(0, str(SUITE / "apache"))
import apache  # noqa: E402
from reported import SIMPLE, client_of, crowd_of, send_all, take_all  # noqa: E402
from rows import BOTH, OFF, ON, Seen, row, switch  # noqa: E402

COUNT = 20
LEASE_S = {ON: 12, OFF: 60}
# How long after the end of a lease Apache's broker may take to deliver again, seconds.
REVIVE_S = 15


@row("both killed, Apache's broker", kinds=("raw",), seconds=130, modes=(BOTH,))
def both_killed(folder, kind, mode):
    """20 clients and their sidecar die, once with renewal on and once off: back after the short lease or the consume timeout."""
    with Processes(folder) as house:
        a = apache.Apache(dir=folder / "apache", auto_create_group=False, broker_set=apache.PATIENT, detached=False)
        house.stack.callback(a.stop)
        a.up(proxy=False)
        house.announced, house.admin = a.namesrv, remoting.Admin(f"{a.namesrv},{a.broker}")
        survivor = house.sidecar("survivor")
        held = {}
        for switched in (OFF, ON):
            sidecar = house.sidecar(f"renewal-{switched}", **switch(switched, LEASE_S[ON], 1))
            topic, group = house.topic_and_group(f"apache-{switched}", consume_timeout_min=1)
            wait_for("the topic has a route", PATIENCE_S, lambda topic=topic: house.admin.topic_routed(topic))
            other = client_of(house, survivor.endpoint, group, topic, SIMPLE)
            send_all(house, survivor.endpoint, topic, COUNT, at_once=1)
            began = time.time()
            held[switched] = (sidecar, crowd_of(house, sidecar.endpoint, topic, group, COUNT), other, group, topic, began, time.time())
        for sidecar, crowd, *_ in held.values():
            crowd.kill()
            sidecar.kill()
        since = time.time()

        def back(switched):
            _, _, other, group, topic, began, ended = held[switched]
            at, bodies = take_all(other, group, topic, COUNT, since, LEASE_S[switched] + REVIVE_S + PATIENCE_S)
            earliest, latest = began + LEASE_S[switched] - since, ended + LEASE_S[switched] + REVIVE_S - since
            expect(earliest <= min(at) and max(at) <= latest,
                   f"{switched}: back after {min(at):.1f} to {max(at):.1f} s, not {earliest:.1f} to {latest:.1f} s")
            return at, len(bodies) - COUNT
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = dict(zip((ON, OFF), pool.map(back, (ON, OFF))))
        note = ", ".join(f"{switched}: after {min(at):.1f}–{max(at):.1f} s (lease {LEASE_S[switched]} s)" for switched, (at, _) in results.items())
        everything = [t for at, _ in results.values() for t in at]
        return Seen((min(everything), max(everything)), sum(again for _, again in results.values()), note)
