# SPDX-License-Identifier: Apache-2.0
"""Tensor core instructions: mma.sync, wgmma (PTX ISA 9.7.15) and tcgen05 (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.mma import MmaOp
from porter.ptx.wgmma import WgmmaOp
from porter.sim.codegen import Context, Unsupported, emits, runtime
from porter.sim.datapath.mma_sync import mma_sync
from porter.sim.datapath.wgmma import wgmma
from porter.sim.engine import Operation
from porter.sim.exec_async import per_lane
from porter.sim.results import Stop

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]
POISON = np.uint32(0x7FFFFFFF)


# Warpgroups -------------------------------------------------------------------------------------------


class Fragment(Operation):
    """A wgmma: besides an operation, its D registers and what they will hold."""

    __slots__ = ("copies", "following", "result", "rows", "warps")

    copies: list[tuple[int, int, int, Array]]

    rows: tuple[int, ...]
    warps: slice
    result: Array | None
    following: Fragment | None


class GroupState:
    """A warpgroup's wgmmas in flight, oldest first."""

    def __init__(self) -> None:
        self.last: Fragment | None = None
        self.flight: list[Fragment] = []


class WarpState:
    """A warp's wgmmas not yet in a group, and its groups, oldest first."""

    def __init__(self) -> None:
        self.open: list[Operation] = []
        self.groups: deque[list[Operation]] = deque()


@runtime
def gather_group(M: Machine, at: int, idx: Any, n: int, mask: Any) -> Any:
    """Let warps go on whose whole warpgroup is here; the others stay until it is."""
    warps = M.warps(idx)
    if mask is not None:
        lanes = np.broadcast_to(mask, (n, 32))
        if not (lanes == M.exists[warps]).all() or not M.exists[warps].all():
            bad = ~(lanes.all(axis=1))
            row = int(np.argmax(bad))
            raise Stop(Code.SIM_COLLECTIVE, "wgmma needs all 32 threads of the warp", at, int(warps[row]))
    rank = M.warp_rank[warps]
    group = warps - rank % 4
    first, counts = np.unique(group, return_counts=True)
    if n % 4 == 0 and (counts == 4).all():
        return idx, n, None
    here = set(warps.tolist())
    ready: list[int] = []
    for g in first.tolist():
        if int(M.warp_rank[g]) + 4 > M.warps_per_cta:
            raise Stop(Code.SIM_COLLECTIVE, "wgmma needs warpgroups of four warps", at, g)
        waiting = {w for w, _ in M.parked.get(("group", g, at), ())}
        if all(g + i in here or g + i in waiting for i in range(4)):
            M.wake(("group", g, at))
            ready += range(g, g + 4)
    late = np.array([w for w in warps.tolist() if w not in set(ready)], np.int64)
    if late.size:
        keys = [("group", int(w - M.warp_rank[w] % 4), at) for w in late]
        M.park(late, late.size, np.ones((late.size, 32), bool), keys)
    if not ready:
        return None
    return np.array(sorted(ready)), len(ready), None


def _clashes(f: Fragment, rows: tuple[int, ...], own: set[int]) -> bool:
    return (f.rows != rows and not own.isdisjoint(f.rows)) or not own.isdisjoint(c[0] for c in f.copies)


def _group(M: Machine, first: int) -> GroupState:
    return M.warpgroups.setdefault(first, GroupState())


def _warp(M: Machine, warp: int) -> WarpState:
    return M.wgmma_warps.setdefault(warp, WarpState())


@runtime
def wgmma_issue(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    op: WgmmaOp,
    rows: tuple[int, ...],
    a: Any,
    a_registers: Any,
    b: Any,
    scale_d: Any,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    """Issue a wgmma for each warpgroup selected. `rows` are D's rows in the 32-bit register bank."""
    warps = M.warps(idx)
    scale = per_lane(scale_d, n)
    b_desc = per_lane(b, n)
    a_desc = None if a is None else per_lane(a, n)
    bank = M.banks[32]
    index: Any = slice(rows[0], rows[-1] + 1) if rows == tuple(range(rows[0], rows[0] + len(rows))) else list(rows)
    negate_a, negate_b, trans_a, trans_b = flags
    for g in range(0, n, 4):
        w0 = int(warps[g])
        cta = int(M.warp_cta[w0])
        four = slice(w0, w0 + 4)
        state = _group(M, w0)
        previous = state.last if state.last is not None and not state.last.done else None
        if previous is not None and previous.rows != rows:
            previous = next((f for f in reversed(state.flight) if not f.done and f.rows == rows), None)
        if state.flight:
            # An accumulator that shares registers with another one in flight, or holds a copy of it: compilers
            # wait in between.
            mine = set(rows)
            M.engine.land_all([f for f in state.flight if not f.done and _clashes(f, rows, mine)])
        registers = None
        if a_registers is not None:
            registers = np.stack([per_lane(r, n)[g : g + 4] for r in a_registers], axis=-1).reshape(128, -1)
        start = None
        if previous is None:
            start = np.ascontiguousarray(bank[index, four].reshape(len(rows), 128).T)

        def land(
            cta: int = cta,
            four: slice = four,
            previous: Fragment | None = previous,
            start: Array | None = start,
            registers: Array | None = registers,
            b_value: int = int(b_desc[g, 0]),
            a_value: int | None = None if a_desc is None else int(a_desc[g, 0]),
            scale: bool = bool(scale[g, 0]),
            box: list[Fragment] = [],  # noqa: B006  (filled below, one list per operation)
        ) -> None:
            me = box[0]
            d = start
            if previous is not None:
                d = previous.result
            assert d is not None
            me.result = wgmma(
                op,
                M.smem[cta],
                a_desc=a_value,
                a_regs=registers,
                b_desc=b_value,
                d=d,
                scale_d=scale,
                negate_a=negate_a,
                negate_b=negate_b,
                trans_a=trans_a,
                trans_b=trans_b,
                mode=M.options.arithmetic,
                rules=M.options.rules,
            )
            if me.following is None:
                bank[index, four] = me.result.T.reshape(len(rows), 4, 32)
            for to, source, warp, lanes in me.copies:
                column = me.result[(warp - four.start) * 32 : (warp - four.start + 1) * 32, source]
                bank[to, warp] = np.where(lanes, column, bank[to, warp])

        fragment = Fragment(at, w0, lambda: None, [state.last])
        fragment.copies = []
        fragment.rows, fragment.warps, fragment.result, fragment.following = rows, four, None, None
        box = [fragment]
        fragment.land = lambda land=land, box=box: land(box=box)  # type: ignore[misc]
        if previous is not None:
            previous.following = fragment
        elif M.late:
            bank[index, four] = POISON
        M.engine.issue(fragment)
        state.last = fragment
        if M.late:
            state.flight = [f for f in state.flight if not f.done]
            state.flight.append(fragment)
        for w in range(w0, w0 + 4):
            _warp(M, w).open.append(fragment)


@runtime
def copy_fragment(M: Machine, idx: Any, n: int, mask: Any, to: int, source: int) -> None:
    """A register copy whose source may be in flight: the copy then gets its value when the source does."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        state = M.warpgroups.get(w - int(M.warp_rank[w]) % 4)
        if state is None:
            continue
        for f in state.flight:
            # The register's former value no longer matters.
            f.copies = [c for c in f.copies if c[0] != to or c[2] != w]
        for f in reversed(state.flight):
            if f.done:
                continue
            place = next((c[1] for c in f.copies if c[0] == source and c[2] == w), None)
            if place is None and source in f.rows:
                place = f.rows.index(source)
            if place is not None:
                f.copies.append((to, place, w, lanes[row].copy()))
                break


@runtime
def wgmma_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for w in M.warps(idx).tolist():
        state = _warp(M, w)
        state.groups.append(state.open)
        state.open = []


@runtime
def wgmma_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    for w in M.warps(idx).tolist():
        state = _warp(M, w)
        while len(state.groups) > left:
            M.engine.land_all(state.groups.popleft())


def _immediate(op: ast.Operand) -> int:
    if not isinstance(op, ast.Imm):
        raise Unsupported("an immediate is needed")
    return int(op.value)


@emits("wgmma")
def _wgmma(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    if p[1] == "fence":
        return
    if cg.guard is not None:
        raise Unsupported("a predicated wgmma")
    if p[1] == "commit_group":
        cg.line(cg.call("wgmma_commit"))
        return
    if p[1] == "wait_group":
        held = [r for r in cg.env if r in cg.compiler.fragments]
        cg.write_back(held)
        cg.forget(held)
        cg.line(cg.call("wgmma_wait", str(_immediate(ops[0]))))
        return
    op = WgmmaOp.parse(p)
    if op.sparse:
        raise Unsupported("sparse wgmma")
    if cg.leads:
        cg.narrow(f"gather_group(M, {cg.at}, idx, n, {'None' if cg.converged else 'mask'})")
        if not cg.converged:
            # All threads of the warps are here.
            cg.line("mask = np.ones((n, 32), bool)")
    d = ops[0]
    assert isinstance(d, ast.Vec)
    names = [i.name for i in d.items if isinstance(i, ast.Reg)]
    if len(names) != op.d_registers:
        raise Unsupported(f"{len(names)} result registers")
    cg.write_back([r for r in cg.env if r in cg.compiler.fragments])
    if isinstance(ops[1], ast.Vec):
        a = "None"
        registers = "(" + ", ".join(cg.src(i, "u32") for i in ops[1].items) + ",)"
    else:
        a, registers = cg.src(ops[1], "u64"), "None"
    b = cg.src(ops[2], "u64")
    scale = cg.src(ops[3], "p")
    rest = [_immediate(o) for o in ops[4:]]
    negate_a = negate_b = trans_a = trans_b = False
    if op.has_scale and len(rest) >= 2:
        negate_a, negate_b = rest[0] == -1, rest[1] == -1
        rest = rest[2:]
    if op.has_transpose and rest:
        if registers == "None" and len(rest) >= 2:
            trans_a, trans_b = bool(rest[0]), bool(rest[1])
        else:
            trans_b = bool(rest[-1])
    key = f"op_{cg.at}"
    cg.compiler.namespace[key] = op
    rows = tuple(cg.machine_row(name) for name in names)
    cg.compiler.namespace[f"rows_{cg.at}"] = rows
    flags = (negate_a, negate_b, trans_a, trans_b)
    cg.line(f"wgmma_issue(M, {cg.at}, idx, n, {key}, rows_{cg.at}, {a}, {registers}, {b}, {scale}, {flags})")
    # Whatever of these registers was read meanwhile may be out of date once the wgmma lands.
    cg.forget([r for r in cg.env if r in cg.compiler.fragments])


# mma.sync ---------------------------------------------------------------------------------------------


@runtime
def warp_mma(M: Machine, at: int, idx: Any, n: int, mask: Any, op: MmaOp, a: Any, b: Any, c: Any) -> Array:
    """mma.sync of each warp: D registers [registers, n, 32]."""
    groups = [np.stack([per_lane(r, n) for r in x], axis=-1) for x in (a, b, c)]
    out = [
        mma_sync(op, groups[0][i], groups[1][i], groups[2][i], mode=M.options.arithmetic, arch=M.architecture)
        for i in range(n)
    ]
    return np.ascontiguousarray(np.stack(out).transpose(2, 0, 1))


@emits("mma")
def _mma(cg: Context, ins: ast.Instruction) -> None:
    op = MmaOp.parse(ins.parts)
    vectors = [o.items if isinstance(o, ast.Vec) else (o,) for o in ins.operands]
    key = f"op_{cg.at}"
    cg.compiler.namespace[key] = op
    values = ["(" + ", ".join(cg.src(i, "u32") for i in v) + ",)" for v in vectors[1:4]]
    result = cg.let(cg.call("warp_mma", key, *values))
    for i, to in enumerate(vectors[0]):
        cg.set(to, "u32", f"{result}[{i}]")
