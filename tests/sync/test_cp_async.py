# SPDX-License-Identifier: Apache-2.0
"""cp.async whose end an mbarrier tells: the arrival comes when the copies are over, and counts or does not."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check

COPY = "cp.async.ca.shared::cta.global [%r17], [%d1], 4;\n"
TOLD = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r14];\n"
ADDED = "cp.async.mbarrier.arrive.shared::cta.b64 [%r14];\n"
ARRIVES = "mbarrier.arrive.shared::cta.b64 _, [%r14];\n"
WAITED = "cp.async.commit_group;\ncp.async.wait_group 0;\n"

RIGHT = {
    "told by the mbarrier": TOLD,
    "told beside an arrival": ADDED + ARRIVES,
    "waited for": WAITED + ARRIVES,
    "waited for all": "cp.async.wait_all;\n" + ARRIVES,
    "told, and waited for": TOLD + WAITED,
    "waited for, and told": WAITED + TOLD,
    "told of two": COPY.replace("[%r17]", "[%r17+16]") + TOLD,
}
WRONG = {
    "an arrival at once": ARRIVES,
    "committed alone": "cp.async.commit_group;\n" + ARRIVES,
    "a group too few waited for": "cp.async.commit_group;\ncp.async.wait_group 1;\n" + ARRIVES,
    "an arrival that does not count": ADDED,
    "added behind the arrival": ARRIVES + ADDED,
    "told twice": TOLD + TOLD,
    "told at another mbarrier": TOLD.replace("[%r14]", "[%r6+24]") + ARRIVES,
    "copied behind what is told": TOLD + COPY,
}


def verdict(arrive: str) -> Verdict:
    text = ring(store=COPY, arrive=arrive).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")
    text = text.replace("mbarrier.init.shared::cta.b64 [full+0]", "mbarrier.init.shared::cta.b64 [full+24], 9;\n"
                        "mbarrier.init.shared::cta.b64 [full+0]")  # fmt: skip
    return check(
        launched(flow_of(text.replace("mov.u32 %r5, slots;", "mov.u64 %d1, 2199023255552;\nmov.u32 %r5, slots;")), 5)
    ).verdict


@pytest.mark.parametrize("name", RIGHT)
def test_what_waits_for_the_copies_is_right(name: str) -> None:
    assert verdict(RIGHT[name]) is Verdict.CLEAN


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_is_an_error(name: str) -> None:
    assert verdict(WRONG[name]) is Verdict.ERROR
