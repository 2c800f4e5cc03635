"""Broker, sidecars, forwarders and published clients of one check: processes of its own in a folder of its own."""
import contextlib
import itertools
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SUITE = HERE.parent
sys.path[:0] = [str(SUITE), str(SUITE / "raw"), str(SUITE.parent / "scripts")]
import clients  # noqa: E402
import remoting  # noqa: E402
from servers import Server, ServerError  # noqa: E402,F401

from forwarder import Forwarder  # noqa: E402

# How long a program may take over what takes it a moment: the machine may be busy.
PATIENCE_S = 30
# The same for the start of a client: an interpreter and its libraries, a dozen of them at once.
START_S = 90
STARTS = ("producer", "consumer", "push")
# No check takes longer, seconds.
LIMIT_S = 150
# How sidecars wait for brokers where a check does not say so: a machine that stands still for some seconds is no failure, and what is sent
# once more is there twice.
PATIENT = {"backendRequestTimeoutMillis": 20_000}
# How they wait by default: where a broker stands still on purpose.
BRISK = {"backendRequestTimeoutMillis": 2_000}
QUEUES = 4
_ports, _ports_lock = set(), threading.Lock()


_houses = set()
_ended = threading.Event()


def end_all():
    """Ends the processes of all checks; no more begin."""
    _ended.set()
    threading.Thread(target=_keep_ending, daemon=True).start()


def _keep_ending():
    while True:  # one may be about to begin
        for house in list(_houses):
            house.end()
        time.sleep(0.5)


class Failed(Exception):
    """What was to be shown is not so."""


def go_on():
    """Raises when it is time to end."""
    if _ended.is_set():
        raise Failed("told to end")


def expect(condition, message):
    if not condition:
        raise Failed(message() if callable(message) else message)


def address():
    """A free port on loopback that no other check here is given, below those that the system gives to outgoing connections:
    a program that is started again must find it free."""
    with _ports_lock:
        while True:
            port = random.randrange(11000, 32000)
            with socket.socket() as s, contextlib.suppress(OSError):
                if port in _ports:
                    continue
                s.bind(("127.0.0.1", port))
                _ports.add(port)
                return f"127.0.0.1:{port}"


def wait_for(what, seconds, look, every=0.05):
    """What `look` gives, when it gives something; Failed after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := look()):
        go_on()
        expect(time.monotonic() < end, lambda: f"not within {seconds:.0f} s: {what() if callable(what) else what}")
        time.sleep(every)
    return found


class Program:
    """A broker or a sidecar, which may be ended and started again with the same ports and configuration."""

    def __init__(self, name, folder, arguments, admin):
        self.name, self.folder, self.arguments, self.admin = name, folder, arguments, admin
        self.starts, self.server = itertools.count(1), None

    def start(self):
        folder = self.folder / f"start-{next(self.starts)}"
        folder.mkdir(parents=True)
        go_on()
        self.server = Server(self.name, self.arguments, folder)
        self.server.wait_ready(self.admin)
        go_on()

    @property
    def running(self):
        return self.server is not None and self.server.process.poll() is None

    def kill(self):
        """SIGKILL; the time of it, Unix seconds."""
        self.server.process.kill()
        at = time.time()
        self.server.process.wait(PATIENCE_S)
        return at

    def stop(self):
        """SIGTERM, and it must end by itself."""
        self.server.stop()

    def metrics(self):
        """The samples of its metrics page: name with labels → number."""
        page = urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10).read().decode()
        return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", page, re.MULTILINE)}

    def log(self):
        return self.server.log.read_text(errors="replace")


class Client(clients.Agent):
    """A published client in a process of its own."""

    def call(self, op, seconds=None, **arguments):
        return self.start(op, **arguments)(seconds or (START_S if op in STARTS else PATIENCE_S))

    def kill(self):
        """SIGKILL; the time of it, Unix seconds."""
        self.process.kill()
        at = time.time()
        self.process.wait(PATIENCE_S)
        return at

    def push(self, name, group, topic, hold=False):
        return self.call("push", name=name, group=group, topic=topic, filter="*", fail_attempts=0, hold=hold)

    def receive(self, name, **arguments):
        """Messages: none when a long poll ended empty, be it in the client's own time-out, or while the server has no settings of it yet."""
        try:
            return self.call("receive", name=name, **arguments)["messages"]
        except clients.OperationError as e:
            expect(e.code in (None, 40015), f"receive: {e}")
            return []

    def events(self, name):
        return self.call("seen", name=name)["events"]


class Processes:
    """Sidecars, forwarders and clients of one check. Leaving it ends them, whatever happened."""

    def __init__(self, folder, sidecar=()):
        """`sidecar`: configuration of its sidecars."""
        self.folder, self.stack, self.names = folder, contextlib.ExitStack(), itertools.count(1)
        self.programs, self.clients, self.others = [], [], []
        self.sidecar_settings = dict(sidecar)
        self.announced, self.admin = None, None  # the address that sidecars ask for routes, and who makes topics and groups
        folder.mkdir(parents=True)

    def _program(self, name, title, arguments, admin):
        program = Program(name, self.folder / title, arguments, admin)
        self.programs.append(program)
        self.stack.callback(self._end, program)
        return program

    @staticmethod
    def _end(program):
        if program.running:
            program.kill()
        if program.server and program.server.process.stdout:
            program.server.process.stdout.close()

    def sidecar(self, title, **settings):
        """A sidecar that is ready; its gRPC address is `.endpoint`."""
        endpoint, admin = address(), address()
        everything = {"namesrvAddr": f'"{self.announced}"', "useEndpointPortFromRequest": "true"} | PATIENT | self.sidecar_settings | settings
        file = self.folder / f"{title}.yaml"
        file.write_text("".join(f"{k}: {v}\n" for k, v in everything.items()))
        program = self._program("waybill-sidecar", title, ["--config", file, "--listen", endpoint, "--admin-listen", admin], admin)
        program.endpoint = endpoint
        program.start()
        return program

    def handed_out(self):
        """Messages that clients have got from the sidecars that run, as these say."""
        sidecars = [program for program in self.programs if program.name == "waybill-sidecar" and program.running]
        return sum(sidecar.metrics()["waybill_sidecar_messages_out_total"] for sidecar in sidecars)

    def forwarder(self, target, at=None):
        forwarder = Forwarder(at or address(), target)
        self.stack.callback(forwarder.close)
        return forwarder

    def client(self, kind, endpoint):
        go_on()
        client = Client(clients.CLIENTS[kind], endpoint, self.folder / f"{kind}-{next(self.names)}")
        self.clients.append(client)
        self.stack.callback(self._end_client, client)
        return client

    @staticmethod
    def _end_client(client):
        client.process.kill()
        client.process.wait(PATIENCE_S)
        with contextlib.suppress(OSError):
            client.process.stdin.close()
        client.process.stdout.close()

    def topic_and_group(self, name, **group):
        topic, consumers = f"{name}-{next(self.names)}", f"g-{name}-{next(self.names)}"
        self.admin.create_topic(topic, queues=QUEUES)
        self.admin.create_group(consumers, **group)
        return topic, consumers

    def end(self):
        """Ends its processes at once; what waits for them fails."""
        for process in self.processes():
            process.kill()

    def processes(self):
        servers = [program.server.process for program in list(self.programs) if program.server]
        return servers + [client.process for client in list(self.clients)] + list(self.others)

    def process(self, command):
        """Another process, spoken to over its standard input and output; it is killed after LIMIT_S."""
        go_on()
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        self.others.append(process)
        self.stack.callback(lambda: (timer.cancel(), process.kill(), process.wait(), process.stdin.close(), process.stdout.close()))
        return process

    def __enter__(self):
        _houses.add(self)
        if _ended.is_set():
            self.__exit__()
            raise Failed("told to end")
        return self

    def __exit__(self, *_):
        _houses.discard(self)
        self.stack.close()


class House(Processes):
    """The same with a broker of Waybill's."""

    def __init__(self, folder, broker=(), sidecar=(), broker_behind=None):
        """`broker` and `sidecar`: their configuration. `broker_behind` is set to announce another address than the broker's."""
        super().__init__(folder, sidecar)
        self.broker_address, self.broker_admin = address(), address()
        self.announced = broker_behind or self.broker_address
        settings = {"announcedPort": self.announced.rpartition(":")[2]} | dict(broker)
        (folder / "broker.yaml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
        self.broker = self._program("waybill-broker", "broker", [
            "--config", folder / "broker.yaml", "--store", folder / "data", "--listen", self.broker_address,
            "--admin-listen", self.broker_admin, "--host", "127.0.0.1"], self.broker_admin)
        try:
            self.broker.start()
        except BaseException:
            self.stack.close()
            raise
        # Topics and groups are made at the broker itself, whatever address it announces.
        self.admin = remoting.Admin("")
        self.admin.brokers.append(self.broker_address)

    def open_at_broker(self, topic, group):
        """What the broker says of the group on the topic: messages not done, and of these those that somebody holds; None before the
        group first asked for any."""
        samples = self.broker.metrics()
        label = f'{{topic="{topic}",consumer_group="{group}"}}'
        return tuple(samples.get(f"rocketmq_consumer_{kind}_messages{label}") for kind in ("lag", "inflight"))
