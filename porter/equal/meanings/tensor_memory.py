# SPDX-License-Identifier: Apache-2.0
"""Loads from Tensor Memory and stores to it (PTX ISA 9.7.16.8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.equal.contents import Contents, Taken
from porter.equal.meaning import Means, Then, meaning, read, refused
from porter.equal.words import Words
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.ptx import table
from porter.ptx.arch import WARP
from porter.ptx.mma_cells import Indices
from porter.ptx.tmem import WARP_LANES, column_of, lane_of
from porter.ptx.tmem_access import Shape, TmemAccess, cell, leaves_quarter_out, unpacked_columns


@meaning("tcgen05")
def tcgen05(step: Step) -> Means | None:
    head = step.ins.parts[1]
    if head in ("ld", "st"):
        return _access(step)
    return refused(step, "what it moves") if head in ("cp", "shift") else None


def _access(step: Step) -> Means:
    access = TmemAccess.of(step.ins.modifiers)
    if access.reduction is not None:
        return refused(step, "what it moves")
    address, split = step.value("taddr"), step.optional("split")
    row, vector = next((row, o) for row, o in step.ins.bound if row.kind != "memory")
    names = step.registers(row.name)
    pieces = [read(step, o, 4) for o in table.items(vector)]
    thread, register = np.arange(WARP)[:, None], np.arange(len(names))[None, :]
    rows, columns = (np.broadcast_to(x, (WARP, len(names))) for x in cell(access.shape, thread, register))

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)
        half = split(contents.machine, warp, group) if split is not None else 0
        if not isinstance(where, int) or not isinstance(half, int):
            raise step.not_understood("the address")
        lane = lane_of(where)
        if leaves_quarter_out(lane, warp.number):
            lane += WARP_LANES * (warp.number % 4)
        shift = np.where(np.arange(WARP)[:, None] >= WARP // 2, half, 0) if access.shape is Shape.S16X32BX2 else 0
        data = [p(contents, warp, group) for p in pieces] if access.store else []
        tensor = contents.tensor[warp.block.rank]
        first = column_of(where)

        def then() -> None:
            halves = unpacked_columns(columns) if access.packed else (columns,)
            places = [half + first + shift for half in halves]
            if access.store:
                _store(tensor, lane + rows, places, np.stack(data, axis=1))
                return
            if access.packed:
                found = np.concatenate([tensor[lane + rows, p][..., :2] for p in places], axis=2)
            else:
                found = tensor[lane + rows, places[0]]
            for index, name in enumerate(names):
                if name is not None:
                    contents.put(warp, name, taken, found[:, index])

        return then

    return means


def _store(tensor: Words, lanes: Indices, places: Sequence[Indices], data: Words) -> None:
    if len(places) == 1:
        tensor[lanes, places[0]] = data
        return
    for number, place in enumerate(places):
        half = data[..., 2 * number : 2 * number + 2]
        tensor[lanes, place] = np.concatenate((half, np.zeros_like(half)), axis=2)
