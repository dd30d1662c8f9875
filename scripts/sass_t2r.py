# SPDX-License-Identifier: Apache-2.0
"""Instructions of loads from Tensor Memory by width, with assertions and without, as nvdisasm shows them.

    pip install --target tools 'nvidia-cuda-nvdisasm>=13.2'
    python scripts/sass_t2r.py --nvdisasm tools/nvidia/cu13/bin/nvdisasm --output docs/results/sass-t2r.json

Needs the CUDA compiler that Porter finds and the `nvidia-cutlass` wheel; no GPU. `docs/t2r.md` shows the record.
"""

from __future__ import annotations

import argparse
import importlib.resources
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from porter.build.toolchain import find_toolkit
from porter.verify.rows import as_rows

SOURCE = Path(__file__).with_name("sass_t2r.cu")
ARCH = "sm_100a"
SHOWN = ("LDTM", "CALL", "LEPC", "WARPSYNC")
_FUNCTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")


def counts(sass: str) -> dict[str, Counter[str]]:
    """How often each function has each opcode."""
    heads = list(_FUNCTION.finditer(sass))
    ends = [*(m.start() for m in heads[1:]), len(sass)]
    parts = {m[1]: sass[m.end() : end] for m, end in zip(heads, ends, strict=True)}
    return {name: Counter(m[1] for m in _INSTRUCTION.finditer(text)) for name, text in parts.items()}


def disassembled(nvdisasm: Path, flags: list[str], folder: Path) -> str:
    toolkit = find_toolkit()
    include = importlib.resources.files("cutlass_library") / "source" / "include"
    cubin = folder / "t2r.cubin"
    command = [
        toolkit.nvcc,
        "-cubin",
        f"-arch={ARCH}",
        "-std=c++17",
        "--expt-relaxed-constexpr",
        f"-I{include}",
        *flags,
    ]
    subprocess.run([*map(str, command), str(SOURCE), "-o", str(cubin)], check=True)
    return subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout


def rows(nvdisasm: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for asserts in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            sass = disassembled(nvdisasm, [] if asserts else ["-DNDEBUG"], Path(folder))
        for kernel, opcodes in sorted(counts(sass).items()):
            shown = {opcode: opcodes[opcode] for opcode in SHOWN}
            width = kernel.removeprefix("t2r_")
            found.append({"width": width, "asserts": asserts, **shown, "instructions": opcodes.total()})
    return sorted(found, key=lambda row: (int(str(row["width"])[1:]), not row["asserts"]))


def version(tool: Path) -> str:
    text = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout
    return re.findall(r"V([\d.]+)", text)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvdisasm", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    tools = {"nvcc": version(find_toolkit().nvcc), "nvdisasm": version(options.nvdisasm)}
    document = {"tile": "128x256 f32", "arch": ARCH, "tools": tools, "rows": rows(options.nvdisasm)}
    options.output.write_text(as_rows(document), "utf-8")


if __name__ == "__main__":
    main()
