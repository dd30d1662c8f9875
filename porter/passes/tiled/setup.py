# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory of a kernel: how many columns its accumulators take, and where it is allocated."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.block_size import threads_of
from porter.model.facts import Wait
from porter.model.functions import Function
from porter.model.kernels import setup_position, top_level
from porter.model.roles import WarpgroupRoles, warpgroup_roles
from porter.model.scopes import resolve
from porter.model.thread_values import several_dimensions
from porter.model.tiled.accumulators import Handle
from porter.model.tiled.operands import in_shared_memory, may_be_in_registers
from porter.model.tiled.tensors import names_in
from porter.passes.tiled.context import NAMESPACE, TiledContext, TiledKernel
from porter.passes.tiled.spelling import Unnamed, spelled, written
from porter.ptx.wgmma import MOST_PENDING

SETUP_RULE = "PTR613"
TILE_RULE = "PTR610"


@dataclass(eq=False)
class _Columns:
    """Columns of a kernel's accumulators and operands, as C++ constant expressions."""

    lines: list[str] = field(default_factory=list)
    first: dict[int, str] = field(default_factory=dict)
    """First column of a fragment, by id of the handle."""
    operand: str = ""
    """First column of A operands from registers."""
    total: str = ""


def find_kernels(context: TiledContext) -> None:
    """The kernels that come to an accumulator's declaration, with the statement in front of which all their threads run
    together."""
    program = context.tiled.program
    for function in program.kernels:
        if id(function) not in context.tiled.active:
            continue

        def runs(node: Node, function: Function = function) -> bool:
            return context.activity.within(function, node) or _declares(context, function, node)

        setup = setup_position(program, function, runs)
        if setup is not None:
            context.kernels.append(TiledKernel(function, setup))


def _declares(context: TiledContext, function: Function, node: Node) -> bool:
    found = [h.declaration for h in context.tiled.fragments if h.function is function]
    return any(node.start_byte <= d.start_byte and d.end_byte <= node.end_byte for d in found)


def set_up(context: TiledContext) -> None:
    """Declare Tensor Memory in every kernel, and every accumulator in it."""
    for handle in context.tiled.fragments:
        kernel = context.kernel_around(handle.function)
        if kernel is None or not context.sees_warpgroup(handle.function, handle.declaration):
            what = f"accumulator `{handle.name}` is declared in `{handle.function.name}`, which is no kernel"
            context.tiled.refuse(handle.function, handle.declaration, what)
        else:
            kernel.fragments.append(handle)
    for kernel in context.kernels:
        kernel.fragments.sort(key=lambda h: h.declaration.start_byte)
        if kernel.fragments:
            _set_up(context, kernel)


def _set_up(context: TiledContext, kernel: TiledKernel) -> None:
    function, names = kernel.function, context.port.names
    roles = _roles(context, kernel)
    if not roles.exact:
        what = f"how many threads a block of `{function.name}` has is not known: give it __launch_bounds__"
        context.tiled.refuse(function, kernel.setup, what)
        return
    count, lines = roles.count, ["// Tensor Memory for the accumulators of each warpgroup."]
    if roles.value is None:
        count = context.local(kernel, "warpgroups")
        lines.append(f"constexpr int {count} = {roles.count};")
    try:
        columns = _columns(context, kernel, count)
        for handle in kernel.fragments:
            _declare(context, kernel, handle, columns.first[id(handle)])
    except Unnamed as reason:
        what = f"the columns of its accumulators are not known where `{function.name}` begins: {reason}"
        context.tiled.refuse(function, kernel.setup, what)
        return
    ring = _ring(context)
    kernel.threads = threads_of(context.tiled.program, function) or "unknown"
    kernel.warpgroups, kernel.first_warpgroup, kernel.ring = roles.count, roles.first, ring
    kernel.columns = columns.total
    thread = f"{NAMESPACE}::thread_rank()" if several_dimensions(context.tiled.program) else "threadIdx.x"
    index = "0" if roles.value == 1 else f"{thread} / 128 - {roles.first}" if roles.first else f"{thread} / 128"
    first = f", {roles.first}" if roles.first else ""
    lines += [
        *columns.lines,
        f"__shared__ {NAMESPACE}::Shared<{count}, {ring}> {names.shared};",
        f"const {NAMESPACE}::Tmem<{columns.total}, {count}, {ring}{first}> {names.tmem}({names.shared});",
        f"auto {names.warpgroup} = {names.tmem}.warpgroup({index});",
    ]
    if columns.operand:
        lines.append(f"{names.warpgroup}.operand = {names.warpgroup}.tmem + {columns.operand};")
    at, text = context.port.statement_before(function, kernel.setup, "\n".join(lines), above_comments=True)
    context.port.edit(SETUP_RULE, function, at, text)


def _roles(context: TiledContext, kernel: TiledKernel) -> WarpgroupRoles:
    program, function = context.tiled.program, kernel.function
    return warpgroup_roles(
        program,
        function,
        top_level(function),
        lambda node: context.activity.within(function, node),
        threads_of(program, function),
        program.constants_in(function),
    )


def _ring(context: TiledContext) -> int:
    """Mbarriers for the batches that waits leave pending, and those that follow."""
    most = 0
    for one in context.tiled.synchronizations:
        if isinstance(one.fact, Wait):
            value = context.tiled.program.value(one.call.caller, one.fact.pending)
            most = max(most, value if value is not None and value >= 0 else MOST_PENDING)
    return int(1 << (most + 1).bit_length())


def _columns(context: TiledContext, kernel: TiledKernel, warpgroups: str) -> _Columns:
    """Raises Unnamed."""
    found = _Columns()
    ends: list[str] = []
    names: dict[int, str] = {}
    for handle in kernel.fragments:
        name = context.local(kernel, f"{handle.name}_columns")
        mma, fragment = _types(kernel, handle)
        width = f"{NAMESPACE}::columns_of<{warpgroups}, {mma}, {fragment}>()"
        kernel.widths[handle.name] = width
        found.lines.append(f"constexpr int {name} = {width};")
        before = [names[id(o)] for o in kernel.fragments if id(o) in names and _together(o, handle)]
        found.first[id(handle)] = " + ".join(before)
        names[id(handle)] = name
        ends.append(" + ".join([*before, name]))
    ends = [e for e in ends if not any(o != e and o.startswith(e + " + ") for o in ends)]
    found.total = _greatest(ends)
    operands = _operands(context, kernel, warpgroups)
    if operands:
        if not re.fullmatch(r"\w+", found.total):
            name = context.local(kernel, "accumulator_columns")
            found.lines.append(f"constexpr int {name} = {found.total};")
            found.total = name
        name = context.local(kernel, "operand_columns")
        found.lines.append(f"constexpr int {name} = {_greatest(operands)};")
        found.operand, found.total = found.total, f"{found.total} + {name}"
    return found


def _greatest(expressions: list[str]) -> str:
    text = expressions[0]
    for other in expressions[1:]:
        text = f"{NAMESPACE}::max({text}, {other})"
    return text


def _operands(context: TiledContext, kernel: TiledKernel, warpgroups: str) -> list[str]:
    """Columns of each A operand that may come from registers. There are none if the type of one has no name there and
    all names of MMAs have A in shared memory: the header traps where it is not. Raises Unnamed."""
    found: list[str] = []
    unnamed: Unnamed | None = None
    for multiply in context.tiled.multiplies:
        if in_shared_memory(context.tiled, multiply):
            continue
        for function, node in context.tiled.handed_in(multiply.call.caller, multiply.a):
            if context.kernel_around(function) is kernel:
                try:
                    operand = _operand(kernel, function, node)
                except Unnamed as reason:
                    unnamed = reason
                    continue
                columns = f"{NAMESPACE}::operand_columns_of<{warpgroups}, decltype({operand})>()"
                found += [columns] if columns not in found else []
    if unnamed is not None and (found or may_be_in_registers(context.tiled)):
        raise unnamed
    return found


def _operand(kernel: TiledKernel, function: Function, node: Node) -> str:
    """The tensor whose k blocks an operand is, for its type."""
    if node.type == "call_expression":
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type == "identifier" and resolve(function, callee, function.text(callee)):
            node = callee
    return spelled(function, node, kernel.setup)


def _types(kernel: TiledKernel, handle: Handle) -> tuple[str, str]:
    """The types of an accumulator's MMA and of its registers. Raises Unnamed."""
    assert handle.mma is not None
    if handle.value is None:
        raise Unnamed(f"`{handle.name}` is declared without a value")
    holder, node = handle.mma
    mma = spelled(holder, node, kernel.setup)
    return f"decltype({mma})", f"decltype({spelled(handle.function, handle.value, kernel.setup)})"


def _together(first: Handle, second: Handle) -> bool:
    """Whether two accumulators may be alive at the same time: not in blocks of one function that part."""
    if first.function is not second.function:
        return True
    block = first.declaration.parent
    current: Node | None = second.declaration
    while current is not None:
        if block is not None and current.id == block.id:
            return True
        current = current.parent
    return False


def _declare(context: TiledContext, kernel: TiledKernel, handle: Handle, column: str) -> None:
    """`accumulator(…)` around the value that the registers are declared with. Raises Unnamed."""
    assert handle.mma is not None
    assert handle.value is not None
    function, value = handle.function, handle.value
    holder, node = handle.mma
    mma = holder.file.text(written(holder, node))
    if not all(_is_same(holder, n, function, handle.declaration) for n in names_in(holder, node)):
        mma = f"{NAMESPACE}::remove_cvref_t<decltype({spelled(holder, node, kernel.setup)})>{{}}"
    last = f", {column}" if column else ""
    span = written(function, value)
    text = f"{NAMESPACE}::accumulator({context.port.names.warpgroup}, {mma}, {function.file.text(span)}{last})"
    context.port.edit(TILE_RULE, function, span, text)


def _is_same(holder: Function, name: Node, function: Function, at: Node) -> bool:
    """Whether a name means the same variable at another place."""
    here, there = resolve(holder, name, holder.text(name)), resolve(function, at, holder.text(name))
    return (here.key if here is not None else None) == (there.key if there is not None else None)
