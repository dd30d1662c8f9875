# SPDX-License-Identifier: Apache-2.0
"""A house library of warpgroup MMAs whose asm is not at hand, and what its owner says of it."""

from __future__ import annotations

from pathlib import Path

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

HEAD = "schema: 2\nlibrary: acme\nscope: [acme]\nrules:\n"
MULTIPLY = """\
  - id: ACME100
    title: House multiply
    recognize: 'acme::mma<$N>($D, $A, $B)'
    where: {N: const, D: name}
    as: {mma: {shape: 'm64n${N}k16', types: f32.f16.f16, d: $D, a: $A, b: $B}}
    safety: review
    reason: The library's multiply is one wgmma of 64 by N by 16.
    examples:
      - {before: 'acme::wait<0>()', expect: [x]}
      - {near: 'acme::mma<64>(acc[0], a, b)'}
"""
_SYNC = """\
  - {id: %s, title: House sync, recognize: '%s', as: %s, safety: review, reason: It is wgmma's.,
     examples: [{before: 'acme::fence()', expect: [x]}, {absent: 'other::f()'}]}
"""
_FACTS = {"fence()": "{fence: {}}", "commit()": "{commit: {}}", "wait<$N>()": "{wait: {pending: $N}}"}
SYNC = "".join(_SYNC % (f"ACME10{i}", f"acme::{pattern}", fact) for i, (pattern, fact) in enumerate(_FACTS.items(), 1))
RULES = HEAD + MULTIPLY + SYNC

HEADER = """\
#pragma once
#include <cstdint>
namespace acme {
template <int N> __device__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b);
__device__ void fence();
__device__ void commit();
template <int N> __device__ void wait();
}
"""
BATCH = "    acme::fence();\n    acme::mma<64>(acc, a, b);\n    acme::commit();\n    acme::wait<0>();\n"
STORE = "    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = acc[i];\n"


def kernel(batch: str = BATCH, before: str = "", declared: str = "float acc[32] = {};", head: str = "") -> str:
    signature = "__global__ void __launch_bounds__(128) kernel(float* out, uint64_t a, uint64_t b)"
    return f'{head}#include "house.cuh"\n{before}{signature} {{\n    {declared}\n{batch}{STORE}}}\n'


def port_house(tmp_path: Path, text: str, rules: str = RULES, header: str | None = HEADER, **others: str) -> PortResult:
    """Port a kernel of the house with these rules; `others` are further rule files."""
    (tmp_path / "kernel.cu").write_text(text)
    if header is not None:
        (tmp_path / "house.cuh").write_text(header)
    directory = tmp_path / "rules"
    directory.mkdir(exist_ok=True)
    for name, content in {"acme": rules, **others}.items():
        (directory / f"{name}.yaml").write_text(content)
    return port_sources(load_sources(tmp_path / "kernel.cu"), PortOptions(rule_directories=(str(directory),)))


def written(result: PortResult) -> str:
    """The port's text; fails if anything was refused."""
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert result.changed
    return result.files[result.sources.root].decode()


def codes(result: PortResult) -> list[str]:
    """Names of the errors of a port that has to be refused whole."""
    assert not result.changed, result.files[result.sources.root].decode()
    return [d.code.name for d in result.diagnostics if d.severity.value == "error"]
