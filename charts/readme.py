#!/usr/bin/env python3
"""Writes the table of values in charts/waybill/README.md from values.yaml. `make docs` runs it; a test fails while they differ."""

import argparse
import json
import pathlib
import re
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parent / "waybill"
BEGIN, END = "<!-- values begin: made from values.yaml by charts/readme.py -->", "<!-- values end -->"


def described(text):
    """[(path, description)] of every value that has a comment above it, in order."""
    found, path, comment = [], [], []
    for line in text.splitlines():
        match = re.match(r"( *)([A-Za-z][\w-]*):", line)
        if line.strip().startswith("#"):
            comment.append(line.strip()[1:].strip())
        elif match:
            depth = len(match[1]) // 2
            path = path[:depth] + [match[2]]
            if comment:
                found.append((".".join(path), " ".join(comment)))
            comment = []
        elif not line.strip():
            comment = []
    return found


def value(values, path):
    """The default at a path such as image.tag."""
    for name in path.split("."):
        values = values[name]
    return values


def page(old):
    """README.md with the table as values.yaml has it now."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    rows = ["| value | default | what it is for |", "|---|---|---|"]
    for path, description in described(text):
        default = json.dumps(value(values, path), ensure_ascii=False)
        rows.append(f"| `{path}` | `{default}` | {description} |")
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n".join([BEGIN, *rows, END]) + after


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    readme = CHART / "README.md"
    readme.write_text(page(readme.read_text()))
    sys.exit(0)
