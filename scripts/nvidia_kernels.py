# SPDX-License-Identifier: Apache-2.0
"""Grades of NVIDIA's own SM100 kernels beside those of the corpus' native ports, by the same model: CuTe's tutorials,
and CUTLASS's GEMM of example 70 with several tiles.

    python scripts/nvidia_kernels.py --output docs/results/nvidia-kernels.json

Needs the CUDA compiler that Porter finds and the wheels `nvidia-cutlass` and `nvidia-curand`; no GPU. Programs are
compiled, and run on the simulator for what they launch. docs/grade.md shows the record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from porter.cli.main import main as porter
from porter.verify.rows import as_rows

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
TUTORIALS = (
    "01_mma_sm100",
    "02_mma_tma_sm100",
    "03_mma_tma_multicast_sm100",
    "04_mma_tma_2sm_sm100",
    "05_mma_tma_epi_sm100",
)
EXAMPLE = "70_blackwell_gemm/70_blackwell_fp16_gemm"
TILES = (((128, 128), (1, 1)), ((128, 256), (1, 1)), ((256, 128), (2, 1)), ((256, 128), (2, 2)), ((256, 256), (2, 1)))
"""Tiles of an MMA, in M and N, and clusters that example 70 is compiled for; K of a stage is 64. The fourth is the
example as it is."""
PORTS = ("gemm_ws", "gemm_cluster", "gemm_persistent", "cute_gemm_persistent")


class Program(NamedTuple):
    """One program: `kernel` is a part of the name of the one that is graded; `changes` are made in its text."""

    name: str
    source: Path
    kernel: str
    arguments: tuple[str, ...]
    changes: tuple[tuple[str, str], ...] = ()


def cutlass() -> Path:
    spec = find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the wheel nvidia-cutlass is not installed")
    return Path(spec.submodule_search_locations[0]) / "source"


def include_dirs() -> list[Path]:
    """Of CUTLASS, and of cuRAND, by which example 70 fills its operands."""
    root = cutlass()
    own = [root / "include", root / "tools/util/include", root / "examples/common"]
    return (
        own + [p for p in (Path(p) / "nvidia/cu13/include" for p in sys.path) if (p / "curand_kernel.h").is_file()][:1]
    )


def programs() -> Iterator[Program]:
    examples = cutlass() / "examples"
    for name in TUTORIALS:
        source = examples / "cute/tutorial/blackwell" / f"{name}.cu"
        yield Program(f"tutorial {name[:2]}", source, "gemm_device", ("512", "1024", "128"))
    for (m, n), (rows, columns) in TILES:
        changes = (
            ("MmaTileShape_MNK = Shape<_256,_128,_64>", f"MmaTileShape_MNK = Shape<_{m},_{n},_64>"),
            ("ClusterShape_MNK = Shape<_2,_2,_1>", f"ClusterShape_MNK = Shape<_{rows},_{columns},_1>"),
        )
        name = f"example 70, {m} x {n}, clusters of {rows} x {columns}"
        size = ("--m=512", "--n=512", "--k=128", "--iterations=0")
        yield Program(name, examples / f"{EXAMPLE}.cu", "GemmUniversal", size, changes)


def graded(arguments: Sequence[object]) -> Any:
    done = CliRunner().invoke(porter, ["--no-config", "--format", "json", "grade", "--trust", *map(str, arguments)])
    return json.loads(done.stdout)


def of_program(program: Program) -> dict[str, Any]:
    text = program.source.read_text("utf-8")
    for before, after in program.changes:
        if text.count(before) != 1:
            raise SystemExit(f"{program.source}: `{before}` stands there {text.count(before)} times")
        text = text.replace(before, after)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / program.source.name
        source.write_text(text, "utf-8")
        dirs = [*include_dirs(), program.source.parent]
        options = [o for d in dirs for o in ("-I", d)]
        document = graded([source, "--arch", "sm_100a", "--kernel", program.kernel, *options, "--", *program.arguments])
    return figures(program.name, document, "kernel")


def figures(name: str, document: Any, label: str) -> dict[str, Any]:
    """What the table has of a kernel; of one that is not graded, why."""
    for k in document.get("kernels", ()):
        if k["program"] == label:
            shape = k["shape"]
            return {
                "kernel": name,
                "problem": k["problem"],
                "tile": shape["tile"],
                "pair": any(m["cta_group"] == 2 for m in shape["mmas"]),
                "stages": shape["stages"],
                **{n: k[n] for n in ("percent_of_nominal", "capped_percent", "limit")},
            }
    return {"kernel": name, "unknown": "; ".join(d["message"] for d in document["diagnostics"]) or "no such kernel"}


def rows(chosen: set[str]) -> Iterator[dict[str, Any]]:
    for program in programs():
        if not chosen or program.name in chosen:
            yield {"of": "NVIDIA", **of_program(program)}
    for name in PORTS:
        if not chosen or name in chosen:
            document = graded([CORPUS / name / "case.yaml", "--style", "native"])
            yield {"of": "native port", **figures(name, document, "port")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="only these, by their names in the table")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    known = {p.name for p in programs()} | set(PORTS)
    if unknown := set(arguments.kernels) - known:
        parser.error(f"no kernels {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    found = []
    for row in rows(set(arguments.kernels)):
        print(row["kernel"], row.get("percent_of_nominal", row.get("unknown")), file=sys.stderr, flush=True)
        found.append(row)
    arguments.output.write_text(as_rows({"rows": found}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
