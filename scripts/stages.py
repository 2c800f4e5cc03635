"""Runs commands as named stages: one after the other, output shown and kept, a time limit on each, a table at the end."""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import failed as failed_checks

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "logs"
GRACE_S = 10
# What a whole run from nothing writes, in bytes, and a little more.
DISK_NEEDED = 18 * 10 ** 9
# So many lines at the end say again which checks failed.
FAILED_LINES = 40


@dataclasses.dataclass
class Stage:
    """A command, and the most seconds it may take. A failed `essential` stage ends the run. Beside one that is `alone`, what else was
    begun stands still."""

    name: str
    command: list
    limit_s: int
    essential: bool = False
    env: dict = dataclasses.field(default_factory=dict)
    counts: bool = True
    alone: bool = False


@dataclasses.dataclass
class Outcome:
    """What came of a stage. A stage that counted nothing counts as one check."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    disk_left: int  # bytes, at its end
    said: str = ""  # its output, if it failed


def run(stage):
    """Runs one stage and returns its Outcome."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{stage.name}.log"
    print(f"\n== {stage.name}: {' '.join(map(str, stage.command))}", flush=True)
    started = time.monotonic()
    code = execute(stage, log)
    seconds = time.monotonic() - started
    said = log.read_text(errors="replace")
    passed, failed, skipped = count(said) if stage.counts else (0, 0, 0)
    if code != 0 and failed == 0:
        failed = 1  # it failed without saying which of its checks did
    elif code == 0 and passed + failed + skipped == 0:
        passed = 1
    print(f"== {stage.name}: {'ok' if failed == 0 else 'FAILED'} after {seconds:.0f} s", flush=True)
    if seconds >= stage.limit_s:
        said += f"\nerror: stopped after {seconds:.0f} s, it may take at most {stage.limit_s} s\n"
    return Outcome(stage.name, passed, failed, skipped, seconds, disk_left(), said if failed else "")


class Beside:
    """A command that runs beside the stages, when no processor has anything else to do. What it says goes into a file of its own. It may
    be missing, or fail: the stage that needs what it makes finds out."""

    def __init__(self, name, command):
        LOGS.mkdir(parents=True, exist_ok=True)
        with open(LOGS / f"{name}.log", "wb") as log:
            idle = ["chrt", "--idle", "0"] if shutil.which("chrt") else ["nice", "-n", "19"]
            self.process = subprocess.Popen([*idle, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        # Where each session has an equal share, priorities count within one only: the session has to stand back itself.
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{self.process.pid}/autogroup").write_text("19")

    def signal(self, number):
        """Sends a signal to it and to what it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number in (signal.SIGTERM, signal.SIGCONT):
            self.signal(number)
        self.process.wait()


def disk_left():
    """Bytes that may still be written where the checkout is."""
    return shutil.disk_usage(ROOT).free


def execute(stage, log):
    """Runs the command in a process group of its own, so that nothing it started outlives its time limit."""
    process = subprocess.Popen(stage.command, cwd=ROOT, env={**os.environ, **stage.env}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    timer = threading.Timer(stage.limit_s, stop, (process, stage))
    timer.start()
    try:
        with open(log, "wb") as kept, process.stdout:
            for line in process.stdout:
                kept.write(line)
                show(line)
        return process.wait()
    except KeyboardInterrupt:
        stop(process, stage)
        raise
    finally:
        timer.cancel()


def show(line):
    """Prints a line of a stage's output as it came."""
    os.write(1, line)


def stop(process, stage):
    """Ends the stage's process group: politely, then for good."""
    print(f"== {stage.name}: stopped, it may take at most {stage.limit_s} s", flush=True)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def count(text):
    """Adds up (passed, failed, skipped) of all the closing lines of test runners in `text`."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    total = [0, 0, 0]
    for line in text.splitlines():
        if re.match(r"\s*Summary \[.*\] +[\d/]+ tests? run:", line):  # nextest
            found = [number(line, rf"(\d+) {word}\b") for word in ("passed", "failed", "skipped")]
            found[1] += number(line, r"(\d+) timed out") + number(line, r"(\d+) exec failed")
        elif line.startswith("test result:"):  # cargo test
            found = [number(line, rf"(\d+) {word}\b") for word in ("passed", "failed", "ignored")]
        elif re.match(r"Ran \d+ tests? in ", line):  # Python's unittest: all, and in a later line those that failed
            found = [number(line, r"Ran (\d+)"), 0, 0]
        elif re.fullmatch(r"FAILED \(.*\)", line):
            bad = number(line, r"failures=(\d+)") + number(line, r"errors=(\d+)")
            found = [-bad, bad, 0]
        elif re.fullmatch(r"(\w+: )?\d+ passed, \d+ failed(, \d+ skipped)?", line):  # our own
            found = [number(line, rf"(\d+) {word}\b") for word in ("passed", "failed", "skipped")]
        else:
            continue
        total = [a + b for a, b in zip(total, found)]
    return tuple(total)


def number(line, pattern):
    """The number that `pattern` captures in `line`, or 0."""
    match = re.search(pattern, line)
    return int(match.group(1)) if match else 0


def run_all(stages, beside=None):
    """Runs the stages, `beside` them what is Beside them, prints the table and the closing line, and returns the exit code."""
    outcomes = []
    if disk_left() < DISK_NEEDED:
        print(f"== {disk_left() / 1e9:.1f} GB of disk are left; from nothing, a whole run needs {DISK_NEEDED / 1e9:.0f} GB", flush=True)
    for stage in stages:
        if beside and stage.alone:
            beside.signal(signal.SIGSTOP)
        outcomes.append(run(stage))
        if beside and stage.alone:
            beside.signal(signal.SIGCONT)
        if stage.essential and outcomes[-1].failed:
            print(f"== the rest is not run: it needs {stage.name}", flush=True)
            break
    print(f"\n{'stage':14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}{'GB left':>9}")
    for o in outcomes:
        print(f"{o.name:14}{o.passed:8}{o.failed:8}{o.skipped:9}{o.seconds:9.0f}{o.disk_left / 1e9:9.1f}")
    print(f"{'all':14}{'':25}{sum(o.seconds for o in outcomes):9.0f}\n")
    passed, failed, skipped = (sum(getattr(o, w) for o in outcomes) for w in ("passed", "failed", "skipped"))
    closing = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    (LOGS / "closing-line.txt").write_text(closing + "\n")
    tell_failed([o for o in outcomes if o.failed])
    print(closing, flush=True)
    return 1 if failed or len(outcomes) < len(stages) else 0


def tell_failed(outcomes):
    """Says again which checks of these stages failed, and why: where a run is long, its end is often all that is seen of it."""
    for o in outcomes:
        print(f"failed in {o.name} (all it said: {LOGS / o.name}.log):")
        print("".join(f"  {line}\n" for line in failed_checks.told(o.said, max(FAILED_LINES // len(outcomes), 4))))
