# SPDX-License-Identifier: Apache-2.0
"""Main loops with mbarriers by hand: all threads wait for all MMAs right behind each batch of them, so that one warp
may execute the batches and nothing else."""

from __future__ import annotations

import libcst as cst

from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.regions import Region, is_whole_wait, may_move
from porter.passes.idiom_dsl.shapes import advanced, binds
from porter.passes.idiom_dsl.text import Left, Statement, found_in, method

_LOOPS: tuple[type[cst.CSTNode], ...] = (cst.For, cst.While)


def batches_of(kernel: Parts) -> Region:
    """Raises Left: MMAs are waited for elsewhere or not as a whole, something else stands among them, or registers of
    sums are changed, or read where they are not waited for."""
    text = kernel.text
    if any(t.cluster > 1 for t in kernel.facts.traces):
        raise Left("pipelines of loads: none found, which a kernel with clusters needs", kernel.gemms[0])
    turns = [_batch(kernel, wait) for wait in text.calls(kernel.function, *OBSERVED["wait"])]
    inside = [text.span(s) for turn in turns for s in turn.statements]
    for call in [*kernel.gemms, *text.calls(kernel.function, *OBSERVED["commit"], *OBSERVED["fence"])]:
        if not any(span.contains(text.span(call)) for span in inside):
            raise Left("MMAs that are not waited for right behind them", call)
    block = _around(kernel, turns)
    body = list(block.body)
    ends = [
        body.index(s)
        for turn in turns
        for n in (turn.first, wait_behind(kernel, turn))
        if (s := text.in_block(n, block))
    ]
    region = Region(block, body[min(ends)], body[max(ends)], turns=tuple(turns), is_waited_for=True)
    for turn in turns:
        _require_apart(kernel, turn, region)
    _require_read_alone(kernel, region)
    return region


def _batch(kernel: Parts, wait: cst.Call) -> Region:
    """The MMAs ahead of a wait, in its block and behind the wait before."""
    text, statement = kernel.text, kernel.text.statement(wait)
    if not is_whole_wait(kernel, statement):
        raise Left("MMAs that are not all waited for", wait)
    block = text.block(statement)
    ahead = list(block.body)[: list(block.body).index(statement)]
    last = max((i for i, s in enumerate(ahead) if text.calls(s, *OBSERVED["wait"])), default=-1)
    own = [s for s in ahead[last + 1 :] if kernel.gemms_in(s) or kernel.warpgroup_calls(s)]
    if not own:
        raise Left("a wait with no MMAs ahead of it", wait)
    turn = Region(block, own[0], own[-1])
    if not any(map(kernel.gemms_in, turn.statements)) or may_move(kernel, turn):
        raise Left("a value of the main loop that is used behind it", wait)
    return turn


def wait_behind(kernel: Parts, turn: Region) -> Statement:
    body = list(turn.block.body)
    behind = body[body.index(turn.last) + 1 :]
    return next(s for s in behind if is_whole_wait(kernel, s))


def _around(kernel: Parts, turns: list[Region]) -> cst.IndentedBlock:
    """The smallest block with all batches, and with what says whether they add, that is in no loop."""
    text = kernel.text
    nodes: list[cst.CSTNode] = [t.first for t in turns] + list(kernel.settings)
    chains = [[b for b in text.above(n) if isinstance(b, cst.IndentedBlock)] for n in nodes]
    for block in chains[0]:
        above = [n for n in text.above(block) if text.span(kernel.function).contains(text.span(n))]
        if all(block in chain for chain in chains) and not any(isinstance(n, _LOOPS) for n in above):
            return block
    raise Left("MMAs of several functions", kernel.gemms[0])


def _require_apart(kernel: Parts, turn: Region, region: Region) -> None:
    """Raises Left: a batch does more than to multiply, or others need what it binds."""
    text = kernel.text
    bound = set[str]()
    for statement in turn.statements:
        bound |= {*binds(statement), *filter(None, map(advanced, found_in(statement, cst.SimpleStatementLine)))}
        mmas = {*kernel.gemms_in(statement), *kernel.warpgroup_calls(statement)}
        for call in found_in(statement, cst.Call):
            plain = text.is_a(call.func, *KNOWN["counts"], *KNOWN["loops"]) or method(call, "set") == kernel.mma
            if call not in mmas and not plain:
                raise Left("work among MMAs that is not theirs", call)
    inside = [text.span(s) for t in region.turns for s in t.statements]
    start, end = text.span(region.first).start, text.span(kernel.function).end
    for name in found_in(kernel.function, cst.Name):
        span = text.span(name)
        if name.value in bound and start <= span.start < end and not any(s.contains(span) for s in inside):
            raise Left(f"`{name.value}` of the main loop is used beside it", name)


def _require_read_alone(kernel: Parts, region: Region) -> None:
    """Raises Left: registers of sums are used ahead of the MMAs, or not only read between them."""
    text = kernel.text
    start, end = text.span(region.first).start, text.span(region.last).end
    for name in kernel.uses(kernel.aliases):
        at = text.span(name)
        if at.start >= end or any(text.span(v.where).contains(at) for v in kernel.accumulator.views):
            continue
        if at.start < start or not _is_read(kernel, name):
            raise Left("registers of the accumulator that are used ahead of MMAs or between them", name)


def _is_read(kernel: Parts, name: cst.Name) -> bool:
    """Whether registers are loaded as a whole, or an element is an operand."""
    above = kernel.text.parent(name)
    if isinstance(above, cst.Subscript) and above.value is name:
        of = kernel.text.parent(above)
        operand = isinstance(of, (cst.BinaryOperation, cst.UnaryOperation))
        return operand or (isinstance(of, cst.Attribute) and of.attr.value in ("load", "to"))
    return isinstance(above, cst.Attribute) and above.attr.value == "load"


def read_between(kernel: Parts, region: Region) -> bool:
    """Whether sums are read between batches."""
    text = kernel.text
    start, end = text.span(region.first).start, text.span(region.last).end
    return any(start <= text.span(n).start < end for n in kernel.uses(kernel.aliases))
