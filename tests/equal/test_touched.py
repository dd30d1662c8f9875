# SPDX-License-Identifier: Apache-2.0
"""Where kernels touch global memory is told without their data, as with them; and what data decide is refused."""

from __future__ import annotations

import numpy as np
import pytest
from written import launched

from porter.equal.global_uses import PAGE
from porter.equal.meaning import Follower
from porter.equal.outcome import of_cluster
from porter.equal.touched import PlaceFollower
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.machine import Machine

STORE = "st.global.f32 [%d1], %f0;\n"
TWICE = STORE + STORE
BY_LANE = "setp.lt.u32 %p1, %r0, 5;\n@%p1 st.global.v2.f32 [%d1+8], {%f0, %f1};\n"
THROUGH_SHARED = (
    "mov.u32 %r2, room;\nst.shared.f32 [%r2], %f9;\nld.shared.u32 %r3, [%r2];\nbar.sync 0;\n"
    "add.f32 %f0, %f0, %f1;\nmul.f32 %f2, %f0, %f3;\nst.global.f32 [%d1+4], %f2;\n"
)  # fmt: skip
BULK = (
    "mov.u32 %r2, room;\nsetp.eq.u32 %p1, %r0, 0;\n"
    "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 4096;\n"
)
COPIED = "mov.u32 %r2, room;\ncp.async.cg.shared.global [%r2], [%d0+4096], 16;\n" + STORE
BEHIND_A_POINTER = "ld.global.u64 %d5, [%d0];\nld.global.f32 %f0, [%d5];\n" + STORE
IF_DATA = "setp.gt.f32 %p1, %f0, 0f00000000;\n"


@pytest.mark.parametrize("body", [STORE, TWICE, BY_LANE, THROUGH_SHARED, BULK, COPIED, BEHIND_A_POINTER])
def test_the_same_places(body: str) -> None:
    found = []
    for follower_of in (Follower, PlaceFollower):
        machine = Machine(launched(body))
        follower = follower_of(machine)
        run(machine)
        found.append((of_cluster(follower.contents.stored), follower.contents.uses.pages))
    (one, pages), (other, same) = found
    assert np.array_equal(one.addresses, other.addresses)
    assert pages == same
    assert len(one.addresses)
    # what is stored again is looked at with its data
    again = len(np.concatenate([s.addresses for s in follower.contents.stored])) > len(other.addresses)
    assert other.twice == (frozenset((other.addresses >> PAGE).tolist()) if again else frozenset())


@pytest.mark.parametrize("body", [
    IF_DATA + "@%p1 " + STORE, IF_DATA + "@%p1 bra OVER;\n" + STORE + "OVER:\n", IF_DATA + "@%p1 trap;\n",
    "red.global.add.f32 [%d1], %f0;\n", "atom.add.f32 %f4, [%d1], %f0;\n",
    "mov.b32 %r2, %f0;\ncvt.u64.u32 %d5, %r2;\nadd.s64 %d5, %d5, %d1;\nst.global.f32 [%d5], %f1;\n",
])  # fmt: skip
def test_what_data_decide_is_refused(body: str) -> None:
    machine = Machine(launched(body))
    PlaceFollower(machine)
    with pytest.raises(NotUnderstood):
        run(machine)
