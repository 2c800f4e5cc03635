"""Starts Waybill's programs on free loopback ports with a folder of their own, and stops them by process id."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from stages import ROOT

BIN = pathlib.Path(os.environ.get("WAYBILL_BIN_DIR", ROOT / "target" / "debug"))
START_LIMIT_S = 60
STOP_LIMIT_S = 30
LOG_LINES_SHOWN = 30
# Of sidecars: a machine that stands still for some seconds is no failure, and what a client sends once more is there twice.
PATIENT = "backendRequestTimeoutMillis: 20000\n"


class ServerError(Exception):
    """A server did not start, or did not stop as it should."""


class Server:
    """One process. Its log is in a file; the end of it is told when something goes wrong."""

    def __init__(self, name, arguments, folder):
        self.name, self.log = name, pathlib.Path(folder) / f"{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([BIN / name, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log, text=True)

    def first_line(self):
        """The first line of its standard output: printed when it is ready."""
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(STOP_LIMIT_S)
            raise self.error(f"ended with {self.process.returncode} before it was ready")
        return line

    def wait_ready(self, admin):
        """Waits until its admin port says that it is ready."""
        end, reason = time.monotonic() + START_LIMIT_S, "no answer"
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise self.error(f"ended with {self.process.returncode} before it was ready")
            try:
                urllib.request.urlopen(f"http://{admin}/readyz", timeout=5).close()
                return
            except urllib.error.HTTPError as e:
                reason = e.read().decode().strip()
            except OSError as e:
                reason = str(e)
            time.sleep(0.05)
        raise self.error(f"was not ready after {START_LIMIT_S} s: {reason}")

    def stop(self):
        """SIGTERM, and it must end by itself with exit code 0."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise self.error(f"did not stop within {STOP_LIMIT_S} s") from None
        finally:
            self.process.stdout.close()
        if code != 0:
            raise self.error(f"ended with {code}")

    def error(self, what):
        """An error with the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return ServerError(f"{self.name} {what}\n" + "\n".join(f"  | {line}" for line in lines))


def patient(folder):
    """A configuration file of a sidecar."""
    file = pathlib.Path(folder) / "sidecar.yaml"
    file.write_text(PATIENT)
    return file


def free_ports(count):
    """Ports that were free just now. Another process may take one before it is used: then the start fails and says so."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


@contextlib.contextmanager
def stopping(*servers):
    """Stops the servers in this order at the end; an error inside goes before one at the stop."""
    try:
        yield
    except BaseException:
        for server in servers:
            with contextlib.suppress(ServerError):
                server.stop()
        raise
    for server in servers:
        server.stop()


@contextlib.contextmanager
def standalone(*options):
    """`waybill standalone`; gives what it says about itself: endpoint, broker, admin, pid."""
    with tempfile.TemporaryDirectory(prefix="waybill-") as folder:
        server = Server("waybill", ["standalone", "--output", "json", "--data-dir", f"{folder}/data", "--listen", "127.0.0.1:0",
                                    "--broker-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--sidecar-config", patient(folder),
                                    *options], folder)
        with stopping(server):
            yield json.loads(server.first_line())


@contextlib.contextmanager
def cluster():
    """A broker and a sidecar, two processes that speak over TCP; nothing is created on first use."""
    with tempfile.TemporaryDirectory(prefix="waybill-") as folder:
        broker, broker_admin, endpoint, sidecar_admin = (f"127.0.0.1:{port}" for port in free_ports(4))
        first = Server("waybill-broker", ["--store", f"{folder}/data", "--listen", broker, "--admin-listen", broker_admin,
                                          "--host", "127.0.0.1"], folder)
        with stopping(first):
            first.wait_ready(broker_admin)
            second = Server("waybill-sidecar", ["--config", patient(folder), "--namesrv-addr", broker, "--listen", endpoint,
                                                "--admin-listen", sidecar_admin], folder)
            with stopping(second):
                second.wait_ready(sidecar_admin)
                yield {"endpoint": endpoint, "broker": broker, "admin": sidecar_admin, "brokerAdmin": broker_admin}
