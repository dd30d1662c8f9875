# SPDX-License-Identifier: Apache-2.0
"""Bulk copies and reductions (PTX ISA 9.7.9.25), also to multimem addresses (9.7.9.26, 9.7.9.27)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.alignment import BULK_COPY
from porter.ptx.table import Decoded
from porter.sim.bulk_operands import BulkForm, BulkLoadOperands, BulkStoreOperands
from porter.sim.codegen import Context, emits, runtime
from porter.sim.copy_groups import bulk_out
from porter.sim.exec_tensor_copy import tensor_copy
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.reduction import combine
from porter.sim.results import Stop
from porter.sim.threads import Issuer, Signal

Array = npt.NDArray[Any]

_ELEMENTS = {
    "u32": "u4", "s32": "u4", "b32": "u4", "f32": "u4", "f16": "u2", "u64": "u8", "s64": "u8", "b64": "u8",
    "f64": "u8", "bf16": "u2",
}  # fmt: skip


def _combined(old: Array, new: Array, form: BulkForm) -> Array:
    """Bytes of a reduction. Sums of f32 keep subnormals, unlike those of `red` and of multimem."""
    dtype = _ELEMENTS[form.kind]
    flush = form.multimem and form.how == "add" and form.kind == "f32"
    return combine(old.copy().view(dtype), new.view(dtype), None, form.how, form.kind, flush).view(np.uint8)


def _check_multiples(by: Issuer, nbytes: int, source: int, target: int) -> None:
    if (source | target | nbytes) % BULK_COPY:
        what = f"bulk copy of {nbytes} bytes from {source:#x} to {target:#x}: multiples of {BULK_COPY} are needed"
        raise Stop(Code.SIM_MISALIGNED, what, by.at, by.warp, by.lane)


@runtime
def bulk_load(M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm, operands: BulkLoadOperands) -> None:
    """cp.async.bulk and cp.reduce.async.bulk to shared memory, completing on an mbarrier."""
    for copy in operands.threads(M, at, idx, n, mask, form):
        first, offset = copy.target()
        targets = copy.targets(first)
        signals = copy.signals(targets)
        origin = copy.origin()
        effect = None if M.observer is None else M.observer.issues(copy.effect(targets, signals, offset, origin))
        _check_multiples(copy.by, copy.nbytes, copy.src, offset)

        def land(
            targets: list[int] = targets,
            signals: list[Signal] = signals,
            source: int = copy.src,
            offset: int = offset,
            nbytes: int = copy.nbytes,
            origin: tuple[int, int] | None = origin,
        ) -> None:
            if origin is not None:
                data = M.smem[origin[0], origin[1] : origin[1] + nbytes].copy()
            else:
                data = M.everything.view(source, nbytes)
            for t, (slot, c) in zip(targets, signals, strict=True):
                place = M.smem[t, offset : offset + nbytes]
                place[:] = _combined(place, data, form) if form.how else data
                M.mbar.complete_tx(slot, c, nbytes)

        M.engine.issue(Operation(at, copy.by.warp, land, keys=[("mbar", *sc) for sc in signals], effect=effect))


@runtime
def bulk_store(M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm, operands: BulkStoreOperands) -> None:
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory."""
    for copy in operands.threads(M, at, idx, n, mask, form):
        owner, offset = copy.origin()
        effect = None if M.observer is None else M.observer.issues(copy.effect(owner, offset, form))
        _check_multiples(copy.by, copy.nbytes, offset, copy.dst)
        box: list[Array] = []

        def read(owner: int = owner, offset: int = offset, nbytes: int = copy.nbytes, box: list[Array] = box) -> None:
            box.append(M.smem[owner, offset : offset + nbytes].copy())

        def land(
            target: int = copy.dst,
            nbytes: int = copy.nbytes,
            box: list[Array] = box,
            chosen: int | None = copy.chosen,
        ) -> None:
            out = M.everything.view(target, nbytes)
            if form.how:
                out[:] = _combined(out, box[0], form)
            elif chosen is None:
                out[:] = box[0]
            else:
                out[:] = np.where(chosen >> (np.arange(nbytes) % 16) & 1, box[0], out)

        bulk_out(copy.by, read, land, effect)


# Code generation ----------------------------------------------------------------------------------------


def emit_bulk(cg: Context, ins: Decoded) -> None:
    """cp.async.bulk in all its forms."""
    given = ins.modifiers
    if "commit_group" in given:
        cg.line(cg.call("bulk_commit"))
    elif "wait_group" in given:
        cg.line(cg.call("bulk_wait", str(cg.integer(ins["n"])), str("read" in given)))
    elif "prefetch" not in given:
        _copy(cg, ins)


@emits("cp.reduce")
def _copy(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    if "tensor" in given:
        tensor_copy(cg, ins)
        return
    form = cg.constant("form", BulkForm(ins.space("src") != "global", given.get("op", ""), given.get("type", "")))
    places = cg.get("dst"), cg.get("src"), cg.get("size")
    mask = cg.get("mask", "u32") if "mask" in ins else "None"
    if given["dst"] == "global":
        cg.line(cg.call("bulk_store", form, f"BulkStoreOperands({', '.join(places)}, {mask})"))
    else:
        values = ", ".join((*places, cg.get("mbar"), mask))
        cg.line(cg.call("bulk_load", form, f"BulkLoadOperands({values})"))


@emits("multimem.cp")
def _multimem(cg: Context, ins: Decoded) -> None:
    """multimem.cp.async.bulk and multimem.cp.reduce.async.bulk."""
    given = ins.modifiers
    form = cg.constant("form", BulkForm(True, given.get("op", ""), given.get("type", ""), multimem=True))
    places = cg.get("dst"), cg.get("src"), cg.get("size")
    mask = cg.get("mask", "u32") if "mask" in ins else "None"
    cg.line(cg.call("bulk_store", form, f"BulkStoreOperands({', '.join(places)}, {mask})"))
