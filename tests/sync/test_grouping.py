# SPDX-License-Identifier: Apache-2.0
"""What goes wrong again and again for one cause is told once, with how often, and the turn in which it begins."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import check
from porter.sync.findings import Finding, Findings, by_cause


@pytest.mark.parametrize("turns", [5, 9])
def test_the_turn_in_which_it_begins_is_told(turns: int) -> None:
    """The producer has written the first stage again, for all that the reader of the turn before may do."""
    text = ring(before_release="ld.shared.u32 %r21, [slots+128];\n", store="st.shared.u32 [slots+128], %r10;\n")
    flow = flow_of(text)
    races = [f for f in check(launched(flow, turns)).findings if f.kind == "G1"]
    # each turn but the first one with the read of the turn before it, whichever of the two is executed first
    assert sum(f.pairs for f in races) == turns - 1
    assert {f.turn for f in races} == {1, 3}


def test_pairs_of_two_instructions_are_one_finding() -> None:
    findings = Findings()
    for turn in (5, 4, 6):
        findings.add("G1", f"in turn {turn}", 2, first=1, turn=turn, level="review" if turn == 4 else "error")
    (found,) = findings.all()
    assert (found.level, found.turn, found.pairs, found.text) == ("error", 5, 3, "in turn 5")


def made(first: int, second: int, missing: str = "no fence", kind: str = "H1", turn: int = 1) -> Finding:
    return Finding(kind, "error", f"cells {first}", second, first, missing=missing, turn=turn)


UNROLLED = {1: "a", 11: "a", 2: "b", 12: "b", None: None}


def test_unrolled_turns_are_one_cause() -> None:
    (found,) = by_cause([made(1, 2, turn=3), made(11, 12, turn=2), made(1, 12, turn=4)], UNROLLED.get)
    assert (found.pairs, found.turn, found.first) == (3, 2, 11)


@pytest.mark.parametrize("other", [made(1, 2, "no wait"), made(1, 1), made(2, 2), made(1, 2, kind="H2")])
def test_other_causes_are_told_apart(other: Finding) -> None:
    assert len(by_cause([made(1, 2), other], UNROLLED.get)) == 2


def test_numbers_do_not_tell_causes_apart_but_names_do() -> None:
    texts = ["full[0]: phase 1", "full[1]: phase 7", "empty[0]: phase 1"]
    found = by_cause([Finding("phase", "error", text, 2) for text in texts], UNROLLED.get)
    assert [f.pairs for f in found] == [2, 1]
