# SPDX-License-Identifier: Apache-2.0
"""What kernels make of variables of their module: the same in another way, and something else."""

from __future__ import annotations

import pytest
from written import left

from porter.equal.outcome import difference
from porter.facts.events import NotUnderstood

TABLE = ".const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};\n"
GLOBAL = TABLE.replace(".const", ".global")
OTHER_LAST = TABLE.replace("0f40800000", "0f41000000")
PLAIN = ".const .align 4 .f32 table[4];\n"
OUT = "st.global.f32 [%d1], %f4;\n"
FIRST = "ld.const.f32 %f4, [table];\n" + OUT
SECOND = "ld.const.f32 %f4, [table+4];\n" + OUT
BY_REGISTER = "mov.u64 %d4, table;\nadd.s64 %d4, %d4, 4;\nld.const.f32 %f4, [%d4];\n" + OUT
BY_LANE = (
    "and.b32 %r2, %r0, 1;\nmul.wide.u32 %d5, %r2, 4;\nmov.u64 %d4, table;\nadd.s64 %d4, %d4, %d5;\n"
    "ld.const.f32 %f4, [%d4];\n" + OUT
)
CHOSEN = (
    "ld.const.f32 %f5, [table];\nld.const.f32 %f6, [table+4];\nand.b32 %r2, %r0, 1;\n"
    "setp.eq.u32 %p1, %r2, 0;\nselp.f32 %f4, %f5, %f6, %p1;\n" + OUT
)
GENERIC = "mov.u64 %d4, table;\ncvta.global.u64 %d4, %d4;\nld.f32 %f4, [%d4+4];\n" + OUT
OF_GLOBAL = SECOND.replace("ld.const", "ld.global")
BY_DATA = (
    "mov.b32 %r2, %f0;\nand.b32 %r2, %r2, 3;\nmul.wide.u32 %d5, %r2, 4;\nmov.u64 %d4, table;\n"
    "add.s64 %d4, %d4, %d5;\nld.const.f32 %f4, [%d4];\n" + OUT
)
WRITTEN = (
    "mov.u64 %d4, table;\nmul.wide.u32 %d5, %r0, 4;\nadd.s64 %d4, %d4, %d5;\n"
    "setp.lt.u32 %p1, %r0, 4;\n@%p1 st.global.f32 [%d4], %f0;\n@%p1 ld.global.f32 %f4, [%d4];\n@%p1 " + OUT
)
MINE = "_ZN34_INTERNAL_0a1b2c3d_4_k_cu_1234567_5tableE"
SAME = {
    "an element by its address": ((TABLE, SECOND), (TABLE, BY_REGISTER)),
    "an element of each lane": ((TABLE, BY_LANE), (TABLE, CHOSEN)),
    "other elements than those that are read": ((TABLE, SECOND), (OTHER_LAST, SECOND)),
    "by a generic address": ((GLOBAL, OF_GLOBAL), (GLOBAL, GENERIC)),
    "what it holds is not told": ((PLAIN, SECOND), (PLAIN, BY_REGISTER)),
    "by data": ((TABLE, BY_DATA), (TABLE, BY_DATA)),
    "behind another one": ((TABLE, SECOND), (".global .align 4 .u32 more[3] = {1, 2, 3};\n" + TABLE, SECOND)),
    "what is written to it": (
        (GLOBAL, WRITTEN),
        (GLOBAL, WRITTEN.replace("@%p1 ld.global.f32 %f4, [%d4];", "mov.f32 %f4, %f0;")),
    ),
    "one of another file": (
        (TABLE.replace("table", MINE), SECOND.replace("table", MINE)),
        tuple(text.replace("table", MINE.replace("0a1b2c3d", "ffffffff")) for text in (TABLE, SECOND)),
    ),
    "bytes of an element": (
        (TABLE, "ld.const.b32 %r2, [table+4];\nst.global.b32 [%d1], %r2;\n"),
        (TABLE, SECOND),
    ),
}
OTHER = {
    "another element": ((TABLE, SECOND), (TABLE, FIRST)),
    "another number in it": ((TABLE, SECOND), (TABLE.replace("0f40000000", "0f40000001"), SECOND)),
    "no number in it": ((TABLE, SECOND), (PLAIN, SECOND)),
    "another variable": ((TABLE, SECOND), (TABLE.replace("table", "other"), SECOND.replace("table", "other"))),
    "a number for it": ((TABLE, SECOND), (TABLE, "mov.f32 %f4, 0f40000000;\n" + OUT)),
    "another table, by data": ((TABLE, BY_DATA), (OTHER_LAST, BY_DATA)),
    "other data": ((TABLE, BY_DATA), (TABLE, BY_DATA.replace("%r2, %f0", "%r2, %f1"))),
    "an element of another lane": ((TABLE, BY_LANE), (TABLE, CHOSEN.replace("eq.u32", "ne.u32"))),
    "something else written to it": ((GLOBAL, WRITTEN), (GLOBAL, WRITTEN.replace("[%d4], %f0", "[%d4], %f1"))),
    "nothing written to it": ((GLOBAL, WRITTEN), (GLOBAL, WRITTEN.replace("@%p1 st.", "@!%p1 st."))),
}


def are_equal(one: tuple[str, str], other: tuple[str, str]) -> bool:
    first, second = (left(body, variables=variables) for variables, body in (one, other))
    return difference(first, second) is None


@pytest.mark.parametrize("name", SAME)
def test_variables_that_leave_the_same(name: str) -> None:
    assert are_equal(*SAME[name])


@pytest.mark.parametrize("name", OTHER)
def test_variables_that_leave_something_else(name: str) -> None:
    assert not are_equal(*OTHER[name])


def test_what_lies_behind_a_variable_is_not_known() -> None:
    with pytest.raises(NotUnderstood):
        left(FIRST.replace("[table]", "[table+16]"), variables=TABLE)
