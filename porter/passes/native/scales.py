# SPDX-License-Identifier: Apache-2.0
"""Scales that are powers of two move into the tensor core. A kernel that multiplies the sums of each block of K by
scales of their rows, and adds them to floats, reads what it multiplied in every turn. Block-scaled MMAs multiply by an
exponent for each row while they add, so that the whole sum stays in the accumulator. Its order is another one than the
original's, so this is on request."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import above, arguments, find, walk
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.counted import counted_from_zero
from porter.model.functions import Style
from porter.model.pipeline.frames import Frame
from porter.model.pipeline.operations import Site
from porter.model.pipeline.who import Who
from porter.model.registers import take_apart
from porter.model.scopes import Variable, resolve
from porter.model.settings import settings_of
from porter.model.tensor_core import MmaStep, Step
from porter.passes.context import PortContext, qualified
from porter.passes.moves import Moves
from porter.passes.native import promotion
from porter.passes.native.powers import At, Powers
from porter.passes.native.promotion import EIGHT_BITS, Addition, Promotion, promotions, without_parentheses
from porter.passes.native.quads import Quads
from porter.passes.native.sites import Changes, Left, Place, steps_below, threads_at, written
from porter.ptx.arch import Limits
from porter.ptx.wgmma import COLUMN_GROUP, GROUP_REGISTERS, QUAD, THREADS, M
from porter.steps import step as steps

RULE = "PTR273"
NAME = "scales"
NO_SCALES = "partial sums that are multiplied by scales"
_MULTIPLIES = ("__fmul_rn", "__fmul_rz", "__fmul_ru", "__fmul_rd")
_FUSED = ("fmaf", "__fmaf_rn", "__fmaf_rz", "__fmaf_ru", "__fmaf_rd", "std::fma", "std::fmaf", "fma")
_READS = ("subscript_expression", "pointer_expression", "field_expression", "update_expression",
          "assignment_expression", "lambda_expression", "gnu_asm_expression")  # fmt: skip
_MOST_TURNS = 4096


def take(context: PortContext, moves: Moves) -> Changes:
    """The edits of the step, for all accumulators whose sums are promoted."""
    changes = Changes(context, RULE)
    found = promotions(context, moves, changes, context.accumulators.accumulators, Scaled)
    _only_these(context, found)
    context.helpers.scaled = True
    context.helpers.column_factors = any(one.columns for one in found)
    for one in found:
        one.take()
    return changes


def missing(context: PortContext, moves: Moves, among: Sequence[Accumulator]) -> str | None:
    """What the step lacks where sums of these accumulators are promoted with scales, empty if it lacks nothing; None
    where none are."""
    if promotion.missing(context, moves, among) != promotion.SCALED:
        return None
    try:
        _only_these(context, promotions(context, moves, Changes(context, RULE), among, Scaled))
    except Left as left:
        return left.what
    return ""


def _only_these(context: PortContext, found: list[Scaled]) -> None:
    """That MMAs of FP8 are all of sums with scales: they are issued by one function of the port. Raises Left: some are
    of others."""
    mine = {id(m.step) for one in found for m in one.mmas}
    for statement in context.program.statements:
        for step in statement.steps:
            if isinstance(step, MmaStep) and step.op.a_type in EIGHT_BITS and id(step) not in mine:
                function = statement.function
                raise Left(function, function.span(statement.statement.node), "that all MMAs of FP8 are of scaled sums")


@dataclass(frozen=True)
class _Factor:
    """What a partial sum is multiplied by: `leaf` in the addition, `text` ahead of the MMAs, and the expression that
    says its `value`. `name` is that of an array whose element it is."""

    text: str
    leaf: Node
    value: Node
    name: str = ""


@dataclass(eq=False)
class Scaled(Promotion):
    """Sums of which partial ones are multiplied by powers of two."""

    def added(self, node: Node) -> Addition:
        elements = dict(self._elements(node))
        self._all_of_them(node, elements)
        self._apart(node, {e: list(f) for e, (f, _) in elements.items()})
        if not any(self.factors) and not self.columns:
            raise self.left(node, NO_SCALES)
        targets = {t for _, t in elements.values()}
        if len(targets) != 1:
            raise self.left(node, "an addition to one array")
        return Addition(node, targets.pop())

    def _apart(self, node: Node, elements: dict[int, list[_Factor]]) -> None:
        """Factors of the two rows of a thread, which all elements of one have, and of columns: what is left."""
        self.factors: list[tuple[_Factor, ...]] = []
        self.columns: list[tuple[int, tuple[_Factor, ...]]] = []
        counts = {e: Counter(f.text for f in factors) for e, factors in elements.items()}
        of_rows = [Counter[str](), Counter[str]()]
        for half in (0, 1):
            mine = [e for e in elements if e % GROUP_REGISTERS // 2 == half]
            of_rows[half] = reduce(and_, (counts[e] for e in mine))
            self.factors.append(_taken(elements[mine[0]], of_rows[half]))
        left = {e: _taken(f, counts[e] - of_rows[e % GROUP_REGISTERS // 2]) for e, f in elements.items()}
        for element, factors in sorted(left.items()):
            first = left[element // GROUP_REGISTERS * GROUP_REGISTERS]
            if [f.text for f in factors] != [f.text for f in first]:
                raise self.left(node, "scales of rows, times those of eight columns and more")
            if element % GROUP_REGISTERS:
                continue
            end = (element // GROUP_REGISTERS + 1) * COLUMN_GROUP
            if self.columns and [f.text for f in self.columns[-1][1]] == [f.text for f in first]:
                self.columns.pop()
            self.columns.append((end, first))
        if not any(factors for _, factors in self.columns):
            self.columns = []

    # --- The addition

    def _elements(self, node: Node) -> Iterator[tuple[int, tuple[tuple[_Factor, ...], str]]]:
        """By element of a thread what it is multiplied by, and the name of the array that it is added to. Raises Left:
        a statement is something else."""
        if self.accumulator.home.depth:
            raise self.left(node, "a sum that is one tile, and no array of such")
        seen: set[int] = set()
        for statement, turns in self._statements(node, {}):
            for values in product(*(range(count) for count in turns.values())):
                turn = dict(zip(turns, values, strict=True))
                element, factors, target = self._one(statement, turn)
                if element in seen:
                    raise self.left(statement, "an addition of each element, once")
                seen.add(element)
                yield element, (factors, target)

    def _statements(self, node: Node, turns: dict[str, int]) -> Iterator[tuple[Node, dict[str, int]]]:
        """Assignments of the addition, with the loops around each and how often these run."""
        if node.type == "for_statement":
            loop, body = counted_from_zero(self.function, node), node.child_by_field_name("body")
            count = self._number(self.function.text(loop.end), {}) if loop is not None else None
            if loop is None or body is None or count is None or loop.name in turns:
                raise self.left(node, "a loop over elements of the sum, and how often it runs")
            inner = {**turns, loop.name: count}
            if math.prod(inner.values()) > _MOST_TURNS:
                raise self.left(node, f"at most {_MOST_TURNS} turns of the loops over elements of the sum")
            yield from self._statements(body, inner)
        elif node.type == "compound_statement":
            for child in node.named_children:
                if child.type not in ("comment", "preproc_call"):
                    yield from self._statements(child, turns)
        elif node.type == "expression_statement" and len(node.named_children) == 1:
            yield node.named_children[0], turns
        elif node.type == "if_statement":
            raise self.left(node, "an addition in every turn of the loop with the MMAs: a condition is around it")
        else:
            raise self.left(node, self._nothing_else())

    def _nothing_else(self) -> str:
        return f"a statement that adds all of `{self.accumulator.name}`, times scales, and does nothing else"

    def _one(self, node: Node, turn: dict[str, int]) -> tuple[int, tuple[_Factor, ...], str]:
        """The element, its factors and the array of `sum[i] += partial[i] * scale`, in one turn of the loops."""
        left, values = self._assigned(node)
        mine, factors = None, []
        for leaf in (leaf for value in values for leaf in self._product(value, turn)):
            element = take_apart(self.function, leaf)
            if element is not None and self.accumulator.home.is_named_by(self.function, element):
                if mine is not None:
                    raise self.left(node, self._nothing_else())
                mine = element
            else:
                factors.append(self._factor(leaf, turn))
        target = take_apart(self.function, left)
        if mine is None or target is None:
            raise self.left(node, self._nothing_else())
        if target.path or [_tight(s) for s in target.subscripts] != [_tight(s) for s in mine.subscripts]:
            raise self.left(node, "an addition of all elements, each to one of its own")
        return self._place(node, mine.subscripts, turn), tuple(factors), target.name

    def _assigned(self, node: Node) -> tuple[Node, Sequence[Node]]:
        """The sum, and factors of what is added to it."""
        text, added = self.function.text, self.summand(node)
        left, right, sign = (node.child_by_field_name(name) for name in ("left", "right", "operator"))
        if added is not None and left is not None:
            return left, [added]
        fused = without_parentheses(right) if right is not None else node
        if left is not None and sign is not None and text(sign) == "=" and self._is_called(fused, _FUSED):
            listed = arguments(fused)
            if len(listed) == 3 and _tight(text(listed[2])) == _tight(text(left)):
                return left, listed[:2]
        raise self.left(node, self._nothing_else())

    def _product(self, node: Node, turn: dict[str, int]) -> Iterator[Node]:
        """What is multiplied, where each turn chooses one of two things the one that it chooses."""
        node = without_parentheses(node)
        if node.type == "binary_expression" and self.function.text(node.children[1]) == "*":
            for name in ("left", "right"):
                yield from self._product(node.child_by_field_name(name) or node, turn)
        elif self._is_called(node, _MULTIPLIES):
            for argument in arguments(node):
                yield from self._product(argument, turn)
        elif node.type == "conditional_expression" and self._names_any(node, turn):
            condition = node.child_by_field_name("condition")
            answer = self._number(self.function.text(condition), turn) if condition is not None else None
            if answer is None:
                raise self.left(node, "which scale each element of the sum has")
            arm = node.child_by_field_name("consequence" if answer else "alternative")
            yield from self._product(arm if arm is not None else node, turn)
        else:
            yield node

    def _is_called(self, node: Node, names: tuple[str, ...]) -> bool:
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        name = _tight(self.function.text(callee)).removeprefix("::") if callee is not None else ""
        calls = self.context.program.calls_by_node.get(node.id, ())
        return name in names and not any(self.context.program.targets(c) for c in calls)

    def _names_any(self, node: Node, turn: dict[str, int]) -> bool:
        return any(re.search(rf"\b{re.escape(n)}\b", self.function.text(node)) for n in turn)

    def _factor(self, leaf: Node, turn: dict[str, int]) -> _Factor:
        """A factor as it may stand ahead of the MMAs."""
        if any(self.function.text(n) in self.accumulator.home.names for n in find(leaf, "identifier")):
            raise self.left(leaf, self._nothing_else())
        if leaf.type == "subscript_expression":
            return self._of_array(leaf, turn)
        if self._names_any(leaf, turn):
            raise self.left(leaf, "a scale in a variable, or in an array of scales")
        return _Factor(" ".join(self.function.text(leaf).split()), leaf, leaf)

    def _of_array(self, leaf: Node, turn: dict[str, int]) -> _Factor:
        """An element of an array of scales, that all of its elements are declared with."""
        element = take_apart(self.function, leaf)
        plain = element is not None and not element.path and len(element.subscripts) == 1
        variable = resolve(self.function, leaf, element.name) if element is not None and plain else None
        declarator = variable.declarator if variable is not None else None
        values = declarator.child_by_field_name("value") if declarator is not None else None
        declared = values.named_children if values is not None and values.type == "initializer_list" else []
        listed = [c for c in declared if c.type != "comment"]
        at = self._number(element.subscripts[0], turn) if element is not None and plain else None
        if element is None or variable is None or at is None or not 0 <= at < len(listed):
            text = _tight(self.function.text(leaf))
            raise self.left(leaf, f"that scales are powers of two: `{text}` is read as a float, and may be any")
        for one in settings_of(self.context.program, variable):
            if one.node != values:
                raise self.left(one.node, f"that `{element.name}` keeps what it is declared with")
        return _Factor(f"{element.name}[{at}]", leaf, listed[at], element.name)

    def _place(self, node: Node, subscripts: tuple[str, ...], turn: dict[str, int]) -> int:
        """The number of an element in a thread's part of the sum."""
        at = 0
        extents = self.accumulator.home.extents
        if len(subscripts) != len(extents):
            raise self.left(node, "an addition of all elements, each to one of its own")
        for subscript, extent in zip(subscripts, extents, strict=True):
            index, size = self._number(subscript, turn), self._number(extent, {})
            if index is None or size is None or not 0 <= index < size:
                raise self.left(node, "which element of the sum each turn adds")
            at = at * size + index
        return at

    def _number(self, text: str, turn: dict[str, int]) -> int | None:
        for name, value in turn.items():
            text = re.sub(rf"\b{re.escape(name)}\b", str(value), text)
        return self.context.program.constants_in(self.function).evaluate(text)

    def _all_of_them(self, node: Node, elements: Collection[int]) -> None:
        """That all elements are added: as many as MMAs have for a thread."""
        for mma in self.mmas:
            if set(elements) != set(range(mma.step.op.n * M // THREADS)):
                raise self.left(node, "an addition of all elements, each to one of its own")

    # --- What is asked of the scales

    def read(self) -> None:
        super().read()
        context, function = self.context, self.function
        if function.style is not Style.KERNEL:
            raise self.left(self.addition.node, "sums of the kernel itself, where its scales are")
        if not context.helpers.joined:
            raise self.left(self.loop, "M=128 MMAs of two warpgroups: block-scaled ones have no 64 rows")
        if any(m.step.a_registers for m in self.mmas):
            raise self.left(self.loop, "A in shared memory")
        self.ahead = self._ahead()
        powers, (threads, who) = Powers(context.program), self._threads()
        lanes, everybody = (Quads(context.program, function, threads, who, n) for n in (QUAD, len(who)))
        of_columns = [f for _, factors in self.columns for f in factors]
        for factor in dict.fromkeys([f for half in self.factors for f in half] + of_columns):
            self._is_ahead(factor)
            powers.power(At(function), factor.value)
            if factor in of_columns and not everybody.alike(factor.value):
                raise self.left(factor.value, f"that all threads have one `{factor.text}`, of columns")
            if not lanes.alike(factor.value):
                raise self.left(factor.value, f"that all lanes of a row have one `{factor.text}`")

    def _ahead(self) -> Node:
        """The statement of the loop ahead of which scales are handed over: the first fence, ahead of all MMAs."""
        body = self.loop.child_by_field_name("body")
        assert body is not None
        first = min(s.top.start_byte for s in self.scales)
        found = []
        for path, statement in steps_below(self.context.program, self.function, [self.function.span(body)]):
            if any(s.kind is Step.FENCE for s in statement.steps):
                node = [path[0].node, *above(path[0].node, body)][-1]
                only = written(path) == path[0] and len(statement.steps) == 1 and node.type == "expression_statement"
                found.append((node, only and [c.id for c in node.named_children] == [path[0].node.id]))
        ahead, self.is_fence = min(found, key=lambda f: f[0].start_byte, default=(None, False))
        if ahead is None or ahead.end_byte > first:
            raise self.left(self.loop, "a fence of each turn ahead of its MMAs")
        return ahead

    def _threads(self) -> tuple[int, frozenset[int]]:
        """Threads of a block, and those that come to the loop."""
        program, function = self.context.program, self.function
        kernel = next(k for k in self.context.kernels if k.function is function)
        most = Limits.threads_per_block
        threads = min(program.value(function, kernel.threads or "") or most, most)
        return threads, threads_at(Who(program, threads), (Site(Frame(function), self.loop),))

    def _is_ahead(self, factor: _Factor) -> None:
        """That a factor is there ahead of the MMAs, and the same as where sums are added."""
        function, leaf = self.function, factor.leaf
        if not factor.name and (any(n.type in _READS for n in walk(leaf)) or not self._only_computes(leaf)):
            raise self.left(leaf, "scales in variables ahead of the MMAs")
        named = (function.text(n) for n in find(leaf, "identifier"))
        for name in [factor.name] if factor.name else named:
            variable = resolve(function, leaf, name)
            if variable is None:
                continue
            early = resolve(function, self.ahead, name)
            if early is None or early.key != variable.key:
                raise self.left(leaf, f"`{name}` ahead of the MMAs of its turn")
            self._not_changed(variable)

    def _only_computes(self, leaf: Node) -> bool:
        """Whether what is called in a factor is the toolkit's, and reads no memory."""
        calls = [n for n in walk(leaf) if n.type == "call_expression"]
        named = [(n, c) for n in calls if (c := n.child_by_field_name("function")) is not None]
        return not any(
            self.function.text(callee).startswith("__ld")
            or any(self.context.program.targets(c) for c in self.context.program.calls_by_node.get(node.id, ()))
            for node, callee in named
        )

    def _not_changed(self, variable: Variable) -> None:
        """That a variable keeps its value from ahead of the MMAs of a turn to the addition."""
        for one in settings_of(self.context.program, variable):
            between = self.ahead.start_byte <= one.node.start_byte < self.addition.node.end_byte
            if between or not one.sign:
                what = f"that `{variable.name}` is the same where sums are added as ahead of the MMAs"
                raise self.left(one.node, what)

    # --- What becomes of it

    def take(self) -> None:
        context, function = self.context, self.function
        super().take()
        home = self.accumulator.home
        tile = home.tile_in(function, context.names.beside)
        upper, lower = (" * ".join(f.text for f in half) or "1.f" for half in self.factors)
        count = self.mmas[0].step.op.n
        more = f", {count}, {self._of_columns(count)}" if context.helpers.column_factors else ""
        text = f"{qualified('scale')}({context.names.warpgroup}, {tile}, {upper}, {lower}{more});"
        # all threads meet there as at a fence
        write = self.changes.statement if self.is_fence else self.changes.before
        write(Place(function, self.ahead), text)
        context.report(
            Code.NATIVE_SCALES, function, function.span(self.addition.node),
            kernel=function.name, name=self.accumulator.name,
        )  # fmt: skip

    def _of_columns(self, count: int) -> str:
        """What gives the factor of a column."""
        columns = self.columns or [(count, ())]
        texts = [(end, " * ".join(f.text for f in factors) or "1.f") for end, factors in columns]
        name = self.context.names.fresh("column")
        chosen = "".join(f"{name} < {end} ? {text} : " for end, text in texts[:-1]) + texts[-1][1]
        return f"[&](uint32_t {name}) {{ return {chosen}; }}"

    def behind(self, addition: Span) -> list[str]:
        """One addition of all elements, each of which has its scale."""
        name, extents = self.accumulator.name, self.accumulator.home.extents
        indices = [self._index(i, (name, self.addition.name, *extents)) for i in range(len(extents))]
        at = "".join(f"[{i}]" for i in indices)
        lines = [f"for (int {i} = 0; {i} < {e}; ++{i})" for i, e in zip(indices, extents, strict=True)]
        return ["#pragma unroll", f"{' '.join(lines)} {self.addition.name}{at} += {name}{at};"]

    @staticmethod
    def _index(number: int, others: tuple[str, ...]) -> str:
        name = "ijkl"[number]
        while any(re.search(rf"\b{name}\b", o) for o in others):
            name += name[0]
        return name


def _taken(factors: list[_Factor], wanted: Counter[str]) -> tuple[_Factor, ...]:
    """As many of the factors as are wanted of each text."""
    found, left = [], Counter(wanted)
    for factor in factors:
        if left[factor.text] > 0:
            left[factor.text] -= 1
            found.append(factor)
    return tuple(found)


def _tight(text: str) -> str:
    return "".join(text.split())


STEP = steps.Step(
    NAME, RULE, lambda taking: take(taking.context, taking.moves).make(), changes=steps.Declared(numerics=True),
    follows=("promotion",), on_request="--block-scale", lacking=lambda plan: plan.scales,
)  # fmt: skip
