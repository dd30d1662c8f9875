# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory of a kernel: how many columns its accumulators take, and where it is allocated."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.diagnostics import Code
from porter.model.block_size import threads_of
from porter.model.facts import Tile, Wait
from porter.model.functions import Function, outermost
from porter.model.kernels import setup_position, top_level
from porter.model.roles import WarpgroupRoles, warpgroup_roles
from porter.model.scopes import resolve
from porter.model.thread_values import several_dimensions
from porter.model.tiled.accumulators import Handle
from porter.model.tiled.tensors import names_in
from porter.passes import emitting
from porter.passes.tiled import atoms
from porter.passes.tiled.context import TiledContext, TiledKernel
from porter.passes.tiled.frames import Columns, columns_of, counted, find_frames, operands_of, state_frames
from porter.passes.tiled.names import Names
from porter.passes.tiled.operands import Term
from porter.passes.tiled.spelling import Place, Unnamed, spelled, written
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.storage import declare_slots
from porter.passes.tiled.text import cpp
from porter.ptx.wgmma import MOST_PENDING
from porter.ptx.wgmma import THREADS as WARPGROUP

SETUP_RULE = "PTR613"
TILE_RULE = "PTR610"


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
            context.kernels.append(TiledKernel(function, setup=setup))


def _declares(context: TiledContext, function: Function, node: Node) -> bool:
    found = [h.declaration for h in context.tiled.fragments if h.function is function]
    return any(node.start_byte <= d.start_byte and d.end_byte <= node.end_byte for d in found)


def set_up(context: TiledContext, names: Names) -> None:
    """Declare Tensor Memory in every kernel, and every accumulator in it or in functions that it comes to."""
    find_frames(context)
    state_frames(context, names)
    for kernel in context.kernels:
        if id(kernel.function) in context.frames:
            _set_up(context, names, kernel)
    for frame in context.frames.values():
        for handle in frame.fragments if not context.tiled.refusals else ():
            _declare(context, handle, frame.first[id(handle)])


def _set_up(context: TiledContext, names: Names, kernel: TiledKernel) -> None:
    function, own = kernel.function, context.port.names
    roles = _roles(context, kernel)
    if not roles.exact:
        context.tiled.refuse(function, function.body, f"`{function.name}`", Code.BLOCK_SIZE_UNKNOWN)
        return
    count = roles.count if roles.value is not None else context.local(kernel, "warpgroups")
    try:
        place = Place(context.tiled.program, function, kernel.setup)
        columns = columns_of(context, names, kernel, place, count)
        terms = operands_of(context, kernel, place, count)
    except Unnamed as reason:
        what = f"where `{function.name}` begins, {reason}"
        context.tiled.refuse(*(reason.at or (function, function.body)), what, Code.COLUMNS_UNKNOWN)
        return
    kernel.first = columns.first
    operand = _with_operands(context, kernel, columns, terms, count)
    ring = _ring(context)
    kernel.threads = threads_of(context.tiled.program, function) or "unknown"
    kernel.warpgroups, kernel.first_warpgroup, kernel.ring = roles.count, roles.first, ring
    kernel.roles = roles
    kernel.columns = columns.total
    thread = cpp("rank") if several_dimensions(context.tiled.program) else "threadIdx.x"
    index = "0" if roles.value == 1 else f"{thread} / {WARPGROUP}" + (f" - {roles.first}" if roles.first else "")
    lines = cpp(
        "set_up",
        named=roles.value is None,
        count=count,
        number=roles.count,
        counted=[{"line": line} for line in columns.lines],
        columns=columns.total,
        ring=ring,
        slots=[{"line": line} for line in declare_slots(context, kernel, count, ring)],
        first=roles.first,
        shared=own.shared,
        tmem=own.tmem,
        state=own.warpgroup,
        index=index,
        operand=operand,
    )
    at, text = context.port.statement_before(function, kernel.setup, lines, above_comments=True)
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


def _with_operands(context: TiledContext, kernel: TiledKernel, columns: Columns, terms: list[Term], count: str) -> str:
    """Put columns for A operands from registers behind those of the accumulators: gives the first, empty if there are
    none."""
    if not terms:
        return ""
    if not re.fullmatch(r"\w+", columns.total):
        name = context.local(kernel, "accumulator_columns")
        columns.lines.append(cpp("constant", name=name, value=columns.total))
        columns.total = name
    name, first = context.local(kernel, "operand_columns"), columns.total
    lines, most = counted(context, kernel, terms, count)
    columns.lines += [*lines, cpp("constant", name=name, value=most)]
    columns.total = f"{first} + {name}"
    return first


def _declare(context: TiledContext, handle: Handle, column: str) -> None:
    """`accumulator(…)` around the value that the registers are declared with."""
    if handle.array is not None:
        atoms.declare_array(context, handle, column)
        return
    assert handle.mma is not None
    assert handle.value is not None
    function, value = handle.function, handle.value
    holder, node = handle.mma
    mma = holder.file.text(written(holder, node))
    if not all(_is_same(holder, n, function, handle.declaration) for n in names_in(holder, node)):
        try:
            shown = spelled(holder, node, Place(context.tiled.program, outermost(function), handle.declaration))
        except Unnamed as reason:
            what = f"the MMA of `{handle.name}` is not known where it is declared: {reason}"
            context.tiled.refuse(function, handle.declaration, what, Code.COLUMNS_UNKNOWN)
            return
        mma = cpp("object_of", expression=shown)
    span, state = written(function, value), warpgroup_at(context, function, handle.declaration, handle.name)
    text = cpp("accumulator", state=state, mma=mma, value=function.file.text(span), column=column)
    emitter, call = None, context.tiled.tensors.call(function, value)
    answer = context.tiled.program.facts.answer(call) if call is not None else None
    of_rules = emitting.fitting(context.port, answer, Tile, {})
    if of_rules and answer is not None and isinstance(answer.fact, Tile):
        bound = {"state": state, "value": function.file.text(span), "column": column or "0", **vars(answer.fact)}
        emitter, text = emitting.written(context.port, function, span, answer, of_rules, bound)
    context.port.edit(emitter.rule if emitter is not None else TILE_RULE, function, span, text)


def _is_same(holder: Function, name: Node, function: Function, at: Node) -> bool:
    """Whether a name means the same variable at another place."""
    here, there = resolve(holder, name, holder.text(name)), resolve(function, at, holder.text(name))
    return (here.key if here is not None else None) == (there.key if there is not None else None)
