# SPDX-License-Identifier: Apache-2.0
"""An arrival at a named barrier that may fall into the phase before (B2), in the place of another warp's."""

from __future__ import annotations

import pytest
from check_ptx import check, found

# Warps 0 and 1, and warps 2 and 3.
ROLES = "setp.lt.u32 %p2, %r1, 2; @!%p2 bra OTHERS; {} bra END; OTHERS: {} END: ret;"
INIT = "@%p0 mbarrier.init.shared.b64 [%r8], 64; bar.sync 0;"
TELL = "mbarrier.arrive{}.shared.b64 _, [%r8];"
TOLD = "W: mbarrier.try_wait.parity{}.shared.b64 %p6, [%r8], 0; @!%p6 bra W;"
RELAXED = ".relaxed.cta"
GIVE, TAKE = "bar.arrive 1, 128;", "bar.sync 1, 128;"
GIVEN, TAKEN = "bar.arrive 2, 128;", "bar.sync 2, 128;"
RIGHT = {
    "one barrier for all, again and again": 3 * "bar.sync 1, 128;" + "bar.sync 0; ret;",
    "a barrier for each half": "shr.u32 %r20, %r1, 1; add.u32 %r20, %r20, 1;" + 2 * "bar.sync %r20, 64;" + "ret;",
    "one for both halves in turn": ROLES.format("bar.sync 1, 64; bar.sync 0;", "bar.sync 0; bar.sync 1, 64;"),
    "behind an mbarrier": INIT + ROLES.format("bar.sync 1, 64;" + TELL.format(""), TOLD.format("") + "bar.sync 1, 64;"),
    "behind a relaxed mbarrier": INIT
    + ROLES.format("bar.sync 1, 64;" + TELL.format(RELAXED), TOLD.format(RELAXED) + "bar.sync 1, 64;"),
    "a ring of two": ROLES.format(2 * (GIVE + TAKEN), 2 * (TAKE + GIVEN)),
    "turns": ROLES.format(2 * (TAKE + GIVEN), 2 * (GIVE + TAKEN)),
    "one arrival": ROLES.format(GIVE, TAKE),
    "some have ended": "setp.lt.u32 %p2, %r1, 2; @%p2 ret; bar.sync 0; bar.sync 0; ret;",
    "reductions": 2 * "bar.red.popc.u32 %r20, 1, 128, %p0;" + "ret;",
    "phases of one warp": 2 * "bar.sync 1, 32;" + "ret;",
    "another number": ROLES.format("bar.sync 1, 64;", "bar.sync 2, 64;"),
}
WRONG = {
    "one barrier for both halves": "bar.sync 1, 64; ret;",
    "one for both halves by two instructions": ROLES.format("bar.sync 1, 64;", "bar.sync 1, 64;"),
    "in turn on one side": ROLES.format("bar.sync 1, 64; bar.sync 0;", "bar.sync 1, 64; bar.sync 0;"),
    "ahead of the mbarrier": INIT
    + ROLES.format("bar.sync 1, 64;" + TELL.format(""), "bar.sync 1, 64;" + TOLD.format("")),
    "reductions of both halves": "bar.red.popc.u32 %r20, 1, 64, %p0; ret;",
    "a warp that comes twice": ROLES.format(
        "bar.sync 1, 64;", "setp.eq.u32 %p3, %r1, 2;" + 2 * "@%p3 bar.arrive 1, 64;"
    ),
    "arrivals ahead": ROLES.format(2 * GIVE, "bar.arrive 1, 128; bar.arrive 1, 128;"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_who_comes_after_the_phase_before(name: str) -> None:
    for schedule in ("late", "random"):
        outcome = check(RIGHT[name], "sm_90a", schedule=schedule)
        assert outcome.status == "ok", outcome.findings
        assert not outcome.hazards


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", WRONG)
def test_who_may_come_a_phase_too_early(name: str, level: str) -> None:
    outcome = check(WRONG[name], "sm_90a", level=level)
    assert outcome.status == "ok", outcome.findings
    assert found(outcome) == {"B2"}
