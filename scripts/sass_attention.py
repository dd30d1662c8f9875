# SPDX-License-Identifier: Apache-2.0
"""Instructions that a warp of attention issues for a block of keys: those of PTX, which the grade counts, beside those
that ptxas makes of them.

    pip install --target tools 'nvidia-cuda-nvdisasm>=13.0'
    python scripts/sass_attention.py --nvdisasm tools/nvidia/cu13/bin/nvdisasm --output docs/results/sass-attention.json

Needs the CUDA compiler that Porter finds; no GPU. docs/grade.md shows the record.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from porter.build.entry import kernel_name
from porter.build.toolchain import find_toolkit
from porter.cli.porting import look
from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.grade.kinds import MUFU
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.ptx import ast
from porter.verify.builder import parse_ptx
from porter.verify.rows import as_rows

SOURCE = Path(__file__).resolve().parents[1] / "corpus" / "attention_fwd" / "attention_fwd.cu"
THREADS = 384
STYLES = {
    "original": None,
    "compat": PortOptions(),
    "full-rate": PortOptions(full_rate=True),
    "native": PortOptions(full_rate=True, native=STEPS, chosen=frozenset({(str(SOURCE), "blocks")})),
}
_FUNCTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)", re.MULTILINE)
_LABEL = re.compile(r"(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?[A-Z].*?);")
_BACK = re.compile(r"BRA.*?`\((\.L_x_\d+)\)")
_ISSUING = ("UTCHMMA", "UTCBAR", "ELECT")
_ENDS = ("BRA", "BREAK", "BSYNC")
_ZEROS = 4
"""Pairs of registers that become 0 in a row: sums of which nothing is added up yet."""


def loop_of(sass: str) -> list[tuple[str, bool]]:
    """The shortest loop with a softmax in it: its instructions, each with whether a block begins with it."""
    rows: list[str] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if match := _LABEL.match(line):
            labels[match[1]] = len(rows)
        if match := _INSTRUCTION.search(line):
            rows.append(match[1])
    spans = [(labels[m[1]], at) for at, row in enumerate(rows) if (m := _BACK.search(row)) and m[1] in labels]
    with_softmax = [(b, e) for b, e in spans if b < e and sum("MUFU.EX2" in r for r in rows[b : e + 1]) > _ZEROS]
    first, last = min(with_softmax, key=lambda span: span[1] - span[0])
    starts = {first, *labels.values(), *(at + 1 for at in range(len(rows)) if any(e in rows[at] for e in _ENDS))}
    return [(rows[at], at in starts) for at in range(first, last + 1)]


def issued(loop: list[tuple[str, bool]]) -> tuple[int, int]:
    """How many instructions a loop has, and how many without the blocks in which one warp issues MMAs, and those in
    which sums begin as 0."""
    blocks: list[list[str]] = []
    for row, begins in loop:
        if begins or not blocks:
            blocks.append([])
        blocks[-1].append(row)
    mine = [b for b in blocks if not any(word in row for row in b for word in _ISSUING)]
    mine = [b for b in mine if sum(row.startswith("CS2R") for row in b) < _ZEROS]
    return len(loop), sum(map(len, mine))


def counted(module: ast.Module, entry: ast.Function) -> int:
    """Instructions of PTX in a pass of that loop, of a warp that issues no MMA for others."""
    code = Code(module, entry)
    warps = Warps(code, (THREADS,))
    paths = [warps.path(warp, loop) for loop in code.loops for warp in range(warps.count)]
    return min(len(path) for path in paths if any(code.code[at].parts[0] in MUFU for at in path))


def rows(nvdisasm: Path) -> Iterator[dict[str, object]]:
    toolkit = find_toolkit()
    for style, options in STYLES.items():
        arch = "sm_90a" if options is None else "sm_100a"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            texts = {p.name: p.read_bytes() for p in SOURCE.parent.iterdir() if p.suffix in (".cu", ".cuh")}
            if options is not None:
                texts |= {Path(p).name: t for p, t in port_paths([SOURCE], options, (), look).new.items()}
            for file, text in texts.items():
                (folder / file).write_bytes(text)
            command = [str(toolkit.nvcc), f"-arch={arch}", "-std=c++17", str(folder / SOURCE.name), "-o"]
            subprocess.run([*command, str(folder / "a.ptx"), "-ptx"], check=True)
            subprocess.run([*command, str(folder / "a.cubin"), "-cubin"], check=True)
            done = subprocess.run([nvdisasm, "-c", folder / "a.cubin"], check=True, capture_output=True, text=True)
            module = parse_ptx((folder / "a.ptx").read_text(), "a.ptx")
        heads = list(_FUNCTION.finditer(done.stdout))
        ends = [*(m.start() for m in heads[1:]), len(done.stdout)]
        sass = {m[1]: done.stdout[m.end() : end] for m, end in zip(heads, ends, strict=True)}
        for entry in sorted(module.entries(), key=lambda e: e.name):
            whole, mine = issued(loop_of(sass[entry.name]))
            yield {"style": style, "arch": arch, "kernel": kernel_name(entry.name), "ptx": counted(module, entry),
                   "sass": mine, "sass_of_the_loop": whole}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvdisasm", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.write_text(as_rows({"rows": list(rows(given.nvdisasm))}), "utf-8")


if __name__ == "__main__":
    main()
