# SPDX-License-Identifier: Apache-2.0
"""What is said of a port whose original leaves something else in each schedule."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.ptx.parser import parse_module
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


SAME, UNLIKE = Equality("k", "equal", ("N=1",), 1, 0), Equality("k", "unknown", (), 0, 0, WHY)


def stands(
    *, original: tuple[Finding, ...], port: tuple[Finding, ...], had: tuple[Finding, ...],
    other: Equality | None = None, flow: Any = None,
) -> Equality:  # fmt: skip
    """What is said of two that leave the same in the schedule that was executed, or in another one alone."""
    proofs = (
        Proof("k", name, "k", Checked(findings), "", (), ("N=1",), 0, frozenset(), flow)
        for name, findings in (("original", original), ("port", port))
    )  # fmt: skip
    found = CaseProofs(*proofs, inherited=had)
    if other is None:
        return with_proofs(SAME, found, False)
    return with_proofs(UNLIKE, found, False, lambda: other)


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


def test_another_schedule_may_show_that_it_is_as_its_original() -> None:
    found = stands(original=(RACE,), port=(RACE,), had=(RACE,), other=SAME)
    assert (found.status, found.as_original) == ("unknown", True)
    assert found.why.startswith("equal for one schedule, the last warp first; the original's own hazards: H17")


@pytest.mark.parametrize(("port", "other"), [((RACE, OTHER), SAME), ((RACE,), UNLIKE)])
def test_another_schedule_excuses_nothing_else(port: tuple[Finding, ...], other: Equality) -> None:
    found = stands(original=(RACE,), port=port, had=(RACE,), other=other)
    assert (found.status, found.as_original) == ("unknown", False)
    assert found.why == f"{WHY}; the original's own hazards: H17"


def test_no_other_schedule_is_asked_where_the_original_is_right() -> None:
    assert stands(original=(TOLERATED,), port=(), had=(), other=SAME).why == WHY


LAST = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .b32 %r<2>;
"""
ARRIVES = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];"
LATE = Finding("H26", "error", "", 0)


def of_late(last: str, *more: Finding, port: tuple[Finding, ...] = (), other: Equality | None = None) -> Equality:
    """What is said where the original's `last` instruction uses a block that may have ended, and the port has `port` of
    the same hazards."""
    module = parse_module(f"{LAST}{last}\nret;\n}}\n")
    flow = Flow(Code(module, module.entries()[0]))
    return stands(original=(LATE, *more), port=port, had=port, other=other, flow=flow)


def test_an_arrival_that_comes_too_late_decides_nothing() -> None:
    found = of_late(ARRIVES)
    assert found.status == "equal"
    assert found.assumed == {"the original's arrivals at mbarriers of blocks that may have ended (H26) come to nothing"}


@pytest.mark.parametrize(
    ("last", "more", "port"),
    [
        ("ld.shared::cluster.u32 %r1, [%r1];", (), ()),
        ("st.shared::cluster.u32 [%r1], 1;", (), ()),
        (ARRIVES, (), (LATE,)),
        (ARRIVES, (RACE,), ()),
        (ARRIVES, (Finding("H32", "error", "", 0),), ()),
    ],
)
def test_what_else_there_is_does(last: str, more: tuple[Finding, ...], port: tuple[Finding, ...]) -> None:
    found = of_late(last, *more, port=port)
    assert (found.status, found.as_original) == ("unknown", True)


def test_what_differs_is_not_excused_by_such_an_arrival() -> None:
    assert of_late(ARRIVES, other=SAME).why == WHY
