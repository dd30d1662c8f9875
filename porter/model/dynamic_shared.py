# SPDX-License-Identifier: Apache-2.0
"""How much dynamic shared memory host code in the same sources asks for, where that is a number."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.model.block_size import LAUNCHERS, kernel_named, size_text
from porter.model.functions import Function
from porter.model.program import Program

ATTRIBUTES = {"cudaFuncSetAttribute": 2, "cuFuncSetAttribute": 2}
"""Functions that set an attribute of a kernel, and which of their arguments is the value."""
_IN_RUNTIME = {"cudaLaunchKernel": 4, "cudaLaunchCooperativeKernel": 4}
_CONFIGURATIONS = ("cudaLaunchConfig_t", "CUlaunchConfig")
_CONFIGURED = (".dynamicSmemBytes", ".sharedMemBytes", "->dynamicSmemBytes", "->sharedMemBytes")
"""Types of a launch's configuration, and the fields that say how much it asks for."""
_MOST_DYNAMIC = ("cudaFuncAttributeMaxDynamicSharedMemorySize", "CU_FUNCATTRIBUTES_MAX_DYNAMIC_SHARED_SIZE_BYTES")


def asked_for(program: Program, kernel: Function) -> int | None:
    """The most bytes that a launch of a kernel, or an attribute set for its launches, is known to ask for."""
    values = [
        program.constants_in(caller).evaluate(text)
        for caller, node in amounts(program, kernel)
        if (text := size_text(program, caller, node))
    ]
    return max((v for v in values if v is not None), default=None)


def amounts(program: Program, kernel: Function) -> Iterator[tuple[Function, Node]]:
    """What launches of a kernel, and attributes set for them, ask for, each with the function that says so."""
    for caller, amount in _asking(program, kernel):
        if amount is not None:
            yield caller, amount


def configures(file: CudaFile, node: Node) -> bool:
    """Whether the configuration of a launch takes what stands at a node, as a field or where it is declared."""
    given, made = enclosing(node, "assignment_expression"), enclosing(node, "declaration")
    left = given.child_by_field_name("left") if given is not None else None
    if left is not None:
        return file.text(left).endswith(_CONFIGURED)
    kind = made.child_by_field_name("type") if made is not None else None
    return kind is not None and file.text(kind) in _CONFIGURATIONS


def is_asked_for(program: Program, kernel: Function) -> bool:
    """Whether a launch of a kernel stands in the sources, or an attribute that is set for its launches."""
    return next(_asking(program, kernel), None) is not None


def _asking(program: Program, kernel: Function) -> Iterator[tuple[Function, Node | None]]:
    """Launches and attributes of a kernel: the function, and the amount where one is given."""
    for caller in program.functions:
        for syntax in find(caller.body, "kernel_call_syntax"):
            parts = [c for c in syntax.named_children if c.type != "comment"]
            called = syntax.parent.child_by_field_name("function") if syntax.parent is not None else None
            if called is not None and kernel_named(program, kernel, caller, called, 0) is not None:
                yield caller, parts[2] if len(parts) >= 3 else None
        for call in caller.calls:
            at, named = _IN_RUNTIME.get(call.name), LAUNCHERS.get(call.name, 0)
            if call.name in ATTRIBUTES and len(call.args) == 3 and caller.text(call.args[1]).endswith(_MOST_DYNAMIC):
                at = ATTRIBUTES[call.name]
            if at is None or at >= len(call.args):
                continue
            if kernel_named(program, kernel, caller, call.args[named], 0) is not None:
                yield caller, call.args[at]
