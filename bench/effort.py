"""How long and how often is measured, and how progress is told."""

import dataclasses
import time


@dataclasses.dataclass
class Effort:
    """Seconds of one measurement, and numbers of them."""

    rounds: int = 5
    send_s: int = 8
    receive_s: int = 12
    e2e_s: int = 15
    idle_s: int = 60
    lease_s: int = 2
    latency_s: int = 10
    settle_s: int = 5
    starts: int = 7
    store_rounds: int = 20
    delayed: int = 1_000_000
    expired: int = 100_000
    fifo_each: int = 200
    aged: int = 10_000_000


QUICK = Effort(rounds=1, send_s=3, receive_s=4, e2e_s=5, idle_s=6, lease_s=1, latency_s=3, settle_s=2, starts=2, store_rounds=1,
               delayed=20_000, expired=5_000, fifo_each=5, aged=200_000)


def say(text):
    """Progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
