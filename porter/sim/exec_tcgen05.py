# SPDX-License-Identifier: Apache-2.0
"""tcgen05 instructions of single threads: products, copies, shifts and commits (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.forms.grammar import Completion
from porter.ptx.mma_cells import MmaArguments, shift_cells
from porter.ptx.operand_errors import OperandError
from porter.ptx.table import Decoded
from porter.ptx.tmem_copy import TmemCopy, copy_cells
from porter.ptx.umma import UmmaOp
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath import tcgen05
from porter.sim.datapath.tcgen05_copy import copy
from porter.sim.effects import Effect, Shared, Tensor, Touch
from porter.sim.exec_tmem import blocks_of_group, group_of, refused
from porter.sim.footprints import cell_bits, operand_bits
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.shared_address import shared_address
from porter.sim.tensor_memory import Use
from porter.sim.tensor_mma import DecodedMma, TensorMma
from porter.sim.threads import Issuer, Signal, int_or_none, issuers, per_lane, per_lane_or_none

Array = npt.NDArray[Any]


MmaOperands = tuple[Any, ...]
"""Operands of a tcgen05.mma for all threads: d, A's descriptor or None, A's address or None, b, idesc, enable,
scale-input-d, the disable-output-lane vector or None, metadata, scale factors of A and B, zero-column mask, each or
None."""


def _mma_calls(
    M: Machine, at: int, idx: Any, n: int, mask: Any, operands: MmaOperands
) -> Iterator[tuple[Issuer, int, MmaArguments]]:
    """(thread, instruction descriptor, operands) of every thread that executes a tcgen05.mma."""
    d, a_desc, a_tmem, b, idesc, enable, scale, disable, *rest = operands
    values = [None if x is None else per_lane(x, n) for x in (d, a_desc, a_tmem, b, idesc, enable, *rest)]
    masks = None if disable is None else [per_lane(x, n) for x in disable]
    for by, i in issuers(M, at, idx, n, mask):
        where, a_value, a_address, b_value, code, enabled, *more = (int_or_none(x, i) for x in values)
        assert where is not None
        assert b_value is not None
        assert code is not None
        lanes_off = None if masks is None else sum(int(m[i]) << 32 * word for word, m in enumerate(masks))
        yield by, code, MmaArguments(where, a_value, a_address, b_value, bool(enabled), scale, lanes_off, *more)


@runtime
def tmem_mma(M: Machine, at: int, idx: Any, n: int, mask: Any, op: UmmaOp, operands: MmaOperands) -> None:
    if M.observer is not None:
        M.observer.elects(at, idx, n, mask)
    for by, code, args in _mma_calls(M, at, idx, n, mask, operands):
        M.tmem.use_group(by.cta, op.cta_group, at, by.warp)
        ctas = blocks_of_group(M, by.cta, op.cta_group, at, by.warp)
        mma = _decoded(by, op, code, args)
        effect = None if M.observer is None else M.observer.issues(_multiplied(by, mma, args, ctas))
        use = Use(M.tmem, ctas, mma.columns, at, by.warp, "tcgen05.mma")
        _issue(by, TensorMma(M, at, by.warp, mma, args, use, _before(by, True), effect))


def _decoded(by: Issuer, op: UmmaOp, code: int, args: MmaArguments) -> DecodedMma:
    known = by.machine.tmem.decoded
    key = op, code, args.d_addr, args.a_tmem, args.metadata, args.scale_a, args.scale_b
    found: DecodedMma | None = known.get(key)
    if found is None:
        try:
            found = known[key] = DecodedMma(op, code, args)
        except OperandError as problem:
            raise refused(problem, by.at, by.warp, Code.SIM_DESCRIPTOR) from problem
    return found


def _multiplied(by: Issuer, mma: DecodedMma, args: MmaArguments, ctas: list[int]) -> Effect:
    """An MMA whose shared memory descriptors are wrong touches nothing: it is refused when it lands."""
    touches: list[Touch] = []
    try:
        source = mma.source(args)
        for c in ctas:
            for i, (write, bits, pair) in enumerate(mma.accesses):
                touches.append(Tensor(c, bits, write, i == 0 and args.enable_d, pair))
            touches.append(Shared(c, source, False))
    except (OperandError, ValueError):
        pass
    return by.effect("mma", touches, Completion.TCGEN05_COMMIT)


def _before(by: Issuer, all_threads: bool) -> list[Operation | None]:
    pipe = by.machine.tmem.pipe(by.cta)
    return [pipe.by_thread.get((by.warp, by.lane)), pipe.last if all_threads else None]


def _issue(by: Issuer, op: Operation, in_order: bool = True) -> None:
    pipe = by.machine.tmem.pipe(by.cta)
    by.machine.engine.issue(op)
    pipe.by_thread[by.warp, by.lane] = op
    if in_order:
        pipe.last = op


@runtime
def tmem_copy(M: Machine, at: int, idx: Any, n: int, mask: Any, op: TmemCopy, addr: Any, desc: Any) -> None:
    a, s = per_lane(addr, n), per_lane(desc, n)
    for by, i in issuers(M, at, idx, n, mask):
        M.tmem.use_group(by.cta, op.cta_group, at, by.warp)
        ctas = blocks_of_group(M, by.cta, op.cta_group, at, by.warp)
        address, source = int(a[i]), int(s[i])
        try:
            cells = copy_cells(op, address)
        except OperandError as problem:
            raise refused(problem, at, by.warp) from problem
        effect = None if M.observer is None else M.observer.issues(_copied(by, op, cells, source, ctas))
        use = Use(M.tmem, ctas, np.unique(cells[1]), at, by.warp, "tcgen05.cp")

        def land(use: Use = use, address: int = address, desc: int = source) -> None:
            use.landing()
            copy(op, address, desc, [M.smem[c] for c in use.ctas], [M.tmem.cells(c) for c in use.ctas])

        _issue(by, Operation(at, by.warp, land, _before(by, True), effect=effect))


def _copied(by: Issuer, op: TmemCopy, cells: tuple[Array, Array], desc: int, ctas: list[int]) -> Effect:
    touches: list[Touch] = []
    try:
        source, target = operand_bits(desc, "sm_100", op.rows, op.row_bytes, 8, False), cell_bits(*cells)
        for c in ctas:
            touches += [Tensor(c, target, True), Shared(c, source, False)]
    except OperandError:
        # It is refused when it lands.
        pass
    return by.effect("cp", touches, Completion.TCGEN05_COMMIT)


@runtime
def tmem_shift(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, group: int) -> None:
    a = per_lane(addr, n)
    for by, i in issuers(M, at, idx, n, mask):
        M.tmem.use_group(by.cta, group, at, by.warp)
        ctas = blocks_of_group(M, by.cta, group, at, by.warp)
        address = int(a[i])
        try:
            cells = shift_cells(address)
        except OperandError as problem:
            raise refused(problem, at, by.warp) from problem
        effect = None
        if M.observer is not None:
            touches = [Tensor(c, cell_bits(*cells), True, reads=True) for c in ctas]
            effect = M.observer.issues(by.effect("shift", touches, Completion.TCGEN05_COMMIT))
        use = Use(M.tmem, ctas, np.unique(cells[1]), at, by.warp, "tcgen05.shift")

        def land(use: Use = use, address: int = address) -> None:
            use.landing()
            tcgen05.shift(address, [M.tmem.cells(c) for c in use.ctas])

        _issue(by, Operation(at, by.warp, land, _before(by, True), effect=effect))


class Commit(Operation):
    """A tcgen05.commit."""

    __slots__ = ()
    silent = True


@runtime
def tmem_commit(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, multicast: Any, group: int) -> None:
    """One arrival on each named mbarrier once the thread's earlier operations have landed."""
    a, m = per_lane(addr, n), per_lane_or_none(multicast, n)
    for by, i in issuers(M, at, idx, n, mask):
        M.tmem.use_group(by.cta, group, at, by.warp)
        address, blocks = int(a[i]), int_or_none(m, i)
        signals = [by.mbarrier(address)] if blocks is None else by.signals(by.targets(by.cta, blocks), address)
        effect = None
        if M.observer is not None:
            effect = M.observer.issues(by.effect("commit", (), Completion.MBARRIER_ARRIVE, signals))

        def land(signals: list[Signal] = signals) -> None:
            for slot, owner in signals:
                M.mbar.arrive(slot, owner, at)

        keys = [("mbar", *signal) for signal in signals]
        _issue(by, Commit(at, by.warp, land, _before(by, False), keys, effect=effect), in_order=False)


# Code generation ----------------------------------------------------------------------------------------


@emits("tcgen05")
def _tcgen05(cg: Context, ins: Decoded) -> None:
    """tcgen05.fence: the checker alone follows these."""


@emits("tcgen05.cp")
def _copy(cg: Context, ins: Decoded) -> None:
    op = cg.constant("op", TmemCopy.of(ins.modifiers))
    cg.line(cg.call("tmem_copy", op, cg.get("taddr"), cg.get("source_desc")))


@emits("tcgen05.shift")
def _shift(cg: Context, ins: Decoded) -> None:
    cg.line(cg.call("tmem_shift", cg.get("taddr"), group_of(ins)))


@emits("tcgen05.commit")
def _commit(cg: Context, ins: Decoded) -> None:
    multicast = cg.get("mask", "u32") if "mask" in ins else "None"
    cg.line(cg.call("tmem_commit", shared_address(cg, "mbar", "offset_as_generic"), multicast, group_of(ins)))


@emits("tcgen05.mma")
def _mma(cg: Context, ins: Decoded) -> None:
    op = cg.constant("op", UmmaOp.of(ins.modifiers))
    in_memory = isinstance(ins["a"], ast.Mem)

    def get(name: str) -> str:
        return cg.get(name) if name in ins else "None"

    d = get("d")
    a = f"None, {get('a')}" if in_memory else f"{get('a')}, None"
    b, meta, idesc, scale_a, scale_b = map(get, ("b", "meta", "idesc", "scale_a", "scale_b"))
    disable = "None"
    if "disable_output_lane" in ins:
        disable = cg.tuple_of(ins["disable_output_lane"], "u32")
    enable, zeros = get("enable_input_d"), get("zero_column_mask")
    scale = str(cg.integer(ins["scale_input_d"])) if "scale_input_d" in ins else "0"
    values = ", ".join((d, a, b, idesc, enable, scale, disable, meta, scale_a, scale_b, zeros))
    cg.line(cg.call("tmem_mma", op, f"({values})"))
