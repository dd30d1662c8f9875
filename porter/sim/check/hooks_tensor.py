# SPDX-License-Identifier: Apache-2.0
"""tcgen05 as the checker sees it: Tensor Memory, its life cycle, MMAs, copies and commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.packing import operand_element_bits
from porter.ptx.shared_window import OFFSET_MASK
from porter.ptx.tmem_access import TmemAccess
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns
from porter.sim import exec_tcgen05, exec_tmem
from porter.sim.check.clocks import ASYNC, CARRIED, EXACT, FENCED, GLOBAL, ORDER, PARKED, TENSOR
from porter.sim.check.footprints import operand_bits
from porter.sim.check.hooks_sync import check_init
from porter.sim.check.issues import Channel, Issue
from porter.sim.check.judge import Verdict
from porter.sim.check.shadow import Access, cell_bits, column_bits, range_bits
from porter.sim.datapath import tcgen05, tmem_access
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.tcgen05_copy import copy_cells
from porter.sim.exec_tmem import blocks_of_group
from porter.sim.loaded_registers import results
from porter.sim.machine import Machine
from porter.sim.threads import active_lanes, active_warps, int_or_none, issuers, per_lane, per_lane_or_none

Array = npt.NDArray[Any]


# Life cycle -------------------------------------------------------------------------------------------


def tmem_alloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> Any:
    check: Any = M.check
    where, count = per_lane(addr, n), per_lane(columns, n)
    rows = {int(w): row for row, w in enumerate(M.warps(idx).tolist())}
    before = [dict(held) for held in M.tmem.allocations]
    result = exec_tmem.tmem_alloc(M, at, idx, n, mask, addr, columns, group)
    # Of a pair of blocks both get theirs when the second one asks.
    for cta, held in enumerate(M.tmem.allocations):
        for start, (size, _) in held.items():
            if before[cta].get(start) is None:
                M.check.tensor[cta].remove(column_bits(start, size))
    if result is None:
        return None
    for warp in M.warps(result[0]).tolist():
        cta, row = int(M.warp_cta[warp]), rows[int(warp)]
        offset, size = int(where[row, 0]) & OFFSET_MASK, int(count[row, 0])
        address = int.from_bytes(M.smem[cta, offset : offset + 4].tobytes(), "little")
        check.access_shared(cta, check.generic("alloc", at, warp, True, range_bits(offset, 4), 4))
        now, done = check.clocks.now(warp), check.clocks.publish_alloc(warp)
        cells = Access("alloc", at, warp, None, True, "tensor", column_bits(address & 0xFFFF, size), [done], now)
        check.tensor[cta].accesses.append(cells)
        if group == 2:
            # Neither block of a pair gets its columns before the other, so either allocation tells of both.
            other = blocks_of_group(M, cta, group, at, warp)[1 - int(M.cta_rank[cta]) % 2]
            for old in check.tensor[other].accesses:
                if old.kind == "alloc" and old.bits == cells.bits:
                    old.done, cells.done = [*old.done, now], [*cells.done, *old.done]
    return result


def tmem_dealloc(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, columns: Any, group: int) -> None:
    check: Any = M.check
    a, c = per_lane(addr, n), per_lane(columns, n)
    for row, warp in active_warps(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        bits = column_bits(int(a[row, 0]) & 0xFFFF, int(c[row, 0]))
        check.access_tensor(cta, check.asynchronous("dealloc", at, warp, None, True, "tensor", bits))
        check.tensor[cta].remove(bits)
    exec_tmem.tmem_dealloc(M, at, idx, n, mask, addr, columns, group)


# Loads and stores -------------------------------------------------------------------------------------


def _cells(M: Machine, warp: int, access: TmemAccess, address: int, half_split: int) -> int | None:
    check: Any = M.check
    rank = int(M.warp_rank[warp])
    key = access, address, rank % 4, half_split
    found: int | None = check.cells.get(key)
    if found is None:
        try:
            lanes, columns = tmem_access.cells(
                address, access.shape, access.count, warp_rank=rank, packed=access.packed, half_split=half_split
            )
        except DatapathError:
            return None
        found = check.cells[key] = cell_bits(lanes, columns)
    return found


def tmem_load(
    M: Machine, at: int, idx: Any, n: int, mask: Any, access: TmemAccess, addr: Any, half_split: int
) -> Array:
    check: Any = M.check
    a = per_lane(addr, n)
    result: Array = exec_tmem.tmem_load(M, at, idx, n, mask, access, addr, half_split)
    registers = results(M.program.code[at])
    for row, warp in active_warps(M, idx, n, mask):
        bits = _cells(M, warp, access, int(a[row, 0]), half_split)
        if bits is None:
            continue
        load = check.asynchronous("ld", at, warp, None, False, "tensor", bits)
        load.notes["registers"], load.notes["unread"] = registers, set(registers)
        check.access_tensor(int(M.warp_cta[warp]), load)
        check.loads.setdefault(warp, []).append(load)
    return result


def tmem_store(
    M: Machine, at: int, idx: Any, n: int, mask: Any, access: TmemAccess, addr: Any, half_split: int, values: Any
) -> None:
    check: Any = M.check
    a = per_lane(addr, n)
    exec_tmem.tmem_store(M, at, idx, n, mask, access, addr, half_split, values)
    for row, warp in active_warps(M, idx, n, mask):
        bits = _cells(M, warp, access, int(a[row, 0]), half_split)
        if bits is None:
            continue
        store = check.asynchronous("st", at, warp, None, True, "tensor", bits)
        check.access_tensor(int(M.warp_cta[warp]), store)
        check.stores.setdefault(warp, []).append(store)


def tmem_wait_stores(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    check: Any = M.check
    for _, warp in active_warps(M, idx, n, mask):
        check.completed_by(warp, check.stores.pop(warp, []), at)
    exec_tmem.tmem_wait_stores(M, at, idx, n, mask)


# Operations of single threads -------------------------------------------------------------------------


def _channel(M: Machine, warp: int, lane: int) -> tuple[Channel, int]:
    check: Any = M.check
    key = warp, lane
    if key not in check.channels:
        check.channels[key] = Channel()
    component = check.clocks.component(("tcgen05", int(check.clocks.own[warp]), lane))
    return check.channels[key], component


def _issued(M: Machine, warp: int, lane: int, accesses: list[Access]) -> None:
    """An operation of this thread: the next commit will complete its accesses."""
    channel, component = _channel(M, warp, lane)
    channel.issued += 1
    for access in accesses:
        access.done.append((component, channel.issued))
    channel.uncommitted += accesses


def _several(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    """H23: an instruction for one thread executed by more."""
    check: Any = M.check
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, warp in enumerate(M.warps(idx).tolist()):
        count = int(lanes[row].sum())
        if count > 1:
            new = check.asynchronous("mma", at, warp, None, True, "tensor", 1)
            verdict = Verdict("H23", f"the election of one thread ({count} threads execute it)", "elect.sync")
            check.report(verdict, None, new, "", int(M.warp_cta[warp]))


def tmem_mma(M: Machine, at: int, idx: Any, n: int, mask: Any, op: UmmaOp, operands: exec_tcgen05.MmaOperands) -> None:
    check: Any = M.check
    _several(M, at, idx, n, mask)
    for lane, warp, code, args in exec_tcgen05.mma_calls(M, idx, n, mask, operands):
        cta = int(M.warp_cta[warp])
        ctas = blocks_of_group(M, cta, op.cta_group, at, warp)
        try:
            decoded = tcgen05.decode_idesc(op, code)
            key = op, code, args.d_addr, args.a_tmem, args.metadata, args.scale_a, args.scale_b
            touched = _footprint(check, key, op, code, args)
            source = _operand_bits(op, decoded, args)
        except (DatapathError, ValueError):
            # The simulator says what is wrong when it executes the instruction.
            continue
        accesses = []
        for c in ctas:
            for i, (what, write, bits) in enumerate(touched):
                pair = {
                    "d": (op.cta_group, op.kind, decoded.m, decoded.n, args.d_addr),
                    # A that .ashift moves down is meant for the next MMA.
                    "a": ("a", op.cta_group, args.a_tmem),
                }.get(what)
                access = check.asynchronous("mma", at, warp, lane, write, "tensor", bits, pair)
                check.access_tensor(c, access, reads=i == 0 and args.enable_d)
                accesses.append(access)
            o_access = check.asynchronous("mma", at, warp, lane, False, "async", source)
            check.access_shared(c, o_access)
            accesses.append(o_access)
        _issued(M, warp, lane, accesses)
    exec_tcgen05.tmem_mma(M, at, idx, n, mask, op, operands)


def _footprint(check: Any, key: Any, op: UmmaOp, code: int, args: tcgen05.MmaArguments) -> list[tuple[str, bool, int]]:
    """(what, written, cells) of everything that an MMA touches in Tensor Memory."""
    if key not in check.cells:
        check.cells[key] = [
            (what, write, cell_bits(lanes, columns))
            for what, write, lanes, columns in tcgen05.mma_footprint(op, code, args)
        ]
    found: list[tuple[str, bool, int]] = check.cells[key]
    return found


def _operand_bits(op: UmmaOp, decoded: InstructionDescriptor, args: tcgen05.MmaArguments) -> int:
    """What an MMA reads of each block's shared memory."""
    width = decoded.n // op.cta_group
    if args.zero_columns is not None:
        width += ZeroColumns.decode(args.zero_columns).shift
    bits = operand_element_bits(op.kind, decoded.b_type)
    found = operand_bits(args.b_desc, "sm_100", width, op.k, bits, decoded.b_mn_major)
    if args.a_desc is not None:
        height = decoded.m // op.cta_group
        bits = operand_element_bits(op.kind, decoded.a_type)
        found |= operand_bits(args.a_desc, "sm_100", height, tcgen05.stored_k(op), bits, decoded.a_mn_major)
    return found


def _cached(check: Any, key: Any, cells: Callable[[], tuple[Array, Array]]) -> int:
    found: int | None = check.cells.get(key)
    if found is None:
        found = check.cells[key] = cell_bits(*cells())
    return found


def tmem_copy(M: Machine, at: int, idx: Any, n: int, mask: Any, op: TmemCopy, addr: Any, desc: Any) -> None:
    check: Any = M.check
    a, s = per_lane(addr, n), per_lane(desc, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        address = int(a[row, lane])
        try:
            bits = _cached(check, (op, address), partial(copy_cells, op, address))
            source = operand_bits(int(s[row, lane]), "sm_100", op.rows, op.row_bytes, 8, False)
        except DatapathError:
            continue
        accesses = []
        for c in blocks_of_group(M, cta, op.cta_group, at, warp):
            to = check.asynchronous("cp", at, warp, lane, True, "tensor", bits)
            check.access_tensor(c, to)
            read = check.asynchronous("cp", at, warp, lane, False, "async", source)
            check.access_shared(c, read)
            accesses += [to, read]
        _issued(M, warp, lane, accesses)
    exec_tcgen05.tmem_copy(M, at, idx, n, mask, op, addr, desc)


def tmem_shift(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, group: int) -> None:
    check: Any = M.check
    a = per_lane(addr, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        address = int(a[row, lane])
        try:
            bits = _cached(check, ("shift", address), partial(tcgen05.shift_cells, address))
        except DatapathError:
            continue
        accesses = []
        for c in blocks_of_group(M, int(M.warp_cta[warp]), group, at, warp):
            moved = check.asynchronous("shift", at, warp, lane, True, "tensor", bits)
            check.access_tensor(c, moved, reads=True)
            accesses.append(moved)
        _issued(M, warp, lane, accesses)
    exec_tcgen05.tmem_shift(M, at, idx, n, mask, addr, group)


def tmem_commit(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, multicast: Any, group: int) -> None:
    check: Any = M.check
    a, m = per_lane(addr, n), per_lane_or_none(multicast, n)
    clocks = check.clocks
    for by, i in issuers(M, at, idx, n, mask):
        _, _, warp, lane, cta = by
        signals = exec_tcgen05.commit_signals(by, int(a[i]), int_or_none(m, i))
        for slot, owner in signals:
            check_init(M, at, warp, slot, owner, True)
        channel, component = _channel(M, warp, lane)
        if not channel.issued:
            new = check.generic("commit", at, warp, True, 1, 8)
            verdict = Verdict("H22", "an operation of this thread to commit",
                              "tcgen05.commit in the thread that issues", strict=True)  # fmt: skip
            check.report(verdict, None, new, "", cta)
        place = f"at shared address {M.mbar.offsets[signals[0][0]]:#x}, PTX line {M.program.code[at].line}"
        for access in channel.uncommitted:
            access.notes["committed"] = place
        channel.uncommitted = []
        # The arrival tells that the operations are over, and all that they came after.
        message = clocks.state[warp, :CARRIED].copy()
        own = int(clocks.own[warp])
        for view in (ORDER, ASYNC, GLOBAL, FENCED, EXACT):
            message[view, own] = 0
        np.maximum(message[PARKED], clocks.state[warp, TENSOR], out=message[PARKED])
        for view in (ORDER, PARKED):
            message[view, component] = channel.issued
        check.queue.append(Issue("commit", [], message, at=at))
        for owner in {owner for _, owner in signals if owner != cta}:
            check.remote_arrival(at, warp, owner, [(component, channel.issued)])
    exec_tcgen05.tmem_commit(M, at, idx, n, mask, addr, multicast, group)
    check.queue.clear()


HOOKS: dict[str, Any] = {
    f.__name__: f
    for f in (
        tmem_alloc,
        tmem_dealloc,
        tmem_load,
        tmem_store,
        tmem_wait_stores,
        tmem_mma,
        tmem_copy,
        tmem_shift,
        tmem_commit,
    )
}
