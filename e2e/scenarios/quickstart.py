"""From the README to the first message."""
import re
import subprocess
import time

from house import ROOT, Failed, check, expect

BEGIN, END = "<!-- e2e:quickstart begin -->", "<!-- e2e:quickstart end -->"
LIMIT_S = 60


def blocks():
    """The shell blocks of the README between the two marks."""
    page = (ROOT / "README.md").read_text()
    expect(BEGIN in page and END in page, f"README.md has no {BEGIN} … {END}")
    part = page[page.index(BEGIN):page.index(END)]
    return re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


@check("quickstart", calm="it measures the time to the first message")
def quickstart(cluster):
    """The quickstart of the README, word for word, to the first message within 60 s"""
    commands = blocks()
    expect(commands, "the quickstart has no shell blocks")
    began = time.monotonic()
    said = ""
    for block in commands:
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=ROOT, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as e:
            raise Failed(f"not done after 180 s: {block}\n{e.stdout}{e.stderr}") from None
        said = done.stdout
        expect(done.returncode == 0, lambda: f"{block}\n{done.stdout}{done.stderr}")
    took = time.monotonic() - began
    expect("hello" in said, f"no message was shown: {said}")
    expect(took <= LIMIT_S, f"it took {took:.0f} s")
    return f"first message after {took:.0f} s"
