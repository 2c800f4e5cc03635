"""The Python environment of the suite: a virtual environment with the published Python client, made when missing."""
import fcntl
import pathlib
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "python" / "requirements.txt"
VENV = HERE / ".cache" / "venv"
INSTALL_TIMEOUT_S = 600
# After which pauses a download that failed is tried again, seconds.
PAUSES_S = (5, 30)


def install(command, timeout_s, pauses_s=PAUSES_S, **more):
    """Runs a command that downloads. It is run again when it fails: networks and registries do, for a while.

    Raises subprocess.CalledProcessError when the last try fails, subprocess.TimeoutExpired when one takes too long.
    """
    for pause_s in (*pauses_s, None):
        try:
            return subprocess.run(list(map(str, command)), check=True, timeout=timeout_s, stdin=subprocess.DEVNULL,
                                  stdout=sys.stderr, **more)
        except subprocess.CalledProcessError as e:
            if pause_s is None:
                raise
            print(f"{command[0]} ended with {e.returncode}; it is run again in {pause_s} s", file=sys.stderr, flush=True)
            time.sleep(pause_s)


def python():
    """Path of an interpreter that has the packages of python/requirements.txt."""
    VENV.parent.mkdir(exist_ok=True)
    with open(VENV.parent / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = VENV / "installed.txt"
        wanted = REQUIREMENTS.read_text()
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(VENV, with_pip=True, clear=True)
            install([VENV / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS],
                    INSTALL_TIMEOUT_S)
            stamp.write_text(wanted)
    return VENV / "bin" / "python"
