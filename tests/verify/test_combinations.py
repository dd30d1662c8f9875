# SPDX-License-Identifier: Apache-2.0
"""Sizes at which two conditions come together that were seen both ways one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_thresholds import CASE, Given, program

from porter.verify.thresholds import UnreachedError, sizes_beyond

CHOSEN = [{"K": 64, "N": 64}, {"K": 16, "N": 64}, {"K": 64, "N": 72}, {"K": 64, "N": 36}]
"""A whole number of blocks and a part of one, with a part that eight divides and one that it does not."""
EDGE = "mad.lo.u32 %r6, %r1, 32, %r0; setp.lt.u32 %p2, %r6, %r4;"
ODD = "and.b32 %r7, %r4, 7; setp.ne.u32 %p3, %r7, 0;"
ONCE = "setp.eq.u32 %p4, %r3, 1;"
STORE = "@{} st.global.u32 [%d0], %r3;"
TOGETHER = {
    "an edge in one turn": (f"{EDGE} {ONCE} and.pred %p5, %p2, %p4;", lambda s: s["N"] % 32 and s["K"] == 16),
    "two turns of what eight does not divide": (
        f"{ODD} setp.eq.u32 %p4, %r3, 2; and.pred %p5, %p3, %p4;", lambda s: s["N"] % 8 and s["K"] == 32,
    ),
    "two conditions of one line": (
        '.loc 1 9 5\nsetp.eq.u32 %p3, %r1, 2;\n.loc 1 9 5\nsetp.eq.u32 %p4, %r3, 2; and.pred %p5, %p3, %p4;',
        lambda s: s["N"] > 64 and s["K"] == 32,
    ),
    "a residue behind three turns": (
        "setp.eq.u32 %p4, %r3, 3; @!%p4 bra LOOP; and.b32 %r7, %r4, 31; setp.eq.u32 %p5, %r7, 20;",
        lambda s: s["N"] % 32 == 20 and s["K"] == 48,
    ),
    "a residue": ("and.b32 %r7, %r4, 31; setp.eq.u32 %p5, %r7, 20;", lambda s: s["N"] % 32 == 20),
    "one comparison of both sizes": (
        "and.b32 %r7, %r4, 31; xor.b32 %r7, %r7, 12; xor.b32 %r8, %r3, 3; or.b32 %r7, %r7, %r8;"
        "setp.eq.u32 %p5, %r7, 0;",
        lambda s: s["N"] % 32 == 12 and s["K"] == 48,
    ),
}  # fmt: skip


def found(folder: Path, *given: Given, seconds: float = 60) -> list[Any]:
    programs = {name: program(folder, one) for name, one in zip(("original", "port"), given, strict=True)}
    return sizes_beyond(programs, CHOSEN, seconds)


@pytest.mark.parametrize("name", TOGETHER)
def test_conditions_that_come_together_at_no_size(tmp_path: Path, name: str) -> None:
    ahead, holds = TOGETHER[name]
    sizes = found(tmp_path, Given(), Given(ahead=ahead + STORE.format("%p5")))
    assert any(holds(s) for s in sizes)
    assert not any(holds(s) for s in CHOSEN)
    assert len(sizes) < 8


def test_conditions_of_both_programs_come_together(tmp_path: Path) -> None:
    """Each has one of them; what the original alone asks counts as well."""
    sizes = found(tmp_path, Given(ahead=ONCE + STORE.format("%p4")), Given(ahead=ODD + STORE.format("%p3")))
    assert any(s["K"] == 16 and s["N"] % 8 for s in sizes)


def test_no_other_size_where_all_comes_together(tmp_path: Path) -> None:
    assert found(tmp_path, Given(), Given()) == []


def test_what_there_is_no_time_for_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.verify.thresholds.Thresholds.sizes", lambda self: [])
    with pytest.raises(UnreachedError, match="no time for sizes at which conditions come together"):
        found(tmp_path, Given(ahead=EDGE), Given(), seconds=0)


def test_sizes_stay_what_the_case_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_thresholds.CASE", CASE + "multiples: {N: 32}\n")
    chosen = [s for s in CHOSEN if not s["N"] % 32]
    given = Given(ahead=EDGE + ODD + ONCE + STORE.format("%p4"))
    sizes = sizes_beyond({"original": program(tmp_path, given), "port": program(tmp_path, given)}, chosen, 60)
    assert all(not s["N"] % 32 for s in sizes)
