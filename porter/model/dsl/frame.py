# SPDX-License-Identifier: Apache-2.0
"""What surrounds the MMAs of a kernel: its launch, its shared storage, the warpgroup that loads."""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import Statement, argument, assigned, only, walk
from porter.model.dsl.calls import CallGraph
from porter.model.dsl.scope import Scope, Unrecognized

_GIVE_REGISTERS = ("cutlass.cute.arch.setmaxregister_decrease", "cutlass.cute.arch.warpgroup_reg_dealloc")


def kernel_call(graph: CallGraph, host: Scope) -> tuple[cst.Call, str]:
    """The kernel's call in its launch, and the text for the threads of a block."""
    name = graph.kernel.function.name.value
    for call in host.calls():
        func = call.func
        launches = isinstance(func, cst.Attribute) and func.attr.value == "launch"
        if not launches or not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Call):
            continue
        if graph.file.text(func.value.func) in (name, f"self.{name}"):
            block = argument(call, "block")
            if not isinstance(block, (cst.List, cst.Tuple)) or not block.elements:
                raise Unrecognized("the launch's block is not written as [threads, 1, 1]", call)
            text = graph.file.text(block.elements[0].value)
            if not text.isdigit() and not text.startswith("self."):
                raise Unrecognized(f"the number of threads, `{text}`, is not known in the kernel", call)
            return func.value, text
    raise Unrecognized("no launch of the kernel where its tiled MMAs are made", graph.kernel.function)


def storage(graph: CallGraph) -> tuple[Statement, str]:
    """The statement that allocates the shared storage, and the storage's name."""
    for statement in graph.kernel.statements:
        pair = assigned(statement)
        if pair is None or not isinstance(pair[1], cst.Call) or not isinstance(pair[0], cst.Name):
            continue
        func = pair[1].func
        if isinstance(func, cst.Attribute) and func.attr.value == "allocate":
            made = graph.kernel.resolve(func.value)
            if graph.file.call_name(made) == "cutlass.utils.SmemAllocator":
                return statement, pair[0].value
    raise Unrecognized("the kernel allocates no shared storage", graph.kernel.function)


def struct_field(graph: CallGraph) -> cst.SimpleStatementLine:
    """The first field of the only @cute.struct."""
    classes = [
        node
        for node in walk(graph.file.module)
        if isinstance(node, cst.ClassDef)
        and any(graph.file.qualified(d.decorator) == "cutlass.cute.struct" for d in node.decorators)
    ]
    if len(classes) != 1:
        raise Unrecognized(f"{len(classes)} classes with @cute.struct; one is ported", graph.kernel.function)
    for line in classes[0].body.body:
        if isinstance(only(line), cst.AnnAssign) and isinstance(line, cst.SimpleStatementLine):
            return line
    raise Unrecognized("a shared storage without fields", classes[0])


def producer_first(graph: CallGraph) -> bool:
    """Whether the branch that gives registers away is that of warpgroup 0."""
    for call in graph.kernel.calls():
        if graph.file.call_name(call) not in _GIVE_REGISTERS:
            continue
        for around in graph.kernel.ancestors(call):
            test = around.test if isinstance(around, cst.If) else None
            if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
                comparison = test.comparisons[0]
                value = graph.constant(comparison.comparator)
                return (isinstance(comparison.operator, cst.Equal) and value == "0") or (
                    isinstance(comparison.operator, cst.LessThan) and value == "1"
                )
    return False
