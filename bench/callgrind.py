"""Counts the instructions of paths of Waybill with callgrind and holds them against instructions.json.

Unlike times, they hardly depend on the machine and on what else runs on it. What is counted is what `measured` of
broker/examples/instructions.rs does, on all threads, divided by the number of calls.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile

import paths
from effort import say

GATES = paths.HERE / "instructions.json"
RISE_MAX = 0.05
LIMIT_S = 120
# Paths with threads: how often one waits for another differs from run to run, and only ever adds. The lowest of so many runs counts.
RUNS = 3


def check(profile, accept):
    """Counts every path of a build, target/`profile`; prints them; returns the exit code."""
    program = paths.ROOT / "target" / profile / "examples" / "instructions"
    listed = subprocess.run([program, "list"], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout.split()
    calls = dict(zip(listed[::2], map(int, listed[1::2])))
    written = json.loads(GATES.read_text()) if GATES.exists() else {}
    gates = written.get(profile, {}).get("paths", {})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counted = dict(zip(calls, pool.map(lambda name: count(program, name) / calls[name], calls)))
    risen = []
    for name, instructions in counted.items():
        gate = gates.get(name)
        change = f"{instructions / gate - 1:+.1%}" if gate else "new"
        if not gate or instructions > gate * (1 + RISE_MAX):
            risen.append(name)
        say(f"  {name:16} {instructions:10,.0f} instructions, gate {gate or '-'} ({change})")
    gone = sorted(set(gates) - set(counted))
    if accept:
        rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()
        written[profile] = {"compiler": rustc, "paths": {name: round(instructions) for name, instructions in counted.items()}}
        GATES.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
        return 0
    if risen or gone:
        say(f"over the gate by more than {RISE_MAX:.0%}, or without one: {', '.join(risen) or 'none'}; gone: {', '.join(gone) or 'none'}. "
            "If that is meant to be: bench/run --instructions --accept")
    print(f"{len(counted) - len(risen)} passed, {len(risen) + len(gone)} failed", flush=True)
    return 1 if risen or gone else 0


def count(program, name):
    """Instructions of all calls of a path."""
    return min(total(program, name) for _ in range(RUNS if name.startswith("broker-") else 1))


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
