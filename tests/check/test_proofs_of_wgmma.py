# SPDX-License-Identifier: Apache-2.0
"""Registers of wgmma that are written behind its fence: copies and zeros, which compilers put there, are to review."""

from __future__ import annotations

import pytest
from beside_runs import put_beside
from check_ptx import FILL, check
from test_check_registers import DESCRIPTORS, DONE, FENCE, RS, SCALE, SS, ZERO

from porter.sync.checked import Checked, Verdict

CASES = {
    "fenced": ((ZERO, FENCE, SS, SS, DONE), Verdict.CLEAN),
    "fenced again": ((ZERO, FENCE, SS, DONE, SCALE, FENCE, SS, DONE), Verdict.CLEAN),
    "another register written": ((ZERO, FENCE, SS, DONE, "add.u32 %r50, %r40, %r41;\n", SS, DONE), Verdict.CLEAN),
    "zeroed behind it": ((FENCE, ZERO, SS, DONE), Verdict.REVIEW),
    "no fence": ((ZERO, SS, DONE), Verdict.ERROR),
    "computed behind it": ((ZERO, FENCE, SS, DONE, SCALE, SS, DONE), Verdict.ERROR),
    "A computed behind it": ((ZERO, FENCE, "add.u32 %r45, %r4, 1;\n", RS, DONE), Verdict.ERROR),
    "A copied from what is": ((ZERO, FENCE, "add.u32 %r60, %r4, 1; mov.b32 %r45, %r60;\n", RS, DONE), Verdict.ERROR),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_behind_a_fence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, wanted = CASES[name]
    found: list[Checked] = []
    put_beside(monkeypatch, lambda checked, outcome, options: found.append(checked))
    check(FILL + DESCRIPTORS + "".join(steps) + "ret;", "sm_90a")
    assert [f.verdict for f in found] == [wanted]
