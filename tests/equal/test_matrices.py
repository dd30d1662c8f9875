# SPDX-License-Identifier: Apache-2.0
"""What stmatrix and ldmatrix move: the same as stores and loads do, and something else."""

from __future__ import annotations

import pytest
from written import are_equal

BEGIN = (
    "mov.u32 %r5, room;\nshl.b32 %r6, %r0, 4;\nadd.u32 %r6, %r5, %r6;\nsetp.eq.u32 %p1, %r0, 0;\n"
    "mov.b32 %r10, %f0;\nmov.b32 %r11, %f1;\nmov.b32 %r12, %f2;\nmov.b32 %r13, %f3;\n"
)
FILLED = "st.shared.v4.f32 [%r6], {%f0, %f1, %f2, %f3};\nbar.warp.sync -1;\n"
OUT = "st.global.b32 [%d1], %r9;\n"
OF_FIRST = "@%p1 " + OUT
COPY = "mov.b32 %r9, %r10;\n" + OUT


def put(shape: str, *names: str, trans: str = "") -> str:
    kind = "b8" if shape == "m16n8" else "b16"
    registers = ", ".join(names)
    number = f"x{len(names)}"
    return f"stmatrix.sync.aligned.{shape}.{number}{trans}.shared.{kind} [%r6], {{{registers}}};\nbar.warp.sync -1;\n"


def get(shape: str = "m8n8", number: int = 1, trans: str = "", kind: str = "b16") -> str:
    names = ", ".join(f"%r{9 if i == 0 else 20 + i}" for i in range(number * (2 if shape == "m16n16" else 1)))
    return f"ldmatrix.sync.aligned.{shape}.x{number}{trans}.shared.{kind} {{{names}}}, [%r6];\n"


def byte(offset: int) -> str:
    return f"ld.shared.u8 %r9, [%r5+{offset}];\n" + OF_FIRST


def of_register(index: int) -> str:
    return f"prmt.b32 %r9, %r10, 0, 0x444{index};\n" + OF_FIRST


TURNED = "movmatrix.sync.aligned.m8n8.trans.b16 %r9, %r10;\n" + OUT
BYTES = put("m16n8", "%r10", trans=".trans")
SAME = {
    "there and back": (put("m8n8", "%r10") + get() + OUT, COPY),
    "parts in another order": (
        put("m8n8", "%r10").replace("m8n8.x1", "x1.m8n8") + get().replace("m8n8.x1", "x1.m8n8") + OUT,
        COPY,
    ),
    "turned both ways": (put("m8n8", "%r10", trans=".trans") + get(trans=".trans") + OUT, COPY),
    "turned once": (put("m8n8", "%r10", trans=".trans") + get() + OUT, TURNED),
    "turned when it comes": (put("m8n8", "%r10") + get(trans=".trans") + OUT, TURNED),
    "the second of two": (
        put("m8n8", "%r11", "%r10") + get(number=2) + "mov.b32 %r9, %r21;\n" + OUT,
        COPY,
    ),
    "by a load": (put("m8n8", "%r10") + "ld.shared.b32 %r9, [%r5];\n" + OF_FIRST, "mov.b32 %r9, %r10;\n" + OF_FIRST),
    "a byte": (BYTES + byte(0), of_register(0)),
    "a byte of the next row": (BYTES + byte(16), of_register(1)),
    "a byte of the other half": (BYTES + byte(8), of_register(2)),
    "a byte of the other half of the next row": (BYTES + byte(24), of_register(3)),
    "a row of bytes turned": (
        FILLED + get("m16n16", trans=".trans", kind="b8") + "and.b32 %r9, %r9, 0xFF00;\n" + OF_FIRST,
        FILLED + "ld.shared.u8 %r9, [%r5+16];\nshl.b32 %r9, %r9, 8;\n" + OF_FIRST,
    ),
    "elements of four bits": (
        "mov.b32 %f0, 0x76543210;\nmov.b32 %f1, 0;\n" + FILLED + get("m8n16", kind="b8x16.b4x16_p64") + OF_FIRST,
        "mov.b32 %r9, 0x0C080400;\n" + OF_FIRST,
    ),
}
OTHER = {
    "not turned": (put("m8n8", "%r10", trans=".trans") + get() + OUT, COPY),
    "another register": (put("m8n8", "%r10") + get() + OUT, put("m8n8", "%r11") + get() + OUT),
    "the first of two": (put("m8n8", "%r11", "%r10") + get(number=2) + OUT, COPY),
    "another byte": (BYTES + byte(0), of_register(1)),
    "a byte of another lane": (BYTES + byte(1), of_register(1)),
    "rows of bytes turned": (
        FILLED + get("m16n16", trans=".trans", kind="b8") + OUT,
        FILLED + get("m8n8", trans=".trans") + OUT,
    ),
    "four and six bits": (
        FILLED + get("m8n16", kind="b8x16.b4x16_p64") + OUT,
        FILLED + get("m8n16", kind="b8x16.b6x16_p32") + OUT,
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_matrices_that_are_the_same(name: str) -> None:
    assert are_equal(*(BEGIN + body for body in SAME[name]))


@pytest.mark.parametrize("name", OTHER)
def test_matrices_that_are_something_else(name: str) -> None:
    assert not are_equal(*(BEGIN + body for body in OTHER[name]))
