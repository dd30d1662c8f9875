# SPDX-License-Identifier: Apache-2.0
"""How much the checker remembers of atomic operations in long loops, and that reductions are no read operations (PTX
ISA 8.4)."""

from __future__ import annotations

import tracemalloc

import pytest
from check_ptx import check, found

FENCE, PARK = "fence.acq_rel.gpu;", "tcgen05.fence::before_thread_sync;"
ADD, COUNT = "atom.global.add.u32 %r21, [%d3], 1;", "red.global.add.u32 [%d3], 1;"
# Four blocks of a warp add to the same 32 locations.
LOOP = """mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; {before} mov.u32 %r20, 0;
AGAIN: {atomic} add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, {times}; @%p5 bra AGAIN; {after} ret;"""


def memory(times: int, before: str, atomic: str, after: str, level: str) -> int:
    """The most that the checker holds, in bytes."""
    body = LOOP.format(before=before, atomic=atomic, after=after, times=times)
    tracemalloc.start()
    try:
        outcome = check(body, threads=32, grid=4, level=level)
        assert outcome.status == "ok"
        assert not found(outcome)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("before", "atomic", "level"),
    [
        (f"{FENCE} {PARK}", ADD, "practice"),
        (PARK, COUNT, "strict"),
        ("", "atom.acq_rel.gpu.global.add.u32 %r21, [%d1], 1;", "strict"),
        pytest.param(FENCE, ADD, "strict", marks=pytest.mark.slow),
        pytest.param(FENCE, ADD, "practice", marks=pytest.mark.slow),
        pytest.param(FENCE, f"ld.relaxed.gpu.global.u32 %r22, [%d3]; {COUNT}", "strict", marks=pytest.mark.slow),
        pytest.param("", "ld.acquire.gpu.global.u32 %r22, [%d3]; red.release.gpu.global.add.u32 [%d3], 1;", "strict",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_long_loop_of_atomics_costs_no_more_than_a_short_one(before: str, atomic: str, level: str) -> None:
    """Of each iteration no more stays than a warp's access and what it learns by it, and nothing for each lane."""
    short, long = (memory(times, before, atomic, FENCE, level) for times in (4, 12))
    assert long - short < 8 * 4 * 6000


# A block stores data and then a flag; the other changes the flag with an atomic or a reduction and loads the data.
CHANGE = """mov.u32 %r20, %ctaid.x; setp.ne.u32 %p5, %r20, 0; mov.u32 %r21, 7; @!%p0 ret; @%p5 bra READ;
st.global.u32 [%d1+256], %r21; {fence} {store}.global.u32 [%d1], %r21; ret;
READ: nanosleep.u32 400; {change} {again} {fence} ld.global.u32 %r23, [%d1+256]; st.global.u32 [%d1+512], %r23; ret;"""
STORES = {"relaxed": (FENCE, "st.relaxed.gpu"), "release": ("fence.acq_rel.sys;", "st.release.gpu")}
CHANGES = {
    "atom.global.add.u32 %r22, [%d1], 1;": True,
    "atom.relaxed.gpu.global.exch.b32 %r22, [%d1], 1;": True,
    "atom.acquire.gpu.global.cas.b32 %r22, [%d1], 7, 1;": True,
    "red.global.add.u32 [%d1], 1;": False,
    "red.relaxed.gpu.global.max.u32 [%d1], 1;": False,
    "red.release.gpu.global.add.u32 [%d1], 1;": False,
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("again", [False, True])
def test_a_reduction_reads_nothing(change: str, store: str, again: bool) -> None:
    """No fence makes an acquire of it; a load after it does."""
    fence, opcode = STORES[store]
    load = "ld.relaxed.gpu.global.u32 %r22, [%d1];" if again else ""
    body = CHANGE.format(fence=fence, store=opcode, change=change, again=load)
    outcome = check(body, threads=32, grid=2, level="strict")
    assert found(outcome) == (set() if CHANGES[change] or again else {"G2"})
