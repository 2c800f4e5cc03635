"""Which checks failed, and why, found in what the tools said that ran them: a long output has to end with it, for often only its end is seen."""

import re

# So many lines tell why one check failed; they are among so many that come after its name.
REASON_LINES, REASON_WITHIN = 4, 80
# So many of the last lines are told where no check is named.
LAST_LINES = 8
CHARACTERS_MAX = 300

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# A line that names a check that failed; what is captured is told.
NAMES = [re.compile(pattern) for pattern in (
    r"\s*(?P<how>FAIL|TIMEOUT|ABORT|LEAK-FAIL|SIG\w+) \[ *>?[\d.]+s\] (?:\([ \d/]+\) )?(?P<name>.+)",  # nextest, which says each twice
    r"---- (?P<name>.+) stdout ----",  # cargo test
    r"(?P<name>(?:FAIL|ERROR): .+)",  # Python's unittest
    r"(?P<name>(?:\w+ +)? *\d+\.\ds .* FAIL .*)",  # ours: a check of a published client, of a failure, of the real Kubernetes
    r"(?P<name>(?:lint: FAILED|seed \d+ FAILED).*)",  # ours: the sources, the simulation
    r"(?P<name>error(?:\[E\d+\])?: (?!test run failed).+)",  # cargo, and what it runs
)]
# Lines after which nothing belongs to the check before them.
OTHERS = re.compile(r"\s*[A-Z-]+ \[ *>?[\d.]+s\]|\s*Summary \[|\||==|.* ✓|(\w+: )?\d+ passed, |lint: ok|Ran \d+ tests? in ")
NOISE = re.compile(r"[\s=─-]*$|running \d+ test|failures:|test result: |test .* \.\.\. FAILED|(stdout|stderr) ─")
WHY = re.compile(r".*panicked at |([\w]+\.)*\w*(Error|Exception|Failed|Exit)\b|error\b")
NOT_WHY = re.compile(r"stack backtrace:|note: run with ")


def told(text, most):
    """The names of the failed checks in the output `text`, under each the first lines of why, as far as `most` lines allow. The end of
    the output where none is named."""
    lines = [ESCAPES.sub("", line).rstrip() for line in text.splitlines()]
    found = {}
    for at, line in enumerate(lines):
        if (name := name_of(line)) and name not in found:
            found[name] = reason(lines[at + 1:at + 1 + REASON_WITHIN])
    if not found:
        return [line[:CHARACTERS_MAX] for line in lines if line.strip()][-min(LAST_LINES, most):]
    for reasons in range(REASON_LINES, -1, -1):
        said = [line[:CHARACTERS_MAX] for name, why in found.items() for line in (name, *(f"    {words}" for words in why[:reasons]))]
        if len(said) <= most:
            return said
    return said[:most - 1] + [f"and {len(said) - most + 1} more"]


def name_of(line):
    """What the line says of a check that failed, or None."""
    for pattern in NAMES:
        if match := pattern.match(line):
            how = match.groupdict().get("how")
            return " ".join(match["name"].split()) if how in (None, "FAIL") else f"{match['name'].strip()} ({how})"
    return None


def reason(lines):
    """Why a check failed: from the first line on that tells an error, or else the first lines that say anything."""
    body = []
    for line in lines:
        if OTHERS.match(line) or name_of(line):
            break
        if not NOISE.match(line.strip()):
            body.append(line.strip())
    start = next((n for n, line in enumerate(body) if WHY.match(line)), 0)
    end = next((n for n, line in enumerate(body) if n > start and NOT_WHY.match(line)), len(body))
    return body[start:min(end, start + REASON_LINES)]
