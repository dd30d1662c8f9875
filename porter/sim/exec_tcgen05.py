# SPDX-License-Identifier: Apache-2.0
"""tcgen05: Tensor Memory and the tensor core instructions on it (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.tmem_access import TmemAccess
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.umma import UmmaOp
from porter.sim.addresses import OFFSET_MASK
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath import tcgen05
from porter.sim.datapath.errors import DatapathError, UnsupportedDatapathError
from porter.sim.datapath.tcgen05_copy import copy, copy_cells
from porter.sim.engine import Operation
from porter.sim.kinds import Unsupported
from porter.sim.mbarrier import shared_address
from porter.sim.results import Stop
from porter.sim.tensor_mma import TensorMma
from porter.sim.threads import Issuer, Signal, active_lanes, int_or_none, issuers, per_lane, per_lane_or_none

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]


def _group_of(parts: tuple[str, ...]) -> int:
    return next((int(p[-1]) for p in parts if p.startswith("cta_group::")), 1)


def _ctas(M: Machine, cta: int, group: int, at: int, warp: int) -> list[int]:
    """The blocks an operation of a cta_group works on, even rank first."""
    if group == 1:
        return [cta]
    rank = int(M.cta_rank[cta])
    if M.cluster_size % 2:
        raise Stop(Code.SIM_COLLECTIVE, "cta_group::2 needs a cluster of an even number of blocks", at, warp)
    even = cta - (rank & 1)
    return [even, even + 1]


# Allocation -------------------------------------------------------------------------------------------


@runtime
def tmem_alloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> Any:
    """Allocate, or stay until columns are free and, for a pair, until both blocks ask."""
    T = M.tmem
    where, count = per_lane(addr, n), per_lane(columns, n)
    passed = np.zeros(n, bool)
    keys: list[Any] = [None] * n
    for row, warp in enumerate(M.warps(idx).tolist()):
        if warp in T.granted:
            T.granted.discard(warp)
            passed[row] = True
            continue
        cta = int(M.warp_cta[warp])
        wanted = int(count[row, 0])
        T.use_group(cta, group, at, warp)
        T.check_alloc(cta, wanted, at, warp)
        ctas = _ctas(M, cta, group, at, warp)
        T.requests[cta] = (warp, wanted, int(where[row, 0]))
        requests = [T.requests.get(c) for c in ctas]
        keys[row] = ("tmem", cta)
        if any(r is None for r in requests):
            continue
        sizes = {r[1] for r in requests if r is not None}
        if len(sizes) > 1:
            raise Stop(Code.SIM_TMEM_ALLOCATION, f"the blocks of a pair ask for {sorted(sizes)} columns", at, warp)
        start = T.find_free(ctas, wanted)
        if start is None:
            continue
        for c, r in zip(ctas, requests, strict=True):
            assert r is not None
            T.allocate(c, start, wanted, at)
            offset = r[2] & OFFSET_MASK
            if offset % 4 or offset + 4 > M.smem_size:
                raise Stop(Code.SIM_OUT_OF_BOUNDS, f"tcgen05.alloc writes to shared address {r[2]:#x}", at, r[0])
            M.smem[c, offset : offset + 4] = np.array([start], "<u4").view(np.uint8)
            del T.requests[c]
            if r[0] == warp:
                passed[row] = True
            else:
                T.granted.add(r[0])
                M.wake(("tmem", c))
        M.activity += 1
    if not passed.all():
        waiting = np.zeros((n, 32), bool)
        waiting[~passed] = M.exists[M.warps(idx)][~passed]
        # A warp granted by its peer in this very step must not be put to sleep.
        for row, warp in enumerate(M.warps(idx).tolist()):
            if warp in T.granted and not passed[row]:
                T.granted.discard(warp)
                passed[row] = True
                waiting[row] = False
        M.park(idx, n, waiting, keys)
    if not passed.any():
        return None
    chosen = M.warps(idx)[passed]
    return chosen, chosen.size, None if mask is None else np.broadcast_to(mask, (n, 32))[passed]


@runtime
def tmem_dealloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> None:
    a, c = per_lane(addr, n), per_lane(columns, n)
    for row, warp in enumerate(M.warps(idx).tolist()):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, group, at, warp)
        M.tmem.deallocate(cta, int(a[row, 0]), int(c[row, 0]), at, warp)


@runtime
def tmem_relinquish(M: Machine, at: int, idx: Any, n: int, mask: Any, group: int) -> None:
    for warp in M.warps(idx).tolist():
        M.tmem.relinquished[int(M.warp_cta[warp])] = True


# Loads and stores -------------------------------------------------------------------------------------


def _refuse(problem: DatapathError, at: int, warp: int, code: Code = Code.SIM_TMEM_ACCESS) -> Stop:
    if isinstance(problem, UnsupportedDatapathError):
        return Stop(Code.SIM_UNKNOWN_INSTRUCTION, str(problem), at, warp)
    return Stop(code, str(problem), at, warp)


def _access_columns(M: Machine, access: TmemAccess, address: int, half_split: int) -> Array:
    column = address & 0xFFFF
    spread = np.arange(column, column + access.columns)
    return np.concatenate([spread, spread + half_split]) if half_split else spread


def _uniform(M: Machine, values: Array, lanes: Any, row: int, at: int, warp: int) -> int:
    if (values[row] != values[row, 0]).any():
        raise Stop(Code.SIM_TMEM_ACCESS, "the threads of the warp give different addresses", at, warp)
    return int(values[row, 0])


@runtime
def tmem_load(
    M: Machine, at: int, idx: Any, n: int, mask: Any, access: TmemAccess, addr: Any, half_split: int
) -> Array:
    """Registers [registers, n, 32]: what the cells hold now; with a reduction its result as one more."""
    a = per_lane(addr, n)
    reduced = access.reduction is not None
    out = np.empty((access.registers + reduced, n, 32), np.uint32)
    for row, warp in enumerate(M.warps(idx).tolist()):
        cta, rank = int(M.warp_cta[warp]), int(M.warp_rank[warp])
        address = _uniform(M, a, mask, row, at, warp)
        M.tmem.check_columns(cta, _access_columns(M, access, address, half_split), at, warp, "tcgen05.ld")
        try:
            values = tcgen05.load(
                M.tmem.cells(cta), address, access.shape, access.count, access.packed, rank, half_split
            )
        except DatapathError as problem:
            raise _refuse(problem, at, warp) from problem
        out[: access.registers, row] = values.T
        if access.reduction is not None:
            out[access.registers, row] = tcgen05.reduce_loaded(values, access.reduction)
    return out


@runtime
def tmem_store(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    access: TmemAccess,
    addr: Any,
    half_split: int,
    values: Any,
) -> None:
    """Issue stores; each lands at the latest at the warp's tcgen05.wait::st."""
    a = per_lane(addr, n)
    registers = np.stack([per_lane(v, n) for v in values], axis=-1)
    for row, warp in enumerate(M.warps(idx).tolist()):
        cta, rank = int(M.warp_cta[warp]), int(M.warp_rank[warp])
        address = _uniform(M, a, mask, row, at, warp)
        columns = _access_columns(M, access, address, half_split)
        M.tmem.check_columns(cta, columns, at, warp, "tcgen05.st")
        try:
            tcgen05.cells(
                address,
                access.shape,
                access.count,
                warp_rank=rank,
                packed=access.packed,
                half_split=half_split,
            )
        except DatapathError as problem:
            raise _refuse(problem, at, warp) from problem

        def land(
            cta: int = cta,
            rank: int = rank,
            address: int = address,
            columns: Array = columns,
            warp: int = warp,
            data: Array = registers[row],
        ) -> None:
            M.tmem.check_columns(cta, columns, at, warp, "tcgen05.st")
            cells = M.tmem.cells(cta)
            tcgen05.store(cells, address, access.shape, access.count, access.packed, rank, data, half_split)

        earlier = M.tmem.stores.setdefault(warp, [])
        op = Operation(at, warp, land, earlier[-1:])
        M.engine.issue(op)
        earlier.append(op)


@runtime
def tmem_wait_stores(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for warp in M.warps(idx).tolist():
        M.engine.land_all(M.tmem.stores.pop(warp, ()))


# Asynchronous operations of single threads --------------------------------------------------------------


class Pipe:
    """A block pair's tcgen05 operations in issue order: the last of all, and the last of each thread."""

    def __init__(self) -> None:
        self.last: Operation | None = None
        self.by_thread: dict[tuple[int, int], Operation] = {}


def _pipe(M: Machine, cta: int) -> Pipe:
    # The blocks of a pair share one pipe, so that pair operations issued by either keep their order.
    key = cta - (int(M.cta_rank[cta]) & 1)
    return M.pipes.setdefault(key, Pipe())


MmaOperands = tuple[Any, ...]
"""Operands of a tcgen05.mma for all threads: d, A's descriptor or None, A's address or None, b, idesc, enable,
scale-input-d, the disable-output-lane vector or None, metadata, scale factors of A and B, zero-column mask, each or
None."""


def mma_calls(
    M: Machine, idx: Any, n: int, mask: Any, operands: MmaOperands
) -> Iterator[tuple[int, int, int, tcgen05.MmaArguments]]:
    """(lane, warp, instruction descriptor, operands) of every thread that executes a tcgen05.mma."""
    d, a_desc, a_tmem, b, idesc, enable, scale, disable, *rest = operands
    values = [None if x is None else per_lane(x, n) for x in (d, a_desc, a_tmem, b, idesc, enable, *rest)]
    masks = None if disable is None else [per_lane(x, n) for x in disable]
    for row, lane, warp in active_lanes(M, idx, n, mask):
        mine = [None if x is None else int(x[row, lane]) for x in values]
        where, a_value, a_address, b_value, code, enabled, metadata, scale_a, scale_b, zeros = mine
        assert where is not None
        assert b_value is not None
        assert code is not None
        lanes_off = None
        if masks is not None:
            lanes_off = sum(int(m[row, lane]) << 32 * i for i, m in enumerate(masks))
        yield (
            lane,
            warp,
            code,
            tcgen05.MmaArguments(
                d_addr=where,
                a_desc=a_value,
                a_tmem=a_address,
                b_desc=b_value,
                enable_d=bool(enabled),
                scale_d=scale,
                disable_lanes=lanes_off,
                metadata=metadata,
                scale_a=scale_a,
                scale_b=scale_b,
                zero_columns=zeros,
            ),
        )


@runtime
def tmem_mma(M: Machine, at: int, idx: Any, n: int, mask: Any, op: UmmaOp, operands: MmaOperands) -> None:
    for lane, warp, code, args in mma_calls(M, idx, n, mask, operands):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, op.cta_group, at, warp)
        ctas = _ctas(M, cta, op.cta_group, at, warp)
        columns = _mma_columns(M, op, code, args, at, warp)
        for c in ctas:
            M.tmem.check_columns(c, columns, at, warp, "tcgen05.mma")

        before = _before(M, cta, warp, lane, True)
        _issue(M, cta, TensorMma(M, at, warp, op, code, args, ctas, columns, before), warp, lane)


def _before(M: Machine, cta: int, warp: int, lane: int, all_threads: bool) -> list[Operation | None]:
    pipe = _pipe(M, cta)
    return [pipe.by_thread.get((warp, lane)), pipe.last if all_threads else None]


def _issue(M: Machine, cta: int, op: Operation, warp: int, lane: int, in_order: bool = True) -> None:
    pipe = _pipe(M, cta)
    M.engine.issue(op)
    pipe.by_thread[warp, lane] = op
    if in_order:
        pipe.last = op


def _mma_columns(
    M: Machine, op: UmmaOp, idesc: int, args: tcgen05.MmaArguments, at: int, warp: int
) -> Array:
    """Every column that an MMA touches in Tensor Memory."""
    key = (op, idesc, args.d_addr, args.a_tmem, args.metadata, args.scale_a, args.scale_b)
    found = M.tmem.touched.get(key)
    if found is None:
        try:
            cells = tcgen05.mma_footprint(op, idesc, args)
        except DatapathError as problem:
            raise _refuse(problem, at, warp, Code.SIM_DESCRIPTOR) from problem
        found = M.tmem.touched[key] = np.concatenate([np.unique(columns) for *_, columns in cells])
    return found


@runtime
def tmem_copy(M: Machine, at: int, idx: Any, n: int, mask: Any, op: TmemCopy, addr: Any, desc: Any) -> None:
    a, s = per_lane(addr, n), per_lane(desc, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, op.cta_group, at, warp)
        ctas = _ctas(M, cta, op.cta_group, at, warp)
        address = int(a[row, lane])
        try:
            columns = np.unique(copy_cells(op, address)[1])
        except DatapathError as problem:
            raise _refuse(problem, at, warp) from problem
        for c in ctas:
            M.tmem.check_columns(c, columns, at, warp, "tcgen05.cp")

        def land(ctas: list[int] = ctas, address: int = address, desc: int = int(s[row, lane])) -> None:
            copy(op, address, desc, [M.smem[c] for c in ctas], [M.tmem.cells(c) for c in ctas])

        _issue(M, cta, Operation(at, warp, land, _before(M, cta, warp, lane, True)), warp, lane)


@runtime
def tmem_shift(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, group: int) -> None:
    a = per_lane(addr, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, group, at, warp)
        ctas = _ctas(M, cta, group, at, warp)
        address = int(a[row, lane])
        try:
            columns = np.unique(tcgen05.shift_cells(address)[1])
        except DatapathError as problem:
            raise _refuse(problem, at, warp) from problem
        for c in ctas:
            M.tmem.check_columns(c, columns, at, warp, "tcgen05.shift")

        def land(ctas: list[int] = ctas, address: int = address) -> None:
            tcgen05.shift(address, [M.tmem.cells(c) for c in ctas])

        _issue(M, cta, Operation(at, warp, land, _before(M, cta, warp, lane, True)), warp, lane)


class Commit(Operation):
    """A tcgen05.commit."""

    __slots__ = ()
    silent = True


def commit_signals(by: Issuer, address: int, multicast: int | None) -> list[Signal]:
    """The mbarriers that a tcgen05.commit arrives on."""
    if multicast is None:
        return [by.mbarrier(address)]
    return by.signals(by.targets(by.cta, multicast), address)


@runtime
def tmem_commit(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, multicast: Any, group: int) -> None:
    """One arrival on each named mbarrier once the thread's earlier operations have landed."""
    a, m = per_lane(addr, n), per_lane_or_none(multicast, n)
    for by, i in issuers(M, at, idx, n, mask):
        M.tmem.use_group(by.cta, group, at, by.warp)
        signals = commit_signals(by, int(a[i]), int_or_none(m, i))

        def land(signals: list[Signal] = signals) -> None:
            for slot, owner in signals:
                M.mbar.arrive(slot, owner, at)

        op = Commit(at, by.warp, land, _before(M, by.cta, by.warp, by.lane, False), [("mbar", *sc) for sc in signals])
        _issue(M, by.cta, op, by.warp, by.lane, in_order=False)


# Code generation ----------------------------------------------------------------------------------------


@emits("tcgen05")
def _tcgen05(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    what = p[1].partition("::")[0]
    if what == "fence" or p[1] == "wait::ld":
        return
    group = str(_group_of(p))
    if p[1] == "wait::st":
        cg.line(cg.call("tmem_wait_stores"))
    elif what == "alloc":
        if cg.guard is not None:
            raise Unsupported("a predicated tcgen05.alloc")
        address = shared_address(cg, ops[0], ins)
        cg.narrow(cg.call("tmem_alloc", address, cg.src(ops[1], "u32"), group))
    elif what == "dealloc":
        cg.line(cg.call("tmem_dealloc", cg.src(ops[0], "u32"), cg.src(ops[1], "u32"), group))
    elif what == "relinquish_alloc_permit":
        cg.line(cg.call("tmem_relinquish", group))
    elif what == "ld":
        access = cg.constant("access", TmemAccess.parse(p))
        items = ops[0].items if isinstance(ops[0], ast.Vec) else (ops[0],)
        if p[2] == "red":
            items, ops = (*items, ops[1]), (ops[0], *ops[2:])
        half = str(int(ops[2].value)) if len(ops) > 2 and isinstance(ops[2], ast.Imm) else "0"
        result = cg.let(cg.call("tmem_load", access, cg.addr(ops[1], "u32"), half))
        for i, to in enumerate(items):
            cg.set(to, "u32", f"{result}[{i}]")
    elif what == "st":
        access = cg.constant("access", TmemAccess.parse(p))
        source = ops[-1]
        items = source.items if isinstance(source, ast.Vec) else (source,)
        half = str(int(ops[1].value)) if len(ops) > 2 and isinstance(ops[1], ast.Imm) else "0"
        values = "(" + ", ".join(cg.src(i, "u32") for i in items) + ",)"
        cg.line(cg.call("tmem_store", access, cg.addr(ops[0], "u32"), half, values))
    elif what == "mma":
        _mma(cg, ins)
    elif what == "cp":
        op = cg.constant("op", TmemCopy.parse(p))
        cg.line(cg.call("tmem_copy", op, cg.addr(ops[0], "u32"), cg.src(ops[1], "u64")))
    elif what == "shift":
        cg.line(cg.call("tmem_shift", cg.addr(ops[0], "u32"), group))
    elif what == "commit":
        multicast = cg.src(ops[1], "u32") if len(ops) > 1 else "None"
        cg.line(cg.call("tmem_commit", shared_address(cg, ops[0], ins), multicast, group))
    else:
        raise Unsupported("")


def _mma(cg: Context, ins: ast.Instruction) -> None:
    ops = list(ins.operands)
    op = UmmaOp.parse(ins.parts)
    name = cg.constant("op", op)
    a_desc = a_tmem = disable = meta = scale_a = scale_b = zeros = "None"
    d = cg.addr(ops.pop(0), "u32")
    a = ops.pop(0)
    if isinstance(a, ast.Mem):
        a_tmem = cg.addr(a, "u32")
    else:
        a_desc = cg.src(a, "u64")
    b = cg.src(ops.pop(0), "u64")
    if op.sparse:
        meta = cg.addr(ops.pop(0), "u32")
    idesc = cg.src(ops.pop(0), "u32")
    if op.block_scale:
        scale_a, scale_b = cg.addr(ops.pop(0), "u32"), cg.addr(ops.pop(0), "u32")
    if isinstance(ops[0], ast.Vec):
        disable = "(" + ", ".join(cg.src(i, "u32") for i in ops[0].items) + ",)"
        ops.pop(0)
    enable = cg.src(ops.pop(0), "p")
    scale = "0"
    if ops and op.ws:
        zeros = cg.src(ops[0], "u64")
    elif ops:
        if not isinstance(ops[0], ast.Imm):
            raise Unsupported("a scale-input-d that is no immediate")
        scale = str(int(ops[0].value))
    operands = ", ".join(
        (d, a_desc, a_tmem, b, idesc, enable, scale, disable, meta, scale_a, scale_b, zeros)
    )
    cg.line(cg.call("tmem_mma", name, f"({operands})"))
