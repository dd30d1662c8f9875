# SPDX-License-Identifier: Apache-2.0
"""Batches: a call that opens one names the accumulators and the operands that its MMAs have; one that closes it or
waits for it goes through any accumulator that is in sight."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import Fence, Wait
from porter.model.functions import Function
from porter.model.names.paths import is_whole
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Handle, Origin, Synchronization
from porter.model.tiled.batches import Issue
from porter.model.tiled.operands import in_shared_memory, may_leave_registers
from porter.model.tiled.tensors import names_in
from porter.passes.tiled.context import NAMESPACE, TiledContext
from porter.passes.tiled.operands import are_counted_together
from porter.passes.tiled.sight import in_sight, is_visible
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.text import cpp
from porter.passes.tiled.tiles import TILE, is_crossed
from porter.passes.tiled.untouched import refuse_touched, refuse_touched_inside

RULE = "PTR611"
FENCE_RULE = "PTR615"
_WHOLE = f"{NAMESPACE}::_"
"""All coordinates of a mode."""
_STEP = re.compile(r"(\w+)\(((?:[\w:]+, )*[\w:]+), (\w+)\)")
"""A fragment at the last of its coordinates."""


def rewrite_synchronization(context: TiledContext) -> None:
    """Edit every call that opens, closes or waits for a batch."""
    for one in context.tiled.synchronizations:
        if id(one.call.caller) not in context.reached:
            continue
        text = _opened(context, one) if isinstance(one.fact, Fence) else _through(context, one)
        if text:
            context.port.edit(RULE, one.call.caller, one.call.caller.span(one.call.node), text)
    _require_batches(context)
    refuse_touched_inside(context)


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
    context.tiled.refuse(
        function, node, f"no accumulator is in sight of `{function.text(node)}`", Code.BATCH_NOT_FOLLOWED
    )
    return ""


def _opened(context: TiledContext, one: Synchronization) -> str:
    """`arrive` for each accumulator of the batch, with the operand that may come from registers."""
    function, node = one.call.caller, one.call.node
    texts: list[str] = []
    operands: list[str] = []
    arrived: set[str] = set()
    issued = list(_issued(context, one))
    refuse_touched(context, one)
    whole = _of_all_steps([a for _, a, _ in issued])
    crossed = [part for _, part, crosses in issued if crosses]
    for d, part, _ in issued:
        a = whole.get(part, part)
        if a and a not in operands:
            # Only the types say which of them are in registers; each of those has columns of its own.
            texts.append(cpp("arrive", name=d, operand=a, before=_types(operands)))
            operands.append(a)
        elif d not in arrived:
            texts.append(cpp("arrive", name=d, operand="", before=""))
        arrived.add(d)
    for a in dict.fromkeys(whole.get(part, part) for part in crossed if part):
        texts.insert(0, cpp("own_tiles", types=_types([a])))
    if len(operands) > 1 and not are_counted_together(context, one):
        texts.insert(0, cpp("one_operand", types=_types(operands)))
    if not texts:
        warpgroup = warpgroup_at(context, function, node)
        if not warpgroup:
            context.tiled.refuse(
                function, node, f"no accumulator is in sight of `{function.text(node)}`", Code.BATCH_NOT_FOLLOWED
            )
            return ""
        name = in_sight(context, function, node)
        own = cpp("arrive", name=name, operand="", before="") if name else cpp("arrive_alone", warpgroup=warpgroup)
        texts = [own]
    return ", ".join(texts)


def _types(operands: list[str]) -> str:
    return ", ".join(cpp("declared_type", expression=o) for o in operands)


def _of_all_steps(operands: list[str]) -> dict[str, str]:
    """Operands that are steps of the same fragment, each with the fragment, which is stored once."""
    steps: dict[str, dict[str, None]] = {}
    for operand in operands:
        match = _STEP.fullmatch(operand)
        if match is not None and is_whole(match[2].split(", ")[0]):
            steps.setdefault(f"{match[1]}({match[2]}", {})[operand] = None
    found: dict[str, str] = {}
    for front, several in steps.items():
        callee, coordinates = front.split("(", 1)
        all_of = coordinates.split(", ")[0]
        fragment = callee if all(map(is_whole, coordinates.split(", "))) else f"{front}, {all_of})"
        found |= dict.fromkeys(several, fragment) if len(several) > 1 else {}
    return found


def _issued(context: TiledContext, one: Synchronization) -> Iterator[tuple[str, str, bool]]:
    """Names of accumulator and first operand of the MMAs behind a call that opens a batch, up to the next that opens or
    closes one; and whether an MMA is known to take a tile of A for another tile of the accumulator."""
    function, node = one.call.caller, one.call.node
    for atom in context.tiled.atoms:
        caller = atom.call.caller
        if context.batches.has_call(one, atom.call):
            handle = _seen(context, caller, atom.d, function, node)
            if handle is not None:
                yield handle.name, "", False
    for issue in context.batches.issues(one):
        holder = issue.holder
        handle = _seen(context, holder, issue.d, function, node)
        if handle is None:
            if issue.is_direct or may_leave_registers(context.tiled, issue.multiply):
                what = f"accumulator `{holder.text(issue.d)}` is not in sight where its batch opens"
                context.tiled.refuse(holder, issue.d, what, Code.BATCH_NOT_FOLLOWED)
            continue
        yield handle.name, _operand(context, issue, function, node), is_crossed(context, issue.multiply)


def _require_batches(context: TiledContext) -> None:
    """Refuse MMAs whose operand would have to be stored where a batch opens that is not known."""
    opened = [s for s in context.tiled.synchronizations if isinstance(s.fact, Fence)]
    known = {id(i.multiply) for one in opened for i in context.batches.issues(one)}
    for multiply in context.tiled.multiplies:
        caller = multiply.call.caller
        if id(multiply) not in known and id(caller) in context.reached and may_leave_registers(context.tiled, multiply):
            what = f"`{caller.text(multiply.call.node)}`: no batch opens on the way, where A would leave registers"
            context.tiled.refuse(caller, multiply.call.node, what, Code.BATCH_NOT_FOLLOWED)


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


def _operand(context: TiledContext, issue: Issue, function: Function, at: Node) -> str:
    """The first operand with all its k blocks, as it is named where the batch opens; empty if it cannot be."""
    holder, node = issue.holder, issue.a
    if node.type == "call_expression":
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is not None and arguments is not None and callee.type == "identifier":
            all_of = next((w for w in map(holder.text, arguments.named_children) if is_whole(w)), _WHOLE)
            kept = [
                # The m64 tiles of a fragment share columns: they are stored together.
                holder.text(a) if i != TILE and _is_named(holder, a, function, at) else all_of
                for i, a in enumerate(arguments.named_children)
            ]
            if _is_named(holder, callee, function, at):
                whole = all(map(is_whole, kept))
                return holder.text(callee) if whole else f"{holder.text(callee)}({', '.join(kept)})"
    elif _is_named(holder, node, function, at):
        return holder.text(node)
    tiled, multiply = context.tiled, issue.multiply
    if not in_shared_memory(tiled, multiply) if issue.is_direct else may_leave_registers(tiled, multiply):
        what = f"operand `{holder.text(node)}` is not in sight where its batch opens"
        context.tiled.refuse(holder, node, what, Code.BATCH_NOT_FOLLOWED)
    return ""


def _is_named(holder: Function, node: Node, function: Function, at: Node) -> bool:
    """Whether all variables of an expression are the same at another place."""
    for name in names_in(holder, node):
        text = holder.text(name)
        here, there = resolve(holder, name, text), resolve(function, at, text)
        if (here.key if here is not None else None) != (there.key if there is not None else None):
            return False
    return not any(n.type in ("lambda_expression", "assignment_expression", "update_expression") for n in walk(node))
