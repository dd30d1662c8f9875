# SPDX-License-Identifier: Apache-2.0
"""The registers of MMAs."""

from __future__ import annotations

import itertools
from typing import Any

import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass.cute.nvgpu import warpgroup

from .calls import _Event
from .program import _Array, _Item, _Part, _Program
from .threads import _constant
from .values import _bits, _operands, _owner, _raw, _registers, _rest

# --- the registers of MMAs


def _accumulators(program: _Program) -> None:
    """Find the registers of each MMA: the parts of its accumulator, the slots of its operand A."""
    users: dict[_Array, list[_Event]] = {}
    for event in program.kernel.events:
        if event.kind == "mma":
            obstacle = _find(program, event)
            if obstacle:
                program.kernel.refuse(event.where, obstacle)
            elif event.array is not None:
                users.setdefault(event.array, []).append(event)
    for array, events in users.items():
        widths = {e.mma.op.acc_dtype.width for e in events}
        if len(widths) > 1:
            program.kernel.refuse(events[-1].where, "registers that hold accumulators of 16 and of 32 bits")
        tiles = {e: [(start, start + e.n) for start, _ in e.tiles] for e in events}
        for start, stop in itertools.pairwise(sorted({n for spans in tiles.values() for span in spans for n in span})):
            part = _Part(array, start, stop, min(widths))
            writers = [e for e, spans in tiles.items() if any(s <= start and stop <= t for s, t in spans)]
            array.parts += [part] if writers else []
            for event in writers:
                event.parts.append(part)


def _find(program: _Program, event: _Event) -> str:
    """The registers of one MMA; what is in the way of that, if something is. `tiles`: first column within the array of
    each MMA of 64 rows, with its (m, n)."""
    if not event.placed:
        return "an MMA in a function that is not part of the kernel's own code"
    flags = _flags(program, event.accumulate, set())
    event.adds = flags.pop() if len(flags) == 1 else None
    found = program.aliases.get(_raw(event.d), {})
    if len(found) != 1 or None in found.values():
        return "an accumulator that is chosen, or whose registers begin where, only at run time"
    if program.aliases.get(_raw(event.c), {}) != found:
        return "an MMA whose result goes to other registers than its accumulator's"
    ((value, offset),) = found.items()
    tensor, bits, event.n = _registers(_raw(event.d)), _bits(_raw(event.d)) or 0, event.mma.op.shape_mnk[1]
    fragment = cute.coalesce(tensor.layout[0] if cute.rank(tensor.layout) > 1 else tensor.layout)
    distances = _rest(tensor)
    if (fragment.shape, fragment.stride) != (event.n // 2, 1) or not distances or None in distances.values():
        return "an accumulator whose registers are not in the order of the MMA's fragment"
    event.array = program.arrays[value]
    # An element of a fragment is half a column: 64 n elements are in n columns of 128 threads.
    event.tiles = [(2 * ((at or 0) + (offset or 0) // bits), place) for place, at in distances.items()]
    if event.mma.op.a_src is warpgroup.OperandSource.RMEM:
        found = program.aliases.get(_raw(event.a), {})
        if len(found) != 1:
            return "an operand A that is chosen at run time"
        ((value, offset),) = found.items()
        array = event.operand = program.arrays[value]
        for place, at in _rest(_registers(_raw(event.a))).items():
            # 16 bytes of each of 64 rows, 8 columns.
            key: Any = (event, place)
            if known := at is not None and offset is not None:
                key = offset + at * (_bits(_raw(event.a)) or 0)
            event.places[place] = array.slots.setdefault(key, len(array.slots))
            event.slots += [event.places[place]] if known else []
    for array in event.arrays():
        array.where = array.where if array.where[1] else event.where
    return ""


def _flags(program: _Program, value: Any, seen: set[ir.Value]) -> set[bool | None]:
    """What a flag, or the accumulate flag of an atom, may be; None where only run time tells."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or value in seen:
        return {value} if isinstance(value, bool) else set()
    seen.add(value)
    op = _owner(value)
    sources = list(program.sources.get(value, ()))
    if op is not None and op.name == "arith.constant":
        return {bool(_constant(op))}
    if op is not None and op.name == "cute_nvgpu.atom.get_value":
        sources = _operands(op)
    elif op is not None and op.name == "cute_nvgpu.atom.set_value":
        sources = [_operands(op)["accum_c" in str(op.attributes["field"])]]
    return set().union(*(_flags(program, s, seen) for s in sources)) if sources else {None}


def _batches(program: _Program) -> None:
    """MMAs that follow each other in a block are issued together; a fence right before them is theirs."""

    def visit(items: list[_Item]) -> None:
        last: _Item | None = None
        fences: list[_Event] = []
        items[:] = [i for i in items if i.kind not in ("access", "array") or i.array.parts or i.array.slots]
        for item in list(items):
            if item.kind == "region":
                for inner in item.blocks:
                    visit(inner)
            if item.multiplies():
                item.batch = [item.event]
                if last is not None:
                    item.batch = last.batch + item.batch
                    items.remove(last)
                last = item
            elif item.kind == "access" and last is not None:
                last = None if any(item.array in e.arrays() for e in last.batch) else last
            elif item.kind != "array":
                last = None
            if item.kind == "event" and item.event.kind == "fence":
                fences.append(item.event)
            elif item.kind not in ("access", "array"):
                for fence in fences:
                    fence.joins = item.multiplies()
                fences.clear()

    for items in program.blocks:
        visit(items)
