# SPDX-License-Identifier: Apache-2.0
"""What is said of a port whose original leaves something else in each schedule."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from porter.sync.checked import Checked
from porter.sync.findings import Finding
from porter.verify.equality import Equality
from porter.verify.proved import CaseProofs, with_proofs
from porter.verify.proving import Proof

WHY = "C, element 0: made of something else"


def said(status: Literal["unknown", "differs"], **checked: Any) -> Equality:
    original = Proof("k", "original", "k", Checked(**checked), "", (), (), 0, frozenset(), cast(Any, None))
    return with_proofs(Equality("k", status, (), 0, 0, WHY), CaseProofs(original, None), False)


RACE, TOLERATED = (Finding("H17", level, "", 0) for level in ("error", "review"))


def test_its_own_hazards_are_told() -> None:
    found = said("unknown", findings=(RACE, TOLERATED))
    assert (found.status, found.why) == ("unknown", f"{WHY}; the original's own hazards: H17")
    assert "mend the original" in found.remedy


@pytest.mark.parametrize("findings", [(), (TOLERATED,)])
def test_nothing_else_is(findings: tuple[Finding, ...]) -> None:
    assert said("unknown", findings=findings).why == WHY


def test_what_a_run_shows_stays_a_difference() -> None:
    found = said("differs", findings=(RACE,))
    assert (found.status, found.why) == ("differs", WHY)
