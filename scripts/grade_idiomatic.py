# SPDX-License-Identifier: Apache-2.0
"""CuTe kernels of the corpus in SM100's own words, those of CuTe C++ or any that are named: lines of the diff, files
beside the port, and its grade beside that of the compat style. A kernel that is left has the grade of the port that is
given in its place.

    python scripts/grade_idiomatic.py --output docs/results/grade-idiomatic.txt
    python scripts/grade_idiomatic.py --output docs/results/grade-idiomatic-dsl.txt dsl_gemm dsl_gemm_persistent …

Needs the CUDA compiler that Porter finds, and the wheels of CuTe's headers; no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from porter.cli.main import main as porter
from porter.diagnostics import Code

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
STYLES = ("compat", "idiomatic")
_LEFT = (Code.IDIOM_LEFT.id, Code.IDIOM_UNPROVED.id, Code.FULL_RATE_UNPROVED.id)
_ROW = "{:<22}{:>5}{:>5}{:>8}   {:<14}{:<28}{}"


def said(*words: str) -> Any:
    done = CliRunner().invoke(porter, ["--no-config", "--format", "json", *words])
    return json.loads(done.stdout)


def grade(name: str, style: str) -> tuple[str, str]:
    """The rate of a port in % of nominal, and what limits it."""
    document = said("grade", str(CORPUS / name / "case.yaml"), "--sizes", "default", "--trust", "--style", style)
    for kernel in document.get("kernels", ()):
        if kernel["program"] == "port":
            return f"{kernel['percent_of_nominal']:.1f}", kernel["limit"]
    return "-", "; ".join(d["id"] for d in document["diagnostics"])


def lines(name: str) -> tuple[int, int, int, str]:
    """Lines that the idiomatic port takes out and puts in, lines of files beside it, and why it is left if it is."""
    source = next(p for p in (CORPUS / name / f"{name}{ending}" for ending in (".cu", ".py")) if p.is_file())
    with tempfile.TemporaryDirectory() as folder:
        document = said("port", "--style", "idiomatic", "--trust", "--prove-seconds", "0", "-o", folder, str(source))
    out = inside = beside = 0
    for file in document["files"]:
        diff = [line for line in file["diff"].splitlines() if not line.startswith(("---", "+++"))]
        added = sum(line.startswith("+") for line in diff)
        if Path(file["path"]).name == source.name:
            out, inside = sum(line.startswith("-") for line in diff), added
        else:
            beside += added
    left = next((d["message"] for d in document["diagnostics"] if d["id"] in _LEFT), "")
    return out, inside, beside, left.rpartition(": ")[2] if left else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="only these")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    names = arguments.kernels or sorted(p.parent.name for p in CORPUS.glob("cute_*/case.yaml"))
    rows = [_ROW.format("kernel", "out", "in", "beside", *STYLES, "")]
    for name in names:
        rates = [grade(name, style) for style in STYLES]
        out, inside, beside, left = lines(name)
        grades = [rates[0][0], " ".join(rates[1])]
        rows.append(_ROW.format(name, out, inside, beside, *grades, left).rstrip())
        print(rows[-1], file=sys.stderr, flush=True)
        arguments.output.write_text("\n".join(rows) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
