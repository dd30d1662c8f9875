# SPDX-License-Identifier: Apache-2.0
"""Accumulators of different types in one file: each has loads and stores of its own, and the port compiles."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from kernels import LOOP, STORE, SYNC, compiles, port_files, wrapper

# name: wrapper types, parameter, element type, registers of m64n16, tail
KINDS = {
    "f32": ("f32.bf16.bf16", "float (&d)[8]", "float", 8, "1, 1, 1, 0, 0"),
    "s32": ("s32.s8.s8", "int (&d)[8]", "int", 8, "1"),
    "f16": ("f16.f16.f16", "uint32_t (&d)[4]", "uint32_t", 4, "1, 1, 1, 0, 0"),
    "f32 of tf32": ("f32.tf32.tf32", "float (&d)[8]", "float", 8, "1, 1, 1"),
    "f16 of e4m3": ("f16.e4m3.e4m3", "uint32_t (&d)[4]", "uint32_t", 4, "1, 1, 1"),
}


def wrapped(kind: str, name: str) -> str:
    types, parameter, element, registers, tail = KINDS[kind]
    text = wrapper(2 * registers, types, parameter, name, tail).replace(f"m64n{2 * registers}", "m64n16")
    return text if element == "float" else text.replace('"+f"', '"+r"')


def kernel(kind: str, name: str, mma: str, rescaled: bool) -> str:
    _, _, element, registers, _ = KINDS[kind]
    loop = LOOP.replace("mma(", f"{mma}(")
    if rescaled:
        loop = loop.replace(
            "        arrive();", f"        for (int i = 0; i < {registers}; ++i) acc[i] *= 2;\n        arrive();"
        )
    store = STORE.replace("8", str(registers))
    return f"""
__global__ void __launch_bounds__(128) {name}({element}* out, uint64_t a, uint64_t b, int steps) {{
    {element} acc[{registers}] = {{0}};
{loop}{store}}}
"""


PAIRS = [*combinations(KINDS, 2)]
QUICK = ("f32", "s32")


@pytest.mark.parametrize("rescaled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", [p if p == QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PAIRS], ids=str)
def test_kernels_of_two_types_in_one_file(tmp_path: Path, pair: tuple[str, str], rescaled: bool) -> None:
    text = "#include <cstdint>\n" + SYNC
    for i, kind in enumerate(pair):
        text += wrapped(kind, f"mma{i}") + kernel(kind, f"kernel{i}", f"mma{i}", rescaled)
    result = port_files(tmp_path / "in", {"kernel.cu": text})
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    compiles(result, tmp_path / "in", tmp_path / "out")


def test_two_types_in_one_kernel(tmp_path: Path) -> None:
    text = "#include <cstdint>\n" + SYNC + wrapped("f32", "mma0") + wrapped("s32", "mma1")
    text += """
__global__ void __launch_bounds__(128) kernel(float* out, uint64_t a, uint64_t b, int steps) {
    float acc[8] = {0};
    int sum[8] = {0};
    for (int k = 0; k < steps; ++k) {
        arrive();
        mma0(acc, a, b);
        mma1(sum, a, b);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i] + sum[i];
}
"""
    result = port_files(tmp_path / "in", {"kernel.cu": text})
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    ptx = compiles(result, tmp_path / "in", tmp_path / "out")
    assert ptx.count("tcgen05.ld.sync") == 2
