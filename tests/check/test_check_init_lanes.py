# SPDX-License-Identifier: Apache-2.0
"""An mbarrier that one lane initializes and other lanes of its warp use."""

from __future__ import annotations

import pytest
from check_ptx import check, found

INIT = "@%p0 mbarrier.init.shared.b64 [%r8], {count};\n"
FENCE = "fence.mbarrier_init.release.cluster;\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r8];"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W; ret;"
LANE = "setp.eq.u32 %p2, %r0, 5;\n"
COPY = """@{p} mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16;
@{p} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 16, [%r8];
"""
EXPECT = "@{p} mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 0;\n"

# What uses it after the initialization, and with how many arrivals.
USES = {
    "all arrive": (32, ARRIVE + "\n" + WAIT),
    "others arrive": (31, "@!%p0 mbarrier.arrive.shared.b64 _, [%r8];\n" + WAIT),
    "one arrives": (1, LANE + "@%p2 mbarrier.arrive.shared.b64 _, [%r8];\n" + WAIT),
    "one arrives for all": (1, LANE + "@%p2 mbarrier.arrive.shared.b64 _, [%r8], 1;\n" + WAIT),
    "one drops out": (1, LANE + "@%p2 mbarrier.arrive_drop.shared.b64 _, [%r8];\n" + WAIT),
    "one copies": (1, LANE + COPY.format(p="%p2") + WAIT),
    "one expects": (32, LANE + EXPECT.format(p="%p2") + f"bar.warp.sync -1; {ARRIVE}\n" + WAIT),
    "all wait": (1, "@%p0 mbarrier.arrive.shared.b64 _, [%r8];\n" + WAIT),
    "all wait for a copy": (1, COPY.format(p="%p0") + WAIT),
    "all test": (1, "mbarrier.test_wait.parity.shared.b64 %p6, [%r8], 1; ret;"),
    "one invalidates": (1, LANE + "@%p2 mbarrier.inval.shared.b64 [%r8]; ret;"),
}  # fmt: skip
ORDERS = ["bar.warp.sync -1;\n", "bar.sync 0;\n", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"]


def body(use: str, order: str) -> str:
    count, text = USES[use]
    return INIT.format(count=count) + FENCE + order + text


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("use", USES)
def test_lanes_are_ordered_by_what_synchronizes_the_warp(use: str, order: str) -> None:
    outcome = check(body(use, order), "sm_90a", 32)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert not outcome.hazards


@pytest.mark.parametrize(("level", "severity"), [("strict", "error"), ("practice", "review")])
@pytest.mark.parametrize("order", ["", "activemask.b32 %r20;\n", "shfl.sync.idx.b32 %r20, %r0, 0, 31, -1;\n"])
@pytest.mark.parametrize("use", USES)
def test_without_it_the_initialization_is_not_known(use: str, order: str, level: str, severity: str) -> None:
    outcome = check(body(use, order), "sm_90a", 32, level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert ("H21", severity, "bar.warp.sync") in {(h.kind.id, h.severity, h.remedy) for h in outcome.hazards}
    if level == "practice":
        assert not found(outcome)


@pytest.mark.parametrize("use", ["@%p0 mbarrier.arrive.shared.b64 _, [%r8];", COPY.format(p="%p0")])
def test_the_lane_itself_needs_nothing(use: str) -> None:
    text = f"@!%p0 bra END;\n{INIT.format(count=1)}{FENCE}{use}\n{WAIT.replace('ret;', '')}\nEND: ret;"
    assert not check(text, "sm_90a", 32).hazards


def test_each_lane_has_an_mbarrier_of_its_own() -> None:
    own = "mad.lo.u32 %r20, %r0, 8, %r2; mbarrier.init.shared.b64 [%r20], 1;"
    wait = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r20], 0; @!%p6 bra W; ret;"
    other = "xor.b32 %r20, %r20, 8;"
    arrive = "mbarrier.arrive.shared.b64 _, [%r20];"
    assert not check(f"{own}{arrive}{wait}", "sm_90a", 32).hazards
    assert found(check(f"{own}{other}{arrive}{wait}", "sm_90a", 32)) == {"H21"}
    assert not check(f"{own} bar.warp.sync -1; {other}{arrive}{wait}", "sm_90a", 32).hazards
