# SPDX-License-Identifier: Apache-2.0
"""Copies that a block leaves to its end: to review in practice where docs/rulings.md (block-end) has them so."""

from __future__ import annotations

import pytest
from small_kernels import checked, number

from porter.sync.checked import Rulings, Verdict

STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], 128;\n"
COMMIT = "@%p0 cp.async.bulk.commit_group;\n"
WAIT = "@%p0 cp.async.bulk.wait_group.read 0;\n"
FILL = "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r4, %r2;\nst.shared.b32 [%r4], %r0;\nfence.proxy.async;\nbar.sync 0;\n"
LOAD = (
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;\n"
    "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d0], 128, [%r1];\n"
)
CASES = {
    "a store that is waited for": (FILL + STORE + COMMIT + WAIT, Verdict.CLEAN, Verdict.CLEAN),
    "a store in a group": (FILL + STORE + COMMIT, Verdict.STRICT, Verdict.REVIEW),
    "a store in none": (FILL + STORE, Verdict.ERROR, Verdict.ERROR),
    "a load": (LOAD, Verdict.STRICT, Verdict.REVIEW),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_under_way(name: str) -> None:
    text, *wanted = CASES[name]
    levels: tuple[Rulings, ...] = ("strict", "practice")
    for rulings, verdict in zip(levels, wanted, strict=True):
        body = "ld.param.u64 %d0, [data];\n" + text
        found = checked(body, parameters=number("data", 1 << 41, "u64", 8), rulings=rulings)
        assert found.verdict is verdict, rulings
        assert {f.kind for f in found.findings} <= {"X1"}
