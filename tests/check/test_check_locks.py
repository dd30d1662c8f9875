# SPDX-License-Identifier: Apache-2.0
"""A lock around data of several blocks, as Triton's kernels take it: one thread's atomics, barriers beside them."""

from __future__ import annotations

import pytest
from check_ptx import check, found

LOCKED = """@!%p0 bra WAIT; L: {cas} %r20, [%d1], 0, 1; setp.ne.u32 %p5, %r20, 0; @%p5 bra L; {acquired}
WAIT: {before} mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;
ld.global.u32 %r21, [%d3+256]; add.u32 %r21, %r21, 1; st.global.u32 [%d3+256], %r21;
{after} @!%p0 bra END; {released} {unlock} END: ret;"""
RIGHT = {
    "cas": "atom.acq_rel.gpu.global.cas.b32",
    "acquired": "",
    "before": "bar.sync 0;",
    "after": "bar.sync 0;",
    "released": "",
    "unlock": "atom.acq_rel.gpu.global.exch.b32 %r22, [%d1], 0;",
}
CAS, EXCH = "atom.relaxed.gpu.global.cas.b32", "atom.relaxed.gpu.global.exch.b32 %r22, [%d1], 0;"
FENCE = "fence.acq_rel.gpu;"
# What is written otherwise; what is found.
LOCKS: dict[str, tuple[dict[str, str], set[str]]] = {
    "as_it_is": ({}, set()),
    "no_barrier_before": ({"before": ""}, {"G2"}),
    "no_barrier_after": ({"after": ""}, {"G2"}),
    "relaxed_cas": ({"cas": CAS}, {"G2"}),
    "relaxed_cas_and_fence": ({"cas": CAS, "acquired": FENCE}, set()),
    "releasing_cas": ({"cas": CAS.replace("relaxed", "release")}, {"G2"}),
    "acquiring_cas": ({"cas": CAS.replace("relaxed", "acquire")}, set()),
    "cas_of_the_block": ({"cas": RIGHT["cas"].replace("gpu", "cta")}, {"G3"}),
    "relaxed_exchange": ({"unlock": EXCH}, {"G2"}),
    "relaxed_exchange_and_fence": ({"unlock": EXCH, "released": FENCE}, set()),
    "acquiring_exchange": ({"unlock": EXCH.replace("relaxed", "acquire")}, {"G2"}),
    "releasing_store": ({"unlock": "st.release.gpu.global.b32 [%d1], 0;"}, set()),
    "relaxed_store": ({"unlock": "st.relaxed.gpu.global.b32 [%d1], 0;"}, {"G2"}),
    "volatile_store_and_fence": ({"unlock": "st.volatile.global.b32 [%d1], 0;", "released": "membar.gl;"}, set()),
    "releasing_reduction": ({"unlock": "red.release.gpu.global.and.b32 [%d1], 0;"}, set()),
    "relaxed_reduction": ({"unlock": "red.relaxed.gpu.global.and.b32 [%d1], 0;"}, {"G2"}),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("level", [pytest.param("strict", marks=pytest.mark.slow), "practice"])
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_orders_what_is_done_under_it(name: str, level: str) -> None:
    other, kinds = LOCKS[name]
    outcome = check(LOCKED.format(**{**RIGHT, **other}), threads=64, grid=3, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) == kinds
