# SPDX-License-Identifier: Apache-2.0
"""An epilogue that has the whole accumulator in registers, or reads it between MMAs: it is loaded where it was waited
for, and what is computed of it stays. Warpgroups share the columns of the tile, each of which has all rows.

CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py, get_tmem_load_op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from porter.passes.idiom_dsl.handed import Handed, handed
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.memory import first_warp, thread_indices
from porter.passes.idiom_dsl.mma import warpgroups_said
from porter.passes.idiom_dsl.text import Draft, Left, argument, assigned, found_in, method, one, operand
from porter.passes.idiom_dsl.words import Words
from porter.ptx.wgmma import THREADS

RULE = "PTR586"


@dataclass(frozen=True)
class InRegisters:
    """`slice`: the thread among the `warpgroups` that multiply, whose `number` the kernel says so; `partitions`: calls
    that say which element of C is in which register; `alike`: other registers with the accumulator's shape."""

    slice: str
    warpgroups: int
    number: str
    partitions: tuple[cst.Call, ...]
    alike: tuple[cst.Call, ...]
    handed: tuple[Handed, ...] = ()
    tile: str = ""


def in_registers(kernel: Kernel) -> InRegisters:
    """Raises Left: the registers of the accumulator are not followed."""
    threads, parts = partitions(kernel)
    given = []
    for call in found_in(kernel.function, cst.Call):
        for arg in call.args if call not in kernel.gemms else ():
            if kernel.text.code(arg.value) == kernel.mma:
                given.append(handed(kernel.text, call, arg))
    if given and not parts:
        threads = set(_slices(kernel).values())
    if len(threads) != 1 or not (parts or given):
        raise Left("which thread has which element of C is not said by the MMA")
    thread = threads.pop()
    for one_ in given:
        one_.require_thread(kernel.text, thread, thread_indices(kernel.text, kernel.function))
    if kernel.is_by_hand:
        first_warp(kernel, thread)  # one warp of the block issues MMAs, and not one of each warpgroup
    warpgroups, number = warpgroups_said(kernel)
    if warpgroups > 1 and (given or kernel.accumulator.views):
        raise Left("several warpgroups, of which a function stores a tile, or of parts of a tile", kernel.region.first)
    return InRegisters(thread, warpgroups, number, parts, tuple(alike(kernel)), tuple(given))


def _slices(kernel: Kernel) -> dict[str, str]:
    """Names of slices of the MMA, with the threads that they are of."""
    slices = {}
    for statement in found_in(kernel.function, cst.SimpleStatementLine):
        bound = assigned(statement)
        if bound is not None and isinstance(bound[1], cst.Call) and method(bound[1], "get_slice") == kernel.mma:
            slices[bound[0]] = kernel.text.code(bound[1].args[0].value)
    return slices


def partitions(kernel: Kernel) -> tuple[set[str], tuple[cst.Call, ...]]:
    """Threads' slices of the MMA that partition C, and the calls that do so for more than its shape.

    Raises:
        Left: something else partitions C.
    """
    text, acc, slices = kernel.text, kernel.accumulator, _slices(kernel)
    found = []
    for call in found_in(kernel.function, cst.Call):
        made = any(text.span(s).contains(text.span(call)) for s in acc.statements)
        if (owner := method(call, "partition_C")) and not made:
            if owner not in slices or len(call.args) != 1:
                raise Left("a partition of C by something else than a thread's slice of the MMA", call)
            bound = assigned(text.statement(call))
            if bound is None or bound[1] is not call or kernel.uses({bound[0]}):
                found.append((owner, call))
    return {slices[owner] for owner, _ in found}, tuple(call for _, call in found)


def alike(kernel: Kernel) -> Iterator[cst.Call]:
    """Calls that make other registers of the accumulator's shape."""
    text, acc = kernel.text, kernel.accumulator
    shape = argument(acc.call, 0)
    for call in dict.fromkeys(s.call for s in kernel.facts.of("registers")):
        first = argument(call, 0)
        if call in acc.calls or text.function(call) is not kernel.function or first is None or shape is None:
            continue
        if text.code(first.value) == text.code(shape.value):
            if any(s.result["shape"] != acc.shape for s in kernel.seen(call) if s.case == acc.seen[0].case):
                raise Left("registers whose shape is the accumulator's by name alone", call)
            yield call


def edit(kernel: Kernel, how: InRegisters, draft: Draft, words: Words) -> None:
    text, acc = kernel.text, kernel.accumulator
    thread = operand(how.slice)
    words.update(shared=f" // {how.number}" if how.number != "1" else "", team=f"{thread} // {THREADS}")
    words["slice"] = f"{thread} % {THREADS}" if words["shared"] else how.slice
    draft.below(RULE, acc.statement, words.text("whole_load", first=acc.name))
    for call in how.partitions:
        of = text.code(call.args[0].value)
        mine = f"{words['cute']}.local_tile({of}, {words['part']}, {words['place']})" if words["shared"] else of
        draft.replace(RULE, call, f"{words['thread']}.partition_D({mine})", [call.args[0]])
    for call in how.alike:
        first = one(list(call.args[:1]), "shapes of registers")
        draft.replace(RULE, first.value, f"{words['registers']}.shape")
    for given in how.handed:
        given.edit(draft, words)
    rename(kernel, draft, words)


def rename(kernel: Kernel, draft: Draft, words: Words) -> None:
    """What is not an MMA means the registers."""
    text, first, *others = kernel.text, *kernel.accumulator.names
    held = {
        first: words["registers"],
        **{n: one_["other_registers"] for n, one_ in zip(others, words["more"], strict=True)},
    }
    multiplied = [text.span(c) for c in kernel.gemms] + [text.span(o.iter) for o in kernel.accumulator.loops]
    for view in kernel.accumulator.views:
        part = ", ".join(["None"] * (len(kernel.accumulator.shape) - 1))
        draft.replace(RULE, view.where, f"{view.of}[({part}, {view.index})].iterator")
        multiplied.append(text.span(view.layout))
    for node in found_in(kernel.function, cst.Name):
        span, parent = text.span(node), text.parent(node)
        if node.value not in held or draft.is_gone(span) or any(c.contains(span) for c in multiplied):
            continue
        if (isinstance(parent, cst.Attribute) and parent.attr is node) or (
            isinstance(parent, cst.Arg) and parent.keyword is node
        ):
            continue
        if isinstance(parent, (cst.AssignTarget, cst.Param)):
            raise Left(f"`{node.value}` is bound again", node)
        draft.replace(RULE, node, held[node.value])
