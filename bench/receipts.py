"""A sidecar that holds a million handles and renews 10,000 of them a second, and what its core alone costs.

The broker and the clients are one program, `held_bench`, which costs little: what is measured is the sidecar's own process.
"""

import json
import pathlib
import re
import tempfile

import load
import paths
import servers
import usage
from effort import say
from peers import Server
from rows import Bar, Row

HELD = 1_000_000
SECONDS = 60
# For a look whether it works.
HELD_QUICK, SECONDS_QUICK = 100_000, 10
LIMIT_S = 500
CORE_LIMIT_S = 300
CPU_PERCENT_MAX, MEMORY_MIB_MAX, HANDLE_BYTES_MAX, TICK_RATIO_MAX = 50, 200, 200, 2


def receipts(effort):
    """Rows and raw values."""
    quick = effort.rounds == 1
    report = held(HELD_QUICK if quick else HELD, SECONDS_QUICK if quick else SECONDS)
    core = core_alone()
    name = f"receipts: {report['handles']:,} held, {report['handles'] // 100:,} due a second"
    rows = [Row(f"{name}, renewed", "1/s", [report["renewedPerS"]]),
            Row(f"{name}, sidecar's CPU", "% of a core", [report["cpuPercent"]], None, Bar(CPU_PERCENT_MAX)),
            Row(f"{name}, late, failed or dropped", "", [report["late"] + report["failed"] + report["dropped"]], None, Bar(0)),
            Row(f"{name}, resident memory at the end", "MiB", [report["rssMiB"]], None, Bar(MEMORY_MIB_MAX)),
            Row(f"{name}, most resident memory, receives included", "MiB", [report["peakMiB"]]),
            Row(f"{name}, requests to the broker", "1/s", [report["requestsPerS"]]),
            Row(f"{name}, handles of a request", "", [report["entriesPerRequest"]])]
    rows += [Row("receipts: core, memory of a handle", "bytes", [core["bytes"]], None, Bar(HANDLE_BYTES_MAX)),
             *[Row(f"receipts: core, a tick with 1,000,000 held and 100 due, of one with 1,000 held, {order}", "×", [ratio], None,
                   Bar(TICK_RATIO_MAX)) for order, ratio in core["ratios"].items()],
             Row("receipts: core, 1,000,000 held, 10,000 renewed a second", "% of a core", [core["percent"]])]
    return rows, {"held": report, "core": core}


def held(handles, seconds):
    """The report of one run. A hundredth of the handles is due each second."""
    broker, endpoint, admin = servers.free_ports(3)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        config = pathlib.Path(folder) / "sidecar.yaml"
        config.write_text(json.dumps({"enableBatchChangeInvisibleTime": True}))
        sidecar = Server("waybill-sidecar", ["--config", config, "--namesrv-addr", f"127.0.0.1:{broker}", "--listen",
                                             f"127.0.0.1:{endpoint}", "--admin-listen", f"127.0.0.1:{admin}"], folder)
        with servers.stopping(sidecar):
            command = [paths.RELEASE / "examples" / "held_bench", broker, f"127.0.0.1:{endpoint}", f"127.0.0.1:{admin}",
                       sidecar.process.pid, handles, seconds]
            code, out, errors = usage.run_first(command, LIMIT_S)
            if code != 0:
                raise load.LoadError(f"held_bench ended with {code}:\n{out}{errors}")
    report = json.loads(out)
    say(f"  {report['handles']:,} held, {report['renewedPerS']:,.0f} renewed a second, {report['cpuPercent']:.1f} % of a core, "
        f"{report['rssMiB']:.0f} MiB (at most {report['peakMiB']:.0f}), {report['entriesPerRequest']:.0f} handles a request, "
        f"late {report['late']:.0f}, failed {report['failed']:.0f}, dropped {report['dropped']:.0f}")
    return report


def core_alone():
    """What receipts_bench says."""
    code, out, errors = usage.run_first([paths.RELEASE / "examples" / "receipts_bench"], CORE_LIMIT_S)
    if code != 0:
        raise load.LoadError(f"receipts_bench ended with {code}:\n{out}{errors}")
    for line in out.splitlines():
        say(f"  {line}")
    return read_core(out)


def read_core(out):
    """The numbers in what receipts_bench prints."""
    # What is held is held against few only far from the limit.
    ratios = re.findall(r"^tick, 1000000 held of .*due, (\w+):.*\n  with 1000000 held it costs ([\d.]+) times as much", out, re.MULTILINE)
    return {"bytes": float(re.search(r"([\d.]+) bytes each", out)[1]),
            "ratios": {{"AsReceived": "as received", "Scattered": "scattered"}[order]: float(ratio)
                       for order, ratio in ratios},
            "percent": float(re.search(r"for 10 s: ([\d.]+) % of one core", out)[1])}
