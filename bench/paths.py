"""Where things are; makes the modules of scripts/ and conformance/ importable."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RELEASE = ROOT / "target" / "release"
PAGE = HERE / "RESULTS.md"
RAW = HERE / "results.json"

for folder in ("scripts", "conformance", "conformance/apache"):
    sys.path.insert(0, str(ROOT / folder))
