# SPDX-License-Identifier: Apache-2.0
"""Calls of the device runtime: what prints orders nothing, what fails an assertion never comes back."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check

PRINT = """{
.param .b64 format;
st.param.b64 [format], %d1;
.param .b64 values;
st.param.b64 [values], %d2;
.param .b32 count;
call.uni (count), vprintf, (format, values);
ld.param.b32 %r40, [count];
}
"""
FAIL = "{\n.param .b64 message;\nst.param.b64 [message], %d1;\ncall.uni __assertfail, (message);\n}\n"
OTHER = "call.uni something;\n"
ON_DATA = "ld.global.u32 %r41, [%d3];\nsetp.eq.u32 %p9, %r41, 0;\n@%p9 bra $WELL;\n{}$WELL:\n"


def verdict(before_wait: str) -> Verdict:
    text = ring(before_wait=before_wait).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")
    return check(launched(flow_of(text), 5)).verdict


@pytest.mark.parametrize("text", [PRINT, ON_DATA.format(PRINT), ON_DATA.format(FAIL)])
def test_they_do_not_stop_a_proof(text: str) -> None:
    assert verdict(text) is Verdict.CLEAN


@pytest.mark.parametrize("text", [OTHER, ON_DATA.format(OTHER), FAIL])
def test_what_is_not_followed_is_unknown(text: str) -> None:
    assert verdict(text) is Verdict.UNKNOWN


def test_what_prints_may_not_hide_an_arrival() -> None:
    arrival = "mbarrier.arrive.shared::cta.b64 _, [%r14];\n"
    assert verdict(ON_DATA.format(PRINT + arrival)) is Verdict.UNKNOWN
