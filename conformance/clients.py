"""The published clients: how each is installed, started and spoken to. See "Agents" in README.md."""
import hashlib
import itertools
import json
import os
import pathlib
import queue
import shutil
import subprocess
import threading

import environment

HERE = pathlib.Path(__file__).resolve().parent
LOGS = HERE / ".cache" / "logs"
INSTALL_TIMEOUT_S = 1200
# Time-out of a call that the clients are given. Their default of 3 s makes them send again on a busy machine, and a
# message sent twice looks like a duplicate of the server.
REQUEST_TIMEOUT_S = 15
# Codes by name, for the client that only tells the name.
CODES = {"OK": 20000, "MULTIPLE_RESULTS": 30000, "BAD_REQUEST": 40000, "ILLEGAL_ACCESS_POINT": 40001,
         "ILLEGAL_TOPIC": 40002, "ILLEGAL_CONSUMER_GROUP": 40003, "ILLEGAL_MESSAGE_TAG": 40004,
         "ILLEGAL_MESSAGE_KEY": 40005, "ILLEGAL_MESSAGE_GROUP": 40006, "ILLEGAL_MESSAGE_PROPERTY_KEY": 40007,
         "INVALID_TRANSACTION_ID": 40008, "ILLEGAL_MESSAGE_ID": 40009, "ILLEGAL_FILTER_EXPRESSION": 40010,
         "ILLEGAL_INVISIBLE_TIME": 40011, "ILLEGAL_DELIVERY_TIME": 40012, "INVALID_RECEIPT_HANDLE": 40013,
         "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": 40014, "UNRECOGNIZED_CLIENT_TYPE": 40015, "MESSAGE_CORRUPTED": 40016,
         "CLIENT_ID_REQUIRED": 40017, "ILLEGAL_POLLING_TIME": 40018, "ILLEGAL_OFFSET": 40019,
         "ILLEGAL_LITE_TOPIC": 40020, "INVALID_CLIENT_PROPERTIES": 40021, "UNAUTHORIZED": 40100,
         "PAYMENT_REQUIRED": 40200, "FORBIDDEN": 40300, "NOT_FOUND": 40400, "MESSAGE_NOT_FOUND": 40401,
         "TOPIC_NOT_FOUND": 40402, "CONSUMER_GROUP_NOT_FOUND": 40403, "OFFSET_NOT_FOUND": 40404,
         "REQUEST_TIMEOUT": 40800, "PAYLOAD_TOO_LARGE": 41300, "MESSAGE_BODY_TOO_LARGE": 41301,
         "MESSAGE_BODY_EMPTY": 41302, "PRECONDITION_FAILED": 42800, "TOO_MANY_REQUESTS": 42900,
         "LITE_TOPIC_QUOTA_EXCEEDED": 42901, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": 42902,
         "REQUEST_HEADER_FIELDS_TOO_LARGE": 43100, "MESSAGE_PROPERTIES_TOO_LARGE": 43101, "INTERNAL_ERROR": 50000,
         "INTERNAL_SERVER_ERROR": 50001, "HA_NOT_AVAILABLE": 50002, "NOT_IMPLEMENTED": 50100, "PROXY_TIMEOUT": 50400,
         "MASTER_PERSISTENCE_TIMEOUT": 50401, "SLAVE_PERSISTENCE_TIMEOUT": 50402, "UNSUPPORTED": 50500,
         "VERSION_UNSUPPORTED": 50501, "VERIFY_FIFO_MESSAGE_UNSUPPORTED": 50502, "FAILED_TO_CONSUME_MESSAGE": 60000}


class OperationError(Exception):
    """The client reported a failure. `code`: the server's code, or None when the client itself refused or broke."""

    def __init__(self, error):
        self.code = error.get("code") or CODES.get(error.get("code_name"), error.get("code_name"))
        self.kind, self.text = error.get("type", ""), error.get("text", "")
        super().__init__(f"{self.code or 'no code'} {self.kind}: {self.text}")


def shell(command, folder, **more):
    environment.install(command, INSTALL_TIMEOUT_S, cwd=folder, **more)


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
    """A published client: its name, what it has, how to install it, the command line of its agent (given the folder for its logs)."""

    def __init__(self, name, package, features, install, command, await_s=5):
        self.name, self.package, self.features, self.install, self.command = name, package, features, install, command
        self.await_s = await_s  # long-polling time-out asked for


# change: has changeInvisibleDuration; recall: can recall delayed messages; push: has a push consumer; backoff: knows customised back-off; tls: speaks TLS and trusts any certificate;
# transaction: sends messages of transactions, and can be asked about them.
# namespace: knows namespaces.
# tls-ca: speaks TLS when it is given the certificate (--ca); tls-default: speaks TLS unless told otherwise.
CLIENTS = {c.name: c for c in [
    Client("python", "rocketmq-python-client 5.1.2", {"change", "push", "backoff", "tls-ca", "namespace", "recall", "transaction"}, install_python,
           lambda logs: [environment.VENV / "bin/python", HERE / "python/agent.py"]),
    Client("node", "rocketmq-client-nodejs 1.0.8", {"change", "push", "tls-ca", "namespace", "recall", "transaction"}, install_node, lambda logs: ["node", HERE / "node/agent.js"]),
    Client("java", "rocketmq-client-java 5.2.0", {"change", "push", "backoff", "tls", "tls-default", "namespace", "recall", "transaction"}, install_java,
           lambda logs: ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={logs}",
                    "-cp", f"{HERE}/java/.cache/classes:{HERE}/java/.cache/lib/*", "Agent"]),
    Client("rust", "rocketmq 5.0.0", {"transaction"}, install_rust, lambda logs: [HERE / "rust/target/debug/conformance-rust"],
           await_s=10),  # its long-polling time-out is also its deadline, and a server wants more than 5 s of that
    # Go: not to be had from the module proxy here. Its place: a folder go/ with an agent that speaks the same lines,
    # an install function beside the others, and an entry in this table.
]}


class Agent:
    """A running agent process."""

    def __init__(self, client, endpoint, logs=LOGS, ca=None):
        logs.mkdir(parents=True, exist_ok=True)
        self.client, self.waiting, self.numbers = client, {}, itertools.count(1)
        self.lock = threading.Lock()
        self.features = client.features | ({"tls"} if ca and "tls-ca" in client.features else set())
        variables = os.environ | {"HOME": str(logs)} | ({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca.resolve())} if ca else {})
        with open(logs / f"{client.name}.err", "wb") as log:
            self.process = subprocess.Popen([*map(str, client.command(logs)), "--endpoint", endpoint, "--request-timeout",
                                             str(REQUEST_TIMEOUT_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, env=variables)
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
