# SPDX-License-Identifier: Apache-2.0
"""bar.warp.sync of some lanes of a warp orders these, and no others (PTX ISA 9.7.13.2)."""

from __future__ import annotations

import pytest
from check_ptx import check, found

# Each lane writes a word; the lanes of a half synchronize; they read the word of lane XOR `bit`.
KERNEL = """mad.lo.u32 %r3, %r0, 4, %r2; setp.lt.u32 %p2, %r0, 16; {first} {sync}
xor.b32 %r20, %r0, {bit}; mad.lo.u32 %r20, %r20, 4, %r2; {second} ret;"""
STORE, LOAD, LATER = "st.shared.u32 [%r3], %r0;", "ld.shared.u32 %r4, [%r20];", "st.shared.u32 [%r20], %r0;"
LOWER, UPPER = "@%p2 bar.warp.sync 0xffff;", "@!%p2 bar.warp.sync 0xffff0000;"
BRANCHES = "@!%p2 bra U; bar.warp.sync 0xffff; bra M; U: bar.warp.sync 0xffff0000; M:"
ALL = "bar.warp.sync 0xffffffff;"
CASES = {
    "half, within it": ((STORE, LOWER, 1, "@%p2 " + LOAD), True),
    "half, from the other": ((STORE, LOWER, 16, "@%p2 " + LOAD), False),
    "half, the other reads": ((STORE, LOWER, 1, "@!%p2 " + LOAD), False),
    "both halves, within": ((STORE, LOWER + UPPER, 1, LOAD), True),
    "both halves in branches, within": ((STORE, BRANCHES, 1, LOAD), True),
    "all, across": ((STORE, ALL, 16, LOAD), True),
    "half, then all, across": ((STORE, LOWER + ALL, 16, LOAD), True),
    "twice, from the other": ((STORE, LOWER + LOWER, 16, "@%p2 " + LOAD), False),
    "overwritten within": ((STORE + ALL + "ld.shared.u32 %r4, [%r3];", LOWER, 1, "@%p2 " + LATER), True),
    "overwritten in the other": ((STORE + ALL + "ld.shared.u32 %r4, [%r3];", LOWER, 16, "@%p2 " + LATER), False),
    "the others have ended": ((STORE, "@!%p2 ret; bar.warp.sync 0xffff;", 1, LOAD), True),
}


@pytest.mark.parametrize("name", CASES)
def test_lanes_that_synchronize(name: str) -> None:
    (first, sync, bit, second), ordered = CASES[name]
    outcome = check(KERNEL.format(first=first, sync=sync, bit=bit, second=second), threads=32)
    assert outcome.status == "ok", outcome.findings
    assert found(outcome) == (set() if ordered else {"G8"})
