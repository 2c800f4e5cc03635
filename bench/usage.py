"""What processes and the machine use, from /proc."""

import contextlib
import dataclasses
import os
import pathlib
import platform
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")
SESSION_NICENESS = "-10"


def cpu_seconds(pid):
    """User and system CPU time of a process, all its threads, since it started."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid):
    """VmRSS of a process."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no memory: it has ended")


def go_first(pid):
    """Lets the session of a process go before the rest of this machine.

    Linux shares the cores among sessions before it shares them among the processes of one. So that a share is the same whoever is
    measured, every server process and every load generator has a session of its own, and all get the same precedence.
    """
    with contextlib.suppress(OSError):  # a kernel that does not group by session, or no permission
        pathlib.Path(f"/proc/{pid}/autogroup").write_text(SESSION_NICENESS)


def run_first(command, limit_s):
    """Runs a program in a session of its own that goes first; its exit code, standard output and standard error."""
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as process:
        try:
            go_first(process.pid)
            out, errors = process.communicate(timeout=limit_s)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out, errors


@dataclasses.dataclass
class Machine:
    """Cores that were busy while something ran, with everybody on this machine counted."""

    busy_s: float
    elapsed_s: float

    @classmethod
    def now(cls):
        """The counters since the machine started."""
        # user nice system idle iowait irq softirq steal: what was stolen was not there for us either.
        ticks = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
        return cls((sum(ticks) - ticks[3] - ticks[4]) / TICKS, uptime)

    def cores_since(self, others_s=0.0):
        """Cores busy from then until now, less `others_s` seconds of CPU that are accounted for elsewhere."""
        now = Machine.now()
        return max(0.0, (now.busy_s - self.busy_s - others_s) / max(0.01, now.elapsed_s - self.elapsed_s))


def describe():
    """The machine in a line."""
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} × {model}, {memory:.0f} GiB, Linux {platform.release()}"
