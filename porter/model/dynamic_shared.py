# SPDX-License-Identifier: Apache-2.0
"""How much dynamic shared memory host code in the same sources asks for, where that is a number."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.model.block_size import LAUNCHERS, kernel_named, size_text
from porter.model.functions import Function
from porter.model.program import Program

_ATTRIBUTE = {"cudaFuncSetAttribute": 2, "cuFuncSetAttribute": 2}
"""Functions that set an attribute of a kernel, and which of their arguments is the value."""
_IN_RUNTIME = {"cudaLaunchKernel": 4, "cudaLaunchCooperativeKernel": 4}
_MOST_DYNAMIC = ("cudaFuncAttributeMaxDynamicSharedMemorySize", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")


def asked_for(program: Program, kernel: Function) -> int | None:
    """The most bytes that a launch of a kernel, or an attribute set for its launches, is known to ask for."""
    values = [
        program.constants_in(caller).evaluate(text)
        for caller, node in _amounts(program, kernel)
        if (text := size_text(program, caller, node))
    ]
    return max((v for v in values if v is not None), default=None)


def _amounts(program: Program, kernel: Function) -> Iterator[tuple[Function, Node]]:
    for call in program.callers(kernel):
        syntax = next((c for c in call.node.named_children if c.type == "kernel_call_syntax"), None)
        parts = [c for c in syntax.named_children if c.type != "comment"] if syntax is not None else []
        if len(parts) >= 3:
            yield call.caller, parts[2]
    for caller in program.functions:
        for call in caller.calls:
            at, named = _IN_RUNTIME.get(call.name), LAUNCHERS.get(call.name, 0)
            if call.name in _ATTRIBUTE and len(call.args) == 3 and caller.text(call.args[1]).endswith(_MOST_DYNAMIC):
                at = _ATTRIBUTE[call.name]
            if at is None or at >= len(call.args):
                continue
            if kernel_named(program, kernel, caller, call.args[named], 0) is not None:
                yield caller, call.args[at]
