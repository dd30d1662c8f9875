# SPDX-License-Identifier: Apache-2.0
"""A proof that has no time for more than a few turns looks at a longer run once."""

from __future__ import annotations

from typing import Any

import pytest
from test_turns import runs
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check
from porter.verify.budget import Budget
from porter.verify.proving import Prover

SKIPS = "setp.ge.u32 %p7, %r10, {};\n@%p7 bra $GO;\n"


@pytest.mark.parametrize(("begins", "is_found"), [(6, True), (14, True), (20, False)])
def test_what_begins_behind_the_first_turns_is_found(
    begins: int, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ring(before_wait=SKIPS.format(begins))
    recorders, verdicts = runs(text, 4)
    assert set(verdicts) == {Verdict.CLEAN}
    prover = Prover("kernel", lambda sizes: pytest.fail("nothing is built"), Budget(1e-9))

    def at(base: Any, name: str, value: int) -> Any:
        recorder = recorders[value - 1] if value <= len(recorders) else None
        return check(launched(flow_of(text), value)), recorder, f"K={value}"

    monkeypatch.setattr(prover, "_at", at)
    count, broken, where = prover._turns(None, "K", 1)  # type: ignore[arg-type]
    assert count.upto == 4
    assert (broken is not None) is is_found
    assert where == ("K=16" if is_found else "")
