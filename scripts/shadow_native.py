# SPDX-License-Identifier: Apache-2.0
"""docs/results/shadow-native.txt: who refuses steps of the native style for kernels which they are wrong for, or
nobody knows them to be right for: the compiler, PTX, or a run with hazards.

    python scripts/shadow_native.py [--seconds 20] [GROUP ...] > docs/results/shadow-native.txt

The kernels are those of tests/passes, with operands and a case, so that they run; those of the group `sizes` go wrong
at sizes alone that no case has. What is accepted has its reason in ACCEPTED, or is WRONG.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

Pairs = tuple[tuple[str, str], ...]

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/passes")]

ACCEPTED = {
    ("right", "as it is, stages that go back"): "right",
    ("right", "as it is, a product that is issued ahead"): "right",
    ("library", "as it is, a warp of its own for a library's MMAs"): "right",
    ("stages", "more stages"): "right",
    ("stages", "more stages, by types"): "right",
    ("tiles", "a place that changes"): "right: nothing is added to it",
    ("wide", "columns that change, late"): "right: those of the port's tiles change alike",
    ("library", "a stage that is waited for behind the meeting"): "right: it goes back behind the next meeting alone",
    ("release", "consumers that come to MMAs of their own"): "right: that of the first one has the rows of both",
    ("turns", "consumers that load"): "right: where they do, the kernel itself has hazards",
    ("turns", "a turn that ends early"): "right: no turn has more rows ahead of it than there are",
    (
        "turns",
        "threads meet between products",
    ): "right: both consumers come there once in each turn, as in the original",
    (
        "together",
        "elements left out at two edges",
    ): "right: a lane says which elements it has stored, and no other ones leave",
    (
        "together",
        "a store of one turn in a second block",
    ): "right: where it comes, the original's own blocks write to one place",
    ("together", "warps that meet at two edges"): "right: all consumers come there, as in the original",
    ("together", "lanes that return at two edges"): "right: sums are loaded ahead of it",
    ("together", "a stage that is read at two edges"): "right: after one turn the stage has not been given back",
    ("turns", "two stages of one ring"): "right: a stage goes back ahead of the wait for the next one",
    ("turns", "a wait for some MMAs"): "right: the batch that is still in flight is empty",
    ("stores", "results by bulk copies"): "right",
    ("wide", "tiles of twice the width"): "right",
    ("stores", "two outputs"): "right: of the second one threads store all by themselves",
    ("tiles", "every other stage"): "right: who loads and who multiplies both take one stage after another",
    ("stores", "lanes that meet in the loop"): "right: all of them come there",
    ("stores", "a way out for all"): "right: no size has no rows",
    ("stores", "a block that stores nothing, late"): "right: neither does the port's",
    ("stores", "once more"): "right",
    ("stores", "columns that wrap"): "right: whole groups of columns wrap",
    ("stores", "lanes of eight rows each"): "right: rows that begin at no 16 bytes are stored by their lanes",
    ("right", "as it is, a thread of its own"): "right",
    ("release", "a phase that is kept"): "right: the token is used where k < 0, which never comes",
    ("release", "consumers that wait for each other"): "right: they wait for the commit, as who loads does",
    ("release", "a predicate of the instruction"): "right: one thread of each consumer arrived, and one commit does",
    ("tiles", "a sum over the tiles of a thread"): "right: nobody reads the sum",
    ("tiles", "a fence for others"): "right: nobody waits for what it orders",
    ("sizes", "late, a store of all consumers"): "right: one thread stores the number that all of them stored",
    ("sizes", "late, a second arrival"): "right: where it comes, the kernel itself ends in a deadlock",
    ("turns", "a ring that counts its copies"): "right: nobody sees what a copy does at its end",
    ("writes", "a pointer that moves"): "right: one thread stores the number that all of them stored",
    ("writes", "a helper with a pointer that moves"): "right: one thread stores the number that all of them stored",
    ("writes", "an element"): "right: one thread stores the number that all of them stored",
    ("writes", "a method"): "right: one thread stores the number that all of them stored",
    ("writes", "a lambda"): "right: one thread stores the number that all of them stored",
    ("writes", "a macro"): "right: one thread stores the number that all of them stored",
}
"""Why what is accepted is right, by the group and the name of the kernel."""

STAGES = 6
"""What is asked for."""

CASE = """\
version: 1
kernel: kernel.cu
entry: kernel
sizes: {K: 80}
other_sizes: [{K: 16}]
families: [integers]
multiples: {K: 16}
tensors:
  A: {dtype: f16, shape: [128, K], role: input}
  B: {dtype: f16, shape: [16, K], role: input}
  C: {dtype: f32, shape: [128, 16], role: output}
  S: {dtype: f32, shape: [8192], role: scratch, fill: 0}
tensor_maps:
  map_a: {tensor: A, box: [128, 16], swizzle: 32B}
  map_b: {tensor: B, box: [16, 16], swizzle: 32B}
launch: {grid: [1, 1, 1], block: [384, 1, 1]}
params: [C, map_a, map_b, "K / 16", S]
reduction: K
steps: {K: 16}
reference: "A @ B.T"
accumulate: f32
"""
RUNNABLE = {
    "kernel(float* out, const void* map, uint64_t a, uint64_t b, int steps) {": (
        "kernel(float* out, const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap map_b,"
        " int steps, float* seen) {\n    const uint64_t a = 0;"
    ),
    "__shared__ char tiles[2][4096];": "__shared__ __align__(1024) char tiles[2][5120];",
    "{%3, %3}], [%2];": "{%3, %4}], [%2];",
    '"r"(x) : "memory"': '"r"(x * 16), "r"(0) : "memory"',
    ", 4096);": ", 4096 + 512);",
    "load(tiles[k % 2], map, @FULL@, k);": "load(tiles[k % 2], &map, @FULL@, k);\n"
    "                load(tiles[k % 2] + 4096, &map_b, @FULL@, k);",
    "wait(@FULL@, k / 2 % 2);": "wait(@FULL@, k / 2 % 2);\n"
    "            const uint64_t a = described(tiles[k % 2]), b = described(tiles[k % 2] + 4096)@MINUS@;",
    "out[threadIdx.x * 8 + i] = acc[i]": "out[(consumer * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4"
    " + i / 2 % 2 * 8) * 16 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = acc[i]",
    "__device__ void init(": "__device__ uint64_t described(const void* p) {\n"
    "    return (uint64_t)(shared(p) >> 4) | 1ull << 16 | 16ull << 32 | 3ull << 62;\n}\n__device__ void init(",
    "#include <cstdint>": "#include <cstdint>\n#include <cuda.h>",
}
"""What makes the kernel of `native_kernels` multiply tiles that it has loaded."""
MEET = (
    '    asm volatile("fence.mbarrier_init.release.cluster; barrier.cluster.arrive.release.aligned;'
    ' barrier.cluster.wait.acquire.aligned;" ::: "memory");\n'
)
STORES = "for (int i = 0; i < 8; ++i) out"
"""In clusters all CTAs do the same, and the first one stores it."""


def runnable(parts: dict[str, str]) -> str:
    import native_kernels as kernels

    text = kernels.HEAD + kernels.KERNEL
    for old, new in RUNNABLE.items():
        assert old in text, old
        text = text.replace(old, new)
    for name, value in {**kernels.DEFAULTS, "MINUS": "", **parts}.items():
        text = text.replace(f"@{name}@", value)
    # a consumer's rows of A are 64 rows of 32 bytes behind
    text = text.replace("* 512", "* 128")
    if parts.get("CTAS", "1") == "1":
        return text
    head, _, body = text.partition("__global__ void")
    body = body.replace("    __syncthreads();", MEET, 1).replace(STORES, f"if (blockIdx.x == 0) {STORES}", 1)
    return f"{head}__global__ __cluster_dims__({parts['CTAS']}, 1, 1) void{body.rstrip()[:-1]}{MEET}}}\n"


def written(folder: Path, parts: dict[str, str] | Pairs | Callable[[Path], Path]) -> Path:
    """The file of a kernel, with its case: parts of `native_kernels` or of `attention_kernels`, or what writes it."""
    import attention_kernels

    if callable(parts):
        return parts(folder)
    if not isinstance(parts, dict):
        return attention_kernels.written(folder, parts, heads=(64,))
    ctas = parts.get("CTAS", "1")
    launch = f"grid: [{ctas}, 1, 1], cluster: [{ctas}, 1, 1], block" if ctas != "1" else "grid: [1, 1, 1], block"
    (folder / "case.yaml").write_text(CASE.replace("grid: [1, 1, 1], block", launch))
    (folder / "kernel.cu").write_text(runnable(parts))
    return folder / "kernel.cu"


def judged(
    folder: Path, parts: dict[str, str] | Pairs | Callable[[Path], Path], steps: tuple[str, ...], seconds: float
) -> tuple[str, str]:
    """Who refuses the step, and why; `accepted` where nobody does."""
    from porter.cli.building import make_builder
    from porter.cli.context import current
    from porter.cli.judging import judge
    from porter.cli.porting import launches_of, look
    from porter.diagnostics import Code
    from porter.passes.port import PortOptions
    from porter.passes.ported import port_paths
    from porter.scan.boxes import boxes_of
    from porter.tune.searching import of_step
    from porter.tune.verifying import Proofs
    from porter.verify.gate import GateOptions

    path = written(folder, parts)
    made = partial(port_paths, [path], include_dirs=(), look=look)
    options = PortOptions(full_rate=True, launches=partial(launches_of, ()))
    chosen, stages = of_step(steps[-1], [str(path)]), frozenset([(str(path), STAGES)])
    if "wide" in steps:
        options = replace(options, boxes=partial(boxes_of, ()))
    ported = made(replace(options, native=steps, chosen=chosen, stages=stages))
    left = [d for d in ported.diagnostics if d.code in (Code.NATIVE_LEFT, Code.FULL_RATE_LEFT)]
    if not ported.roots or steps[-1] not in ported.roots[0].native:
        errors = [str(d.message) for d in ported.diagnostics if d.severity.value == "error"]
        return "not proposed", "; ".join([*(str(d.values["what"]) for d in left), *errors])
    builder = make_builder(None)
    compat = made(PortOptions())
    if what := Proofs(builder, current()).of(compat, compat.roots[0]).missing:
        return "not judged", f"the compat port: {what}"
    proofs = Proofs(builder, current(), judge=judge(current(), GateOptions(jobs=1), seconds))
    (root,) = ported.roots
    if what := proofs.on_ptx(ported, root):
        return "PTX", f"{what} (the run: {proofs.of(ported, root).missing or 'clean'})"
    what = proofs.missing(ported, root)
    return ("run", what) if what else ("accepted", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each proof and comparison")
    parser.add_argument("groups", nargs="*")
    args = parser.parse_args()
    print(f"python scripts/shadow_native.py --seconds {args.seconds:g} {' '.join(args.groups)}".rstrip())
    seen: Counter[str] = Counter()
    import shadow_kernels

    for group, name, parts, steps in (k for k in shadow_kernels.cases() if not args.groups or k[0] in args.groups):
        began = time.process_time()
        with tempfile.TemporaryDirectory(prefix="porter-") as folder:
            try:
                who, what = judged(Path(folder), parts, steps, args.seconds)
            except Exception as error:
                who, what = "failed", repr(error)
            what = re.sub(r"\s+", " ", re.sub(r"(?:/[\w.-]+)*/", "", what.replace(folder, ""))).strip()
        reason = ACCEPTED.get((group, name), "WRONG") if who == "accepted" else what[:150]
        print(f"{group:10} {name:48} {who:13} {time.process_time() - began:5.1f} s  {reason}", flush=True)
        seen[who] += 1
    print(", ".join(f"{count} {who}" for who, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
