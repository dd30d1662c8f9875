# SPDX-License-Identifier: Apache-2.0
"""Deadlocks are told by cause: the starved mbarrier first, by its name, with what has come and what has not."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.facts.machine import Schedule
from porter.sync.checked import Checked, check

ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r14];\n"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [%r15];\n"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], {};\n"
COPY = (
    "mov.u64 %d1, 0x20000000000;\n"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r17], [%d1], 16, [%r14];\n"
)
LATE = "setp.lt.u32 %p7, %r10, 2;\n@%p7 "


def copied(expected: int, copies: str = COPY) -> str:
    text = ring(store="", arrive=EXPECT.format(expected) + copies)
    text = text.replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<2>;")
    return text.replace("shl.b32 %r16, %r11, 2", "shl.b32 %r16, %r11, 4")


READER = ring().replace("[%r14], %r12;", "[%r14], %r13;").replace("$FULL:", "xor.b32 %r13, %r12, 1;\n$FULL:")
"""It waits for the phase behind the one that is over, if it comes late."""


WRITER = ring().replace("xor.b32 %r19, %r12, 1;", "mov.u32 %r19, %r12;")
"""It waits for stages that nobody has had yet."""

WRONG = {
    "more bytes": (copied(32), "full[0]", "bytes", "32 bytes are expected, more than the 16"),
    "fewer bytes": (copied(8), "full[0]", "bytes", "8 bytes are expected, fewer than the 16"),
    "no copy": (copied(16, ""), "full[0]", "copy", "no copy brings any"),
    "count": (ring(count=2), "empty[0]", "count", "initialized for 2 arrivals, and 1 come"),
    "no arrival": (ring(release=""), "empty[0]", "arrive", "nothing arrives"),
    "no arrival from the third on": (ring(release=LATE + RELEASE), "empty[0]", "arrive", "again: block 0 warp 1"),
    "parity of the first wait": (WRITER, "empty[0]", "parity", "phase 0, ahead"),
    "parity": (READER, "full[0]", "parity", "block 0 warp 1 has not waited for phase 0"),
}  # fmt: skip


def checked(text: str) -> Checked:
    """The reader comes late."""
    return check(launched(flow_of(text), 9), Schedule(seed=1))


@pytest.mark.parametrize("name", WRONG)
def test_the_starved_one_is_first_with_its_cause(name: str) -> None:
    text, barrier, cause, why = WRONG[name]
    found = checked(text)
    assert "deadlock" in {f.kind for f in found.findings}
    starved = found.waiting[0]
    assert (starved.name, starved.cause) == (f"mbarrier {barrier}", cause), found.waiting
    assert why in starved.why


def test_copies_with_their_bytes_end() -> None:
    found = checked(copied(16))
    assert {f.kind for f in found.findings if f.level == "error"} == set()
    assert not found.waiting
