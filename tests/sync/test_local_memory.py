# SPDX-License-Identifier: Apache-2.0
"""Numbers in local memory: arrays of addresses that are indexed by what is no constant."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, wait
from test_turns import is_proved, runs
from turning_kernels import ring

from porter.sync.checked import Verdict
from porter.sync.turns import find_lasso

# The addresses of two mbarriers, of which lane 0 arrives at the second.
ARRAY = """.local .align 8 .b8 depot[16];
@%p0 mbarrier.init.shared::cta.b64 [%r1+8], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
add.u32 %r4, %r1, 8;
mov.b64 %d1, depot;
st.local.v2.b32 [%d1], {%r1, %r4};
BETWEEN
setp.ge.u32 %p2, %r0, 0;
selp.b32 %r5, WHICH, 0, %p2;
mul.wide.u32 %d2, %r5, 4;
add.s64 %d3, %d1, %d2;
ld.local.b32 %r6, [%d3];
@%p0 mbarrier.arrive.shared::cta.b64 _, [%r4];
"""


def array(which: str = "1", between: str = "") -> str:
    return ARRAY.replace("WHICH", which).replace("BETWEEN\n", between) + wait("%r6", "0", "W")


def test_an_element_by_its_index() -> None:
    assert checked(array()).verdict is Verdict.CLEAN
    assert errors(checked(array("0"))) == {"deadlock"}


def test_elements_of_each_lane() -> None:
    """Lane 0 takes the second mbarrier, the others, which wait for the first one, do not."""
    own = array().replace("mul.wide.u32 %d2, %r5, 4;", "selp.b32 %r5, 1, 0, %p0;\nmul.wide.u32 %d2, %r5, 4;")
    assert errors(checked(own)) == {"deadlock"}
    assert checked(own.replace("W:\n", "@!%p0 bra OUT;\nW:\n") + "OUT:\n").verdict is Verdict.CLEAN


LOADED = "ld.global.u32 %r7, [%d0];\nsetp.eq.u32 %p3, %r7, 0;\n"
UNKNOWN = {
    "data stored": "ld.global.u32 %r7, [%d0];\nst.local.b32 [%d1+4], %r7;\n",
    "stored if data are so": LOADED + "@%p3 st.local.b32 [%d1+4], %r1;\n",
    "stored on a way that data decide": LOADED + "@%p3 bra ON;\nst.local.b32 [%d1+4], %r1;\nON:\n",
    "another piece of it": "mov.b16 %h0, 0;\nst.local.b16 [%d1+6], %h0;\n",
    "a wider piece": "mov.b64 %d4, 0;\nst.local.b64 [%d1], %d4;\n",
    "stored where nobody knows": "ld.global.u64 %d4, [%d0];\nst.local.b32 [%d4], %r1;\n",
    "stored by any address": "ld.global.u64 %d4, [%d0];\nst.b32 [%d4], %r1;\n",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_any_more(name: str) -> None:
    found = checked(array(between=UNKNOWN[name]))
    assert found.verdict is Verdict.UNKNOWN
    assert not errors(found)


KEPT = ".local .align 4 .b8 depot[4];\nmov.b64 %d1, depot;\n"
# From the 65th turn on the producer does not wait.
LATE = (
    "st.local.b32 [%d1], {stored};\nld.local.b32 %r30, [%d1];\nshr.u32 %r30, %r30, 6;\n"
    "setp.ne.u32 %p7, %r30, 0;\n@%p7 bra $GO;\n"
)


@pytest.mark.parametrize(("stored", "proved"), [("%r10", False), ("0", True)])
def test_a_counter_that_is_kept_there_keeps_a_proof_from_all_turns(stored: str, proved: bool) -> None:
    text = ring(before_wait=LATE.format(stored=stored)).replace(
        ".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<4>;\n" + KEPT
    )
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found)) is proved
