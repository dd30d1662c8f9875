# SPDX-License-Identifier: Apache-2.0
"""A wait whose failure need not be heeded, for what its own thread brings later: it fails, and nothing stands still."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, wait

LOOK = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\nselp.b32 %r5, 1, 0, %p2;\n"
ARRIVE = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"


@pytest.mark.parametrize(("behind", "wanted"), [(ARRIVE, set()), ("", {"deadlock"})])
def test_a_look_ahead_of_the_own_arrival(behind: str, wanted: set[str]) -> None:
    assert errors(checked(LOOK + behind + wait("%r1", "0", "W"))) == wanted


def test_what_follows_a_failure_is_looked_at() -> None:
    """Who has not seen the phase goes another way, on which nobody arrives."""
    ways = "setp.ne.u32 %p3, %r5, 0;\n@%p3 bra SEEN;\nbar.sync 1, 64;\nSEEN:\n"
    assert errors(checked(LOOK + ways)) == {"deadlock"}


@pytest.mark.parametrize(("guard", "unheeded"), [("", False), ("@!%p2 ", False), ("@%p2 ", True), ("@%p4 ", True)])
def test_a_trap_behind_a_look(guard: str, unheeded: bool) -> None:
    """It makes a wait of it only where all that have not seen the phase come to it."""
    look = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\n"
    body = f"setp.eq.u32 %p4, %r0, 40;\n{look}@%p2 bra SEEN;\n{guard}trap;\nSEEN:\n"
    found = checked(body)
    assert (not errors(found)) is unheeded
