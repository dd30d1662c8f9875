# SPDX-License-Identifier: Apache-2.0
"""What a kernel with MMAs is made of, as text and traces have it: accumulators, pipeline of the loads, calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import libcst as cst
import libcst.matchers as m

from porter.lang.python import walk
from porter.passes.idiom_dsl.facts import Facts, Seen
from porter.passes.idiom_dsl.names import OBSERVED
from porter.passes.idiom_dsl.shapes import operand_of, targets_of
from porter.passes.idiom_dsl.text import Left, Statement, Text, argument, assigned, found_in, method, one
from porter.passes.idiom_dsl.views import View, views_of


@dataclass(frozen=True)
class Accumulator:
    """Register tensors that MMAs add to, which are alike: their names, and the statements with the calls that make
    them. `loops` are those over several of them."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    calls: tuple[cst.Call, ...]
    seen: Sequence[Seen]
    loops: tuple[cst.For, ...] = ()
    views: tuple[View, ...] = ()
    """Parts of its columns that MMAs add to apart."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def statement(self) -> Statement:
        return self.statements[0]

    @property
    def call(self) -> cst.Call:
        return self.calls[0]

    @property
    def shape(self) -> Any:
        return self.seen[0].result["shape"]

    @property
    def parts(self) -> int:
        """How many MMAs beside each other its columns are."""
        return int(self.shape[2]) if self.views else 1


@dataclass
class Parts:
    """Of one function. `taken` are names that it must not use for anything new."""

    text: Text
    facts: Facts
    function: cst.FunctionDef
    gemms: list[cst.Call]
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.taken |= {n.value for n in found_in(self.text.module, cst.Name)}

    def fresh(self, name: str) -> str:
        """A name that is not taken, as close to `name` as can be."""
        found = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 99))) if n not in self.taken)
        self.taken.add(found)
        return found

    def seen(self, call: cst.Call) -> list[Seen]:
        return self.facts.at(call)

    @cached_property
    def multiplies(self) -> list[Seen]:
        return [s for call in self.gemms for s in self.seen(call)]

    @cached_property
    def mma(self) -> str:
        """The name of the tiled MMA."""
        names = {self.text.code(operand_of(c, 0, "atom")) for c in self.gemms}
        if len(names) != 1 or not next(iter(names)).isidentifier():
            raise Left("MMAs of several tiled MMAs", self.gemms[0])
        return names.pop()

    @cached_property
    def accumulator(self) -> Accumulator:
        """The register tensor that MMAs add to, by the traces: whatever the text calls it at a place."""
        for call in self.gemms:
            if self.text.code(operand_of(call, 1, "d")) != self.text.code(operand_of(call, 4, "c")):
                raise Left("an MMA whose sum is another tensor than what it adds to", call)
        numbers = {(s.case, s.value(1, "d")["number"]) for s in self.multiplies}
        made = [s for s in self.facts.of("registers") if (s.case, s.result["number"]) in numbers]
        views = views_of(self.text, self.facts, self.gemms, numbers) if not made else ()
        if views:
            made = [s for s in self.facts.of("registers") if self.text.function(s.call) is self.function
                    and assigned(self.text.statement(s.call)) == (views[0].of, s.call)]  # fmt: skip
        made = made or self._by_name()
        calls = tuple(dict.fromkeys(s.call for s in made))
        cases = {s.case for s in self.multiplies}
        if not calls or any({s.case for s in made if s.call is c} != cases for c in calls):
            raise Left("an accumulator that is a part of another tensor", self.gemms[0])
        names, loops = tuple(map(self._named, calls)), set[cst.For]()
        for gemm in self.gemms:
            if not views and (name := self.text.code(operand_of(gemm, 1, "d"))) not in names:
                loops.add(self._loop_over(gemm, name, names))
        statements = tuple(dict.fromkeys(map(self.text.statement, calls)))
        if len(calls) > 1:
            blocks, shapes = {self.text.block(s) for s in statements}, {s.case: s.result["shape"] for s in made}
            same = {self.text.code(a.value) if (a := argument(c, 0)) else "" for c in calls}
            if len(blocks) + len(same) > 2 or any(shapes[s.case] != s.result["shape"] for s in made):
                raise Left("accumulators that are not alike", calls[1])
        return Accumulator(names, statements, calls, made, tuple(loops), views)

    def _named(self, call: cst.Call) -> str:
        """What the kernel calls the value of a call, which it names alone or with the values of others."""
        statement = self.text.statement(call)
        found = assigned(statement)
        if found is not None and found[1] is call:
            return found[0]
        both = m.Assign([m.AssignTarget(m.Tuple())], m.Tuple())
        if m.matches(statement, m.SimpleStatementLine([both])):
            assign = found_in(statement, cst.Assign)[0]
            targets, values = found_in(assign.targets[0], cst.Tuple)[0], cst.ensure_type(assign.value, cst.Tuple)
            if all(self.text.is_a(v.func, *OBSERVED["registers"]) or method(v, "make_fragment_C") for v in
                   (e.value for e in values.elements) if isinstance(v, cst.Call)):  # fmt: skip
                for target, value in zip(targets.elements, values.elements, strict=False):
                    if value.value is call and isinstance(target.value, cst.Name):
                        return target.value.value
        raise Left("an accumulator without a name of its own", call)

    def _loop_over(self, gemm: cst.Call, name: str, names: Sequence[str]) -> cst.For:
        """The loop over accumulators that an MMA stands in, which goes by `name` there."""
        for loop in self.text.above(gemm):
            if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Tuple):
                continue
            if name in set(targets_of(loop.target)) and {n.value for n in found_in(loop.iter, cst.Name)} & set(names):
                return loop
        raise Left("an accumulator that goes by another name at its MMAs", gemm)

    def _by_name(self) -> list[Seen]:
        """Where the accumulator is made, where a loop hands it on as another object: it goes by its name, and the
        traces agree on its shape."""
        names = {self.text.code(operand_of(c, 1, "d")) for c in self.gemms}
        shapes = {(s.case, str(s.value(1, "d")["shape"])) for s in self.multiplies}
        found = []
        for seen in self.facts.of("registers"):
            bound = assigned(self.text.statement(seen.call))
            if bound is not None and {bound[0]} == names and (seen.case, str(seen.result["shape"])) in shapes:
                found.append(seen)
        return found

    @cached_property
    def tiles(self) -> dict[int, tuple[int, int]]:
        """By case, rows and columns of the accumulator of a block."""
        found = {}
        for made in self.facts.of("make_mma"):
            op, layout = made.result["op"], made.value(5, "atom_layout_mnk")
            for seen in self.multiplies:
                if seen.case == made.case and seen.value(0, "atom")["op"]["number"] == op["number"]:
                    _, rows, columns = seen.value(1, "d")["shape"][:3]
                    m_, n, _ = op["shape_mnk"]
                    found[made.case] = m_ * layout[0] * rows, n * layout[1] * columns
        return found

    @cached_property
    def warpgroups(self) -> list[tuple[int, int, int]]:
        """What each case lays the atoms of an MMA out over."""
        return [tuple(s.value(5, "atom_layout_mnk")) for s in self.facts.of("make_mma")]

    @cached_property
    def pipeline(self) -> tuple[str, cst.Call]:
        """Name and creation of the pipeline of the loads."""
        created = self.text.calls(self.function, *OBSERVED["load_pipeline"])
        call = one(created, "pipelines of loads")
        found = assigned(self.text.statement(call))
        if found is None or found[1] is not call:
            raise Left("a pipeline of loads without a name of its own", call)
        return found[0], call

    @cached_property
    def is_by_hand(self) -> bool:
        """Whether nothing makes a pipeline of loads, in the text and in the traces."""
        cases = {s.case for s in self.multiplies}
        made = self.text.calls(self.function, *OBSERVED["load_pipeline"])
        return not made and not any(s.case in cases for s in self.facts.of("load_pipeline"))

    def of_pipeline(self, inside: cst.CSTNode, *names: str) -> list[cst.Call]:
        """Calls of methods of the pipeline of the loads."""
        if self.is_by_hand:
            return []
        return [c for c in found_in(inside, cst.Call) if method(c, *names) == self.pipeline[0]]

    def warpgroup_calls(self, inside: cst.CSTNode) -> list[cst.Call]:
        """Those that fence, commit and wait for WGMMA groups."""
        return self.text.calls(inside, *OBSERVED["fence"], *OBSERVED["commit"], *OBSERVED["wait"])

    @cached_property
    def settings(self) -> list[cst.Call]:
        """Where ACCUMULATE is set."""
        return [c for c in found_in(self.function, cst.Call) if method(c, "set") == self.mma]

    @cached_property
    def aliases(self) -> set[str]:
        """Names that stand for the accumulator's registers, or for a part of them."""
        turns = {n for loop in self.accumulator.loops for n in targets_of(loop.target)}
        own = {self.text.code(operand_of(c, 1, "d")) for c in self.gemms}
        return self.aliases_of(*self.accumulator.names, *(turns & own))

    def aliases_of(self, *registers: str) -> set[str]:
        found, grown = set(registers), True
        while grown:
            new = set()
            for statement in found_in(self.function, cst.SimpleStatementLine):
                one_ = assigned(statement)
                if one_ is not None and one_[0] not in found and isinstance(one_[1], (cst.Name, cst.Call)):
                    names = {n.value for n in found_in(one_[1], cst.Name)}
                    if isinstance(one_[1], cst.Name) or method(one_[1], "retile"):
                        new |= {one_[0]} if names & found else set()
            found |= new
            grown = bool(new)
        return found

    def is_global(self, value: cst.BaseExpression) -> bool:
        """Whether an expression means the same in the kernel: of attributes of `self` and constants of the file."""
        plain = (cst.Name, cst.Attribute, cst.Integer, cst.BinaryOperation, cst.BaseBinaryOp)
        attributes = {id(a.attr) for a in found_in(value, cst.Attribute)}
        names = {n.value for n in found_in(value, cst.Name) if id(n) not in attributes}
        constants = {a[0] for s in self.text.module.body if (a := assigned(s)) is not None}
        params = {p.name.value for p in self.function.params.params}
        is_plain = all(isinstance(n, plain) for n in walk(value) if isinstance(n, cst.BaseExpression))
        return is_plain and names <= ({"self"} & params) | (constants - params)

    def number(self, value: cst.BaseExpression, deep: int = 4) -> int | None:
        """What an expression of integers is, and of attributes that the file sets at one place alone; else None."""
        if isinstance(value, cst.Integer):
            return value.evaluated_value
        if isinstance(value, cst.BinaryOperation):
            left, right = self.number(value.left, deep), self.number(value.right, deep)
            how = _COUNTS.get(type(value.operator))
            return how(left, right) if left is not None and right is not None and how is not None else None
        name = cst.Module([]).code_for_node(value)
        said = [
            a[1] for s in found_in(self.text.module, cst.SimpleStatementLine) if (a := assigned(s)) and a[0] == name
        ]
        return self.number(said[0], deep - 1) if len(said) == 1 and deep else None

    def uses(self, names: AbstractSet[str]) -> list[cst.Name]:
        """Where registers of these names are used: neither made, nor multiplied, cleared or asked for their shape."""
        own = {id(operand_of(c, i, k)) for c in self.gemms for i, k in ((1, "d"), (4, "c"))}
        found = []
        for node in found_in(self.function, cst.Name):
            parent = self.text.parent(node)
            told = isinstance(parent, cst.Attribute) and parent.value is node and parent.attr.value in _NOT_READ
            bound = isinstance(parent, (cst.AssignTarget, cst.AnnAssign)) and parent.target is node
            other = (isinstance(parent, cst.Attribute) and parent.attr is node) or (
                isinstance(parent, cst.Arg) and parent.keyword is node
            )
            if node.value in names and id(node) not in own and not told and not bound and not other:
                found.append(node)
        return found

    def gemms_in(self, node: cst.CSTNode) -> list[cst.Call]:
        own = set(map(id, self.gemms))
        return [c for c in found_in(node, cst.Call) if id(c) in own]


_COUNTS: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul
}  # fmt: skip
_NOT_READ = ("fill", "shape", "layout", "element_type")
