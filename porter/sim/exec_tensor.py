# SPDX-License-Identifier: Apache-2.0
"""Tensor core instructions: mma.sync, wgmma (PTX ISA 9.7.15) and tcgen05 (PTX ISA 9.7.16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.forms.grammar import Completion
from porter.ptx.mma import MmaOp
from porter.ptx.operand_errors import OperandError
from porter.ptx.table import Decoded, items
from porter.ptx.wgmma import WgmmaOp
from porter.sim.accumulators import Fragment, GroupState, TileSet, compute
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath.mma_sync import mma_warps
from porter.sim.datapath.wgmma import WgmmaForm
from porter.sim.effects import Effect, Shared
from porter.sim.footprints import operand_bits, operand_row_bits, operand_rows_bits
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.results import Stop
from porter.sim.threads import per_lane

Array = npt.NDArray[Any]


# Warpgroups -------------------------------------------------------------------------------------------


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


def _clashes(f: Fragment, tiles: TileSet) -> bool:
    """Does a wgmma in flight write some of these registers, or a copy into them?"""
    if f.tiles is not tiles and not tiles.own.isdisjoint(f.tiles.own):
        return True
    return any(c[0] in tiles.own for c in f.copies)


@dataclass(frozen=True)
class WgmmaIssue:
    """A wgmma instruction: `rows` are D's rows in the 32-bit register bank, `registers` those of D and of A."""

    form: WgmmaForm
    rows: tuple[int, ...]
    registers: frozenset[str]


class WgmmaOperands(NamedTuple):
    """Operands of a wgmma: A is a descriptor (`a`) or `a_registers`, else None; `metadata` is a sparse A's."""

    a: Any
    a_registers: tuple[Any, ...] | None
    b: Any
    scale_d: Any
    metadata: Any = None


runtime(WgmmaOperands)


@runtime
def wgmma_issue(M: Machine, at: int, idx: Any, n: int, issue: WgmmaIssue, operands: WgmmaOperands) -> None:
    """Issue a wgmma for each warpgroup selected."""
    a, a_registers, b, scale_d, metadata = operands
    form = issue.form
    sparse = None if metadata is None else per_lane(metadata, n).reshape(n // 4, 128)
    tiles = M.accumulators.tiles(issue.rows, form.op.n, form.op.d_type)
    firsts = M.warps(idx)[::4].tolist()
    scales = per_lane(scale_d, n)[::4, 0].tolist()
    b_values = per_lane(b, n)[::4, 0].tolist()
    if a_registers is None:
        a_values = per_lane(a, n)[::4, 0].tolist()
    else:
        a_values = np.stack([per_lane(r, n) for r in a_registers], axis=-1).reshape(n // 4, 128, -1)
    previous = [_previous(M, M.accumulators.group(w), tiles) for w in firsts]
    new = [i for i, f in enumerate(previous) if f is None]
    if new:
        M.accumulators.begin(tiles, [firsts[i] for i in new], [bool(scales[i]) for i in new])
    fragments = []
    for i, w in enumerate(firsts):
        state = M.accumulators.group(w)
        cta, scaled = int(M.warp_cta[w]), bool(scales[i])
        effect = None
        if M.observer is not None:
            a_desc = a_values[i] if a_registers is None else None
            effect = M.observer.issues(_effect(M, at, w, issue, a_desc, b_values[i]))
        fragment = Fragment(
            M.accumulators, at, w, cta, form, tiles, a_values[i], b_values[i], scaled, previous[i], state.last, effect
        )
        if sparse is not None:
            fragment.metadata = sparse[i].astype(np.uint32)
        fragments.append(fragment)
        state.last = fragment
        if M.late:
            state.flight = [f for f in state.flight if not f.done]
            state.flight.append(fragment)
        for one in range(w, w + 4):
            M.accumulators.warp(one).open.append(fragment)
    if not M.late:
        compute(fragments)
    for fragment in fragments:
        M.engine.issue(fragment)


def _effect(M: Machine, at: int, first: int, issue: WgmmaIssue, a: int | None, b: int) -> Effect:
    """Of the four warps' operations: each multiplies its own 16 rows of A."""
    form, op, cta = issue.form, issue.form.op, int(M.warp_cta[first])
    touches: list[Shared] = []
    rows: tuple[int, ...] = ()
    try:
        of_b = operand_bits(b, "sm_90", op.n, op.k, op.b_type.bits, form.trans_b)
        if a is not None:
            rows = operand_row_bits(a, "sm_90", op.m, op.stored_k, op.a_type.bits, form.trans_a)
        for rank in range(4):
            bits = of_b
            if a is not None:
                bits |= operand_rows_bits(a, "sm_90", op.m, op.stored_k, op.a_type.bits, form.trans_a, 16 * rank, 16)
            touches.append(Shared(cta, bits, False, warp=first + rank))
    except OperandError:
        # It is refused when it lands.
        pass
    return Effect("wgmma", at, first, None, touches, Completion.WGMMA_GROUP, registers=issue.registers, rows=rows)


def _previous(M: Machine, state: GroupState, tiles: TileSet) -> Fragment | None:
    """The wgmma in flight that a new one on these tiles adds to."""
    if state.last is None or state.last.done:
        return None
    # Accumulators in flight that share registers with this one, or copies into it: compilers wait in between.
    clashes = [f for f in state.flight if not f.done and _clashes(f, tiles)]
    if clashes:
        M.engine.land_all(clashes)
    return next((f for f in reversed(state.flight) if not f.done and f.tiles is tiles), None)


@runtime
def copy_fragment(M: Machine, idx: Any, n: int, mask: Any, to: int, source: int) -> None:
    """A register copy whose source may be in flight: the copy then gets its value when the source does."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        state = M.accumulators.groups.get(w - int(M.warp_rank[w]) % 4)
        if state is None:
            continue
        for f in state.flight:
            # The register's former value no longer matters.
            f.copies = [c for c in f.copies if c[0] != to or c[2] != w]
        for f in reversed(state.flight):
            if f.done:
                continue
            place = next((c[1] for c in f.copies if c[0] == source and c[2] == w), None)
            if place is None and source in f.tiles.own:
                place = f.tiles.rows.index(source)
            if place is not None:
                f.copies.append((to, place, w, lanes[row].copy()))
                break


@runtime
def wgmma_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for w in M.warps(idx).tolist():
        M.engine.commit(w, M.accumulators.warp(w))


@runtime
def wgmma_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    M.engine.wait(at, idx, n, mask, [(w, M.accumulators.warp(w).due(left)) for w in M.warps(idx).tolist()])


def matrix_registers(ins: Decoded) -> frozenset[str]:
    """The accumulators of a wgmma and, if A is in registers, those of A."""
    return frozenset((*ins.registers("d"), *(ins.registers("a") if isinstance(ins["a"], ast.Vec) else ())))


@emits("wgmma")
def _wgmma(cg: Context, ins: Decoded) -> None:
    if "fence" in ins.modifiers:
        return
    if "commit_group" in ins.modifiers:
        cg.line(cg.call("wgmma_commit"))
        return
    if "wait_group" in ins.modifiers:
        held = [r for r in cg.env if r in cg.unit.fragments]
        cg.write_back(held)
        cg.forget(held)
        cg.line(cg.call("wgmma_wait", str(cg.integer(ins["n"]))))
        return
    op = WgmmaOp.of(ins.modifiers)
    if cg.leads:
        cg.narrow(f"gather_group(M, {cg.at}, idx, n, {'None' if cg.converged else 'mask'})")
        if not cg.converged:
            # All threads of the warps are here.
            cg.line("mask = np.ones((n, 32), bool)")
    results = ins.registers("d")
    if len(results) != op.d_registers:
        raise Unsupported(f"{len(results)} result registers")
    cg.write_back([r for r in cg.env if r in cg.unit.fragments])
    in_registers = isinstance(ins["a"], ast.Vec)
    a = f"None, {cg.tuple_of(ins['a'], 'u32')}" if in_registers else cg.get("a") + ", None"
    values = a, cg.get("b"), cg.get("scale_d"), cg.get("meta") if op.sparse else "None"
    scale_a, scale_b, trans_a, trans_b, selector = (
        cg.integer(ins[name]) if name in ins else 0 for name in ("scale_a", "scale_b", "trans_a", "trans_b", "select")
    )
    options = cg.machine.options
    form = WgmmaForm(op, scale_a != scale_b, bool(trans_a), bool(trans_b), options.arithmetic, options.rules, selector)
    rows = tuple(cg.machine_row(name) for name in results)
    issue = cg.constant("issue", WgmmaIssue(form, rows, matrix_registers(ins)))
    cg.line(f"wgmma_issue(M, {cg.at}, idx, n, {issue}, WgmmaOperands({', '.join(values)}))")
    # Whatever of these registers was read meanwhile may be out of date once the wgmma lands.
    cg.forget([r for r in cg.env if r in cg.unit.fragments])


# mma.sync ---------------------------------------------------------------------------------------------


@runtime
def warp_mma(M: Machine, at: int, idx: Any, n: int, mask: Any, op: MmaOp, a: Any, b: Any, c: Any) -> Array:
    """mma.sync of each warp: D registers [registers, n, 32]."""
    groups = [np.stack([per_lane(r, n) for r in x], axis=-1) for x in (a, b, c)]
    out = mma_warps(op, *groups, mode=M.options.arithmetic, arch=M.architecture)
    return np.ascontiguousarray(out.transpose(2, 0, 1))


@emits("mma")
def _mma(cg: Context, ins: Decoded) -> None:
    try:
        op = MmaOp.of(ins.modifiers)
    except ValueError as problem:
        raise Unsupported(str(problem)) from problem
    if op.sparse:
        raise Unsupported("sparse mma.sync")
    kind = f"u{op.register_bits}"
    result = cg.let(cg.call("warp_mma", cg.constant("op", op), *(cg.tuple_of(ins[name], kind) for name in "abc")))
    for i, to in enumerate(items(ins["d"])):
        cg.set(to, kind, f"{result}[{i}]")
