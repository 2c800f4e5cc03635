"""The published clients: how each is installed, started and spoken to. See "Agents" in README.md."""
import hashlib
import itertools
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading

import environment

HERE = pathlib.Path(__file__).resolve().parent
LOGS = HERE / ".cache" / "logs"
INSTALL_TIMEOUT_S = 1200
# Names of codes, for the client that only tells the name.
CODES = {"ILLEGAL_TOPIC": 40002, "ILLEGAL_CONSUMER_GROUP": 40003, "ILLEGAL_INVISIBLE_TIME": 40011,
         "INVALID_RECEIPT_HANDLE": 40013, "UNRECOGNIZED_CLIENT_TYPE": 40015, "TOPIC_NOT_FOUND": 40402,
         "CONSUMER_GROUP_NOT_FOUND": 40403, "MESSAGE_BODY_TOO_LARGE": 41301, "TOO_MANY_REQUESTS": 42900,
         "INTERNAL_SERVER_ERROR": 50001}


class OperationError(Exception):
    """The client reported a failure. `code`: the server's code, or None when the client itself refused or broke."""

    def __init__(self, error):
        self.code = error.get("code") or CODES.get(error.get("code_name"))
        self.kind, self.text = error.get("type", ""), error.get("text", "")
        super().__init__(f"{self.code or 'no code'} {self.kind}: {self.text}")


def shell(command, folder, **more):
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL,
                   stdout=sys.stderr, **more)


def stamped(stamp, *inputs):
    """Whether the stamp file holds the digest of the inputs; the digest."""
    digest = hashlib.sha256(b"\0".join(p.read_bytes() for p in inputs)).hexdigest()
    return stamp.exists() and stamp.read_text() == digest, digest


def install_python():
    environment.python()


def install_node():
    folder = HERE / "node"
    stamp = folder / "node_modules" / ".stamp"
    done, digest = stamped(stamp, folder / "package-lock.json")
    if not done:
        shell(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        stamp.write_text(digest)


def install_java():
    folder = HERE / "java"
    stamp = folder / ".cache" / "stamp"
    done, digest = stamped(stamp, folder / "pom.xml", folder / "Agent.java")
    if not done:
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        lib, classes = folder / ".cache/lib", folder / ".cache/classes"
        classes.mkdir(parents=True)
        shell(["mvn", "-B", "-q", "-Dstyle.color=never", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"], folder)
        shell(["javac", "-d", classes, "-cp", f"{lib}/*", "Agent.java"], folder)
        stamp.write_text(digest)


def install_rust():
    environment_ = {k: v for k, v in os.environ.items() if k not in ("RUSTFLAGS", "CARGO_TARGET_DIR")}
    shell(["cargo", "build", "-q", "--locked"], HERE / "rust", env=environment_)


class Client:
    """A published client: its name, what it has, how to install it, the command line of its agent."""

    def __init__(self, name, package, features, install, command):
        self.name, self.package, self.features, self.install, self.command = name, package, features, install, command


# change: has changeInvisibleDuration; push: has a push consumer; tls: can speak TLS to an address;
# tls-default: does so unless told otherwise.
CLIENTS = {c.name: c for c in [
    Client("python", "rocketmq-python-client 5.1.2", {"change", "push", "tls"}, install_python,
           lambda: [environment.VENV / "bin/python", HERE / "python/agent.py"]),
    Client("node", "rocketmq-client-nodejs 1.0.8", {"change", "push"}, install_node, lambda: ["node", HERE / "node/agent.js"]),
    Client("java", "rocketmq-client-java 5.2.0", {"change", "push", "tls", "tls-default"}, install_java,
           lambda: ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={LOGS}",
                    "-cp", f"{HERE}/java/.cache/classes:{HERE}/java/.cache/lib/*", "Agent"]),
    Client("rust", "rocketmq 5.0.0", set(), install_rust, lambda: [HERE / "rust/target/debug/conformance-rust"]),
    # Go: not to be had from the module proxy here. Its place: a folder go/ with an agent that speaks the same lines,
    # an install function beside the others, and an entry in this table.
]}


class Agent:
    """A running agent process."""

    def __init__(self, client, endpoint):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.client, self.waiting, self.numbers = client, {}, itertools.count(1)
        self.lock = threading.Lock()
        with open(LOGS / f"{client.name}.err", "wb") as log:
            self.process = subprocess.Popen([*map(str, client.command()), "--endpoint", endpoint], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, env=os.environ | {"HOME": str(LOGS)})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
                box = self.waiting.pop(answer["n"])
            except (ValueError, KeyError, TypeError):
                continue  # the client's own output
            box.put(answer)
        while self.waiting:
            _, box = self.waiting.popitem()
            box.put({"error": {"type": "Agent", "text": "the agent process ended"}})

    def start(self, op, **arguments):
        """Sends a command; a function that waits for its answer (given a time-out in seconds)."""
        box = queue.Queue()
        with self.lock:
            n = next(self.numbers)
            self.waiting[n] = box
            try:
                self.process.stdin.write(json.dumps({"n": n, "op": op} | arguments).encode() + b"\n")
                self.process.stdin.flush()
            except OSError:
                raise OperationError({"type": "Agent", "text": "the agent process ended"}) from None

        def wait(timeout_s):
            try:
                answer = box.get(timeout=max(timeout_s, 0.01))
            except queue.Empty:
                raise TimeoutError(f"no answer to {op} within {timeout_s:.0f} s") from None
            if "error" in answer:
                raise OperationError(answer["error"])
            return answer

        return wait

    def stop(self):
        """Ends the process: end of input, then SIGTERM, then SIGKILL."""
        for end in (self.process.stdin.close, self.process.terminate, self.process.kill):
            try:
                end()
                self.process.wait(timeout=5)
                return
            except (subprocess.TimeoutExpired, OSError):
                continue
