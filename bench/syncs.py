"""Syncs that a process asks the operating system for, seen by strace."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

CALLS = ("fsync", "fdatasync", "msync", "sync_file_range")
ATTACH_LIMIT_S = 20
STOP_LIMIT_S = 20
# A call that another thread interrupts is on two lines; the first has the parenthesis.
LINE = re.compile(rf"^(?:\[pid +)?\d+\]? +(\d+\.\d+) (?:{'|'.join(CALLS)})\(", re.MULTILINE)


def available():
    """Whether strace is installed."""
    return shutil.which("strace") is not None


def count(text, from_s, until_s):
    """Syncs that began between two moments, seconds since the epoch, in what strace has written."""
    return sum(from_s <= float(moment) < until_s for moment in LINE.findall(text))


class Watch:
    """The output of a strace that is running, or was."""

    def __init__(self, out):
        self.out = out

    def during(self, report):
        """Syncs while the load generator measured what its report is about."""
        from_s = report["beganMs"] / 1000
        return count(self.out.read_text(), from_s, from_s + report["seconds"])


@contextlib.contextmanager
def watching(pid):
    """Watches a process and all its threads, which makes it slower: what is measured meanwhile counts for nothing else."""
    with tempfile.TemporaryDirectory(prefix="waybill-strace-") as folder:
        out = pathlib.Path(folder) / "out"
        command = ["strace", "-f", "-ttt", "-e", f"trace={','.join(CALLS)}", "-e", "signal=none", "-o", out, "-p", pid]
        with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as strace:
            try:
                wait_attached(strace, pid)
                yield Watch(out)
            finally:
                strace.terminate()  # it lets the process go on
                strace.communicate(timeout=STOP_LIMIT_S)


def wait_attached(strace, pid):
    """Waits until strace has hold of every thread that the process has now."""
    end = time.monotonic() + ATTACH_LIMIT_S
    while not all(traced(task) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        if strace.poll() is not None:
            raise RuntimeError(f"strace ended: {strace.stderr.read()}")
        if time.monotonic() > end:
            raise TimeoutError(f"strace has not attached to {pid} after {ATTACH_LIMIT_S} s")
        time.sleep(0.05)


def traced(task):
    """Whether somebody traces a thread; a thread that has just ended needs no tracer."""
    try:
        return "TracerPid:\t0\n" not in (task / "status").read_text()
    except OSError:
        return True
