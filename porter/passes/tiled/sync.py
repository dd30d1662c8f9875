# SPDX-License-Identifier: Apache-2.0
"""Batches: a call that opens one names the accumulators and the operands that its MMAs have; one that closes it or
waits for it goes through any accumulator that is in sight."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import Commit, Fence, Wait
from porter.model.functions import Function
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Handle, Multiply, Origin, Synchronization
from porter.model.tiled.operands import in_shared_memory
from porter.model.tiled.tensors import is_whole, names_in
from porter.passes.tiled.context import NAMESPACE, TiledContext
from porter.passes.tiled.sight import in_sight, is_visible
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.text import cpp

RULE = "PTR611"
FENCE_RULE = "PTR615"
_WHOLE = f"{NAMESPACE}::_"
"""All coordinates of a mode."""


def rewrite_synchronization(context: TiledContext) -> None:
    """Edit every call that opens, closes or waits for a batch."""
    for one in context.tiled.synchronizations:
        if id(one.call.caller) not in context.reached:
            continue
        text = _opened(context, one) if isinstance(one.fact, Fence) else _through(context, one)
        if text:
            context.port.edit(RULE, one.call.caller, one.call.caller.span(one.call.node), text)


def fence_copies(context: TiledContext) -> None:
    """What asynchronous copies brought is shown to MMAs by the threads that waited for them."""
    for call in context.tiled.copy_waits:
        at = call.caller.span(call.node)
        context.port.edit(FENCE_RULE, call.caller, Span(at.end, at.end), cpp("written"))


def _through(context: TiledContext, one: Synchronization) -> str:
    function, node = one.call.caller, one.call.node
    name = in_sight(context, function, node)
    pending = one.fact.pending if isinstance(one.fact, Wait) else ""
    warpgroup = "" if name else warpgroup_at(context, function, node)
    if name or warpgroup:
        return cpp("wait" if pending else "commit", name=name, warpgroup=warpgroup, pending=pending)
    context.tiled.refuse(function, node, f"no accumulator is in sight of `{function.text(node)}`")
    return ""


def _opened(context: TiledContext, one: Synchronization) -> str:
    """`arrive` for each accumulator of the batch, with the operand that may come from registers."""
    function, node = one.call.caller, one.call.node
    texts: list[str] = []
    operands: dict[str, None] = {}
    for d, a in _issued(context, one):
        operands |= {a: None} if a else {}
        text = cpp("arrive", name=d, operand=a)
        if text not in texts:
            texts.append(text)
    if not texts:
        warpgroup = warpgroup_at(context, function, node)
        if not warpgroup:
            context.tiled.refuse(function, node, f"no accumulator is in sight of `{function.text(node)}`")
            return ""
        name = in_sight(context, function, node)
        texts = [cpp("arrive", name=name, operand="") if name else cpp("arrive_alone", warpgroup=warpgroup)]
    if len(operands) > 1:
        # Only the types say which of them are in registers, and those have one place in Tensor Memory.
        types = ", ".join(cpp("declared_type", expression=a) for a in operands)
        texts.insert(0, cpp("one_operand", types=types))
    return ", ".join(texts)


def _issued(context: TiledContext, one: Synchronization) -> Iterator[tuple[str, str]]:
    """Names of accumulator and first operand of the MMAs behind a call that opens a batch, up to the next that opens or
    closes one."""
    function, node = one.call.caller, one.call.node
    ends = [
        s.call.node.start_byte
        for s in context.tiled.synchronizations
        if s.call.caller is function and s.call.node.start_byte > node.start_byte and not isinstance(s.fact, Wait)
    ]
    end = min(ends, default=function.body.end_byte)
    for atom in context.tiled.atoms:
        caller = atom.call.caller
        if node.start_byte < atom.call.node.start_byte < end and _within(caller, function):
            handle = _seen(context, caller, atom.d, function, node)
            if handle is not None:
                yield handle.name, ""
    for multiply in context.tiled.multiplies:
        at = multiply.call.node
        if not (node.start_byte < at.start_byte < end and _within(multiply.call.caller, function)):
            continue
        handle = _seen(context, multiply.call.caller, multiply.d, function, node)
        if handle is None:
            what = f"accumulator `{multiply.call.caller.text(multiply.d)}` is not in sight where its batch opens"
            context.tiled.refuse(multiply.call.caller, at, what)
            continue
        yield handle.name, _operand(context, multiply, function, node)
        touched = _touched(context, multiply, node.end_byte, _closed(context, function, at.end_byte))
        if touched is not None:
            holder = multiply.call.caller
            what = f"operand `{holder.text(touched)}` is used between the call that opens a batch and the batch's end"
            context.tiled.refuse(holder, touched, what)


def _closed(context: TiledContext, function: Function, start: int) -> int:
    """Where a batch ends that is open at an offset of a function."""
    ends = [
        s.call.node.start_byte
        for s in context.tiled.synchronizations
        if s.call.caller is function and s.call.node.start_byte > start and isinstance(s.fact, Commit)
    ]
    return min(ends, default=function.body.end_byte)


def _touched(context: TiledContext, multiply: Multiply, start: int, end: int) -> Node | None:
    """A mention of the first operand inside a batch, other than in a multiply. What comes from registers is stored when
    the batch opens."""
    holder = multiply.call.caller
    variable = context.tiled.tensors.root(holder, multiply.a)
    if variable is None or in_shared_memory(context.tiled, multiply):
        return None
    issued = [m.call.node for m in context.tiled.multiplies]
    for name in names_in(holder, holder.body):
        if not start <= name.start_byte < end or holder.text(name) != variable.name:
            continue
        if any(n.start_byte <= name.start_byte < n.end_byte for n in issued):
            continue
        found = resolve(holder, name, variable.name)
        if found is not None and found.key == variable.key and not context.tiled.only_asked(holder, name):
            return name
    return None


def _within(inner: Function, outer: Function) -> bool:
    current: Function | None = inner
    while current is not None and current is not outer:
        current = current.parent
    return current is outer


def _seen(context: TiledContext, holder: Function, d: Node, function: Function, at: Node) -> Handle | None:
    """The accumulator that an expression names, or the one that it is a view of, as it is seen from a place."""
    handle = context.tiled.handle_of(holder, d)
    for _ in range(8):
        if handle is None or is_visible(context, handle, function, at):
            return handle
        declarator = handle.variable.declarator
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if handle.origin is not Origin.VIEW or value is None:
            return None
        handle = context.tiled.handle_of(handle.function, value)
    return None


def _operand(context: TiledContext, multiply: Multiply, function: Function, at: Node) -> str:
    """The first operand with all its k blocks, as it is named where the batch opens; empty if it cannot be."""
    holder, node = multiply.call.caller, multiply.a
    if node.type == "call_expression":
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is not None and arguments is not None and callee.type == "identifier":
            all_of = next((w for w in map(holder.text, arguments.named_children) if is_whole(w)), _WHOLE)
            kept = [holder.text(a) if _is_named(holder, a, function, at) else all_of for a in arguments.named_children]
            if _is_named(holder, callee, function, at):
                whole = all(map(is_whole, kept))
                return holder.text(callee) if whole else f"{holder.text(callee)}({', '.join(kept)})"
    elif _is_named(holder, node, function, at):
        return holder.text(node)
    what = f"operand `{holder.text(node)}` is not in sight where its batch opens"
    context.tiled.refuse(holder, node, what)
    return ""


def _is_named(holder: Function, node: Node, function: Function, at: Node) -> bool:
    """Whether all variables of an expression are the same at another place."""
    for name in names_in(holder, node):
        text = holder.text(name)
        here, there = resolve(holder, name, text), resolve(function, at, text)
        if (here.key if here is not None else None) != (there.key if there is not None else None):
            return False
    return not any(n.type in ("lambda_expression", "assignment_expression", "update_expression") for n in walk(node))
