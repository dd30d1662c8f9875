# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's SM100 tutorials beside Porter's ports of its Hopper tutorials: what stands in the PTX of their kernels.

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
from pathlib import Path

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.port_plan import PortPlan, materialize
from porter.build.toolchain import find_toolkit
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.passes.sm100.check import sm100_findings
from porter.passes.sm100.instructions import flat
from porter.ptx.ast import Function, Instruction
from porter.ptx.parser import parse_module
from porter.verify.rows import as_rows

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
    "bar.sync", "barrier.sync", "cp.async", "cp.async.bulk.tensor", "fence.proxy.async", "elect.sync",
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


def rows_of(name: str, source: Path) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        if name.startswith("port"):
            result = port_sources(load_sources(source, INCLUDES))
            source = materialize(PortPlan(files=result.files), source, Path(folder))
        found = sm100_findings(source, INCLUDES)
        request = CompileRequest(source, "sm_100a", include_dirs=INCLUDES, defines=("NDEBUG",), lineinfo=False)
        module = parse_module(compile_ptx(request).ptx)
    codes = sorted({d.code.id for d in found})
    rows = [{"program": name, "findings": codes, **figures(f)} for f in module.entries()]
    return [row for row in rows if row["tcgen05.mma"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for name, source in PROGRAMS.items() for row in rows_of(name, source)]
    options.output.write_text(as_rows({"toolkit": find_toolkit().build, "rows": rows}), "utf-8")


if __name__ == "__main__":
    main()
