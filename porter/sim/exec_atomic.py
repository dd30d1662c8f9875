# SPDX-License-Identifier: Apache-2.0
"""Atomic operations: atom and red on shared and global memory (PTX ISA 9.7.13.5, 9.7.13.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.exec_memory import by_space, place_of, shape_of, shared_access
from porter.sim.global_access import global_groups
from porter.sim.kinds import WIDTH_OF, kind_of
from porter.sim.machine import Machine
from porter.sim.reduction import combine
from porter.sim.results import Stop

Array = npt.NDArray[Any]


def _apply(view: Array, index: Array, b: Array, c: Array | None, op: str, type_name: str, flush: bool = False) -> Array:
    """Perform the operations in lane order; returns the old values."""
    unique = np.unique(index)
    if unique.size == index.size:
        old = view[index]
        view[index] = combine(old, b, c, op, type_name, flush)
        return old
    # Several lanes name one address: rounds, each with every address once.
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    start = np.r_[True, ordered[1:] != ordered[:-1]]
    begin = np.maximum.accumulate(np.where(start, np.arange(ordered.size), 0))
    rank = np.arange(ordered.size) - begin
    old = np.empty(index.shape, view.dtype)
    if op == "add" and type_name[0] in "us" and WIDTH_OF[kind_of(type_name)] >= 32:
        values = b[order].astype(np.uint64)
        total = np.cumsum(values) - values
        before = total - total[begin]
        old[order] = (view[ordered].astype(np.uint64) + before).astype(view.dtype)
        np.add.at(view, index, b)
        return old
    for r in range(int(rank.max()) + 1):
        these = order[rank == r]
        old[these] = view[index[these]]
        view[index[these]] = combine(old[these], b[these], None if c is None else c[these], op, type_name, flush)
    return old


def _targets(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, space: str, item: int
) -> list[tuple[Array, Array, Array]]:
    """(flat view of items, item index [n, 32], lanes [n, 32]) of the memory named."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    shift = item.bit_length() - 1
    if space in ("shared", "cluster"):
        where = shared_access(M, at, idx, n, mask, addr, item, space == "cluster", "atomic")
        return [(M.smem_view(min(item, 8), 1), np.broadcast_to(where >> shift, (n, 32)), lanes)]
    if space == "generic":
        found = []
        for window, part in by_space(M, n, mask, addr):
            use = mask if part is None else part
            if window == 1:
                address = np.asarray(addr).astype(np.uint32)
                found += _targets(M, at, idx, n, use, address, "cluster", item)
            else:
                found += _targets(M, at, idx, n, use, addr, "global", item)
        return found
    found = []
    groups = global_groups(M, at, idx, n, mask, addr, item)
    if M.observer is not None:
        M.observer.touches_global(at, idx, n, mask, groups, item, item, "atomic")
    for allocation, offsets, part in groups:
        view = allocation.elements(min(item, 8), 1)
        if view is None:
            first = M.first_lane(idx, n, mask)
            raise Stop(Code.SIM_UNKNOWN_INSTRUCTION, "atomics on an unaligned allocation", at, *first)
        index = np.broadcast_to((offsets >> np.uint64(shift)).astype(np.int64), (n, 32))
        found.append((view, index, lanes if part is None else part))
    return found


@dataclass(frozen=True)
class AtomicForm:
    """An atomic operation `op` on `count` times `item` bytes of type `type_name` in a state space."""

    space: str
    op: str
    type_name: str
    item: int
    count: int = 1


@runtime
def atomic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: AtomicForm, b: Any, c: Any) -> Array:
    """Old values [n, 32] as unsigned bits."""
    op, type_name, item = form.op, form.type_name, form.item
    result = np.zeros((n, 32), f"u{item}")
    if mask is not None and not np.any(mask):
        return result
    values = np.broadcast_to(b, (n, 32))
    third = None if c is None else np.broadcast_to(c, (n, 32))
    for view, index, lanes in _targets(M, at, idx, n, mask, addr, form.space, item):
        before = view[index[lanes]]
        flush = op == "add" and type_name == "f32" and view is not M.smem_view(item, 1)
        third_here = None if third is None else third[lanes]
        old = _apply(view, index[lanes], values[lanes], third_here, op, type_name, flush)
        if not np.array_equal(view[index[lanes]], before):
            # One that leaves what was there may be a thread's way of looking.
            M.stores += 1
        result[lanes] = old
    return result


@runtime
def atomic_wide(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: AtomicForm, b: Any, c: Any) -> Array:
    """exch and cas of 128 bits, lane by lane; old values [n, 32, 2] as 64-bit halves."""
    result = np.zeros((n, 32, 2), np.uint64)
    if mask is not None and not np.any(mask):
        return result
    values, third = (np.broadcast_to(x, (n, 32, 2)) for x in (b, b if c is None else c))
    for view, index, lanes in _targets(M, at, idx, n, mask, addr, form.space, 16):
        for row, lane in np.argwhere(lanes).tolist():
            place = int(index[row, lane])
            old = view[2 * place : 2 * place + 2].copy()
            result[row, lane] = old
            if form.op == "exch" or (old == values[row, lane]).all():
                view[2 * place : 2 * place + 2] = values[row, lane] if form.op == "exch" else third[row, lane]
                M.stores += 1
    return result


@emits("atom", "red")
def _atom(cg: Context, ins: Decoded) -> None:
    kind, item, count = shape_of(ins, "b")
    kind, unsigned, type_name = kind.replace("s", "u"), f"u{8 * item}", ins.type("b")
    op = ins.modifiers.get("op") or ("cas" if "cas" in ins.modifiers else "exch")
    space, address = place_of(cg, ins)
    if type_name == "b128":
        form = cg.constant("form", AtomicForm(space, op, type_name, item, count))
        values = [f"stack_values(n, {cg.tuple_of(ins[name], 'u64')[1:-2]})" for name in "bc" if name in ins]
        result = cg.let(cg.call("atomic_wide", address, form, *values, *["None"][: 2 - len(values)]))
        for i, to in enumerate(items(ins["d"])):
            if to != ast.Sym("_"):
                cg.set(to, "u64", f"{result}[..., {i}]")
        return
    form = cg.constant("form", AtomicForm(space, op, type_name, item))
    third = cg.bits(ins["c"], kind) if "c" in ins else "None"
    results = items(ins["d"]) if "d" in ins else ()
    for i, source in enumerate(items(ins["b"])):
        place = address
        if count > 1:
            address_kind = "u32" if space in ("shared", "cluster") else "u64"
            place = cg.let(f"{address} + {cg.const(address_kind, i * item)}")
        call = cg.call("atomic", place, form, cg.bits(source, kind), third)
        if results:
            cg.set(results[i], unsigned, call)
        else:
            cg.line(call)
