# SPDX-License-Identifier: Apache-2.0
"""Flags in shared memory: who polls one waits, who reads one again and again does not."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Verdict, check

KERNEL = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
.reqntid 64
{{
.reg .pred %p<9>;
.reg .b32 %r<9>;
.shared .align 4 .b8 flag[4];
.shared .align 4 .b8 data[4];
mov.u32 %r1, %tid.x;
setp.ne.u32 %p3, %r1, 0;
@%p3 bra $ZEROED;
st.shared.u32 [flag], 0;
$ZEROED:
bar.sync 0;
setp.eq.u32 %p1, %r1, 32;
@%p1 bra $WRITES;
setp.ne.u32 %p2, %r1, 0;
@%p2 bra $OUT;
$POLL:
{load} %r2, [flag];
setp.eq.u32 %p4, %r2, 0;
@%p4 bra $POLL;
ld.shared.u32 %r3, [data];
bra $OUT;
$WRITES:
{before}{store} [flag], {value};
$OUT:
ret;
}}
"""
DATA = "st.shared.u32 [data], 7;\n"
RELEASE, ACQUIRE = "st.release.cta.shared.u32", "ld.acquire.cta.shared.u32"


def verdict(load: str = ACQUIRE, store: str = RELEASE, before: str = DATA, value: int = 1) -> Verdict:
    text = KERNEL.format(load=load, store=store, before=before, value=value)
    return check(Launched(flow_of(text), Geometry((64, 1, 1)), {})).verdict


def test_a_flag_that_is_released_and_acquired_orders() -> None:
    assert verdict() is Verdict.CLEAN
    assert verdict(store="st.relaxed.cta.shared.u32", before=DATA + "fence.acq_rel.cta;\n") is Verdict.CLEAN


@pytest.mark.parametrize(("load", "store"), [
    ("ld.relaxed.cta.shared.u32", RELEASE), (ACQUIRE, "st.relaxed.cta.shared.u32"),
    ("ld.volatile.shared.u32", "st.volatile.shared.u32"),
])  # fmt: skip
def test_one_that_is_not_does_not(load: str, store: str) -> None:
    assert verdict(load, store) is Verdict.ERROR


def test_nobody_waits_for_ever_for_what_does_not_come() -> None:
    assert verdict(value=0) is Verdict.ERROR


def test_what_is_read_in_each_turn_is_no_wait() -> None:
    text = ring(before_release="ld.volatile.shared.u32 %r41, [%r5+128];\n")
    assert check(launched(flow_of(text), 6)).verdict is Verdict.CLEAN
