# SPDX-License-Identifier: Apache-2.0
"""Sums of FP8 stay in the accumulator. Hopper adds FP8 with fewer bits than a float has, so kernels add what MMAs give
to floats of their own after some steps, and begin the accumulator anew. Blackwell adds in full: all MMAs may add up,
and one addition behind the loop is enough. Its order is another one than the original's, so this is on request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.constants import Constants
from porter.model.functions import Function
from porter.model.registers import take_apart
from porter.model.scopes import LOOPS, resolve
from porter.model.tensor_core import MmaStep
from porter.model.zeroing import Zeroing, counted_loop, same_number
from porter.passes.context import PortContext, qualified
from porter.passes.epilogue import RULE as LOADS
from porter.passes.epilogue import load_of
from porter.passes.moves import Moves
from porter.passes.native.scale_d import Multiply, Value, mmas_of, scales_of
from porter.passes.native.sites import Changes, Left, Place
from porter.passes.residency import RULE_ZERO
from porter.ptx.types import ElementType
from porter.steps.step import Declared, Step

RULE = "PTR195"
NAME = "promotion"

NONE = "sums stay in the accumulator until the loop is over"
SCALED = (
    "sums without scales: what multiplies partial sums is done between the MMAs, or by the tensor core where the step "
    "`scales` finds powers of two"
)
EIGHT_BITS = (ElementType.E4M3, ElementType.E5M2)
_Kind = TypeVar("_Kind", bound="Promotion")
_JUMPS = ("break_statement", "continue_statement", "goto_statement", "return_statement")
_OTHER_LOOPS = ("lambda_expression",)


def take(context: PortContext, moves: Moves) -> Changes:
    """The edits of the step, for all accumulators whose sums are promoted."""
    changes = Changes(context, RULE)
    for one in promotions(context, moves, changes, context.accumulators.accumulators, Promotion):
        one.take()
    return changes


def missing(context: PortContext, moves: Moves, among: Sequence[Accumulator]) -> str | None:
    """What the step lacks where sums of these accumulators are promoted, empty if it lacks nothing; None where none
    are."""
    try:
        return "" if promotions(context, moves, Changes(context, RULE), among, Promotion) else None
    except NotPromoted:
        return None
    except Left as left:
        return left.what


class NotPromoted(Left):
    """No sums of FP8 are promoted."""


def promotions(
    context: PortContext, moves: Moves, changes: Changes, among: Sequence[Accumulator], kind: type[_Kind]
) -> list[_Kind]:  # fmt: skip
    """The accumulators whose sums are promoted, each of them understood.

    Raises:
        NotPromoted: there are none.
        Left: one is not understood.
    """
    steps = (s for statement in context.program.statements for s in statement.steps)
    found = []
    if any(isinstance(s, MmaStep) and s.op.a_type in EIGHT_BITS for s in steps):
        for accumulator in among:
            mmas = list(mmas_of(context, accumulator))
            if any(m.step.op.a_type in EIGHT_BITS for m in mmas) and _is_promoted(accumulator, moves, mmas):
                found.append(kind(context, moves, changes, accumulator, mmas))
    if not found:
        kernel = context.kernels[0].function
        raise NotPromoted(kernel, kernel.span(kernel.body), f"sums of FP8 that are promoted: {NONE}")
    for one in found:
        one.read()
    return found


def _is_promoted(accumulator: Accumulator, moves: Moves, mmas: Sequence[Multiply]) -> bool:
    """Whether threads use it in a loop with its MMAs."""
    if any(t.holder.accumulator is accumulator for t in moves.tracked):
        return True
    for node in (*moves.loads.get(accumulator, ()), *moves.stores.get(accumulator, ())):
        above = node.parent
        while above is not None:
            if above.type in LOOPS and any(above.start_byte <= m.top.start_byte < above.end_byte for m in mmas):
                return True
            above = above.parent
    return False


@dataclass(frozen=True)
class Addition:
    """`sum[i] += partial[i]` for all elements; `node` is the statement."""

    node: Node
    name: str


@dataclass(eq=False)
class Promotion:
    context: PortContext
    moves: Moves
    changes: Changes
    accumulator: Accumulator
    mmas: Sequence[Multiply]

    def __post_init__(self) -> None:
        self.function: Function = self.accumulator.function

    def left(self, node: Node, what: str) -> Left:
        return Left(self.function, self.function.span(node), what)

    # --- What is there

    def read(self) -> None:
        """
        Raises:
            Left: the accumulator is not promoted, or not in a way that is understood.
        """
        declared = self.accumulator.variable.declaration or self.function.body
        for mma in self.mmas:
            op = mma.step.op
            if op.a_type not in EIGHT_BITS or op.b_type not in EIGHT_BITS or op.d_type is not ElementType.F32:
                raise self.left(mma.top, "that all MMAs of it are of FP8, with sums that are floats")
        if (
            any(t.holder.accumulator is self.accumulator for t in self.moves.tracked)
            or self.accumulator.home.field_name
        ):
            raise self.left(declared, f"where `{self.accumulator.name}` is read and written")
        loads = self.moves.loads[self.accumulator]
        if self.moves.stores[self.accumulator]:
            raise self.left(declared, f"that threads write to `{self.accumulator.name}` nothing but zero")
        if len(loads) != 1:
            raise self.left(declared, f"one place where `{self.accumulator.name}` is read: there are {len(loads)}")
        self.addition = self.added(loads[0])
        self.loop = self._loop()
        self._sum()
        self.zeroing = self._zeroing()
        self.scales = list(scales_of(self.context, self.mmas, self.loop))
        self._begins()

    def added(self, node: Node) -> Addition:
        """What a statement adds.

        Raises:
            Left: it is no addition of all partial sums, or more than that.
        """
        return addition_of(self.context.program.constants_in(self.function), self.function, self.accumulator, node)

    def _loop(self) -> Node:
        """The loop whose every turn ends a partial sum with the addition."""
        node = self.addition.node
        body = node.parent
        if body is None or body.type != "compound_statement" or body.parent is None or body.parent.type not in LOOPS:
            raise self.left(node, "an addition in every turn of the loop with the MMAs: a condition is around it")
        loop = body.parent
        for jump in find(loop, *_JUMPS):
            if not self._of_another(jump, loop):
                raise self.left(jump, "that every turn of the loop comes to its addition")
        follows = loop.next_named_sibling
        while follows is not None and follows.type in ("comment", "preproc_call"):
            follows = follows.next_named_sibling
        if follows is None or loop.parent is None or loop.parent.type != "compound_statement":
            raise self.left(loop, "a statement behind the loop")
        self.follows = follows
        return loop

    def _of_another(self, jump: Node, loop: Node) -> bool:
        """Whether a jump stays in a loop, `switch` or lambda in the loop."""
        inner = [*_OTHER_LOOPS]
        if jump.type != "return_statement" and jump.type != "goto_statement":
            inner += [*LOOPS, *(("switch_statement",) if jump.type == "break_statement" else ())]
        above = jump.parent
        while above is not None and above.id != loop.id:
            if above.type in inner:
                return True
            above = above.parent
        return False

    def _sum(self) -> None:
        """That nobody else sees the sum in the loop."""
        name, whole = self.addition.name, self.function.span(self.addition.node)
        variable = resolve(self.function, self.addition.node, name)
        declared = variable.declaration if variable is not None else None
        if variable is None or variable.param is not None or declared is None or self.inside(declared):
            raise self.left(self.addition.node, f"that `{name}` is an array of the function, from outside the loop")
        for node in find(self.function.body, "identifier"):
            if self.function.text(node) != name or whole.contains(self.function.span(node)):
                continue
            if self.inside(node):
                raise self.left(node, f"that nothing else in the loop uses `{name}`")
            if node.start_byte < self.loop.start_byte and not self._is_plain(node, declared):
                raise self.left(node, f"that no pointer to `{name}` is used in the loop")

    def _is_plain(self, node: Node, declared: Node) -> bool:
        """Whether a name in front of the loop is the declaration, an element, or all of it in `memset`."""
        if declared.start_byte <= node.start_byte < declared.end_byte:
            value = node.parent
            return value is not None and value.type in ("array_declarator", "init_declarator", "declaration")
        above = node.parent
        if above is not None and above.type in ("argument_list", "sizeof_expression", "parenthesized_expression"):
            call: Node | None = above
            while call is not None and call.type not in ("call_expression", "expression_statement"):
                call = call.parent
            callee = call.child_by_field_name("function") if call is not None else None
            return callee is not None and self.function.text(callee) in ("memset", "std::memset")
        subscripted = False
        while above is not None and above.type == "subscript_expression":
            subscripted, above = True, above.parent
        return subscripted and (above is None or above.type not in ("pointer_expression", "argument_list"))

    def inside(self, node: Node) -> bool:
        return self.loop.start_byte <= node.start_byte < self.loop.end_byte

    # --- Where partial sums begin

    def _zeroing(self) -> list[Zeroing]:
        """Statements of the loop that make the accumulator zero."""
        found = []
        for zeroing in self.context.flow.zeroing.values():
            if self.accumulator not in zeroing.accumulators or zeroing.function is not self.function:
                continue
            if not self.inside(zeroing.node):
                continue
            body = self.loop.child_by_field_name("body")
            if zeroing.is_declaration:
                raise self.left(zeroing.node, f"`{self.accumulator.name}` declared outside of the loop")
            if zeroing.tile or zeroing.accumulators != [self.accumulator]:
                raise self.left(zeroing.node, "one statement for zeroing each accumulator")
            if body is None or zeroing.node.parent is None or zeroing.node.parent.id != body.id:
                raise self.left(zeroing.node, "that each turn of the loop begins its sums at zero")
            found.append(zeroing)
        declared = self.accumulator.variable.declaration
        if declared is not None and self.inside(declared):
            raise self.left(declared, f"`{self.accumulator.name}` declared outside of the loop")
        return found

    def _begins(self) -> None:
        """That each turn begins its sums at zero, by a statement or by scale-d."""
        at = [s.top for s in self.scales]
        if any(not self.inside(n) for n in at):
            raise self.left(self.loop, "that all MMAs of an accumulator are in one loop")
        first, last = min(n.start_byte for n in at), max(n.end_byte for n in at)
        if last > self.addition.node.start_byte:
            raise self.left(self.addition.node, "an addition behind the MMAs")
        for zeroing in self.zeroing:
            if first < zeroing.node.start_byte < self.addition.node.start_byte:
                raise self.left(zeroing.node, "that sums are made zero ahead of the MMAs")
        self._by_scale()

    def _by_scale(self) -> None:
        """That the first MMA of each turn overwrites, and no other."""
        begun: set[tuple[str, ...]] = set()
        for scale in sorted(self.scales, key=lambda s: s.top.start_byte):
            if scale.value is Value.UNKNOWN:
                raise self.left(scale.top, f"when an MMA with scale-d `{scale.text}` begins a sum")
            if scale.value is not Value.ALWAYS:
                if scale.tile in begun or (scale.value is Value.NEVER and scale.repeats):
                    raise self.left(scale.top, "that only the first MMA of each turn overwrites its sums")
                begun.add(scale.tile)
            elif scale.tile not in begun and not self.zeroing:
                raise self.left(scale.top, "that each turn of the loop begins its sums at zero")

    # --- What becomes of it

    def take(self) -> None:
        context, function = self.context, self.function
        self.changes.before(Place(function, self.loop), self._cleared())
        for zeroing in self.zeroing:
            self.changes.cut(function, self._whole(zeroing.node), RULE_ZERO)
        for scale in self.scales:
            if scale.place is not None and scale.value is not Value.ALWAYS:
                # all of them add to what is there: the first finds a tile that is cleared
                self.changes.replace(scale.place.function, scale.place.span, "1")
        whole = self._whole(self.addition.node)
        lines = [load_of(context, self.accumulator), *self.behind(whole)]
        self.changes.cut(function, whole, LOADS)
        at, text = context.statement_before(function, self.follows, "\n".join(lines))
        self.changes.replace(function, at, text)
        self.moves.loads[self.accumulator] = [self.follows]

    def behind(self, addition: Span) -> list[str]:
        """The lines of the addition behind the loop."""
        function = self.function
        moved = function.file.source[addition.start : addition.end].decode("utf-8", "replace").strip("\n")
        pad = self.context.indent(function, function.span(self.addition.node))
        return [line.removeprefix(pad) for line in moved.split("\n")]

    def _cleared(self) -> str:
        self.context.helpers.uses_clear = True
        home = self.accumulator.home
        return home.cleared(home.tile_in(self.function, self.context.names.beside), (), qualified("clear"))

    def _whole(self, node: Node) -> Span:
        """A statement with the pragmas in front of it."""
        return Span(self.context.before(self.function, node).start, self.function.span(node).end)


def addition_of(known: Constants, function: Function, accumulator: Accumulator, node: Node) -> Addition:
    """What a statement adds the accumulator to.

    Raises:
        Left: it does something else, or scales what it adds.
    """
    bounds: dict[str, str] = {}
    current = node
    while current.type in ("for_statement", "compound_statement"):
        if current.type == "for_statement":
            header = counted_loop(function, current)
            body = current.child_by_field_name("body")
            if header is None or body is None:
                raise Left(function, function.span(current), "a loop over all elements of the sum")
            bounds[header[0]] = header[1]
            current = body
            continue
        inner = [c for c in current.named_children if c.type not in ("comment", "preproc_call")]
        if len(inner) != 1:
            raise _not_added(function, accumulator, node)
        current = inner[0]
    if current.type != "expression_statement" or not current.named_children:
        raise _not_added(function, accumulator, node)
    assignment = current.named_children[0]
    left, right = assignment.child_by_field_name("left"), assignment.child_by_field_name("right")
    if assignment.type != "assignment_expression" or left is None or right is None:
        raise _not_added(function, accumulator, node)
    added = right if function.text(assignment.child_by_field_name("operator") or left) == "+=" else _other(
        function, left, right)  # fmt: skip
    element, target = (take_apart(function, added) if added is not None else None), take_apart(function, left)
    if element is None or target is None or not accumulator.home.is_named_by(function, element):
        raise _not_added(function, accumulator, node)
    extents = accumulator.home.extents
    covered = len(set(element.subscripts)) == len(extents) == len(bounds) and all(
        s in bounds and same_number(known, bounds[s], e) for s, e in zip(element.subscripts, extents, strict=False)
    )
    if not covered or target.subscripts != element.subscripts or target.path:
        raise Left(function, function.span(node), "an addition of all elements, each to one of its own")
    return Addition(node, target.name)


def _other(function: Function, left: Node, right: Node) -> Node | None:
    """What `left = left + other`, or the other way round, adds."""
    parts = [right.child_by_field_name("left"), right.child_by_field_name("right")]
    if right.type != "binary_expression" or function.text(right.children[1]) != "+" or None in parts:
        return None
    texts = ["".join(function.text(p).split()) for p in parts if p is not None]
    mine = "".join(function.text(left).split())
    return parts[1] if texts[0] == mine else parts[0] if texts[1] == mine else None


def _not_added(function: Function, accumulator: Accumulator, node: Node) -> Left:
    if node.type == "if_statement":
        what = "an addition in every turn of the loop with the MMAs: a condition is around it"
    elif re.search(r"fma|mul|\*|/", " ".join(function.text(n) for n in _leaves(node) if n.type != "comment")):
        what = SCALED
    else:
        what = f"a statement that adds all of `{accumulator.name}` to other sums and does nothing else"
    return Left(function, function.span(node), what)


def _leaves(node: Node) -> Iterator[Node]:
    """Tokens of a statement that are in no subscript and no header of a loop."""
    if not node.children:
        yield node
    for child in node.children:
        body = node.type != "for_statement" or child.id == getattr(node.child_by_field_name("body"), "id", None)
        if body and child.type != "subscript_argument_list":
            yield from _leaves(child)


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context, taking.moves).make(), changes=Declared(numerics=True),
    on_request="--drop-promotion", lacking=lambda plan: plan.promotion,
)  # fmt: skip
