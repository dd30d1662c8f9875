# SPDX-License-Identifier: Apache-2.0
"""What a CuTe DSL kernel calls by other names than another one that does the same: NVIDIA's Blackwell examples beside
ports of its Hopper examples.

    porter port --trust --style idiomatic -o ports dense_gemm.py
    python scripts/dsl_sisters.py ports/dense_gemm.py cutlass/examples/…/blackwell/kernel/dense_gemm/dense_gemm.py

Takes pairs of files, port and sister. For each part of a kernel: the public names of the package that one of both has
alone; what a file needs to call and measure its kernel is left out. Reads only, compiles nothing.

    PORTER_TRUST=1 python scripts/dsl_sisters.py --layouts dense_gemm.py

Takes originals that have a case beside them, which is traced: whether they get SM100's own layouts of operands where
`--layouts sm100` asks for them, or what is missing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from porter.cli.porting import traces_of
from porter.diagnostics import Code
from porter.lang.cute_dsl import parse_dsl
from porter.passes.dsl.port import port_python
from porter.passes.native.dsl_layouts import NAME, RULE
from porter.rules.load import own_names

PARTS = {
    "tiled MMA": r"make_trivial_tiled_mma|CtaGroup|OperandMajorMode|shape_mnk",
    "layouts of operands": r"make_smem_layout_[ab]$",
    "loads": r"make_tiled_tma_atom|cluster_shape_to_tma_atom|CopyBulkTensorTileG2S|multicast_mask|prefetch_descriptor",
    "pipelines": r"^cutlass\.pipeline\.",
    "Tensor Memory": r"[Tt]mem(Allocator|_alloc_cols|_tmem)|make_fragment_C",
    "epilogue": r"tmem_load_op|smem_store_op|tmem_copy|epilogue_tile|tiled_copy|layout_epi|tile_shape_or_override",
    "tiles": r"TileScheduler|TensorMap",
    "fences": r"fence|Fence",
}
"""Parts of a kernel by patterns of names."""
REST = "others"
_OF_HOST = re.compile(r"\.(torch|testing|runtime|compile|HardwareInfo|dtype)\b")
_PACKAGE = "cutlass."
_ALIASES = {"90": "hopper_helpers", "100": "blackwell_helpers"}
"""Modules of `cutlass.utils` that have two names."""


def names_of(path: Path) -> set[str]:
    """The names of the package that a file's kernels and their host code use."""
    parsed = parse_dsl(str(path), path.read_bytes(), dialect=own_names().dialect)
    found = {n for _, n in parsed.references() if n.startswith(_PACKAGE) and not _OF_HOST.search(n)}
    return {re.sub(r"(?<=\.utils\.)sm(100|90)\b", lambda m: _ALIASES[m[1]], name) for name in found}


def part_of(name: str) -> str:
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name)), REST)


def table(port: Path, sister: Path) -> Iterator[str]:
    """Lines: what both share, and for each part what one has alone."""
    ours, theirs = names_of(port), names_of(sister)
    mlir = sum("_mlir" in name for name in ours)
    yield f"{port.name}: {len(ours & theirs)} names as {sister.parent.name}/{sister.name}, {mlir} of cutlass._mlir"
    for part in (*PARTS, REST):
        alone = {"port": _of(part, ours - theirs), "sister": _of(part, theirs - ours)}
        if any(alone.values()):
            yield f"  {part}"
            yield from (f"    {who}: {', '.join(map(_short, names))}" for who, names in alone.items() if names)
        elif _of(part, ours):
            yield f"  {part}: as the sister"


def _of(part: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if part_of(name) == part)


def _short(name: str) -> str:
    return name.removeprefix(_PACKAGE).removeprefix("cute.nvgpu.").removeprefix("cute.")


def laid_out(original: Path) -> str:
    """Whether a port of a file lays its operands out as SM100 does, where that is asked for, or why not."""
    ported = port_python(original, traces=traces_of, steps=(NAME,))
    if NAME in ported.native:
        return f"{original.name}: {NAME} ({RULE})"
    said = [d for d in ported.diagnostics if d.code in (Code.NATIVE_LEFT, Code.IDIOM_LEFT)]
    why = [f"{d.code.id}, line {d.where.line if d.where else 0}: {d.values['what']}" for d in said]
    return f"{original.name}: without {NAME} ({RULE}); missing: {'; '.join(why)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", action="store_true", help="originals with cases, which are ported")
    parser.add_argument("files", type=Path, nargs="+", help="port and sister, and further pairs")
    options = parser.parse_args()
    given: list[Path] = options.files
    if options.layouts:
        print("\n".join(map(laid_out, given)))
        return
    if len(given) % 2:
        parser.error("each port needs its sister")
    for port, sister in zip(given[::2], given[1::2], strict=True):
        print("\n".join(table(port, sister)))


if __name__ == "__main__":
    main()
