# SPDX-License-Identifier: Apache-2.0
"""Which part of a kernel one warp executes: the main loop, one turn of it, or what multiplies a buffer in each turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from operator import is_not

import libcst as cst

from porter.passes.idiom_dsl.names import OBSERVED
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.shapes import CONSUMER, advanced, binds, operand_of, targets_of, whole_call
from porter.passes.idiom_dsl.text import Left, Statement, assigned, found_in, method

_LEAVES: tuple[type[cst.CSTNode], ...] = (cst.Return, cst.Break)
_MEETS = ("arrive_and_wait", "arrive_and_wait_unaligned")


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
    is_waited_for: bool = False
    """Whether all threads wait for all MMAs right behind each turn."""

    @property
    def statements(self) -> list[Statement]:
        body = list(self.block.body)
        return body[body.index(self.first) : body.index(self.last) + 1]


def region_of(kernel: Parts) -> Region:
    """The largest part of the kernel that has all MMAs and nothing that concerns other warps: the main loop, with
    the loads that the same warp issues, or one turn of it."""
    chains = list(map(partial(_blocks, kernel), kernel.gemms))
    why: Left | None = None
    for block in reversed([b for b in chains[0] if all(b in chain for chain in chains)]):
        if block is kernel.function.body or kernel.function.body in kernel.text.above(block):
            try:
                return _region_in(kernel, block)
            except _Apart as apart:
                why = why or apart
            except Left as left:
                why = left
    if why is None:
        raise Left("MMAs of several functions", kernel.gemms[0])
    try:
        return _in_turns(kernel)
    except Left:
        raise why from None


def _blocks(kernel: Parts, node: cst.CSTNode) -> list[cst.IndentedBlock]:
    """Those that a node stands in, the nearest first."""
    return [n for n in kernel.text.above(node) if isinstance(n, cst.IndentedBlock)]


def _parts(kernel: Parts) -> list[cst.Call]:
    """Calls that main loops are made of."""
    return [*kernel.gemms, *kernel.of_pipeline(kernel.function, *CONSUMER), *kernel.warpgroup_calls(kernel.function)]


def _in_turns(kernel: Parts) -> Region:
    """The smallest block with all that main loops are made of, of whose loops one warp executes what multiplies a
    buffer.

    Raises:
        Left: the MMAs stand otherwise, or sums are used that were not waited for.
    """
    chains = list(map(partial(_blocks, kernel), _parts(kernel)))
    block, turns = next(b for b in chains[0] if all(b in chain for chain in chains)), []
    for wait in kernel.of_pipeline(block, "consumer_wait"):
        first = kernel.text.statement(wait)
        around = kernel.text.block(first)
        behind = list(around.body)[list(around.body).index(first) :]
        commits = [s for s in behind if kernel.text.is_a(_func(s), *OBSERVED["commit"])]
        if not commits:
            raise Left("a buffer whose MMAs are committed elsewhere", wait)
        turn = Region(around, first, commits[0])
        if may_move(kernel, turn):
            raise Left("a value of the main loop that is used behind it", wait)
        turns.append(turn)
    inside = [kernel.text.span(s) for turn in turns for s in turn.statements]
    for call in [*kernel.gemms, *kernel.text.calls(kernel.function, *OBSERVED["commit"])]:
        if not any(span.contains(kernel.text.span(call)) for span in inside):
            raise Left("MMAs away from the wait for their buffer", call)
    statements = list(block.body)
    places = [statements.index(s) for c in _parts(kernel) if (s := kernel.text.in_block(c, block)) is not None]
    found = Region(block, statements[min(places)], statements[max(places)], turns=tuple(turns))
    for statement in found.statements:
        if kernel.of_pipeline(statement, "producer_acquire"):
            raise Left("loads among turns of MMAs", statement)
        for target in found_in(statement, cst.AssignTarget):
            if {n.value for n in found_in(target, cst.Name)} & kernel.aliases:
                raise Left("registers of the accumulator that are changed between MMAs", target)
    states = {kernel.text.code(w.args[0].value) for w in kernel.of_pipeline(block, "consumer_wait")}
    for name in (n for s in found.statements for n in found_in(s, cst.Name) if n.value in states):
        if not any(span.contains(kernel.text.span(name)) for span in inside) and not _is_counted(kernel, name):
            raise Left("a buffer that is read beside MMAs", name)
    for used in kernel.uses(kernel.aliases):
        if not _is_waited_for(kernel, used):
            raise Left("registers of the accumulator that are not waited for", used)
    return found


def _is_counted(kernel: Parts, state: cst.Name) -> bool:
    """Whether a use of a state of the loads moves it on, or gives its buffer back."""
    call = next(n for n in kernel.text.above(state) if isinstance(n, (cst.Call, cst.BaseStatement)))
    return isinstance(call, cst.Call) and bool(
        method(call, "advance", "reset_count", "consumer_release") or kernel.of_pipeline(call, *CONSUMER)
    )


def is_whole_wait(kernel: Parts, statement: cst.CSTNode) -> bool:
    """Whether a statement waits for all MMAs."""
    call = whole_call(statement)
    if call is None or not kernel.text.is_a(call.func, *OBSERVED["wait"]):
        return False
    return {s.value(0, "group") for s in kernel.seen(call)} == {0}


def _is_waited_for(kernel: Parts, used: cst.CSTNode) -> bool:
    """Whether all ways to a use of registers come from a wait for all MMAs, with none behind it."""
    for node in (used, *kernel.text.above(used)):
        if node is kernel.function:
            return False
        block = kernel.text.parent(node)
        if not isinstance(block, cst.IndentedBlock):
            continue
        for before in reversed([*takewhile(partial(is_not, node), block.body)]):
            if is_whole_wait(kernel, before):
                return True
            if kernel.gemms_in(before):
                return False
    return False


def _region_in(kernel: Parts, block: cst.IndentedBlock) -> Region:
    parts, body = _parts(kernel), list(block.body)
    inside = []
    for call in parts:
        if (statement := kernel.text.in_block(call, block)) is None:
            raise _Apart("a main loop of which a part stands elsewhere", call)
        inside.append(body.index(statement))
    inside += [body.index(s) for c in kernel.settings if (s := kernel.text.in_block(c, block)) is not None]
    first, last = min(inside), max(inside)
    acquires = [s for c in kernel.of_pipeline(block, "producer_acquire") if (s := kernel.text.in_block(c, block))]
    if any(first <= body.index(s) <= last for s in acquires):
        first = min([first, *map(body.index, acquires)])
    states = {kernel.text.code(a.value) for c in parts for a in c.args[:1] if c in kernel.of_pipeline(c, *CONSUMER)}
    while last + 1 < len(body) and advanced(body[last + 1]) in states:
        last += 1
    region = Region(block, body[first], body[last])
    beside = may_move(kernel, region)
    return replace(region, beside=tuple(s for s in region.statements if s in beside))


def may_move(kernel: Parts, region: Region) -> list[Statement]:
    """Statements of the region that all threads need behind it, and that have nothing to do with it.

    Raises:
        Left: something in the region is for all threads, or is read behind it.
    """
    by: dict[str, set[Statement]] = {}
    own = {id(operand_of(c, i, k)) for c in kernel.gemms for i, k in ((1, "d"), (4, "c"))}
    for statement in region.statements:
        for name in found_in(statement, cst.Name):
            if name.value in kernel.aliases and id(name) not in own and not _is_cleared(kernel, name):
                if any(
                    name in found_in(part, cst.Name) for o in kernel.accumulator.loops for part in (o.target, o.iter)
                ):
                    continue
                raise Left("registers of the accumulator that are used in the main loop", name)
        for call in found_in(statement, cst.Call):
            if kernel.text.is_a(call.func, *OBSERVED["meets"]) or method(call, *_MEETS):
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
        if name.value in by and not _is_rebound(kernel, name, behind):
            beside += [s for s in by[name.value] if _is_apart(kernel, s, by)]
            if not by[name.value] <= set(beside):
                raise Left(f"`{name.value}` of the main loop is used behind it", name)
    return beside


def _is_apart(kernel: Parts, statement: Statement, by: Mapping[str, AbstractSet[Statement]]) -> bool:
    """Whether a statement does nothing but name a value, which is made of nothing that the region binds, nor of
    memory that the region waits for."""
    found = assigned(statement)
    if found is None or by[found[0]] != {statement} or found_in(found[1], cst.Call):
        return False
    given = {p.name.value for p in kernel.function.params.params}
    read = {kernel.text.code(s.value) for s in found_in(found[1], cst.Subscript)}
    return read <= given and not {n.value for n in found_in(found[1], cst.Name)} & set(by)


def _is_cleared(kernel: Parts, name: cst.Name) -> bool:
    """Whether a use of the accumulator is `fill`."""
    parent = kernel.text.parent(name)
    return isinstance(parent, cst.Attribute) and parent.attr.value == "fill"


def _is_rebound(kernel: Parts, name: cst.Name, behind: Sequence[Statement]) -> bool:
    """Whether a name is bound again, without a condition, ahead of its use; or is a keyword or an attribute."""
    parent = kernel.text.parent(name)
    if isinstance(parent, cst.Arg) and parent.keyword is name:
        return True
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return True
    for statement in behind:
        if kernel.text.span(statement).contains(kernel.text.span(name)):
            if isinstance(parent, cst.AssignTarget):
                return isinstance(statement, cst.SimpleStatementLine)
            loops = [n for n in found_in(statement, cst.For) if name.value in targets_of(n.target)]
            return any(name in found_in(n.target, cst.Name) + found_in(n.body, cst.Name) for n in loops)
        if name.value in set(binds(statement, header=True)):
            return True
    return False


def _func(statement: cst.CSTNode) -> cst.CSTNode:
    call = whole_call(statement)
    return statement if call is None else call.func
