# SPDX-License-Identifier: Apache-2.0
"""Tensor copies and reductions (TMA): PTX ISA 9.7.9.25.5."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.shared_window import RANK_SHIFT
from porter.ptx.swizzle import PERIOD
from porter.ptx.table import Decoded
from porter.ptx.tensormap import TensorMap
from porter.sim.codegen import Context, runtime
from porter.sim.copy_groups import bulk_out
from porter.sim.datapath.tma import MODES, covered_bytes, load_tile, reduce_tile, store_tile
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.results import Stop
from porter.sim.tensor_copy_operands import TensorCopyForm, TensorLoad, TensorLoadOperands, TensorStoreOperands
from porter.sim.threads import Signal

Array = npt.NDArray[Any]


def _check_mbarrier(M: Machine, copy: TensorLoad, first: int) -> None:
    """Without multicast, the mbarrier is in the block that the copy goes to."""
    if copy.multicast is None and not copy.form.pair and M.clustered and copy.mbar >> RANK_SHIFT != M.cta_rank[first]:
        what = f"mbarrier {copy.mbar:#x} is not in the block that the copy goes to"
        raise Stop(Code.SIM_MBARRIER, what, copy.by.at, copy.by.warp, copy.by.lane)


@runtime
def tensor_load(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm, operands: TensorLoadOperands
) -> None:
    """cp.async.bulk.tensor from global to shared memory."""
    for copy in operands.threads(M, at, idx, n, mask, form):
        tm = copy.tensor_map()
        first, offset = copy.target(tm)
        targets = copy.targets(first)
        signals = copy.signals(targets)
        effect = None if M.observer is None else M.observer.issues(copy.effect(tm, targets, signals, offset))
        _check_mbarrier(M, copy, first)

        def land(
            tm: TensorMap = tm,
            place: list[int] = copy.place,
            shift: list[int] = copy.shift,
            targets: list[int] = targets,
            signals: list[Signal] = signals,
            offset: int = offset,
        ) -> None:
            nbytes = 0
            # Every block of a multicast gets the same bytes at the same offsets.
            for t in targets:
                nbytes = load_tile(tm, M.everything, place, M.smem[t], offset, form.mode, shift)
            for slot, owner in signals:
                M.mbar.complete_tx(slot, owner, nbytes)

        M.engine.issue(Operation(at, copy.by.warp, land, keys=[("mbar", *sc) for sc in signals], effect=effect))


@runtime
def tensor_store(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm, operands: TensorStoreOperands
) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    for copy in operands.threads(M, at, idx, n, mask, form):
        tm = copy.tensor_map()
        nbytes = covered_bytes(tm, form.mode)
        owner, offset = copy.origin(nbytes)
        effect = None if M.observer is None else M.observer.issues(copy.effect(tm, owner, offset, nbytes))
        box: list[Array] = []
        # the copy keeps the tile's place relative to the swizzle pattern
        base = offset // PERIOD * PERIOD
        end = offset + nbytes

        def read(owner: int = owner, base: int = base, end: int = end, box: list[Array] = box) -> None:
            box.append(M.smem[owner, base : -(-end // PERIOD) * PERIOD].copy())

        def land(
            tm: TensorMap = tm,
            place: list[int] = copy.place,
            start: int = offset - base,
            box: list[Array] = box,
        ) -> None:
            if form.how is not None:
                reduce_tile(tm, M.everything, place, box[0], start, form.how, form.mode)
            else:
                store_tile(tm, M.everything, place, box[0], start, form.mode)

        bulk_out(copy.by, read, land, effect)


def tensor_copy(cg: Context, ins: Decoded) -> None:
    """Generate a tensor copy or reduction."""
    written = ins.modifiers.get("mode", "tile")
    pair = ins.modifiers.get("cta_group") == "cta_group::2"
    how: Any = ins.modifiers.get("op")
    form = cg.constant("form", TensorCopyForm(MODES[written], pair, how))
    coords = cg.tuple_of(ins["coords"], "s32")
    address = cg.get("map")
    if "src" in ins:
        cg.line(cg.call("tensor_store", form, f"TensorStoreOperands({address}, {coords}, {cg.get('src')})"))
        return
    offsets = cg.tuple_of(ins["info"], "u16") if "info" in ins else "()"
    multicast = cg.get("mask", "u32") if "mask" in ins else "None"
    places = cg.get("dst"), address, coords, cg.get("mbar")
    cg.line(cg.call("tensor_load", form, f"TensorLoadOperands({', '.join(places)}, {multicast}, {offsets})"))
