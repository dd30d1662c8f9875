# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's SM100 tutorials beside Porter's ports of its Hopper tutorials in SM100's own words: what stands in the PTX
of their kernels, and what becomes of each difference between tutorial 02 and the port of `wgmma_tma_sm90.cu`.

    python scripts/sm100_tutorials.py --output docs/results/sm100-tutorials.json

Needs the CUDA compiler that Porter finds and the `nvidia-cutlass` wheel; no GPU. `docs/sm100_tutorials.md` shows the
record.
"""

from __future__ import annotations

import argparse
import importlib.resources
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.port_plan import PortPlan, materialize
from porter.build.toolchain import find_toolkit
from porter.lang.lexical import lexed
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources
from porter.passes.sm100.check import sm100_findings
from porter.passes.sm100.instructions import flat
from porter.ptx.ast import Function, Imm, Instruction, Reg
from porter.ptx.parser import parse_module
from porter.verify.gate import GateOptions
from porter.verify.rows import as_rows
from porter.verify.types import types_of

ROOT = Path(str(importlib.resources.files("cutlass_library"))) / "source"
TUTORIALS = ROOT / "examples" / "cute" / "tutorial"
INCLUDES = (ROOT / "include", ROOT / "tools" / "util" / "include", TUTORIALS / "blackwell")
PROGRAMS = {
    "SM100 tutorial 01": TUTORIALS / "blackwell" / "01_mma_sm100.cu",
    "SM100 tutorial 02": TUTORIALS / "blackwell" / "02_mma_tma_sm100.cu",
    "port of wgmma_sm90": TUTORIALS / "hopper" / "wgmma_sm90.cu",
    "port of wgmma_tma_sm90": TUTORIALS / "hopper" / "wgmma_tma_sm90.cu",
}
SHOWN = (
    "tcgen05.alloc", "tcgen05.mma", "tcgen05.commit", "tcgen05.ld", "tcgen05.st", "tcgen05.wait::ld",
    "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync", "mbarrier.init", "mbarrier.try_wait",
    "bar.sync", "barrier.sync", "cp.async", "cp.async.bulk.tensor", "fence.proxy.async", "fence.mbarrier_init",
    "elect.sync",
)  # fmt: skip


def family(instruction: Instruction) -> str:
    """The shown name that an instruction begins with, the longest if there are several."""
    return max((s for s in SHOWN if f"{instruction.opcode}.".startswith(f"{s}.")), key=len, default="")


def figures(function: Function) -> dict[str, object]:
    """Counts of a kernel, and the shapes of its loads."""
    instructions = [s for s in flat(function.body or ()) if isinstance(s, Instruction)]
    counts = Counter(family(i) for i in instructions)
    loads = Counter(re.sub(r".*aligned\.(.*)\.b32", r"\1", i.opcode) for i in instructions if family(i) == "tcgen05.ld")
    return {
        **{name: counts[name] for name in SHOWN},
        "loads": dict(sorted(loads.items())),
        "instructions": len(instructions),
    }


def columns(function: Function) -> int:
    """Columns of Tensor Memory that a kernel allocates."""
    instructions = [s for s in flat(function.body or ()) if isinstance(s, Instruction)]
    last = next(i for i in instructions if family(i) == "tcgen05.alloc").operands[-1]
    if isinstance(last, Reg):
        last = next(i for i in instructions if i.operands[:1] == (last,)).operands[-1]
    assert isinstance(last, Imm)
    return int(last.value)


def tile(source: Path) -> str:
    """Rows and columns of the MMAs that a text names."""
    found = re.findall(r"\bSM100_MMA_\w+<[^<>;]*?\b(\d+),\s*(\d+),", lexed(source.read_bytes()).plain_text)
    (one,) = set(found)
    return "x".join(one)


def rows_of(name: str, source: Path) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        if name.startswith("port"):
            asks = PortOptions(types=partial(types_of, GateOptions(INCLUDES)))
            result = port_sources(load_sources(source, INCLUDES), asks)
            assert set(result.files) == {str(source)}
            source = materialize(PortPlan(files=result.files), source, Path(folder))
        found = sm100_findings(source, INCLUDES)
        request = CompileRequest(source, "sm_100a", include_dirs=INCLUDES, defines=("NDEBUG",), lineinfo=False)
        module, of_tiles = parse_module(compile_ptx(request).ptx), tile(source)
    codes = sorted({d.code.id for d in found})
    return [
        {"program": name, "findings": codes, "tile": of_tiles, "columns": columns(f), **figures(f)}
        for f in module.entries()
        if figures(f)["tcgen05.mma"]
    ]


LIKE = "as the tutorial"
BETTER, WORSE, CHOICE = "better", "worse", "the user's choice"


def differences(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """Each point on which the kernels of the port could differ from that of the tutorial, with the worst of them."""
    (one,) = (row for row in rows if row["program"] == "SM100 tutorial 02")
    ports = [row for row in rows if row["program"] == "port of wgmma_tma_sm90"]

    def loads(row: dict[str, Any]) -> float:
        return 32 * row["tcgen05.ld"] / int(row["tile"].split("x")[1])

    def chosen(point: str, name: str) -> dict[str, object]:
        given = [row[name] for row in ports]
        verdict = LIKE if set(given) == {one[name]} else CHOICE
        return {"point": point, "tutorial": one[name], "port": given[0], "verdict": verdict}

    def held(point: str, of: Callable[[dict[str, Any]], float], worst: Callable[..., float]) -> dict[str, object]:
        mine, given = of(one), worst(of(row) for row in ports)
        verdict = LIKE if mine == given else WORSE if worst(mine, given) == given else BETTER
        return {"point": point, "tutorial": mine, "port": given, "verdict": verdict}

    def count(name: str) -> Callable[[dict[str, Any]], int]:
        return lambda row: int(row[name])

    return [
        chosen("tile of an MMA", "tile"),
        chosen("mbarriers, of which each stage has two", "mbarrier.init"),
        held("columns of Tensor Memory", count("columns"), max),
        held("loads for 32 columns of sums", loads, max),
        held("waits for loads of sums", count("tcgen05.wait::ld"), min),
        held("fences behind waits (`after_thread_sync`)", count("tcgen05.fence::after_thread_sync"), min),
        held("fences of mbarriers that are initialized", count("fence.mbarrier_init"), min),
        held("barriers of a block", count("bar.sync"), max),
        held("elections", count("elect.sync"), max),
        held("instructions", count("instructions"), max),
        held("findings of `porter check --sm100`", lambda row: len(row["findings"]), max),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for name, source in PROGRAMS.items() for row in rows_of(name, source)]
    record = {"toolkit": find_toolkit().build, "rows": rows, "differences": differences(rows)}
    options.output.write_text(as_rows(record), "utf-8")


if __name__ == "__main__":
    main()
