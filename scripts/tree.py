"""Checks of the files in the repository that no common tool makes. Each returns the problems it found, as lines."""

import re
import subprocess

from stages import ROOT

RUST_LINES_MAX = 600

# Written in pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS = re.compile("|".join([
    r"registry\." + r"(npmjs|yarnpkg|npmmirror)\.", r"repo1?\." + r"maven\.", r"repo\." + r"maven\.apache\.",
    r"(index|static)\." + r"crates\.io", r"(files\.pythonhosted|pypi)\." + r"org", r"proxy\." + r"golang\.org",
    r"deb\." + r"debian\.org", r"api\." + r"nuget\.org", r"mirrors?\." + r"(aliyun|tuna)\.",
]))


def tracked(*patterns):
    """Paths of the files that git tracks, or would: neither ignored nor deleted."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def lines(path):
    """(number, line) of a text file; nothing for a binary one."""
    try:
        return list(enumerate(path.read_text().splitlines(), 1))
    except UnicodeDecodeError:
        return []


def where(path, number):
    """Place of a line, as compilers write it."""
    return f"{path.relative_to(ROOT)}:{number}"


# Takes the place of a function of the C library, for the simulation only; its crate denies unsafe code everywhere else.
UNSAFE = ROOT / "sim" / "src" / "entropy.rs"


def unsafe_code():
    """No unsafe block, function, trait or implementation but in one file, and every crate forbids them."""
    found = []
    for path in tracked("*.rs"):
        if path == UNSAFE:
            continue
        for number, line in lines(path):
            code = line.split("//")[0]
            if re.search(r"\bunsafe\s*(\{|fn\b|impl\b|trait\b|extern\b)", code):
                found.append(f"{where(path, number)}: unsafe code")
    for manifest in tracked("*/Cargo.toml"):
        if "[package]" not in (text := manifest.read_text()):
            continue
        inherits = re.search(r"^\[lints\]\s*\nworkspace = true", text, re.MULTILINE)
        roots = [root for name in ("lib.rs", "main.rs") if (root := manifest.parent / "src" / name).exists()]
        forbids = roots and all("#![forbid(unsafe_code)]" in root.read_text() for root in roots)
        denies = manifest == ROOT / "sim" / "Cargo.toml" and 'unsafe_code = "deny"' in text
        if not inherits and not forbids and not denies:
            found.append(f"{manifest.relative_to(ROOT)}: the crate does not forbid unsafe code")
    return found


def registry_hosts():
    """Where packages come from is the machine's affair: mirrors differ, and a name in a lock file would bind to one."""
    return [f"{where(path, number)}: names a package registry's host"
            for path in tracked() for number, line in lines(path) if REGISTRY_HOSTS.search(line)]


def long_files():
    """A file of more than RUST_LINES_MAX lines has more than one job."""
    counts = ((path, len(lines(path))) for path in tracked("*.rs"))
    return [f"{path.relative_to(ROOT)}: {n} lines, at most {RUST_LINES_MAX}" for path, n in counts if n > RUST_LINES_MAX]


def broken_links():
    """Every relative link of a Markdown page leads to a file."""
    found = []
    for page in tracked("*.md"):
        for number, line in lines(page):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                    found.append(f"{where(page, number)}: nothing at {target}")
    return found


# Where configuration keys are declared (file, pattern of a field), and in which directories they must be used; what makes and checks
# the keys does not count.
KEYS = [
    (ROOT / "sidecar" / "src" / "config" / "keys.rs", r"^    (\w+): [\w:]+ =", ROOT / "sidecar" / "src" / "config"),
    (ROOT / "broker" / "src" / "config.rs", r"^    pub (\w+): [^()]+,$", ROOT / "broker" / "src" / "config.rs"),
]


def unread_keys():
    """Every configuration key is read by what it is for: one that is not promises what does not happen."""
    found = []
    for table, pattern, own in KEYS:
        crate = next(parent for parent in table.parents if parent.name == "src")
        others = [path for path in tracked("*.rs") if crate in path.parents and path != own and own not in path.parents]
        used = set(re.findall(r"\.\s*(\w+)", "\n".join(path.read_text() for path in others)))
        fields = [(number, field[1]) for number, line in lines(table) if (field := re.match(pattern, line))]
        if not fields:
            found.append(f"{table.relative_to(ROOT)}: no keys found")
        found += [f"{where(table, number)}: {field} is read nowhere" for number, field in fields if field not in used]
    return found
