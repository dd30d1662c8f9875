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
from porter.ptx.table import UnknownInstruction, operands
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.umma import UmmaOp
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath import tcgen05
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.tcgen05_copy import copy, copy_cells
from porter.sim.effects import Effect, Shared, Tensor, Touch
from porter.sim.exec_tmem import blocks_of_group, group_of, refused
from porter.sim.footprints import cell_bits, operand_bits
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.shared_address import shared_address
from porter.sim.tensor_memory import Use
from porter.sim.tensor_mma import Decoded, TensorMma
from porter.sim.threads import Issuer, Signal, int_or_none, issuers, per_lane, per_lane_or_none

Array = npt.NDArray[Any]


MmaOperands = tuple[Any, ...]
"""Operands of a tcgen05.mma for all threads: d, A's descriptor or None, A's address or None, b, idesc, enable,
scale-input-d, the disable-output-lane vector or None, metadata, scale factors of A and B, zero-column mask, each or
None."""


def _mma_calls(
    M: Machine, at: int, idx: Any, n: int, mask: Any, operands: MmaOperands
) -> Iterator[tuple[Issuer, int, tcgen05.MmaArguments]]:
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
        yield by, code, tcgen05.MmaArguments(where, a_value, a_address, b_value, bool(enabled), scale, lanes_off, *more)


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


def _decoded(by: Issuer, op: UmmaOp, code: int, args: tcgen05.MmaArguments) -> Decoded:
    known = by.machine.tmem.decoded
    key = op, code, args.d_addr, args.a_tmem, args.metadata, args.scale_a, args.scale_b
    found: Decoded | None = known.get(key)
    if found is None:
        try:
            found = known[key] = Decoded(op, code, args)
        except DatapathError as problem:
            raise refused(problem, by.at, by.warp, Code.SIM_DESCRIPTOR) from problem
    return found


def _multiplied(by: Issuer, mma: Decoded, args: tcgen05.MmaArguments, ctas: list[int]) -> Effect:
    """An MMA whose shared memory descriptors are wrong touches nothing: it is refused when it lands."""
    touches: list[Touch] = []
    try:
        source = mma.source(args)
        for c in ctas:
            for i, (write, bits, pair) in enumerate(mma.accesses):
                touches.append(Tensor(c, bits, write, i == 0 and args.enable_d, pair))
            touches.append(Shared(c, source, False))
    except (DatapathError, ValueError):
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
        except DatapathError as problem:
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
    except DatapathError:
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
            cells = tcgen05.shift_cells(address)
        except DatapathError as problem:
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
def _tcgen05(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    if p[1].startswith("fence::"):
        # The checker alone follows these.
        return
    group = str(group_of(p))
    if p[1] == "mma":
        _mma(cg, ins)
    elif p[1] == "cp":
        op = cg.constant("op", TmemCopy.parse(p))
        cg.line(cg.call("tmem_copy", op, cg.addr(ops[0], "u32"), cg.src(ops[1], "u64")))
    elif p[1] == "shift":
        cg.line(cg.call("tmem_shift", cg.addr(ops[0], "u32"), group))
    elif p[1] == "commit":
        multicast = cg.src(ops[1], "u32") if len(ops) > 1 else "None"
        cg.line(cg.call("tmem_commit", shared_address(cg, ops[0], ins), multicast, group))
    else:
        raise Unsupported("")


def _mma(cg: Context, ins: ast.Instruction) -> None:
    op = UmmaOp.parse(ins.parts)
    name = cg.constant("op", op)
    try:
        given = operands(ins)
    except UnknownInstruction:
        raise Unsupported("") from None

    def address(name: str) -> str:
        return cg.addr(given[name], "u32") if name in given else "None"

    d = address("d")
    a = given["a"]
    a_tmem = cg.addr(a, "u32") if isinstance(a, ast.Mem) else "None"
    a_desc = "None" if isinstance(a, ast.Mem) else cg.src(a, "u64")
    b = cg.src(given["b"], "u64")
    meta = address("meta")
    idesc = cg.src(given["idesc"], "u32")
    scale_a, scale_b = address("scale_a"), address("scale_b")
    lanes = given.get("disable_output_lane")
    disable = "None"
    if isinstance(lanes, ast.Vec):
        disable = "(" + ", ".join(cg.src(i, "u32") for i in lanes.items) + ",)"
    enable = cg.src(given["enable_input_d"], "p")
    zeros = cg.src(given["zero_column_mask"], "u64") if "zero_column_mask" in given else "None"
    scale = str(cg.integer(given["scale_input_d"])) if "scale_input_d" in given else "0"
    values = ", ".join((d, a_desc, a_tmem, b, idesc, enable, scale, disable, meta, scale_a, scale_b, zeros))
    cg.line(cg.call("tmem_mma", name, f"({values})"))
