"""The servers that are measured. Each is a few processes on free loopback ports, stopped by their ids."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import paths
import usage

os.environ["WAYBILL_BIN_DIR"] = str(paths.RELEASE)
import remoting  # noqa: E402
import servers  # noqa: E402
from apache import Apache  # noqa: E402

QUEUES = 8
ROUTE_LIMIT_S = 60


class Peer:
    """A running server: what to call it, where clients connect, its processes by name, who takes topics, where its counters are."""

    def __init__(self, name, endpoint, pids, admin, metrics=None):
        self.name, self.endpoint, self.pids, self.admin, self.metrics = name, endpoint, pids, remoting.Admin(admin), metrics

    def create(self, topic, group=None, message_type="NORMAL", **group_settings):
        """Creates a topic, and a group, and waits until the name server knows."""
        self.admin.create_topic(topic, message_type, queues=QUEUES)
        if group:
            self.admin.create_group(group, **group_settings)
        self.await_route(topic)

    def await_route(self, topic):
        """Waits until the name server knows the topic. One that stood still for two minutes has forgotten its brokers until they register again."""
        end = time.monotonic() + ROUTE_LIMIT_S
        while not self.admin.topic_routed(topic):
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} has no route for {topic} after {ROUTE_LIMIT_S} s")
            time.sleep(0.1)


class Server(servers.Server):
    """A server in a session of its own."""

    def __init__(self, name, arguments, folder):
        self.name, self.log = name, pathlib.Path(folder) / f"{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([servers.BIN / name, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        usage.go_first(self.process.pid)


@dataclasses.dataclass
class Pair:
    """A broker and a sidecar that were started and may not be ready yet."""

    broker: Server
    sidecar: Server
    remoting_at: str
    endpoint: str
    admins: tuple

    def ready(self):
        """Waits until both can serve."""
        for program, admin in zip((self.broker, self.sidecar), self.admins):
            program.wait_ready(admin)
        pids = {"broker": self.broker.process.pid, "sidecar": self.sidecar.process.pid}
        return Peer("Waybill", self.endpoint, pids, self.remoting_at)


@contextlib.contextmanager
def start_pair(folder, flush, auto_create=False, settings=None):
    """Starts broker and sidecar, two processes that speak over TCP, at once, and waits for neither. `settings`: the sidecar's."""
    remoting_at, broker_admin, endpoint, sidecar_admin = (f"127.0.0.1:{port}" for port in servers.free_ports(4))
    config = pathlib.Path(folder) / "sidecar.yaml"
    config.write_text(json.dumps(settings or {}))
    broker = start_broker(folder, flush, remoting_at, broker_admin, auto_create)
    with servers.stopping(broker):
        sidecar = Server("waybill-sidecar", ["--config", config, "--namesrv-addr", remoting_at, "--listen", endpoint,
                                                     "--admin-listen", sidecar_admin], folder)
        with servers.stopping(sidecar):
            yield Pair(broker, sidecar, remoting_at, endpoint, (broker_admin, sidecar_admin))


def start_broker(folder, flush, at, admin, auto_create=False):
    """Starts a broker and does not wait for it."""
    config = pathlib.Path(folder) / "broker.json"
    # As many leases as a stage likes, which is Apache's default.
    config.write_text(json.dumps({"autoCreateTopicEnable": auto_create, "autoCreateSubscriptionGroup": auto_create,
                                  "popInflightMessageThreshold": 0}))
    return Server("waybill-broker", ["--config", config, "--store", f"{folder}/data", "--listen", at, "--admin-listen", admin,
                                     "--host", "127.0.0.1", "--flush", flush], folder)


@contextlib.contextmanager
def broker(name, flush, within=None):
    """A broker alone, its data in a new folder within a given one."""
    at, admin = (f"127.0.0.1:{port}" for port in servers.free_ports(2))
    with tempfile.TemporaryDirectory(prefix="waybill-bench-", dir=within) as folder:
        server = start_broker(folder, flush, at, admin)
        with servers.stopping(server):
            server.wait_ready(admin)
            yield Peer(name, at, {"broker": server.process.pid}, at, admin)


@contextlib.contextmanager
def waybill(flush):
    """Broker and sidecar, two processes."""
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder, start_pair(folder, flush) as pair:
        yield pair.ready()


@contextlib.contextmanager
def standalone(flush):
    """Broker and sidecar in one process."""
    with servers.standalone("--flush", flush) as state:
        yield Peer("Waybill standalone", state["endpoint"], {"standalone": state["pid"]}, state["broker"])


@contextlib.contextmanager
def apache(flush, pop):
    """Apache RocketMQ 5.5.0: name server, broker, cluster-mode proxy."""
    with Apache(flush=flush, pop=pop) as a:
        for pid in a.pids.values():
            usage.go_first(pid)
        yield Peer("Apache", a.endpoint, dict(a.pids), a.namesrv)


@contextlib.contextmanager
def apache_broker(pop="rocksdb"):
    """Apache RocketMQ 5.5.0's broker as it comes, its leases in RocksDB or as `pop` says; and a name server, whose work is not looked at."""
    running = Apache(pop=pop)
    try:
        running.up(proxy=False)
        usage.go_first(running.pids["broker"])
        yield Peer("Apache", running.namesrv, {"broker": running.pids["broker"]}, running.namesrv)
    finally:
        running.down()


def build():
    """Builds what is measured, once."""
    programs = [word for name in ("waybill-broker", "waybill-sidecar", "waybill") for word in ("-p", name)]
    cargo("--release", *programs, "--bins")
    cargo("--release", "-p", "waybill-broker", "--example", "store_bench")
    cargo("--release", "-p", "waybill-sidecar", "--example", "held_bench", "--example", "receipts_bench")


def build_instructions(profile):
    """Builds what callgrind counts."""
    cargo(*["--release"] * (profile == "release"), "-p", "waybill-broker", "--example", "instructions")


def cargo(*arguments):
    """Builds something."""
    subprocess.run(["cargo", "build", "--locked", *arguments], cwd=paths.ROOT, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
