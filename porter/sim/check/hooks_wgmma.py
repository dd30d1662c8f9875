# SPDX-License-Identifier: Apache-2.0
"""wgmma as the checker sees it."""

from __future__ import annotations

from typing import Any

from porter.sim import exec_tensor
from porter.sim.check.footprints import operand_bits, operand_rows_bits
from porter.sim.check.issues import Groups
from porter.sim.datapath.errors import DatapathError
from porter.sim.machine import Machine
from porter.sim.threads import per_lane, per_lane_or_none


def wgmma_issue(
    M: Machine, at: int, idx: Any, n: int, issue: exec_tensor.WgmmaIssue, operands: exec_tensor.WgmmaOperands
) -> None:
    check: Any = M.check
    warps = M.warps(idx)
    form, op = issue.form, issue.form.op
    b_desc, a_desc = per_lane(operands.b, n), per_lane_or_none(operands.a, n)
    shared: list[tuple[int, int]] = []
    for row in range(n):
        warp = int(warps[row])
        cta = int(M.warp_cta[warp])
        try:
            bits = operand_bits(int(b_desc[row, 0]), "sm_90", op.n, op.k, op.b_type.bits, form.trans_b)
            if a_desc is not None:
                # A warp multiplies its own 16 rows of A.
                first = int(M.warp_rank[warp]) % 4 * 16
                bits |= operand_rows_bits(
                    int(a_desc[row, 0]), "sm_90", op.m, op.stored_k, op.a_type.bits, form.trans_a, first, 16
                )
        except DatapathError:
            continue
        access = check.asynchronous("wgmma", at, warp, None, False, "async", bits)
        access.notes["registers"] = issue.registers
        access.notes["warpgroup"] = warps[row - row % 4 : row - row % 4 + 4].tolist()
        if row % 4 and check.level == "practice":
            # CUTLASS lets one warp's wait stand for the warpgroup's operation; the ISA gives each warp its own.
            access.done = shared
        shared = access.done
        check.access_shared(cta, access)
        check.wgmmas.setdefault(warp, Groups()).open.append((access,))
    exec_tensor.wgmma_issue(M, at, idx, n, issue, operands)


def wgmma_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for warp in M.warps(idx).tolist():
        M.check.wgmmas.setdefault(warp, Groups()).commit()
    exec_tensor.wgmma_commit(M, at, idx, n, mask)


def wgmma_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    check: Any = M.check
    for warp in M.warps(idx).tolist():
        groups = check.wgmmas.get(warp)
        while groups is not None and len(groups.groups) > left:
            check.completed_by(warp, [access for (access,) in groups.groups.popleft()], at)
    exec_tensor.wgmma_wait(M, at, idx, n, mask, left)


HOOKS: dict[str, Any] = {f.__name__: f for f in (wgmma_issue, wgmma_commit, wgmma_wait)}
