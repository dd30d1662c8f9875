# SPDX-License-Identifier: Apache-2.0
"""Arrivals and waits on mbarriers, counted by thread."""

from __future__ import annotations

import pytest
from check_ptx import check, found, try_wait

EXCHANGE = """@%p0 mbarrier.init.shared.b64 [%r8], {count};
bar.sync 0;
shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r0;
mbarrier.arrive.shared.b64 _, [%r8];
"""
READ = "xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2; ld.shared.u32 %r5, [%r4]; ret;\n"


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
def test_a_warp_whose_last_thread_is_not_counted_has_not_arrived(schedule: str) -> None:
    """A count that is one too small: the phase ends while one thread of a warp may still be writing."""
    for count, expected in ((64, set()), (63, {"G1", "H24"})):
        body = EXCHANGE.format(count=count) + try_wait("W", 0, "wait") + READ
        assert found(check(body, threads=64, schedule=schedule)) == expected


def test_waits_for_the_phase_before_the_first_are_told_apart() -> None:
    """Parity 1 of a new mbarrier is over from the start; parity 0 is what arrivals complete."""
    waits = try_wait("V", 1, "before"), try_wait("W", 0, "wait")
    lines = EXCHANGE.format(count=64).replace("mbarrier.arrive", waits[0] + "mbarrier.arrive") + waits[1] + READ
    outcome = check(lines, threads=64)
    assert not outcome.hazards
    assert len(outcome.stats.waits) == 1
    assert max(outcome.stats.waits) > min(outcome.stats.lines)
