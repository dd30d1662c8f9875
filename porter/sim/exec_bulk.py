# SPDX-License-Identifier: Apache-2.0
"""Bulk copies and reductions (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.sim.bulk_operands import BulkForm, BulkLoadOperands, BulkStoreOperands
from porter.sim.codegen import Context, emits, runtime
from porter.sim.copy_groups import bulk_out
from porter.sim.exec_tensor_copy import tensor_copy
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.reduction import REDUCTIONS, combine
from porter.sim.results import Stop
from porter.sim.threads import Issuer, Signal

Array = npt.NDArray[Any]

_ELEMENTS = {
    "u32": "u4", "s32": "u4", "b32": "u4", "f32": "u4", "f16": "u2", "u64": "u8", "s64": "u8", "b64": "u8",
    "f64": "u8", "bf16": "u2",
}  # fmt: skip


def _combined(old: Array, new: Array, form: BulkForm) -> Array:
    """Bytes of a reduction. Sums of f32 keep subnormals, unlike those of `red`."""
    dtype = _ELEMENTS[form.kind]
    return combine(old.copy().view(dtype), new.view(dtype), None, form.how, form.kind).view(np.uint8)


def _check_multiples(by: Issuer, nbytes: int, source: int, target: int) -> None:
    if (source | target | nbytes) & 15:
        what = f"bulk copy of {nbytes} bytes from {source:#x} to {target:#x}: multiples of 16 are needed"
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
    for copy in operands.threads(M, at, idx, n, mask):
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


def emit_bulk(cg: Context, ins: ast.Instruction) -> None:
    """cp.async.bulk in all its forms."""
    p, ops = ins.parts, ins.operands
    if "commit_group" in p:
        cg.line(cg.call("bulk_commit"))
    elif "wait_group" in p:
        cg.line(cg.call("bulk_wait", str(cg.integer(ops[0])), str("read" in p)))
    elif "prefetch" in p:
        return
    elif "tensor" in p:
        tensor_copy(cg, ins, None)
    elif p[3] == "global":
        chosen = cg.src(ops[-1], "u32") if "cp_mask" in p else "None"
        _emit_store(cg, ops, BulkForm(), chosen)
    else:
        multicast = cg.src(ops[4], "u32") if "multicast::cluster" in p else "None"
        _emit_load(cg, ops, BulkForm(from_shared=p[4].startswith("shared")), multicast)


@emits("cp.reduce")
def _cp_reduce(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    how = next(op for op in REDUCTIONS if op in p)
    if "tensor" in p:
        tensor_copy(cg, ins, how)
    elif p[4] == "global" and p[5].startswith("shared"):
        if p[-1] not in _ELEMENTS:
            raise Unsupported(f"reduction of .{p[-1]}")
        _emit_store(cg, ops, BulkForm(how=how, kind=p[-1]), "None")
    else:
        _emit_load(cg, ops, BulkForm(from_shared=True, how=how, kind=p[-1]), "None")


def _emit_store(cg: Context, ops: tuple[ast.Operand, ...], form: BulkForm, chosen: str) -> None:
    values = cg.addr(ops[0], "u64"), cg.addr(ops[1], "u32"), cg.src(ops[2], "u32"), chosen
    cg.line(cg.call("bulk_store", cg.constant("form", form), f"BulkStoreOperands({', '.join(values)})"))


def _emit_load(cg: Context, ops: tuple[ast.Operand, ...], form: BulkForm, multicast: str) -> None:
    source_kind = "u32" if form.from_shared else "u64"
    places = cg.addr(ops[0], "u32"), cg.addr(ops[1], source_kind)
    values = *places, cg.src(ops[2], "u32"), cg.addr(ops[3], "u32"), multicast
    cg.line(cg.call("bulk_load", cg.constant("form", form), f"BulkLoadOperands({', '.join(values)})"))
