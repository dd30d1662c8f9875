# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory: allocation, loads and stores of warps (PTX ISA 9.7.16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.forms.grammar import Completion
from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.shared_window import OFFSET_MASK
from porter.ptx.table import Decoded, items
from porter.ptx.tmem import COLUMN_MASK, COLUMNS, LANES, column_of, lane_of
from porter.ptx.tmem import address as tmem_address
from porter.ptx.tmem_access import TmemAccess, lane_of_block, leaves_quarter_out
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath import tmem_access
from porter.sim.effects import Effect, Tensor
from porter.sim.footprints import access_bits, cells_from, column_bits
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.results import Stop
from porter.sim.shared_address import shared_address
from porter.sim.tensor_memory import PendingLoad, Use
from porter.sim.threads import active_warps, per_lane

Array = npt.NDArray[Any]


def group_of(ins: Decoded) -> str:
    """The N of .cta_group::N."""
    return ins.modifiers["cta_group"][-1]


def blocks_of_group(M: Machine, cta: int, group: int, at: int, warp: int) -> list[int]:
    """The blocks an operation of a cta_group works on, even rank first."""
    if group == 1:
        return [cta]
    rank = int(M.cta_rank[cta])
    if M.cluster_size % 2:
        raise Stop(Code.SIM_COLLECTIVE, "cta_group::2 needs a cluster of an even number of blocks", at, warp)
    even = cta - (rank & 1)
    return [even, even + 1]


@runtime
def tmem_alloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> Any:
    """Allocate, or stay until columns are free and, for a pair, until both blocks ask."""
    T = M.tmem
    where, count = per_lane(addr, n), per_lane(columns, n)
    warps, passed = M.warps(idx), np.zeros(n, bool)
    keys: list[Any] = [None] * n
    for row, warp in enumerate(M.warps(idx).tolist()):
        if T.take_grant(warp):
            passed[row] = True
            continue
        cta = int(M.warp_cta[warp])
        wanted = int(count[row, 0])
        T.use_group(cta, group, at, warp)
        T.check_alloc(cta, wanted, at, warp)
        ctas = blocks_of_group(M, cta, group, at, warp)
        if M.observer is not None and cta not in T.requests:
            M.observer.asks(at, warp, group)
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
    going = _going_on(M, idx, n, mask, passed, keys)
    if going is None:
        return None
    if M.observer is not None:
        for row in np.flatnonzero(passed).tolist():
            cta, offset = int(M.warp_cta[warps[row]]), int(where[row, 0]) & OFFSET_MASK
            start = int.from_bytes(M.smem[cta, offset : offset + 4].tobytes(), "little") & COLUMN_MASK
            M.observer.allocated(at, int(warps[row]), offset, start, int(count[row, 0]), group)
    return going


def _going_on(M: Machine, idx: Any, n: int, mask: Any, passed: Array, keys: list[Any]) -> Any:
    """The selection of those that have `passed`, among them what a peer has granted in this very step; the others stay
    where they are, under their keys."""
    warps = M.warps(idx)
    for row in np.flatnonzero(~passed).tolist():
        passed[row] = M.tmem.take_grant(int(warps[row]))
    if not passed.all():
        waiting = np.broadcast_to(True if mask is None else mask, (n, 32)) & ~passed[:, None]
        M.park(idx, n, waiting, keys)
    if not passed.any():
        return None
    chosen = warps[passed]
    return chosen, chosen.size, None if mask is None else np.broadcast_to(mask, (n, 32))[passed]


@runtime
def tmem_meet(M: Machine, at: int, idx: Any, n: int, mask: Any, what: str, group: int) -> Any:
    """A pair's tcgen05.dealloc or relinquish_alloc_permit may block until the peer's warp has come to its own (PTX ISA
    9.7.16.5): as late as legal, it does."""
    passed = np.ones(n, bool)
    keys: list[Any] = [None] * n
    for row, warp in active_warps(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, group, at, warp)
        key: Any = ("pair", what, blocks_of_group(M, cta, group, at, warp)[0])
        keys[row], passed[row] = key, M.tmem.meets(key, cta, warp)
    return _going_on(M, idx, n, mask, passed, keys)


@runtime
def tmem_dealloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> None:
    a, c = per_lane(addr, n), per_lane(columns, n)
    for row, warp in active_warps(M, idx, n, mask):
        cta, address, count = int(M.warp_cta[warp]), int(a[row, 0]), int(c[row, 0])
        if M.observer is not None:
            bits = column_bits(address & COLUMN_MASK, count)
            M.observer.frees(at, warp, bits, group)
            M.observer.issues(Effect("dealloc", at, warp, None, [Tensor(cta, bits, True)], Completion.NONE))
        M.tmem.use_group(cta, group, at, warp)
        M.tmem.deallocate(cta, address, count, at, warp)


@runtime
def tmem_relinquish(M: Machine, at: int, idx: Any, n: int, mask: Any, group: int) -> None:
    for _, warp in active_warps(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        M.tmem.use_group(cta, group, at, warp)
        if M.observer is not None:
            M.observer.relinquishes(at, warp, group)
        M.tmem.relinquish(cta)


def refused(problem: OperandError, at: int, warp: int, code: Code = Code.SIM_TMEM_ACCESS) -> Stop:
    if isinstance(problem, UnsupportedOperandError):
        return Stop(Code.SIM_UNKNOWN_INSTRUCTION, str(problem), at, warp)
    return Stop(code, str(problem), at, warp)


def _access_columns(access: TmemAccess, half_split: int) -> Array:
    """The columns of an access, from the first on."""
    spread = np.arange(access.columns)
    return np.concatenate([spread, spread + half_split]) if half_split else spread


def _addresses(M: Machine, values: Array, warps: Array, at: int) -> Array:
    """The address that the threads of each warp give: [n] of `values` [n, 32]."""
    first = np.asarray(values[:, 0], np.int64)
    differ = (values != values[:, :1]).any(axis=1)
    if differ.any():
        warp = int(warps[differ.argmax()])
        raise Stop(Code.SIM_TMEM_ACCESS, "the threads of the warp give different addresses", at, warp)
    if M.options.level != "strict":
        own = lane_of_block(np.asarray(lane_of(first)), M.cta_rank[M.warp_cta[warps]])
        tolerated = own != lane_of(first)
        if M.observer is not None and tolerated.any():
            M.observer.tolerates("A2", at, warps[tolerated])
        first = np.where(tolerated, tmem_address(own, column_of(first)), first)
    if M.observer is not None:
        elsewhere = np.asarray(leaves_quarter_out(lane_of(first), M.warp_rank[warps]))
        if elsewhere.any():
            M.observer.tolerates("A4", at, warps[elsewhere])
    return first


def _first_cell(access: TmemAccess, half_split: int, address: int, rank: int, at: int, warp: int) -> tuple[int, int]:
    """(lane, column) where a warp's access begins."""
    try:
        return tmem_access.first_cell(
            address, access.shape, access.count, warp_rank=rank, packed=access.packed, half_split=half_split
        )
    except OperandError as problem:
        raise refused(problem, at, warp) from problem


@runtime
def tmem_load(
    M: Machine, at: int, idx: Any, n: int, mask: Any, access: TmemAccess, addr: Any, half_split: int
) -> Array:
    """Registers [registers, n, 32]: what the cells hold now; with a reduction its result as one more."""
    T, reduced = M.tmem, access.reduction is not None
    out = np.empty((access.registers + reduced, n, 32), np.uint32)
    rows, warps = _rows_and_warps(M, idx, n, mask)
    if not rows.size:
        return out
    addresses = _addresses(M, per_lane(addr, n)[rows], warps, at)
    ctas, ranks = M.warp_cta[warps], M.warp_rank[warps].tolist()
    columns = column_of(addresses)[:, None] + _access_columns(access, half_split)
    held = T.holds(ctas, columns)
    firsts = np.empty(rows.size, np.int64)
    registers = frozenset(M.program.code[at].writes)
    bits = 0 if M.observer is None else access_bits(access, half_split)
    effects = []
    for i, (warp, cta, address) in enumerate(zip(warps.tolist(), ctas.tolist(), addresses.tolist(), strict=True)):
        if not held:
            T.check_columns(cta, columns[i], at, warp, "tcgen05.ld")
        lane, column = _first_cell(access, half_split, address, ranks[i], at, warp)
        firsts[i] = (cta * LANES + lane) * COLUMNS + column
        T.loading(warp, PendingLoad(at, cta, columns[i]))
        if M.observer is not None:
            cells = Tensor(cta, cells_from(bits, lane, column), False)
            effects.append(Effect("ld", at, warp, None, [cells], Completion.TCGEN05_LD, registers=registers))
    values = tmem_access.loads(T.all_cells(), firsts, access.shape, access.count, access.packed, half_split)
    out[: access.registers, rows] = values.transpose(2, 0, 1)
    if access.reduction is not None:
        out[access.registers, rows] = tmem_access.reduce_loaded(values, access.reduction)
    if M.observer is not None:
        for effect in effects:
            M.observer.issues(effect)
    return out


def _rows_and_warps(M: Machine, idx: Any, n: int, mask: Any) -> tuple[Array, Array]:
    """The rows with an active thread, and their warps."""
    found = np.array(active_warps(M, idx, n, mask), np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


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
    rows, warps = _rows_and_warps(M, idx, n, mask)
    addresses = _addresses(M, per_lane(addr, n)[rows], warps, at)
    registers = np.stack([per_lane(v, n) for v in values], axis=-1)
    spread = _access_columns(access, half_split)
    for row, warp, address in zip(rows.tolist(), warps.tolist(), addresses.tolist(), strict=True):
        cta, rank = int(M.warp_cta[warp]), int(M.warp_rank[warp])
        use = Use(M.tmem, [cta], column_of(address) + spread, at, warp, "tcgen05.st")
        lane, column = _first_cell(access, half_split, address, rank, at, warp)

        def land(
            cta: int = cta,
            rank: int = rank,
            address: int = address,
            use: Use = use,
            data: Array = registers[row],
        ) -> None:
            use.landing()
            cells = M.tmem.cells(cta)
            tmem_access.store(cells, address, access.shape, access.count, access.packed, rank, data, half_split)

        earlier = M.tmem.stores.setdefault(warp, [])
        op = Operation(at, warp, land, earlier[-1:])
        M.engine.issue(op)
        earlier.append(op)
        if M.observer is not None:
            cells = Tensor(cta, cells_from(access_bits(access, half_split), lane, column), True)
            op.effect = M.observer.issues(Effect("st", at, warp, None, [cells], Completion.TCGEN05_ST))


@runtime
def tmem_wait_stores(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    due = [(warp, M.tmem.stores.pop(warp, [])) for _, warp in active_warps(M, idx, n, mask)]
    M.engine.wait(at, idx, n, mask, due)


@runtime
def tmem_wait_loads(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for _, warp in active_warps(M, idx, n, mask):
        M.tmem.loaded(warp)
        if M.observer is not None:
            M.observer.loaded(at, warp)


@runtime
def tmem_use_loaded(M: Machine, at: int, idx: Any, n: int, mask: Any, used: frozenset[str]) -> None:
    """Results of loads are used where the warp may not have executed tcgen05.wait::ld."""
    for _, warp in active_warps(M, idx, n, mask):
        M.tmem.loaded(warp, used)


# Code generation ----------------------------------------------------------------------------------------


@emits("tcgen05.alloc")
def _alloc(cg: Context, ins: Decoded) -> None:
    address = shared_address(cg, "dst")
    cg.narrow(cg.call("tmem_alloc", address, cg.get("columns"), group_of(ins)))


def _meet(cg: Context, ins: Decoded) -> None:
    if group_of(ins) == "2" and cg.machine.late:
        cg.narrow(cg.call("tmem_meet", repr(ins.parts[1]), "2"))


@emits("tcgen05.dealloc")
def _dealloc(cg: Context, ins: Decoded) -> None:
    _meet(cg, ins)
    cg.line(cg.call("tmem_dealloc", cg.get("taddr"), cg.get("columns"), group_of(ins)))


@emits("tcgen05.relinquish_alloc_permit")
def _relinquish(cg: Context, ins: Decoded) -> None:
    _meet(cg, ins)
    cg.line(cg.call("tmem_relinquish", group_of(ins)))


def _access(cg: Context, ins: Decoded) -> tuple[str, str, str]:
    """What the instruction says, its address, the distance of its halves."""
    split = str(cg.integer(ins["split"])) if "split" in ins else "0"
    return cg.constant("access", TmemAccess.of(ins.modifiers)), cg.get("taddr"), split


@emits("tcgen05.ld")
def _ld(cg: Context, ins: Decoded) -> None:
    result = cg.let(cg.call("tmem_load", *_access(cg, ins)))
    for i, item in enumerate((*items(ins["r"]), *([ins["value"]] if "value" in ins else []))):
        cg.set(item, "u32", f"{result}[{i}]")


@emits("tcgen05.st")
def _st(cg: Context, ins: Decoded) -> None:
    access, address, split = _access(cg, ins)
    cg.line(cg.call("tmem_store", access, address, split, cg.tuple_of(ins["r"], "u32")))


@emits("tcgen05.wait::ld")
def _wait_loads(cg: Context, ins: Decoded) -> None:
    if cg.machine.late or cg.machine.observer is not None:
        cg.line(cg.call("tmem_wait_loads"))


@emits("tcgen05.wait::st")
def _wait_stores(cg: Context, ins: Decoded) -> None:
    cg.line(cg.call("tmem_wait_stores"))
