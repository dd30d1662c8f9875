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

from porter.lang.cuda import above, enclosing, find, inside
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.functions import Function
from porter.model.registers import take_apart
from porter.model.scopes import LOOPS, resolve
from porter.model.tensor_core import MmaStep
from porter.model.threads import target_of
from porter.model.zeroing import Zeroing, loops_to, same_number
from porter.passes.context import PortContext, qualified
from porter.passes.epilogue import RULE as LOADS
from porter.passes.epilogue import load_of
from porter.passes.moves import Moves
from porter.passes.native.scale_d import Multiply, Value, mmas_of, scales_of
from porter.passes.native.sites import Changes, Left, OfFunction, Place
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
    used = (*moves.loads.get(accumulator, ()), *moves.stores.get(accumulator, ()))
    loops = (n for node in used for n in above(node, accumulator.function.body) if n.type in LOOPS)
    return any(inside(loop, m.top) for loop in loops for m in mmas)


@dataclass(frozen=True)
class Addition:
    """`sum[i] += partial[i]` for all elements; `node` is the statement."""

    node: Node
    name: str


@dataclass(eq=False)
class Promotion(OfFunction):
    context: PortContext
    moves: Moves
    changes: Changes
    accumulator: Accumulator
    mmas: Sequence[Multiply]

    def __post_init__(self) -> None:
        self.function: Function = self.accumulator.function

    # --- What is there

    def read(self) -> None:
        """Raises Left: the accumulator is not promoted, or not in a way that is understood."""
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
        function, home = self.function, self.accumulator.home
        bounds, statement = loops_to(function, node)
        if statement.type == "for_statement":
            raise self.left(statement, "a loop over all elements of the sum")
        inner = statement.named_children if statement.type == "expression_statement" else []
        assignment = inner[0] if inner else statement
        left, added = assignment.child_by_field_name("left"), self.summand(assignment)
        element = take_apart(function, added) if added is not None else None
        target = take_apart(function, left) if left is not None else None
        if element is None or target is None or not home.is_named_by(function, element):
            raise self._not_added(node)
        known, extents = self.context.program.constants_in(function), home.extents
        covered = len(set(element.subscripts)) == len(extents) == len(bounds) and all(
            s in bounds and same_number(known, bounds[s], e) for s, e in zip(element.subscripts, extents, strict=False)
        )
        if not covered or target.subscripts != element.subscripts or target.path:
            raise self.left(node, "an addition of all elements, each to one of its own")
        return Addition(node, target.name)

    def summand(self, assignment: Node) -> Node | None:
        """What `left += other`, `left = left + other`, or the other way round, adds."""
        text = self.function.text
        left, right, sign = (assignment.child_by_field_name(name) for name in ("left", "right", "operator"))
        if assignment.type != "assignment_expression" or left is None or right is None or sign is None:
            return None
        right = without_parentheses(right)
        if text(sign) == "+=":
            return right
        parts = [p for name in ("left", "right") if (p := right.child_by_field_name(name)) is not None]
        if text(sign) != "=" or right.type != "binary_expression" or text(right.children[1]) != "+":
            return None
        same = ["".join(text(p).split()) == "".join(text(left).split()) for p in parts]
        return parts[1] if same[0] else parts[0] if same[1] else None

    def _not_added(self, node: Node) -> Left:
        words = (self.function.text(n) for n in _leaves(node) if n.type != "comment")
        what = f"a statement that adds all of `{self.accumulator.name}` to other sums and does nothing else"
        if node.type == "if_statement":
            what = "an addition in every turn of the loop with the MMAs: a condition is around it"
        elif re.search(r"fma|mul|\*|/", " ".join(words)):
            what = SCALED
        return self.left(node, what)

    def _loop(self) -> Node:
        """The loop whose every turn ends a partial sum with the addition."""
        node = self.addition.node
        body = node.parent
        if body is None or body.type != "compound_statement" or body.parent is None or body.parent.type not in LOOPS:
            raise self.left(node, "an addition in every turn of the loop with the MMAs: a condition is around it")
        loop = body.parent
        for jump in find(loop, *_JUMPS):
            target = target_of(jump, self.function)
            if target.id == loop.id or not inside(loop, target):
                raise self.left(jump, "that every turn of the loop comes to its addition")
        follows = loop.next_named_sibling
        while follows is not None and follows.type in ("comment", "preproc_call"):
            follows = follows.next_named_sibling
        if follows is None or loop.parent is None or loop.parent.type != "compound_statement":
            raise self.left(loop, "a statement behind the loop")
        self.follows = follows
        return loop

    def _sum(self) -> None:
        """That nobody else sees the sum in the loop."""
        name, whole = self.addition.name, self.function.span(self.addition.node)
        variable = resolve(self.function, self.addition.node, name)
        declared = variable.declaration if variable is not None else None
        if variable is None or variable.param is not None or declared is None or self.inside(declared):
            raise self.left(self.addition.node, f"that `{name}` is an array of the function, from outside the loop")
        for node in self.function.named(name):
            if whole.contains(self.function.span(node)):
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
        outer = node.parent
        if outer is not None and outer.type in ("argument_list", "sizeof_expression", "parenthesized_expression"):
            call = enclosing(node, "call_expression", "expression_statement")
            callee = call.child_by_field_name("function") if call is not None else None
            return callee is not None and self.function.text(callee) in ("memset", "std::memset")
        subscripted = False
        while outer is not None and outer.type == "subscript_expression":
            subscripted, outer = True, outer.parent
        return subscripted and (outer is None or outer.type not in ("pointer_expression", "argument_list"))

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


def without_parentheses(node: Node) -> Node:
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


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
