# SPDX-License-Identifier: Apache-2.0
"""What atomics and reductions in shared memory leave: the same in another way, and something else."""

from __future__ import annotations

import pytest
from written import are_equal

BEGIN = (
    "mov.u32 %r5, room;\nshl.b32 %r6, %r0, 2;\nadd.u32 %r5, %r5, %r6;\n"
    "mov.b32 %r10, %f0;\nmov.b32 %r11, %f1;\nmov.b32 %r12, %f2;\nmov.b32 %r13, %f3;\n"
    "mov.u32 %r8, room;\nadd.u32 %r8, %r8, 512;\nsetp.eq.u32 %p1, %r0, 0;\n"
    "@%p1 mbarrier.init.shared.b64 [%r8], 1;\nst.shared.b32 [%r5], {};\nbar.sync 0;\n"
)
OUT = "bar.sync 0;\nld.shared.b32 %r9, [%r5];\nst.global.b32 [%d1], %r9;\n"
RESULT = "st.global.b32 [%d1], %r9;\n"


def red(op: str, *values: str) -> str:
    return "".join(f"red.shared.{op} [%r5], {value};\n" for value in values)


def atom(op: str, value: str) -> str:
    return f"atom.shared.{op} %r9, [%r5], {value};\n"


def red_async(op: str, *values: str) -> str:
    end = "mbarrier::complete_tx::bytes"
    return "".join(f"red.async.relaxed.cluster.shared::cluster.{end}.{op} [%r5], {v}, [%r8];\n" for v in values)


COPY = (
    "st.shared.b32 [%r5+1024], {};\nbar.sync 0;\nadd.u32 %r7, %r5, 1024;\n"
    "@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{}.u32 "
    "[%r5], [%r7], 128, [%r8];\n"
)
DATA, ZERO, ONE = "%r13", "0", "0x3F800000"
SAME = {
    "a sum in any order": (DATA, red("add.u32", "%r10", "%r11") + OUT, red("add.u32", "%r11", "%r10") + OUT),
    "a sum and an atomic": (DATA, red("add.u32", "%r10") + OUT, atom("add.u32", "%r10") + OUT),
    "bits in any order": (
        DATA,
        red("xor.b32", "%r10", "%r11", "%r12") + OUT,
        red("xor.b32", "%r12", "%r10", "%r11") + OUT,
    ),
    "what is exchanged": (DATA, atom("exch.b32", "%r10") + OUT, "mov.b32 %r9, %r10;\n" + RESULT),
    "what was there": (DATA, atom("exch.b32", "%r10") + RESULT, "mov.b32 %r9, %r13;\n" + RESULT),
    "what a sum has found": (DATA, atom("add.u32", "%r10") + RESULT, "mov.b32 %r9, %r13;\n" + RESULT),
    "asynchronous and not": (DATA, red_async("add.u32", "%r10", "%r11") + OUT, red("add.u32", "%r11", "%r10") + OUT),
    "by a copy": (DATA, COPY.format("%r10", "add") + OUT, red("add.u32", "%r10") + OUT),
    "numbers": (ZERO, red("add.u32", "3", "4") + OUT, "mov.b32 %r9, 7;\n" + RESULT),
    "numbers with a sign": ("-1", red("max.s32", "3") + OUT, "mov.b32 %r9, 3;\n" + RESULT),
    "a count that begins again": ("5", red("inc.u32", "5") + OUT, "mov.b32 %r9, 0;\n" + RESULT),
}
OTHER = {
    "another value": (DATA, red("add.u32", "%r10") + OUT, red("add.u32", "%r11") + OUT),
    "one value less": (DATA, red("add.u32", "%r10", "%r11") + OUT, red("add.u32", "%r10") + OUT),
    "one value twice": (DATA, red("add.u32", "%r10", "%r10") + OUT, red("add.u32", "%r10") + OUT),
    "another operation": (DATA, red("add.u32", "%r10") + OUT, red("xor.b32", "%r10") + OUT),
    "floats in another order": (DATA, red("add.f32", "%f0", "%f1") + OUT, red("add.f32", "%f1", "%f0") + OUT),
    "floats that are numbers": (ONE, red("add.f32", "0f3F800000") + OUT, "mov.b32 %r9, 0x7F000000;\n" + RESULT),
    "before and behind": (DATA, atom("add.u32", "%r10") + RESULT, atom("add.u32", "%r10") + OUT),
    "what the second has found": (
        DATA,
        atom("add.u32", "%r10") + atom("add.u32", "%r11") + RESULT,
        atom("add.u32", "%r11") + atom("add.u32", "%r10") + RESULT,
    ),
    "another asynchronous one": (DATA, red_async("add.u32", "%r10") + OUT, red_async("add.u32", "%r11") + OUT),
    "another copy": (DATA, COPY.format("%r10", "add") + OUT, COPY.format("%r10", "max") + OUT),
    "a copy of something else": (DATA, COPY.format("%r10", "add") + OUT, COPY.format("%r11", "add") + OUT),
}


@pytest.mark.parametrize("name", SAME)
def test_atomics_that_leave_the_same(name: str) -> None:
    held, *bodies = SAME[name]
    assert are_equal(*(BEGIN.format(held) + body for body in bodies))


@pytest.mark.parametrize("name", OTHER)
def test_atomics_that_leave_something_else(name: str) -> None:
    held, *bodies = OTHER[name]
    assert not are_equal(*(BEGIN.format(held) + body for body in bodies))


def test_zeros_of_a_bulk_store() -> None:
    zeros = "bar.sync 0;\nmov.u32 %r7, room;\n@%p1 st.bulk.shared::cta [%r7], 128, 0;\n" + OUT
    assert are_equal(BEGIN.format(DATA) + zeros, "mov.b32 %r9, 0;\n" + RESULT)
    assert not are_equal(BEGIN.format(DATA) + zeros.replace("128", "64"), "mov.b32 %r9, 0;\n" + RESULT)
