# SPDX-License-Identifier: Apache-2.0
"""How many k tiles a loop goes over, and whether a tile may have none."""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import DslFile, walk
from porter.model.dsl.gemm import Gemm


def loop_bounds(file: DslFile, loop: cst.For) -> list[cst.BaseExpression] | None:
    """The positional arguments of a loop's `range`."""
    call = loop.iter
    if not isinstance(call, cst.Call):
        return None
    name = file.call_name(call) or file.text(call.func)
    if name not in ("range", "cutlass.range", "cutlass.range_constexpr"):
        return None
    return [a.value for a in call.args if a.keyword is None]


def count_that_may_be_zero(gemm: Gemm) -> str | None:
    """The number of k tiles, where the kernel itself asks whether there are any, as it does for groups of a
    grouped GEMM. The sum of such a tile is zero, and no MMA writes it."""
    found = loop_bounds(gemm.file, gemm.loops[-1].loop)
    if not found:
        return None
    stop = found[1] if len(found) > 1 else found[0]
    if not isinstance(stop, cst.Name):
        return None
    for node in walk(gemm.kernel.function.body):
        if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
            continue
        sides = {gemm.file.text(node.left), gemm.file.text(node.comparisons[0].comparator)}
        if sides == {stop.value, "0"}:
            return stop.value
    return None
