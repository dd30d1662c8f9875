# SPDX-License-Identifier: Apache-2.0
"""A kernel with MMAs as its text and its traces have it: accumulator, pipeline of the loads, and the main loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import Facts, Seen
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.text import Left, Statement, Text, argument, assigned, found_in, method, one


class _Apart(Left):
    """A block has a part of the main loop alone."""


@dataclass(frozen=True)
class Region:
    """Statements of one block, from `first` to `last`, that one warp executes, but for those `beside`; or of which it
    executes `turns` alone, as sums are used between them."""

    block: cst.IndentedBlock
    first: Statement
    last: Statement
    beside: tuple[Statement, ...] = ()
    turns: tuple[Region, ...] = ()

    @property
    def statements(self) -> list[Statement]:
        body = list(self.block.body)
        return body[body.index(self.first) : body.index(self.last) + 1]


@dataclass(frozen=True)
class Accumulator:
    """Register tensors that MMAs add to, which are alike: their names, and the statements with the calls that make
    them. `loops` are those over several of them."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    calls: tuple[cst.Call, ...]
    seen: Sequence[Seen]
    loops: tuple[cst.For, ...] = ()

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


@dataclass
class Kernel:
    """One function with MMAs. `taken` are names that it must not use for anything new."""

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
        names = {self.text.code(_value(c, 0, "atom")) for c in self.gemms}
        if len(names) != 1 or not next(iter(names)).isidentifier():
            raise Left("MMAs of several tiled MMAs", self.gemms[0])
        return names.pop()

    @cached_property
    def accumulator(self) -> Accumulator:
        """The register tensor that MMAs add to, by the traces: whatever the text calls it at a place."""
        for call in self.gemms:
            if self.text.code(_value(call, 1, "d")) != self.text.code(_value(call, 4, "c")):
                raise Left("an MMA whose sum is another tensor than what it adds to", call)
        numbers = {(s.case, s.value(1, "d")["number"]) for s in self.multiplies}
        made = [s for s in self.facts.of("registers") if (s.case, s.result["number"]) in numbers] or self._by_name()
        calls = tuple(dict.fromkeys(s.call for s in made))
        cases = {s.case for s in self.multiplies}
        if not calls or any({s.case for s in made if s.call is c} != cases for c in calls):
            raise Left("an accumulator that is a part of another tensor", self.gemms[0])
        names, loops = tuple(map(self._named, calls)), set[cst.For]()
        for gemm in self.gemms:
            if (name := self.text.code(_value(gemm, 1, "d"))) not in names:
                loops.add(self._loop_over(gemm, name, names))
        statements = tuple(dict.fromkeys(map(self.text.statement, calls)))
        if len(calls) > 1:
            blocks, shapes = {self.text.block(s) for s in statements}, {s.case: s.result["shape"] for s in made}
            same = {self.text.code(a.value) if (a := argument(c, 0)) else "" for c in calls}
            if len(blocks) + len(same) > 2 or any(shapes[s.case] != s.result["shape"] for s in made):
                raise Left("accumulators that are not alike", calls[1])
        return Accumulator(names, statements, calls, made, tuple(loops))

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
            if name in set(_targets(loop.target)) and {n.value for n in found_in(loop.iter, cst.Name)} & set(names):
                return loop
        raise Left("an accumulator that goes by another name at its MMAs", gemm)

    def _by_name(self) -> list[Seen]:
        """Where the accumulator is made, where a loop hands it on as another object: it goes by its name, and the
        traces agree on its shape."""
        names = {self.text.code(_value(c, 1, "d")) for c in self.gemms}
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

    def of_pipeline(self, inside: cst.CSTNode, *names: str) -> list[cst.Call]:
        """Calls of methods of the pipeline of the loads."""
        return [c for c in found_in(inside, cst.Call) if method(c, *names) == self.pipeline[0]]

    def warpgroup_calls(self, inside: cst.CSTNode) -> list[cst.Call]:
        """Those that fence, commit and wait for WGMMA groups."""
        return self.text.calls(inside, *OBSERVED["fence"], *OBSERVED["commit"], *OBSERVED["wait"])

    @cached_property
    def settings(self) -> list[cst.Call]:
        """Where ACCUMULATE is set."""
        return [c for c in found_in(self.function, cst.Call) if method(c, "set") == self.mma]

    @cached_property
    def region(self) -> Region:
        """The largest part of the kernel that has all MMAs and nothing that concerns other warps: the main loop, with
        the loads that the same warp issues, or one turn of it."""
        chains = list(map(self._blocks, self.gemms))
        why: Left | None = None
        for block in reversed([b for b in chains[0] if all(b in chain for chain in chains)]):
            if block is self.function.body or self.function.body in self.text.above(block):
                try:
                    return self._region_in(block)
                except _Apart as apart:
                    why = why or apart
                except Left as left:
                    why = left
        if why is None:
            raise Left("MMAs of several functions", self.gemms[0])
        try:
            return self._in_turns()
        except Left:
            raise why from None

    def _blocks(self, node: cst.CSTNode) -> list[cst.IndentedBlock]:
        """Those that a node stands in, the nearest first."""
        return [n for n in self.text.above(node) if isinstance(n, cst.IndentedBlock)]

    @property
    def _parts(self) -> list[cst.Call]:
        """Calls that main loops are made of."""
        return [*self.gemms, *self.of_pipeline(self.function, *CONSUMER), *self.warpgroup_calls(self.function)]

    def _in_turns(self) -> Region:
        """The smallest block with all that main loops are made of, of whose loops one warp executes what multiplies a
        buffer.

        Raises:
            Left: the MMAs stand otherwise, or sums are used that were not waited for.
        """
        chains = list(map(self._blocks, self._parts))
        block, turns = next(b for b in chains[0] if all(b in chain for chain in chains)), []
        for wait in self.of_pipeline(block, "consumer_wait"):
            first = self.text.statement(wait)
            around = self.text.block(first)
            behind = list(around.body)[list(around.body).index(first) :]
            commits = [s for s in behind if self.text.is_a(_func(s), *OBSERVED["commit"])]
            if not commits:
                raise Left("a buffer whose MMAs are committed elsewhere", wait)
            turn = Region(around, first, commits[0])
            if self._may_move(turn):
                raise Left("a value of the main loop that is used behind it", wait)
            turns.append(turn)
        inside = [self.text.span(s) for turn in turns for s in turn.statements]
        for call in [*self.gemms, *self.text.calls(self.function, *OBSERVED["commit"])]:
            if not any(span.contains(self.text.span(call)) for span in inside):
                raise Left("MMAs away from the wait for their buffer", call)
        statements = list(block.body)
        places = [statements.index(s) for c in self._parts if (s := self.text.in_block(c, block)) is not None]
        found = Region(block, statements[min(places)], statements[max(places)], turns=tuple(turns))
        for statement in found.statements:
            if self.of_pipeline(statement, "producer_acquire"):
                raise Left("loads among turns of MMAs", statement)
            for target in found_in(statement, cst.AssignTarget):
                if {n.value for n in found_in(target, cst.Name)} & self.aliases:
                    raise Left("registers of the accumulator that are changed between MMAs", target)
        states = {self.text.code(w.args[0].value) for w in self.of_pipeline(block, "consumer_wait")}
        for name in (n for s in found.statements for n in found_in(s, cst.Name) if n.value in states):
            if not any(span.contains(self.text.span(name)) for span in inside) and not self._is_counted(name):
                raise Left("a buffer that is read beside MMAs", name)
        for used in self.uses(self.aliases):
            if not self._is_waited_for(used):
                raise Left("registers of the accumulator that are not waited for", used)
        return found

    def _is_counted(self, state: cst.Name) -> bool:
        """Whether a use of a state of the loads moves it on, or gives its buffer back."""
        call = next(n for n in self.text.above(state) if isinstance(n, (cst.Call, cst.BaseStatement)))
        return isinstance(call, cst.Call) and bool(
            method(call, "advance", "reset_count", "consumer_release") or self.of_pipeline(call, *CONSUMER)
        )

    def is_whole_wait(self, statement: cst.CSTNode) -> bool:
        """Whether a statement waits for all MMAs."""
        call = _call(statement)
        if call is None or not self.text.is_a(call.func, *OBSERVED["wait"]):
            return False
        return {s.value(0, "group") for s in self.seen(call)} == {0}

    def _is_waited_for(self, used: cst.CSTNode) -> bool:
        """Whether all ways to a use of registers come from a wait for all MMAs, with none behind it."""
        for node in (used, *self.text.above(used)):
            if node is self.function:
                return False
            block = self.text.parent(node)
            if not isinstance(block, cst.IndentedBlock):
                continue
            for before in reversed(list(block.body)[: list(block.body).index(node)]):  # type: ignore[arg-type]
                if self.is_whole_wait(before):
                    return True
                if self.gemms_in(before):
                    return False
        return False

    def _region_in(self, block: cst.IndentedBlock) -> Region:
        parts, body = self._parts, list(block.body)
        inside = []
        for call in parts:
            if (statement := self.text.in_block(call, block)) is None:
                raise _Apart("a main loop of which a part stands elsewhere", call)
            inside.append(body.index(statement))
        inside += [body.index(s) for c in self.settings if (s := self.text.in_block(c, block)) is not None]
        first, last = min(inside), max(inside)
        acquires = [s for c in self.of_pipeline(block, "producer_acquire") if (s := self.text.in_block(c, block))]
        if any(first <= body.index(s) <= last for s in acquires):
            first = min([first, *map(body.index, acquires)])
        states = {self.text.code(a.value) for c in parts for a in c.args[:1] if c in self.of_pipeline(c, *CONSUMER)}
        while last + 1 < len(body) and advanced(body[last + 1]) in states:
            last += 1
        region = Region(block, body[first], body[last])
        beside = self._may_move(region)
        return replace(region, beside=tuple(s for s in region.statements if s in beside))

    @cached_property
    def aliases(self) -> set[str]:
        """Names that stand for the accumulator's registers, or for a part of them."""
        turns = {n for loop in self.accumulator.loops for n in _targets(loop.target)}
        own = {self.text.code(_value(c, 1, "d")) for c in self.gemms}
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
        is_plain = all(isinstance(n, plain) for n in found_in(value, cst.BaseExpression))  # type: ignore[type-abstract]
        return is_plain and names <= ({"self"} & params) | (constants - params)

    def uses(self, names: AbstractSet[str]) -> list[cst.Name]:
        """Where registers of these names are used: neither made, nor multiplied, cleared or asked for their shape."""
        own = {id(_value(c, i, k)) for c in self.gemms for i, k in ((1, "d"), (4, "c"))}
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

    @cached_property
    def loader(self) -> str:
        """The condition under which the warp that multiplies loads, too; empty where others load."""
        conditions = set()
        for statement in self.region.statements:
            for call in self.of_pipeline(statement, "producer_acquire"):
                inside = self.text.span(statement)
                tests = [n.test for n in self.text.above(call) if isinstance(n, cst.If)]
                tests = [test for test in tests if inside.contains(self.text.span(test))]
                if not tests:
                    raise Left("loads that all warps issue", call)
                conditions.add(self.text.code(first_of(tests[-1])))
        if len(conditions) > 1:
            raise Left("loads under several conditions: " + ", ".join(sorted(conditions)))
        return next(iter(conditions), "")

    def _may_move(self, region: Region) -> list[Statement]:
        """Statements of the region that all threads need behind it, and that have nothing to do with it.

        Raises:
            Left: something in the region is for all threads, or is read behind it.
        """
        by: dict[str, set[Statement]] = {}
        own = {id(_value(c, i, k)) for c in self.gemms for i, k in ((1, "d"), (4, "c"))}
        for statement in region.statements:
            for name in found_in(statement, cst.Name):
                if name.value in self.aliases and id(name) not in own and not self._is_cleared(name):
                    if any(
                        name in found_in(part, cst.Name) for o in self.accumulator.loops for part in (o.target, o.iter)
                    ):
                        continue
                    raise Left("registers of the accumulator that are used in the main loop", name)
            for call in found_in(statement, cst.Call):
                if self.text.is_a(call.func, *OBSERVED["meets"]) or method(call, *_MEETS):
                    raise Left("a barrier of all threads in the main loop", call)
                if owner := method(call, "advance"):
                    by.setdefault(owner, set()).add(statement)
            if [n for kind in _LEAVES for n in found_in(statement, kind)]:
                raise Left("a main loop that may be left", statement)
            for bound in binds(statement):
                by.setdefault(bound, set()).add(statement)
        beside: list[Statement] = []
        behind = list(region.block.body)[list(region.block.body).index(region.last) + 1 :]
        for name in (n for s in behind for n in found_in(s, cst.Name)):
            if name.value in by and not self._is_rebound(name, behind):
                beside += [s for s in by[name.value] if self._is_apart(s, by)]
                if not by[name.value] <= set(beside):
                    raise Left(f"`{name.value}` of the main loop is used behind it", name)
        return beside

    def _is_apart(self, statement: Statement, by: Mapping[str, AbstractSet[Statement]]) -> bool:
        """Whether a statement does nothing but name a value, which is made of nothing that the region binds, nor of
        memory that the region waits for."""
        found = assigned(statement)
        if found is None or by[found[0]] != {statement} or found_in(found[1], cst.Call):
            return False
        given = {p.name.value for p in self.function.params.params}
        read = {self.text.code(s.value) for s in found_in(found[1], cst.Subscript)}
        return read <= given and not {n.value for n in found_in(found[1], cst.Name)} & set(by)

    def _is_cleared(self, name: cst.Name) -> bool:
        """Whether a use of the accumulator is `fill`."""
        parent = self.text.parent(name)
        return isinstance(parent, cst.Attribute) and parent.attr.value == "fill"

    def _is_rebound(self, name: cst.Name, behind: Sequence[Statement]) -> bool:
        """Whether a name is bound again, without a condition, ahead of its use; or is a keyword or an attribute."""
        parent = self.text.parent(name)
        if isinstance(parent, cst.Arg) and parent.keyword is name:
            return True
        if isinstance(parent, cst.Attribute) and parent.attr is name:
            return True
        for statement in behind:
            if self.text.span(statement).contains(self.text.span(name)):
                loops = [n for n in found_in(statement, cst.For) if name.value in _targets(n.target)]
                return any(name in found_in(n.target, cst.Name) + found_in(n.body, cst.Name) for n in loops)
            if name.value in set(binds(statement, header=True)):
                return True
        return False

    @property
    def repeats(self) -> bool:
        """Whether the region may be executed several times."""
        for node in self.text.above(self.region.first):
            if node is self.function:
                return False
            if isinstance(node, (cst.For, cst.While)):
                return True
        return False

    @cached_property
    def branch(self) -> Statement | None:
        """The branch of the kernel that the main loop stands in; None where all threads come to it."""
        body = self.function.body
        found = self.text.in_block(self.region.first, body)
        return None if found is None or found is self.region.first or isinstance(found, (cst.For, cst.While)) else found


def _call(statement: cst.CSTNode) -> cst.Call | None:
    """The call that a statement is, with nothing else."""
    if not m.matches(statement, m.SimpleStatementLine([m.Expr(m.Call())])):
        return None
    return cst.ensure_type(found_in(statement, cst.Expr)[0].value, cst.Call)


def _func(statement: cst.CSTNode) -> cst.CSTNode:
    call = _call(statement)
    return statement if call is None else call.func


CONSUMER = ("consumer_wait", "consumer_release", "consumer_try_wait")
_LEAVES: tuple[type[cst.CSTNode], ...] = (cst.Return, cst.Break)
_BINDS: tuple[type[cst.CSTNode], ...] = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.NamedExpr, cst.For)
_NOT_READ = ("fill", "shape", "layout", "element_type")
_MEETS = ("arrive_and_wait", "arrive_and_wait_unaligned")


def advanced(statement: cst.CSTNode, *methods: str) -> str:
    """The state that a statement does nothing but advance (or what `methods` do); empty if it does not."""
    call = _call(statement)
    return "" if call is None else method(call, *(methods or ("advance",)))


def first_of(test: cst.BaseExpression) -> cst.BaseExpression:
    """The first condition of those that all have to hold."""
    while m.matches(test, m.BooleanOperation(operator=m.And())):
        test = cst.ensure_type(test, cst.BooleanOperation).left
    return test


def _value(call: cst.Call, index: int, keyword: str) -> cst.BaseExpression:
    found = argument(call, index, keyword)
    if found is None:
        raise Left("an MMA whose operands are not named one by one", call)
    return found.value


def binds(statement: cst.CSTNode, header: bool = False) -> Iterator[str]:
    """Names that a statement binds. `header`: on any way through it."""
    if header and isinstance(statement, cst.For):
        yield from _targets(statement.target)
        return
    if header and not isinstance(statement, cst.SimpleStatementLine):
        return
    for kind in _BINDS:
        for node in found_in(statement, kind):
            yield from _targets(getattr(node, "target"))  # noqa: B009


def _targets(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, (cst.Tuple, cst.List)):
        for element in node.elements:
            yield from _targets(element.value)


def kernels(text: Text, facts: Facts) -> list[Kernel]:
    """The kernels with MMAs.

    Raises:
        Left: an MMA was not traced, or stands in a function that is no kernel.
    """
    found: dict[cst.FunctionDef, list[cst.Call]] = {}
    for call in text.calls(text.module, *OBSERVED["multiply"]):
        if not facts.at(call):
            raise Left("no case comes to this MMA", call)
        function = text.function(call)
        if not any(text.is_a(_decorator(d), KNOWN["kernel"]) for d in function.decorators):
            raise Left("MMAs that a function of the kernel issues", call)
        found.setdefault(function, []).append(call)
    if not found:
        raise Left("its MMAs stand in other files")
    return [Kernel(text, facts, function, calls) for function, calls in found.items()]


def _decorator(node: cst.Decorator) -> cst.BaseExpression:
    return node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
