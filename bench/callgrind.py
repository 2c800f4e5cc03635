"""Counts the instructions of paths of Waybill with callgrind and holds them against instructions.json.

Unlike times, they hardly depend on the machine and on what else runs on it. What is counted is what `measured` of
broker/examples/instructions.rs does, on all threads, divided by the number of calls.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import paths
from effort import say

GATES = paths.HERE / "instructions.json"
RISE_MAX = 0.05
LIMIT_S = 120
# Paths with threads: how often one waits for another differs from run to run, and only ever adds. The lowest of so many runs counts.
RUNS = 5
# Runs more, at most, of a path that is over its gate: on a busy machine all of a few may have waited much.
RUNS_MORE = 20


def check(profile, accept):
    """Counts every path of a build, target/`profile`; prints them; returns the exit code."""
    program = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", paths.ROOT / "target")) / profile / "examples" / "instructions"
    listed = subprocess.run([program, "list"], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout.split()
    calls = dict(zip(listed[::2], map(int, listed[1::2])))
    if not shutil.which("valgrind"):
        say("valgrind is not installed: nothing is counted")
        return close(0, 0, len(calls))
    written = json.loads(GATES.read_text())
    recorded, compiler = written.get(profile, {}), rustc()
    gates = {} if accept else recorded.get("paths", {})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counted = dict(zip(calls, pool.map(lambda name: round(count(program, name, calls[name], gates.get(name))), calls)))
    for name, instructions in counted.items():
        gate = recorded.get("paths", {}).get(name)
        say(f"  {name:16} {instructions:10,} instructions" + (f", gate {gate:,} ({instructions / gate - 1:+.1%})" if gate else ", no gate"))
    if accept:
        written[profile] = {"compiler": compiler, "paths": counted}
        GATES.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
        return 0
    if recorded and recorded["compiler"] != compiler:
        say(f"the gates are {recorded['compiler']}'s, and another compiler counts otherwise: not compared with {compiler}")
        return close(0, 0, len(calls))
    bad = broken(recorded.get("paths", {}), counted)
    if bad:
        say(f"over the gate by more than {RISE_MAX:.0%}, without one, or gone: {', '.join(bad)}. "
            f"If that is meant to be: bench/run --instructions --profile {profile} --accept")
    if fallen := [name for name, gate in recorded.get("paths", {}).items() if counted.get(name, gate) < gate * (1 - RISE_MAX)]:
        say(f"well under the gate: {', '.join(fallen)}. So that they stay there: bench/run --instructions --profile {profile} --accept")
    return close(len(set(counted) - set(bad)), len(bad), 0)


def broken(gates, counted):
    """Names of the paths that are over their gates, have none, or have gone."""
    risen = [name for name, instructions in counted.items() if instructions > gates.get(name, 0) * (1 + RISE_MAX)]
    return risen + sorted(set(gates) - set(counted))


def close(passed, failed, skipped):
    """Says how it went, as the other checks do; the exit code."""
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed else 0


def rustc():
    """Name and version of the compiler."""
    return subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout.strip()


def total(program, name):
    """Instructions of one run, between the beginning and the end of what is measured."""
    with tempfile.TemporaryDirectory(prefix="waybill-callgrind-") as folder:
        out = pathlib.Path(folder) / "out"
        # One pattern for both would count as one option, the later.
        command = ["valgrind", "--tool=callgrind", "--dump-before=*::measured", "--dump-after=instructions::measured",
                   f"--callgrind-out-file={out}", program, name]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{name} under valgrind ended with {done.returncode}:\n{done.stderr}")
        dump = next(text for file in out.parent.iterdir() if "Trigger: --dump-after" in (text := file.read_text()))
        return int(re.search(r"^totals: (\d+)", dump, re.MULTILINE).group(1))


def count(program, name, calls, gate, run=total):
    """Instructions of a call of a path that is taken so many times in each `run`. `gate`: what it should not be over, if anything."""
    if not name.startswith("broker-"):
        return run(program, name) / calls
    lowest = min(run(program, name) for _ in range(RUNS)) / calls
    for _ in range(RUNS_MORE):
        if gate is None or lowest <= gate * (1 + RISE_MAX):
            break
        lowest = min(lowest, run(program, name) / calls)
    return lowest
