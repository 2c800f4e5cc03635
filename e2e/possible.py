"""Whether this machine can run a Kubernetes for the tests."""
import os
import pathlib
import shutil
import subprocess
import sys

COMMANDS = ["go", "containerd", "ctr", "runc", "nft", "ip", "nsenter", "unshare", "mount", "openssl", "curl", "sysctl", "strip"]
MEMORY_NEEDED = 3 * 2 ** 30  # bytes


def obstacles():
    """Why not, each in a line; empty when nothing is known that speaks against it."""
    if sys.platform != "linux":
        return [f"it needs Linux, and this is {sys.platform}"]
    if os.geteuid() != 0:
        return ["it needs root: for namespaces, mounts and control groups"]
    return [reason for reason in (missing_commands(), plugins(), control_groups(), namespaces(), memory()) if reason]


def missing_commands():
    missing = [name for name in COMMANDS if not shutil.which(name)]
    return f"commands are missing: {', '.join(missing)} (scripts/setup installs what it can)" if missing else None


def plugins():
    return None if pathlib.Path("/usr/lib/cni/bridge").exists() else "/usr/lib/cni/bridge is missing (package containernetworking-plugins)"


def control_groups():
    if not pathlib.Path("/sys/fs/cgroup/cpuset/cpuset.cpus").exists():
        return "the control groups of version 1 are not in /sys/fs/cgroup; with version 2 alone this has not been made to work"
    trial = pathlib.Path("/sys/fs/cgroup/cpuset/waybill-e2e-trial")
    try:
        trial.mkdir(exist_ok=True)
        trial.rmdir()
    except OSError as e:
        return f"no control group can be made: {e}"
    return None


def namespaces():
    """Tries what a node does first."""
    trial = "ip link add t0 type bridge && mount -t tmpfs none /mnt && ls /proc/sys/net/bridge >/dev/null && nft list tables"
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "sh", "-c", trial],
                          capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"no namespaces, bridges or nftables: {done.stderr.strip() or done.returncode}"


def without_ipv6():
    """Why a node here has no addresses of IPv6 beside those of IPv4; None when it has. The cluster is one of IPv4 alone then."""
    trial = ("ip link set lo up && ip -6 addr add fd00::1/64 dev lo nodad && ls /proc/sys/net/bridge/bridge-nf-call-ip6tables >/dev/null"
             " && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding && nft add table ip6 t"
             " && nft 'add chain ip6 t c { type nat hook postrouting priority 100; }' && nft add rule ip6 t c masquerade")
    done = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", trial], capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"no IPv6 on this machine: {done.stderr.strip() or done.returncode}"


def memory():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        name, value, *_ = line.split()
        if name == "MemAvailable:" and int(value) * 1024 < MEMORY_NEEDED:
            return f"{int(value) // 1024} MiB of memory are free, it needs {MEMORY_NEEDED // 2 ** 20}"
    return None


if __name__ == "__main__":  # possible.py ipv6: says why not, or nothing
    print(without_ipv6() or "", end="")
