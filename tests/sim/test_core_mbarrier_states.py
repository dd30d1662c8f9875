# SPDX-License-Identifier: Apache-2.0
"""What an mbarrier does not say: a phase before the last complete one, and arrivals that must not be the last."""

from __future__ import annotations

import pytest

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, simulate

KERNEL = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() {{
.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>; .shared .align 8 .b8 bar[8];
mov.u32 %r0, bar; mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
@%p0 mbarrier.init.shared.b64 [%r0], {count}; bar.sync 0; {body} ret; }}
"""
ARRIVE = "mbarrier.arrive.shared.b64 {}, [%r0];"
LAST = "mbarrier.{}.noComplete.release.cta.shared.b64 {}, [%r0], {};"


def waits(state: str, label: str = "W", test: str = "try_wait") -> str:
    return f"{label}: mbarrier.{test}.shared.b64 %p1, [%r0], {state}; @!%p1 bra {label};"


ONE, TWO, THREE = (ARRIVE.format(f"%d{i}") for i in range(3))
KERNELS = {
    "the state of the phase": (32, ONE + waits("%d0") + TWO + waits("%d1", "X"), True),
    "the same state twice": (32, ONE + waits("%d0") + waits("%d0", "X"), True),
    "the phase before the last": (32, ONE + TWO + waits("%d0"), False),
    "the same with test_wait": (32, ONE + TWO + waits("%d0", test="test_wait"), False),
    "after the later one": (32, ONE + TWO + waits("%d1") + waits("%d0", "X"), False),
    "the phase before while the next goes on": (32, ONE + waits("%d0") + "@%p0 " + TWO + waits("%d0", "X"), True),
    "two phases before": (32, ONE + TWO + THREE + waits("%d0"), False),
    "not the last arrival": (33, LAST.format("arrive", "%d0", 1) + "@%p0 " + TWO + waits("%d0"), True),
    "the last arrival": (32, LAST.format("arrive", "%d0", 1), False),
    "the last by its count": (64, LAST.format("arrive", "%d0", 2), False),
    "the last for good": (32, LAST.format("arrive_drop", "%d0", 1), False),
    "not the last for good": (33, LAST.format("arrive_drop", "%d0", 1) + "@%p0 " + TWO + waits("%d0"), True),
    "bytes are to come": (
        32, "@%p0 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r0], 16; bar.sync 0;" + LAST.format("arrive", "%d0", 1)
        + "@%p0 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r0], 16;" + waits("%d0"), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["functional", "checking"])
@pytest.mark.parametrize("name", KERNELS)
def test_states_and_arrivals(name: str, mode: str) -> None:
    count, body, right = KERNELS[name]
    module = parse_module(KERNEL.format(count=count, body=body))
    options = Options(mode=mode)  # type: ignore[arg-type]
    outcome = simulate(module, "k", Launch((1, 1, 1), (32, 1, 1)), b"", GlobalMemory(), options)
    assert outcome.status == ("ok" if right else "error"), outcome.findings
    if not right:
        assert "PT4010" in str(outcome.findings[0])
        assert ("noComplete" in str(outcome.findings[0])) == ("last" in name and "phase" not in name)
