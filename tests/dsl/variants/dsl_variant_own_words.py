# SPDX-License-Identifier: Apache-2.0
"""Variants whose operand A comes from registers, ported in Blackwell's own words by their traces."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dsl_variant_template
from dsl_variant_run import Edit, Found, Outcome
from dsl_variant_types import KINDS, TILES, Variant

from porter.build.dsl import DslRequest, compile_dsl
from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Code
from porter.passes.dsl.port import port_python
from porter.passes.idiom_dsl.facts import Trace
from porter.passes.idiom_dsl.names import ALL_OBSERVED

STORE = re.compile(r"( *)store\(mma, (\w+), mC, tidx\)")
INLINE = """tCgC = thr.partition_C(mC)
for i in cutlass.range_constexpr(cute.size({sums})):
    tCgC[i] = {sums}[i].to(mC.element_type)
"""
FROM_MEMORY = "tCrA = mma.make_fragment_A(thr.partition_A(sA))"
FROM_REGISTERS = "tCsA = thr.partition_A(sA)\nrA = mma.make_fragment_A(tCsA[None, None, None, 0])"
_A = re.compile(r"tCrA\[None, None, (None|k), [^\]]+\]")
_B = re.compile(r"tCrB\[None, None, (?:None|k), ([^\]]+)\]")


def in_place(variant: Variant) -> Variant:
    """Sums are stored by the kernel itself: what a function does with a tiled MMA is not followed."""
    body = STORE.sub(lambda found: textwrap.indent(INLINE.format(sums=found[2]), found[1]), variant.body)
    return replace(variant, body=body)


def from_registers(variant: Variant) -> Variant:
    """The same kernel with A copied to registers ahead of each fence."""
    body = variant.body.replace(FROM_MEMORY, FROM_REGISTERS).replace("cute.size(tCrA,", "cute.size(rA,")
    body = _A.sub(lambda found: "rA" if found[1] == "None" else "rA[None, None, k]", body)
    lines, all_lines = list[str](), body.splitlines()
    for at, line in enumerate(all_lines):
        behind = _B.search("\n".join(all_lines[at:]))
        if line.strip() == "warpgroup.fence()" and behind is not None:
            margin = line[: len(line) - len(line.lstrip())]
            lines.append(f"{margin}cute.autovec_copy(tCsA[None, None, None, {behind[1]}], rA)")
        lines.append(line)
    mmas = {name: replace(one, registers=True) for name, one in variant.mmas.items()}
    return replace(variant, body="\n".join(lines) + "\n", mmas=mmas)


def trace_of(variant: Variant, path: Path) -> Trace:
    kind = KINDS[variant.kind]
    k = kind.depth * TILES
    shapes = ((kind.operand, (variant.m, k)), (kind.operand, (variant.n, k)), ("Float32", (variant.m, variant.n)))
    call: list[Mapping[str, Any]] = [
        {"kind": "tensor", "dtype": dtype, "shape": list(shape), "strides": [shape[1], 1], "align": 16,
         "address": (i + 1) << 24}
        for i, (dtype, shape) in enumerate(shapes)
    ]  # fmt: skip
    call += [{"kind": "runtime", "dtype": "Int32", "value": variant.tiles}, {"kind": "stream"}]
    made = compile_dsl(DslRequest(path, "gemm", "sm_90a", call, observe=ALL_OBSERVED))
    at = made.launches[0]
    return Trace(made.calls, math.prod(at.block), math.prod(at.cluster), frozenset(made.absent))


class InOwnWords:
    """Ports one variant, in place of what the runs of variants port with."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant

    def __call__(self, path: Path, files: dict[str, str], _: Edit) -> Path:
        result = port_python(path, traces=lambda *_: [trace_of(self.variant, path)])
        if not result.idiomatic:
            said = [str(d.values["what"]) for d in result.diagnostics if d.code is Code.IDIOM_LEFT]
            raise Found(Outcome.REFUSED, "; ".join(said))
        files["port.py"] = result.files[str(path)].decode()
        return materialize(PortPlan(files=dict(result.files)), path)


def head_without_products() -> str:
    """What stands in front of the kernels, without a function that no variant here calls: its MMAs are not traced."""
    head = dsl_variant_template.HEAD
    return head[: head.index("@cute.jit\ndef product(")]


def made_one_by_one() -> str:
    """How tiled MMAs are made, with each argument by itself."""
    return dsl_variant_template.MADE.replace("*modes", "modes[0], modes[1]")
