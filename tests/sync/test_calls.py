# SPDX-License-Identifier: Apache-2.0
"""Functions that are not inlined: a proof follows them with what they are given and what they return."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_kernels import checked, errors, number, wait

from porter.sync.checked import Verdict

# place(base, stage) gives base + 8 * stage, by registers that have the caller's names.
PLACE = """.func (.param .b32 result) place(.param .b32 base, .param .b32 stage)
{
.reg .pred %p<2>;
.reg .b32 %r<8>;
ld.param.b32 %r1, [stage];
ld.param.b32 %r0, [base];
shl.b32 %r1, %r1, 3;
add.s32 %r2, %r0, %r1;
st.param.b32 [result], %r2;
ret;
}
"""
# Returns ahead of its end for all stages but the first.
EARLY = PLACE.replace("shl.b32", "setp.eq.u32 %p1, %r1, 0;\nst.param.b32 [result], %r0;\n@%p1 ret;\nshl.b32")
# Takes a structure of 8 bytes.
BOTH = PLACE.replace(".param .b32 base, .param .b32 stage", ".param .align 8 .b8 both[8]").replace(
    "ld.param.b32 %r1, [stage];\nld.param.b32 %r0, [base];", "ld.param.v2.b32 {%r0, %r1}, [both];"
)


def call(stage: str, into: str) -> str:
    return (
        f"{{\n.param .b32 a;\nst.param.b32 [a], %r1;\n.param .b32 b;\nst.param.b32 [b], {stage};\n.param .b32 c;\n"
        f"call.uni (c), place, (a, b);\nld.param.b32 {into}, [c];\n}}\n"
    )


def with_both(stage: str, into: str) -> str:
    return (
        f"{{\nmov.b32 %r9, {stage};\n.param .align 8 .b8 a[8];\nst.param.v2.b32 [a], {{%r1, %r9}};\n.param .b32 c;\n"
        f"call.uni (c), place, (a);\nld.param.b32 {into}, [c];\n}}\n"
    )


SECOND = "@%p0 mbarrier.init.shared::cta.b64 [%r1+8], 1;\n@%p0 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"


@pytest.mark.parametrize(("function", "how"), [(PLACE, call), (EARLY, call), (BOTH, with_both)])
def test_an_mbarrier_that_a_function_finds(function: str, how: Callable[[str, str], str]) -> None:
    text = SECOND + how("STAGE", "%r4") + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r4];\n" + how("1", "%r5")
    body = text + wait("%r5", "0", "W")
    assert checked(body.replace("STAGE", "1"), functions=function).verdict is Verdict.CLEAN
    assert errors(checked(body.replace("STAGE", "0"), functions=function)) == {"deadlock"}


def test_registers_of_a_function_are_its_own() -> None:
    """%r0 is the thread's index behind the call as it was ahead of it."""
    text = call("0", "%r4") + "setp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.arrive.shared::cta.b64 _, [%r4];\n"
    assert checked(text + wait("%r1", "0", "W"), functions=PLACE).verdict is Verdict.CLEAN


WAITS = """.func waits(.param .b32 place, .param .b32 parity)
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
ld.param.b32 %r0, [place];
ld.param.b32 %r1, [parity];
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1;
@%p0 ret;
bra AGAIN;
}
"""


@pytest.mark.parametrize(("parity", "verdict"), [(0, Verdict.CLEAN), (1, Verdict.ERROR)])
def test_a_function_that_waits(parity: int, verdict: Verdict) -> None:
    given = f"{{\n.param .b32 a;\nst.param.b32 [a], %r1;\n.param .b32 b;\nst.param.b32 [b], {parity};\n"
    arrive = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    assert checked(arrive + given + "call.uni waits, (a, b);\n}\n", functions=WAITS).verdict is verdict


def test_what_is_written_in_other_pieces_than_it_is_read_is_data() -> None:
    function = PLACE.replace(".param .b32 base, .param .b32 stage", ".param .align 8 .b8 both[8]").replace(
        "ld.param.b32 %r1, [stage];\nld.param.b32 %r0, [base];", "ld.param.b16 %h0, [both];\ncvt.u32.u16 %r0, %h0;\n"
    )
    text = with_both("1", "%r4") + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r4];\n"
    found = checked(text, functions=function.replace(".reg .pred", ".reg .b16 %h<2>;\n.reg .pred"))
    assert found.verdict is Verdict.UNKNOWN
    assert not errors(found)


@pytest.mark.parametrize("beta", ["00000000", "3F800000", "80000000"])
@pytest.mark.parametrize("scale", ["40000000", "00000000"])
def test_a_count_by_a_scalar_of_the_launch(beta: str, scale: str) -> None:
    """A warp arrives only where a product of two scalars is not zero, for which the mbarrier is initialized."""
    body = (
        "ld.param.f32 %f1, [beta];\nld.param.f32 %f2, [scale];\nmul.f32 %f3, %f1, %f2;\n"
        "setp.neu.f32 %p1, %f3, 0f00000000;\nselp.b32 %r4, 2, 1, %p1;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r1+8], %r4;\n@%p0 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
        "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1+8];\nand.pred %p2, %p0, %p1;\n"
        "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1+8];\nadd.u32 %r5, %r1, 8;\n" + wait("%r5", "0", "W")
    )
    given = number("beta", int(beta, 16), "f32") | number("scale", int(scale, 16), "f32")
    assert checked(body, parameters=given).verdict is Verdict.CLEAN
    assert checked(body.replace("%r4, 2, 1", "%r4, 3, 2"), parameters=given).verdict is Verdict.ERROR
