# SPDX-License-Identifier: Apache-2.0
"""Accumulators move between Tensor Memory and their registers where threads use or change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.passes.context import PortContext, qualified

RULE = "PTR130"
RULE_STORE = "PTR131"


def insert_loads(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.ld` of the whole accumulator in front of each anchor statement."""
    for anchor in anchors:
        move = _move(context, accumulator, "load")
        span, text = context.statement_before(accumulator.function, anchor, move, behind_labels=True)
        context.edit(RULE, accumulator.function, span, text)


def insert_stores(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.st` of the whole accumulator behind each anchor statement."""
    function = accumulator.function
    for anchor in anchors:
        span = function.span(anchor)
        text = "\n" + _move(context, accumulator, "store")
        context.edit(
            RULE_STORE,
            function,
            Span(span.end, span.end),
            text.replace("\n", "\n" + context.indent(function, span)),
        )


def _each(accumulator: Accumulator, statement: Callable[[list[str]], str]) -> str:
    """The statement for every object of an array of them."""
    names = ["i", "j", "k"][: len(accumulator.object_extents)]
    loops = [
        f"for (uint32_t {name} = 0; {name} < {extent}; ++{name})"
        for name, extent in zip(names, accumulator.object_extents, strict=True)
    ]
    if not loops:
        return statement(names)
    lines = []
    for depth, loop in enumerate(loops):
        pad = "    " * depth
        lines += [f"{pad}#pragma unroll", pad + loop + (" {" if depth < len(loops) - 1 else f" {statement(names)}")]
    lines += ["    " * depth + "}" for depth in reversed(range(len(loops) - 1))]
    return "\n".join(lines)


def _move(context: PortContext, accumulator: Accumulator, operation: Literal["load", "store"]) -> str:
    """The statement that moves the accumulator, with its helper requested."""
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    mirror.sizes |= accumulator.sizes
    mirror.request(operation, scalars=bool(accumulator.scalars))
    if accumulator.member is not None:
        context.member_moves.setdefault(accumulator.member.owner, set()).add(operation)
        call = f".{operation}_{accumulator.member.stem}();"
        return _each(accumulator, lambda i: accumulator.name + "".join(f"[{s}]" for s in i) + call)
    return moved_each(context, accumulator, operation + mirror.suffix)


def moved_each(context: PortContext, accumulator: Accumulator, name: str) -> str:
    """A call of helper `name` with the registers and the tile."""
    tile = context.names.tile(accumulator)
    if not accumulator.scalars:
        return _each(
            accumulator,
            lambda i: f"{qualified(name)}({accumulator.registers_of(i)}, {tile}{''.join(f'[{s}]' for s in i)});",
        )
    names = accumulator.scalars
    rows = [", ".join(names[i : i + 16]) for i in range(0, len(names), 16)]
    head = f"{qualified(name)}_each({tile}, "
    if len(rows) == 1:
        return f"{head}{rows[0]});"
    return f"{head[:-1]}\n" + ",\n".join(f"    {row}" for row in rows) + ");"
