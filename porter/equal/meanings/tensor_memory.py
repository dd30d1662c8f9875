# SPDX-License-Identifier: Apache-2.0
"""Loads from Tensor Memory and stores to it (PTX ISA 9.7.16.8), copies from shared memory and shifts (9.7.16.9)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.equal.contents import UNDEFINED, Contents, Taken
from porter.equal.meaning import Means, Then, meaning, read
from porter.equal.meanings.memory import unpacked
from porter.equal.meanings.products import operand_bytes
from porter.equal.words import Words, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.operands import Reader
from porter.facts.state import Group, Warp
from porter.ptx import table
from porter.ptx.arch import WARP
from porter.ptx.mma_cells import Indices, shift_cells
from porter.ptx.tmem import WARP_LANES, column_of, lane_of
from porter.ptx.tmem_access import (
    LoadReduction,
    Shape,
    TmemAccess,
    cell,
    lane_of_block,
    leaves_quarter_out,
    unpacked_columns,
)
from porter.ptx.tmem_copy import TmemCopy, copy_cells
from porter.sim.datapath.tcgen05 import shift_rows


@meaning("tcgen05")
def tcgen05(step: Step) -> Means | None:
    head = step.ins.parts[1]
    if head in ("ld", "st"):
        return _access(step)
    return {"cp": _copy, "shift": _shift}[head](step) if head in ("cp", "shift") else None


def _access(step: Step) -> Means:
    access = TmemAccess.of(step.ins.modifiers)
    address, split = step.value("taddr"), step.optional("split")
    row, vector = next((row, o) for row, o in step.ins.bound if row.kind != "memory")
    names, reduction = tuple(step.registers(row.name)), access.reduction
    value = step.register("value") if reduction is not None else None
    pieces = [read(step, o, 4) for o in table.items(vector)]
    thread, register = np.arange(WARP)[:, None], np.arange(len(names))[None, :]
    rows, columns = (np.broadcast_to(x, (WARP, len(names))) for x in cell(access.shape, thread, register))

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)
        half = split(contents.machine, warp, group) if split is not None else 0
        if not isinstance(where, int) or not isinstance(half, int):
            raise step.not_understood("the address")
        lane = lane_of_block(lane_of(where), warp.block.rank)
        if leaves_quarter_out(lane, warp.number):
            lane += WARP_LANES * (warp.number % 4)
        shift = np.where(np.arange(WARP)[:, None] >= WARP // 2, half, 0) if access.shape is Shape.S16X32BX2 else 0
        data = [p(contents, warp, group) for p in pieces] if access.store else []
        first = column_of(where)

        def then() -> None:
            halves = unpacked_columns(columns) if access.packed else (columns,)
            places = [half + first + shift for half in halves]
            tensor = contents.tensor_of(warp.block.rank, lane + rows, np.stack(places))
            if access.store:
                _store(tensor, lane + rows, places, np.stack(data, axis=1))
                return
            if access.packed:
                found = np.concatenate([tensor[lane + rows, p][..., :2] for p in places], axis=2)
            else:
                found = tensor[lane + rows, places[0]]
            contents.put_row(warp, names, taken, found)
            if reduction is not None and value is not None:
                contents.put(warp, value, taken, _reduced(contents, reduction, found))

        return then

    return means


def _reduced(contents: Contents, reduction: LoadReduction, data: Words) -> Words:
    """The greatest or least [32, 4] of what each thread loads, as `max` and `min` make it of two."""
    kind = reduction.kind
    if reduction.absolute:
        data = spread(mixed(word(f"abs.{kind}"), joined(data)), 4)
    parts = ("max" if reduction.largest else "min", *(("NaN",) if reduction.propagate_nan else ()), kind)
    return contents.in_any_order(".".join(parts), 4, list(data.swapaxes(0, 1)))


def _numbers(step: Step, contents: Contents, warp: Warp, group: Group, *readers: Reader) -> list[int]:
    found = [v for r in readers if isinstance(v := r(contents.machine, warp, group), int)]
    if len(found) < len(readers):
        raise step.not_understood("an operand, which is data,")
    return found


def _blocks(contents: Contents, warp: Warp, cta_group: str) -> list[int]:
    rank = warp.block.rank
    return [rank & ~1, rank | 1] if cta_group.endswith("2") else [rank]


def _copy(step: Step) -> Means:
    op = TmemCopy.of(step.ins.modifiers)
    address, descriptor = step.value("taddr"), step.value("source_desc")
    rows = np.concatenate([np.arange(first, first + count) for first, count, _ in op.blocks])

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where, source = _numbers(step, contents, warp, group, address, descriptor)
        lanes, columns = copy_cells(op, where)

        def then() -> None:
            for rank in _blocks(contents, warp, step.ins.modifiers["cta_group"]):
                data = operand_bytes(contents.shared[rank], source, "sm_100", op.rows, op.row_bytes, 8, False)
                if op.source_format:
                    data = unpacked(data, op.source_format)
                contents.tensor[rank][lanes, columns] = data.reshape(op.rows, -1, 4)[rows]

        return then

    return means


def _shift(step: Step) -> Means:
    address = step.value("taddr")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        (where,) = _numbers(step, contents, warp, group, address)
        lanes, columns = shift_cells(where)

        def then() -> None:
            for rank in _blocks(contents, warp, step.ins.modifiers["cta_group"]):
                shift_rows(contents.tensor[rank], lanes[:, 0], columns[0])

        return then

    return means


def _store(tensor: Words, lanes: Indices, places: Sequence[Indices], data: Words) -> None:
    if len(places) == 1:
        tensor[lanes, places[0]] = data
        return
    for number, place in enumerate(places):
        half = data[..., 2 * number : 2 * number + 2]
        tensor[lanes, place] = np.concatenate((half, np.full_like(half, UNDEFINED)), axis=2)
