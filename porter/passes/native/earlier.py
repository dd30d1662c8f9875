# SPDX-License-Identifier: Apache-2.0
"""Statements that give a stage back, further up in their loop: where a kernel keeps a batch of MMAs in flight, the
stage that it gives back behind the next batch is one of those before, and a commit ahead of the next tells as much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.model.facts import Commit, Fence, Mbarrier, Pipeline, RegisterFence, TiledMma, Wait
from porter.model.functions import Function
from porter.model.pipeline.operations import Operation
from porter.model.scopes import LOOPS
from porter.model.tiled.activity import may_leave
from porter.passes.context import PortContext
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.native.sites import Changes, Place, path_of, written
from porter.passes.native.texts import indented, ported_text
from porter.passes.native.tiled_mainloop import TiledPipelined

_PLAIN = ("if_statement", "condition_clause", "parenthesized_expression", "compound_statement", "expression_statement",
          "binary_expression", "update_expression", "number_literal", "identifier", "comment", "unary_expression",
          "field_expression", "field_identifier", "pointer_expression", "subscript_expression",
          "subscript_argument_list", "qualified_identifier", "namespace_identifier")  # fmt: skip

_KEEPING = (Commit, Fence, Mbarrier, Pipeline, RegisterFence, TiledMma, Wait)
"""Calls that change none of their arguments but elements of tensors."""


@dataclass(frozen=True, eq=False)
class Move:
    """A statement of a loop, and the one in front of which it can stand as well."""

    function: Function
    statement: Node
    ahead: Node

    def text(self, context: PortContext) -> str:
        """The statement as the port has it."""
        span = self.function.span(self.statement)
        pad = context.indent(self.function, span)
        return "\n".join(indented(ported_text(context, self.function, span), pad, ""))


def make(context: PortContext, changes: Changes, moves: Sequence[Move]) -> None:
    """Write the statements in front of where they can stand, in the order that they have."""
    ahead: dict[tuple[int, int], list[Move]] = {}
    for move in sorted(moves, key=lambda m: m.statement.start_byte):
        there = ahead.setdefault((id(move.function), move.ahead.id), [])
        if not any(m.statement.id == move.statement.id for m in there):
            there.append(move)
    for together in ahead.values():
        for move in together:
            changes.drop(Place(move.function, move.statement))
        place = Place(together[0].function, together[0].ahead)
        changes.before(place, "\n".join(m.text(context) for m in together))


def earlier(kernel: TiledPipelined, operation: Operation, place: Place) -> Move | None:
    """Where a stage that an operation gives back at a place could be given back as well; None if there."""
    function = place.function
    opened = [p for path, one in kernel.batches if isinstance(one.fact, Fence) for p in path[-1:]]
    for one in opened:
        top = _in_block_of(function, place.node, one)
        if one.function is not function or top is None or top.start_byte < one.node.start_byte:
            continue
        statement, first = top, _statement(one.node)
        if first is None or not _in_loop(function, first) or not _in_flight(kernel, function, first, place.node):
            continue
        if sum(_between(first, p.node, statement) for p in opened if p.function is function) != 1:
            continue
        if not _one_batch(kernel, function, first, statement):
            continue
        between = [n for n in _block(first).named_children if first.start_byte <= n.start_byte < statement.start_byte]
        if any(map(may_leave, between)) or not _moves(kernel, function, statement, place.node):
            continue
        if not _apart(kernel, function, statement, between):
            continue
        return Move(function, statement, _first(kernel, function, statement, first))
    return None


def _block(statement: Node) -> Node:
    assert statement.parent is not None
    return statement.parent


def _statement(node: Node) -> Node | None:
    """The statement of a block that a node stands in."""
    current: Node | None = node
    while current is not None and (current.parent is None or current.parent.type != "compound_statement"):
        current = current.parent
    return current


def _in_block_of(function: Function, node: Node, other: Place) -> Node | None:
    """The statement around a node in the block that another statement stands in."""
    first = _statement(other.node)
    current: Node | None = node
    while first is not None and current is not None and current.id != function.body.id:
        if current.parent is not None and current.parent.id == _block(first).id:
            return current
        current = current.parent
    return None


def _in_loop(function: Function, statement: Node) -> bool:
    above = _block(statement).parent
    return above is not None and above.type in LOOPS and _block(statement).id != function.body.id


def _between(first: Node, node: Node, last: Node) -> bool:
    return first.start_byte <= node.start_byte < last.end_byte


def _in_flight(kernel: TiledPipelined, function: Function, first: Node, at: Node) -> bool:
    """Whether waits ahead of an arrival leave the batch in flight that the statement `first` opens."""
    pending = []
    for path, one in kernel.batches:
        if isinstance(one.fact, Wait) and path[-1].function is function and _between(first, path[-1].node, at):
            pending.append(kernel.program.value(function, one.fact.pending))
    return bool(pending) and all(n is not None and n > 0 for n in pending)


def _one_batch(kernel: TiledPipelined, function: Function, first: Node, statement: Node) -> bool:
    """Whether the statements from `first` on close one batch, each time."""
    closed = [path for path, one in kernel.batches if isinstance(one.fact, Commit)]
    here = [p for path in closed for p in path if p.function is function and _between(first, p.node, statement)]
    if len(here) != 1 or not any(path[-1] is here[0] for path in closed):
        return False
    own = _statement(here[0].node)
    return own is not None and _block(own).id == _block(first).id


def _moves(kernel: TiledPipelined, function: Function, statement: Node, arrival: Node) -> bool:
    """Whether a statement does nothing but wait, give the stage back and count on, all under plain conditions."""
    waits = [path[-1].node for path, one in kernel.batches if isinstance(one.fact, Wait)]
    own = [arrival, *(n for n in waits if inside(statement, n))]

    def plain(node: Node) -> bool:
        if any(node.id == n.id for n in own):
            return True
        return node.type in _PLAIN and all(map(plain, node.named_children))

    calls = sum(1 for _ in find(statement, "call_expression"))
    nested = sum(1 for n in own for _ in find(n, "call_expression"))
    return plain(statement) and calls == nested


def _apart(kernel: TiledPipelined, function: Function, statement: Node, others: Sequence[Node]) -> bool:
    """Whether a statement and others neither write what the other reads."""
    written, read = set(_written(kernel, function, statement)), _names(function, statement)
    for other in others:
        may_write = {*_written(kernel, function, other), *_handed(kernel, function, other)}
        if written & _names(function, other) or read & may_write:
            return False
    return True


def _handed(kernel: TiledPipelined, function: Function, node: Node) -> Iterator[str]:
    """Names that calls are handed, themselves or as their object, of which nothing says that they keep them."""
    library = LibraryCalls(kernel.program)
    for call in find(node, "call_expression"):
        known = [c for c in kernel.program.calls_by_node.get(call.id, ()) if c.caller.file is function.file]
        facts = [kernel.program.facts.of_call(c) for c in known]
        if not library.keeps(function, call, True) and not (facts and all(isinstance(f, _KEEPING) for f in facts)):
            yield from _names(function, call)


def _names(function: Function, node: Node) -> set[str]:
    return {function.text(n) for n in (node, *find(node, "identifier")) if n.type == "identifier"}


def _written(kernel: TiledPipelined, function: Function, node: Node) -> Iterator[str]:
    """Variables that a statement assigns to, counts on, or may change through their address."""
    for one in find(node, "assignment_expression", "update_expression", "pointer_expression", "init_declarator"):
        is_pointer = one.type == "pointer_expression"
        if is_pointer and (function.text(one).startswith("*") or _of_known(kernel, function, one)):
            continue
        fields = (one.child_by_field_name(f) for f in ("left", "argument", "declarator"))
        target = next((c for c in fields if c is not None), None)
        if target is not None:
            yield from _names(function, target)


def _of_known(kernel: TiledPipelined, function: Function, address: Node) -> bool:
    """Whether an address is handed to a call that changes no variable."""
    arguments = address.parent
    call = arguments.parent if arguments is not None and arguments.type == "argument_list" else None
    there = kernel.program.calls_by_node.get(call.id, ()) if call is not None else ()
    known = [c for c in there if c.caller.file is function.file]
    return bool(known) and all(isinstance(kernel.program.facts.of_call(c), _KEEPING) for c in known)


def _first(kernel: TiledPipelined, function: Function, statement: Node, opened: Node) -> Node:
    """The statement furthest up in the block that a statement may stand ahead of, behind which nothing is done but wait
    for a stage."""
    done = [written(path_of(o)) for o in kernel.walk.operations if o.kind == "wait"]
    waits, changed = [p.node for p in done if p.function is function], set(_written(kernel, function, statement))
    first, previous = opened, opened.prev_named_sibling
    while previous is not None:
        calls = list(find(previous, "call_expression"))
        is_wait = previous.type == "expression_statement" and any(_same_statement(previous, n) for n in waits)
        known = [c for n in calls for c in kernel.program.calls_by_node.get(n.id, ()) if c.caller.file is function.file]
        is_fence = (
            previous.type == "expression_statement"
            and len(known) == len(calls) > 0
            and all(isinstance(kernel.program.facts.of_call(c), RegisterFence) for c in known)
        )
        if not (is_wait or is_fence) or changed & _names(function, previous):
            break
        first, previous = previous, previous.prev_named_sibling
    return first


def _same_statement(statement: Node, node: Node) -> bool:
    return node.parent is not None and node.parent.id == statement.id
