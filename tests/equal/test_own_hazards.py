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


def stands(*, original: tuple[Finding, ...], port: tuple[Finding, ...], had: tuple[Finding, ...]) -> Equality:
    """What is said of two that leave the same in the schedule that was executed."""
    proofs = (
        Proof("k", name, "k", Checked(findings), "", (), ("N=1",), 0, frozenset(), cast(Any, None))
        for name, findings in (("original", original), ("port", port))
    )  # fmt: skip
    return with_proofs(Equality("k", "equal", ("N=1",), 1, 0), CaseProofs(*proofs, inherited=had), False)


def test_a_port_with_no_other_hazards_is_as_its_original() -> None:
    found = stands(original=(RACE,), port=(RACE, TOLERATED), had=(RACE,))
    assert (found.status, found.as_original) == ("unknown", True)
    assert found.why.endswith("the original's own hazards: H17; the port has of these H17, and no other")
    assert stands(original=(RACE,), port=(), had=()).as_original


OTHER = Finding("H17", "error", "", 5, first=3)


@pytest.mark.parametrize("original", [(RACE,), (TOLERATED,), ()])
def test_a_port_with_another_hazard_is_not(original: tuple[Finding, ...]) -> None:
    found = stands(original=original, port=(RACE, OTHER), had=(RACE,))
    assert (found.status, found.as_original) == ("unknown", False)
    assert "the port has hazards: H17" in found.why
