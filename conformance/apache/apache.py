#!/usr/bin/env python3
"""Starts and stops a real Apache RocketMQ 5.5.0 (name server, broker, cluster-mode proxy) on loopback.

From the shell:

    apache.py up     [--dir D] [--pop fs|rocksdb] [--flush sync|async] [--no-auto-create] …   prints the state as JSON
    apache.py status [--dir D]
    apache.py down   [--dir D]        stops the processes by their ids and removes the folder

From Python:

    from apache import Apache
    with Apache(pop="rocksdb", flush="sync") as a:
        a.endpoint      # "127.0.0.1:<port>", gRPC of the proxy
        a.namesrv       # "127.0.0.1:<port>", name server
        a.broker        # "127.0.0.1:<port>", broker (remoting)
        a.proxy_remoting# "127.0.0.1:<port>", remoting port of the proxy
        a.pids          # {"namesrv": …, "broker": …, "proxy": …}

Several instances can live side by side, each in a folder of its own (--dir). Ports are free ones unless given.
Everything listens on, and announces, 127.0.0.1. The store lives in the folder, or in memory where the disk is fuller than
Apache's broker bears, and goes when the broker stops.
The packages come from Maven by name (pom.xml) into .cache/lib beside this file, once.
Python standard library only; needs Java 11 or later, and Maven for the first start.
"""
import argparse
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import environment  # noqa: E402
import remoting  # noqa: E402

CACHE = HERE / ".cache"
DEFAULT_DIR = pathlib.Path(tempfile.gettempdir()) / "waybill-apache"
CLUSTER, BROKER_NAME = "DefaultCluster", "broker-a"
MAIN = {"namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
        "broker": "org.apache.rocketmq.broker.BrokerStartup",
        "proxy": "org.apache.rocketmq.proxy.ProxyStartup"}
UP_TIMEOUT_S = 120
# For `broker_set`: Apache's broker turns away what waited for 200 ms (a send) to 5 s (a topic to be made). On a busy machine much does.
PATIENT = {f"waitTimeMillsIn{queue}Queue": 30_000 for queue in ("Send", "Pull", "LitePull", "Heartbeat", "Ack", "Transaction", "AdminBroker")}
# Apache's broker refuses messages when its disk is fuller than this, whatever it is configured to bear.
DISK_FULL = 0.9
# What is left for a run's own messages and for what others write meanwhile.
DISK_MARGIN = 0.1
MEMORY = pathlib.Path("/dev/shm")
MEMORY_NEEDED = 2 * 1024 ** 3
DOWN_TIMEOUT_S = 30
# One appender each, warnings only: the default configuration writes every request to files below the home folder.
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def class_path():
    """Folder with the packages; fetched by Maven at the first call, one caller at a time."""
    lib = CACHE / "lib"
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = CACHE / "lib.ok"
        pom = (HERE / "pom.xml").read_text()
        if not stamp.exists() or stamp.read_text() != pom:
            shutil.rmtree(lib, ignore_errors=True)
            environment.install(["mvn", "-B", "-q", "-Dstyle.color=never", "-f", HERE / "pom.xml", "dependency:copy-dependencies",
                                 "-DincludeScope=runtime", f"-DoutputDirectory={lib}"], timeout_s=900)
            stamp.write_text(pom)
    return f"{lib}/*"


def disk_used(path):
    """Which part of the space that may be used is, 0 to 1."""
    usage = shutil.disk_usage(path)
    return usage.used / max(usage.used + usage.free, 1)


def make_store(store, flush):
    """Makes the folder of a store where a broker that flushes in this way may write.

    Raises RuntimeError when the disk is too full: for a broker that waits for the disk there is no other place.
    """
    used = disk_used(store.parent)
    if used < DISK_FULL - DISK_MARGIN:
        store.mkdir(exist_ok=True)
    elif flush == "async" and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED:
        store.symlink_to(tempfile.mkdtemp(prefix="waybill-apache-", dir=MEMORY))
        print(f"{used:.0%} of the disk is used and Apache's broker refuses messages at {DISK_FULL:.0%}: its store is in memory",
              file=sys.stderr, flush=True)
    elif used > DISK_FULL:
        raise RuntimeError(f"{used:.0%} of the disk at {store.parent} is used, and Apache's broker refuses messages at {DISK_FULL:.0%}: make room")
    else:
        store.mkdir(exist_ok=True)


def free_ports():
    """Ports free right now: name server, proxy gRPC, proxy remoting, and a broker base p with p-2, p, p+1 free.

    Drawn below the range from which the system gives ports to outgoing connections, so that no client of a
    running test takes one between the look and the start.
    """
    import random

    def free(port):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return True
            except OSError:
                return False

    while True:
        base = random.randrange(20000, 32000, 10)
        if all(free(base + i) for i in range(8)):
            return {"namesrv": base, "proxy": base + 1, "proxy_remoting": base + 2, "broker": base + 5, "ha": base + 6}


def listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def start_time(pid):
    """Start time of a process in clock ticks (guards against a reused id), or None."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def alive(pid, started):
    now = start_time(pid)
    if now is None or now != started:
        return False
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Apache:
    """One instance. Parameters (all optional):

    dir             folder for store, logs and state; a new temporary one when None
    pop             "fs" (file store, default) or "rocksdb"
    flush           "async" (default, as upstream) or "sync"
    auto_create_topic, auto_create_group   broker flags, both True (upstream's defaults)
    batch_ack       proxy's enableBatchAck, False
    recall          broker's recallMessageEnable, False
    ports           dict with any of namesrv, broker, ha, proxy, proxy_remoting (broker also takes broker-2)
    heaps           dict with any of namesrv, broker, proxy: -Xmx in MiB (64, 512, 256)
    broker_set, proxy_set   dicts with any further settings by upstream's names
    external        "host:port" of a foreign name server (or a broker that answers like one): starts only the proxy
    cluster         name of the cluster, "DefaultCluster"
    serialize       None, or "ROCKETMQ" to make all processes write binary headers
    java_options    further JVM options of all processes
    detached        whether the processes are in sessions of their own, so that they outlive the caller and its terminal; True
    """

    def __init__(self, dir=None, pop="fs", flush="async", auto_create_topic=True, auto_create_group=True,
                 batch_ack=False, recall=False, ports=None, heaps=None, broker_set=None, proxy_set=None,
                 serialize=None, external=None, cluster=CLUSTER, java_options=(), detached=True):
        self.temporary = dir is None
        self.dir = pathlib.Path(dir or tempfile.mkdtemp(prefix="waybill-apache-")).resolve()
        self.ports = {**free_ports(), **{k: int(v) for k, v in (ports or {}).items() if v}}
        if ports and ports.get("broker") and not ports.get("ha"):
            self.ports["ha"] = int(ports["broker"]) + 1
        self.heaps = {"namesrv": 64, "broker": 512, "proxy": 256, **{k: v for k, v in (heaps or {}).items() if v}}
        self.options = {"pop": pop, "flush": flush, "auto_create_topic": auto_create_topic,
                        "auto_create_group": auto_create_group, "batch_ack": batch_ack, "recall": recall,
                        "serialize": serialize, "external": external, "cluster": cluster, "broker_set": broker_set or {}, "proxy_set": proxy_set or {}}
        self.java_options, self.detached = list(java_options), detached
        self.pids, self.started = {}, {}

    endpoint = property(lambda self: f"127.0.0.1:{self.ports['proxy']}")
    namesrv = property(lambda self: self.options["external"] or f"127.0.0.1:{self.ports['namesrv']}")
    broker = property(lambda self: None if self.options["external"] else f"127.0.0.1:{self.ports['broker']}")
    proxy_remoting = property(lambda self: f"127.0.0.1:{self.ports['proxy_remoting']}")

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def state(self):
        return {"dir": str(self.dir), "endpoint": self.endpoint, "namesrv": self.namesrv, "broker": self.broker,
                "proxy_remoting": self.proxy_remoting, "ports": self.ports, "pids": self.pids,
                "started": self.started, "heaps": self.heaps, "options": self.options}

    @classmethod
    def load(cls, dir):
        """The instance whose state is in the folder, or None."""
        try:
            s = json.loads((pathlib.Path(dir) / "state.json").read_text())
        except (OSError, ValueError):
            return None
        a = cls(dir=dir, ports=s["ports"], heaps=s["heaps"], **s["options"])
        a.pids, a.started = s["pids"], s["started"]
        return a

    def running(self):
        """Names of the processes that are alive."""
        return [n for n, pid in self.pids.items() if alive(pid, self.started[n])]

    def _write_configuration(self):
        o, conf = self.options, self.dir / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("rmq.namesrv", "rmq.broker", "rmq.proxy", "rmq.client", "rmq.tools"):
            (conf / f"{name}.logback.xml").write_text(LOGBACK)
        boolean = {True: "true", False: "false"}
        broker = {
            "brokerClusterName": o["cluster"], "brokerName": BROKER_NAME, "brokerId": 0, "brokerRole": "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1",
            "namesrvAddr": self.namesrv, "listenPort": self.ports["broker"], "haListenPort": self.ports["ha"],
            "storePathRootDir": self.dir / "store", "storePathCommitLog": self.dir / "store/commitlog",
            "flushDiskType": {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}[o["flush"]],
            "autoCreateTopicEnable": boolean[o["auto_create_topic"]],
            "autoCreateSubscriptionGroup": boolean[o["auto_create_group"]],
            "recallMessageEnable": boolean[o["recall"]],
            # Smaller than upstream's 1 GiB: a file is touched whole when it is made. A full disk must not stop a test early.
            "mappedFileSizeCommitLog": 64 * 1024 * 1024, "diskMaxUsedSpaceRatio": 95,
            "enableMixedMessageType": "true",
        }
        if o["pop"] == "rocksdb":
            broker |= {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
        broker |= o["broker_set"]
        (conf / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in broker.items()))
        (conf / "namesrv.conf").write_text(
            f"listenPort={self.ports['namesrv']}\nbindAddress=127.0.0.1\nkvConfigPath={self.dir}/kv.json\n"
            f"configStorePath={self.dir}/namesrv.properties\n")
        proxy = {"rocketMQClusterName": o["cluster"], "proxyMode": "CLUSTER", "namesrvAddr": self.namesrv,
                 "localServeAddr": "127.0.0.1", "grpcServerPort": self.ports["proxy"],
                 "remotingListenPort": self.ports["proxy_remoting"], "enableBatchAck": o["batch_ack"]}
        proxy |= o["proxy_set"]
        (conf / "rmq-proxy.json").write_text(json.dumps(proxy, indent=1))

    def _start(self, name, arguments):
        heap = self.heaps[name]
        command = ["java", f"-Xms{min(heap, 64)}m", f"-Xmx{heap}m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g",
                   "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
                   "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", f"-Duser.home={self.dir}",
                   f"-Drocketmq.home.dir={self.dir}", f"-Djava.io.tmpdir={self.dir}/tmp"]
        if self.options["serialize"]:
            command.append(f"-Drocketmq.serialize.type={self.options['serialize']}")
        command += self.java_options + ["-cp", f"{self.dir}/conf:{class_path()}", MAIN[name], *arguments]
        environment = {k: v for k, v in os.environ.items() if k not in ("NAMESRV_ADDR", "JAVA_TOOL_OPTIONS")}
        environment |= {"ROCKETMQ_HOME": str(self.dir), "RMQ_PROXY_HOME": str(self.dir)}
        with open(self.dir / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment, start_new_session=self.detached)
        self.pids[name], self.started[name] = process.pid, start_time(process.pid)
        self._processes = getattr(self, "_processes", []) + [process]
        (self.dir / "state.json").write_text(json.dumps(self.state(), indent=1))

    def _wait(self, name, ready, deadline):
        while True:
            for process in self._processes:
                process.poll()
            if name not in self.running():
                tail = (self.dir / f"{name}.log").read_bytes()[-3000:].decode(errors="replace")
                raise RuntimeError(f"{name} ended at start:\n{tail}")
            try:
                if ready():
                    return
            except (OSError, remoting.RemotingError, ValueError, KeyError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is not usable after {UP_TIMEOUT_S} s; see {self.dir}/{name}.log")
            time.sleep(0.2)

    def _routed(self, address):
        header = {"topic": self.options["cluster"], "acceptStandardJsonOnly": "true"}
        return bool(remoting.call(address, remoting.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=5).body)

    def up(self, proxy=True):
        """Starts all and returns when the proxy answers a route request for the cluster's topic.

        proxy=False: only name server and broker.
        """
        own = not self.options["external"]
        class_path()
        self.dir.mkdir(parents=True, exist_ok=True)
        (self.dir / "tmp").mkdir(exist_ok=True)
        self._write_configuration()
        deadline = time.monotonic() + UP_TIMEOUT_S
        try:
            if own:
                make_store(self.dir / "store", self.options["flush"])
                self._start("namesrv", ["-c", str(self.dir / "conf/namesrv.conf")])
                self._wait("namesrv", lambda: listening(self.ports["namesrv"]), deadline)
                self._start("broker", ["-c", str(self.dir / "conf/broker.conf")])
                self._wait("broker", lambda: self._routed(self.namesrv) and listening(self.ports["broker"]), deadline)
            if not proxy:
                return self
            self._start("proxy", ["-pc", str(self.dir / "conf/rmq-proxy.json")])
            self._wait("proxy", lambda: listening(self.ports["proxy"]) and self._routed(self.proxy_remoting), deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """Ends the processes (SIGTERM, then SIGKILL), proxy first. The store goes; what they said stays in the folder."""
        for name in ("proxy", "broker", "namesrv"):
            if name not in self.running():
                continue
            pid = self.pids[name]
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + DOWN_TIMEOUT_S
            while name in self.running():
                for process in getattr(self, "_processes", []):
                    process.poll()
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                    deadline = time.monotonic() + DOWN_TIMEOUT_S
                time.sleep(0.1)
        store = self.dir / "store"
        shutil.rmtree(store.resolve(), ignore_errors=True)
        if store.is_symlink():
            store.unlink()

    def down(self):
        """Stops the processes and removes the folder."""
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def settings(pairs):
    return dict(p.split("=", 1) for p in pairs)


def main():
    parser = argparse.ArgumentParser(prog="apache.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", default=str(DEFAULT_DIR), help="folder of the instance (default %(default)s)")
    up = commands.add_parser("up", parents=[folder], help="start, wait until usable, print the state as JSON")
    up.add_argument("--pop", choices=["fs", "rocksdb"], default="fs", help="POP store (default %(default)s)")
    up.add_argument("--flush", choices=["sync", "async"], default="async", help="disk flush (default %(default)s)")
    up.add_argument("--no-auto-create-topic", action="store_true")
    up.add_argument("--no-auto-create-group", action="store_true")
    up.add_argument("--no-auto-create", action="store_true", help="both")
    up.add_argument("--batch-ack", action="store_true", help="enableBatchAck in the proxy")
    up.add_argument("--recall", action="store_true", help="recallMessageEnable in the broker")
    up.add_argument("--external", metavar="HOST:PORT", help="start only the proxy, in front of this name server (or broker that answers like one)")
    up.add_argument("--cluster", default=CLUSTER, help="name of the cluster (default %(default)s)")
    up.add_argument("--serialize", choices=["JSON", "ROCKETMQ"], help="header form the processes write")
    for port, what in (("namesrv", "name server"), ("broker", "broker; also takes this - 2"), ("ha", "broker's replication"),
                       ("proxy", "proxy, gRPC"), ("proxy-remoting", "proxy, remoting")):
        up.add_argument(f"--{port}-port", type=int, metavar="PORT", help=f"{what} (default: a free one)")
    for name in ("namesrv", "broker", "proxy"):
        up.add_argument(f"--{name}-heap", type=int, metavar="MIB", help="-Xmx")
    up.add_argument("--broker-set", action="append", default=[], metavar="NAME=VALUE", help="any setting of the broker")
    up.add_argument("--proxy-set", action="append", default=[], metavar="NAME=VALUE", help="any setting of the proxy")
    commands.add_parser("down", parents=[folder], help="stop and remove the folder")
    commands.add_parser("status", parents=[folder], help="print the state; exit code 1 unless all that were started run")
    a = parser.parse_args()

    instance = Apache.load(a.dir)
    if a.command == "up":
        if instance and instance.running():
            print(f"already running in {a.dir}: {instance.running()}", file=sys.stderr)
            return 1
        ports = {k: getattr(a, f"{k}_port") for k in ("namesrv", "broker", "ha", "proxy", "proxy_remoting")}
        instance = Apache(a.dir, a.pop, a.flush, not (a.no_auto_create_topic or a.no_auto_create),
                          not (a.no_auto_create_group or a.no_auto_create), a.batch_ack, a.recall, ports,
                          {k: getattr(a, f"{k}_heap") for k in MAIN}, settings(a.broker_set), settings(a.proxy_set),
                          a.serialize, a.external, a.cluster)
        begun = time.monotonic()
        instance.up()
        print(json.dumps(instance.state() | {"up_seconds": round(time.monotonic() - begun, 1)}, indent=1))
        return 0
    if not instance:
        print(f"no instance in {a.dir}", file=sys.stderr)
        return 1
    if a.command == "down":
        instance.down()
        return 0
    running = instance.running()
    print(json.dumps(instance.state() | {"running": running}, indent=1))
    return 0 if len(running) == len(instance.pids) else 1


if __name__ == "__main__":
    sys.exit(main())
