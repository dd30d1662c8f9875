# SPDX-License-Identifier: Apache-2.0
"""A mailbox that is written again before all have read it: right by each single run, and by no proof."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, ring

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Checked, Verdict, check

READ = "ld.shared.u32 %r20, [%r17];\n"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [%r15];\n"
FIRST_READER = "setp.ne.u32 %p7, %r2, 32;\n@%p7 bra $ON;\n"
SECOND_TURNS = "and.b32 %r30, %r10, 1;\nsetp.ne.u32 %p7, %r30, 0;\n@%p7 bra $GO;\n"
FIRST_LAP = "setp.lt.u32 %p7, %r10, 2;\n@%p7 bra $GO;\n"
PARITY = "xor.b32 %r19, %r12, 1;"
assert all(text in ring() for text in (READ, RELEASE, PARITY))

RIGHT = {
    "one slot": (ring(stages=1), 1),
    "two slots": (ring(), 1),
    "two readers": (ring(count=2), 2),
}
LAPPED = {
    "nobody says that it has read": (ring(stages=1, wait_empty="", release=""), 1),
    "nor of two slots": (ring(wait_empty="", release=""), 1),
    "what they say is not waited for": (ring(wait_empty=""), 1),
    "one of two readers says it": (ring(before_release=FIRST_READER), 2),
    "the writer waits each second turn": (ring(stages=1, before_wait=SECOND_TURNS), 1),
    "the writer waits for the lap before": (ring(before_wait=FIRST_LAP).replace(PARITY, "mov.u32 %r19, %r12;"), 1),
    "it is said ahead of reading": (ring(release="").replace(READ, RELEASE + READ), 1),
}


def checked(text: str, readers: int, turns: int) -> Checked:
    geometry = Geometry((32 * (1 + readers), 1, 1))
    text = text.replace(".reqntid 64", f".reqntid {geometry.threads}")
    return check(Launched(flow_of(text), geometry, {"turns": turns.to_bytes(4, "little")}))


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_read_before_it_is_written_again_is_right(name: str) -> None:
    assert {checked(*RIGHT[name], turns).verdict for turns in (1, 2, 9)} == {Verdict.CLEAN}


@pytest.mark.parametrize("name", LAPPED)
def test_a_lap_is_found(name: str) -> None:
    assert checked(*LAPPED[name], 1).verdict is Verdict.CLEAN
    found = checked(*LAPPED[name], 9)
    assert found.verdict is Verdict.ERROR
    assert {"H33", "G1", "phase", "deadlock"} & {f.kind for f in found.findings}
