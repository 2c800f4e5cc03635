"""The Python environment of the suite: a virtual environment with the published Python client, made when missing."""
import fcntl
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "python" / "requirements.txt"
VENV = HERE / ".cache" / "venv"
INSTALL_TIMEOUT_S = 600


def python():
    """Path of an interpreter that has the packages of python/requirements.txt."""
    VENV.parent.mkdir(exist_ok=True)
    with open(VENV.parent / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = VENV / "installed.txt"
        wanted = REQUIREMENTS.read_text()
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(VENV, with_pip=True, clear=True)
            subprocess.run([VENV / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                            "-r", REQUIREMENTS], check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
            stamp.write_text(wanted)
    return VENV / "bin" / "python"
