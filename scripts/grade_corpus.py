# SPDX-License-Identifier: Apache-2.0
"""Grades of the corpus' kinds of kernels: each original on an H100 beside its ports on a B200, one for each style. A
port that `porter port` takes back, because its case differs, counts as the one that is given in its place.

    python scripts/grade_corpus.py --output docs/results/grade-corpus.json

Needs the CUDA compiler that Porter finds, and for CuTe the wheels of its headers; no GPU. docs/grade.md shows the
record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from porter.cli.commands.grade import grade
from porter.cli.main import main as porter
from porter.diagnostics import Code
from porter.verify.rows import as_rows

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
KINDS = {
    "serial TMA": ("gemm_tma",),
    "multi-consumer": ("gemm_coop", "gemm_cooperative_128"),
    "warp-specialized": ("gemm_ws", "cute_gemm_ws"),
    "persistent": ("gemm_persistent", "cute_gemm_persistent", "dsl_gemm_persistent"),
    "cluster multicast": ("gemm_cluster", "cute_gemm_multicast"),
    "stmatrix + TMA store": ("cute_gemm_stsm", "dsl_gemm_plain"),
    "scaled FP8": ("gemm_fp8_scaled", "cute_gemm_fp8_scaled", "gemm_fp8_ue8m0"),
    "attention": ("attention_fwd", "attention_fwd D=128", "cute_attention", "dsl_attention", "dsl_attention_wide:two"),
}
"""Kernels by their kind; behind a name another case than the first, or the size of its case that chooses what is
compiled."""
ASKED = {("gemm_fp8_ue8m0", "native"): ("--block-scale",)}
"""Options of ports that have a step which is taken on request."""
DEFAULT = "compat"
"""What ports are where no style can be chosen."""


def styles() -> tuple[str, ...]:
    """Those that `porter grade` takes, without the one that chooses between others."""
    option = next((p for p in grade.params if p.name == "style"), None)
    if option is None or not isinstance(option.type, click.Choice):
        return ()
    return tuple(style for style in option.type.choices if style != "auto")


def case_of(name: str) -> Path:
    """`KERNEL` or `KERNEL:CASE`."""
    folder, _, case = name.partition(":")
    return CORPUS / folder / (f"{case}.case.yaml" if case else "case.yaml")


def graded(kernel: str, arguments: tuple[str, ...] = ()) -> Any:
    name, _, sizes = kernel.partition(" ")
    case = case_of(name)
    options = ("--sizes", sizes or "default", "--trust", *arguments)
    done = CliRunner().invoke(porter, ["--no-config", "--format", "json", "grade", str(case), *options])
    return json.loads(done.stdout)


@cache
def refused(kernel: str, style: str) -> str:
    """Why `porter port`, which runs the case, gives the compat port in place of one of a style; else nothing."""
    with tempfile.TemporaryDirectory() as folder:
        name = kernel.partition(":")[0]
        source = str(next((CORPUS / name).glob(f"{name}.*")))
        # types are the compiler's in the idiomatic style, and what CuTe DSL does a trace tells
        compiles = style == "idiomatic" or source.endswith(".py")
        asked = (*ASKED.get((kernel, style), ()), *(() if compiles else ("--no-compile",)))
        options = ("--style", style, *asked, "--trust", "-o", folder)
        done = CliRunner().invoke(porter, ["--no-config", "--format", "json", "port", *options, source])
    said = json.loads(done.stdout)["diagnostics"]
    kept = (Code.FULL_RATE_UNPROVED.id, Code.FULL_RATE_SLOWER.id, Code.IDIOM_LEFT.id, Code.IDIOM_UNPROVED.id)
    found = [d for d in said if d["id"] in (Code.FULL_RATE_PROVED.id, Code.IDIOM_PROVED.id, *kept)]
    if len(found) != 1:
        raise SystemExit(f"{kernel}: porter port says nothing of its style")
    return found[0]["message"].removeprefix(f"{source} ") if found[0]["id"] in kept else ""


def figures(document: Any, program: str) -> dict[str, Any]:
    """What the table has of an original or a port; of one that is not graded, why."""
    for k in document.get("kernels", ()):
        if k["program"] == program:
            names = ("chip", "problem", "percent_of_nominal", "capped_percent", "clocks_per_tile", "clocks_per_stage")
            work = k.get("work", {}).get("kinds")
            said = {"blocks_per_sm": k["blocks_per_sm"], "instructions": work} if work else {}
            return {**{n: k[n] for n in names}, "limit": k["limit"], "lifts": k["lifts"][:1], **said}
    return {"unknown": "; ".join(d["message"] for d in document["diagnostics"]) or "no such program"}


def rows(kernels: set[str]) -> Iterator[dict[str, Any]]:
    for kind, names in KINDS.items():
        for kernel in names:
            if kernels and kernel not in kernels:
                continue
            chosen = styles() or (DEFAULT,)
            asked = {s: ("--style", s, *ASKED.get((kernel, s), ())) if styles() else () for s in chosen}
            found = {s: graded(kernel, asked[s]) for s in chosen}
            ports = {s: figures(document, "port") for s, document in found.items()}
            for style in chosen[1:]:
                # CuTe DSL is in Blackwell's own words or as in the compat style; some has steps
                run = "idiomatic" if kernel.startswith("dsl_") and style != "native" else style
                if ports[style] != ports[DEFAULT] and (why := refused(kernel.partition(" ")[0], run)):
                    ports[style] = {**ports[DEFAULT], "left": why}
            print(kernel, {s: p.get("percent_of_nominal") for s, p in ports.items()}, file=sys.stderr, flush=True)
            yield {"kind": kind, "kernel": kernel, "original": figures(found[chosen[0]], "original"), "ports": ports}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="only these")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    known = {k for names in KINDS.values() for k in names}
    if unknown := set(arguments.kernels) - known:
        parser.error(f"no kernels {', '.join(sorted(unknown))}")
    found = list(rows(set(arguments.kernels)))
    arguments.output.write_text(as_rows({"rows": found}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
