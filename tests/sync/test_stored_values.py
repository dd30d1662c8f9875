# SPDX-License-Identifier: Apache-2.0
"""Stores to one place that nothing orders, of one value and of several (docs/rulings.md, shared-flag)."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors

OF_ONE_VALUE = {
    "a number": "st.shared.b32 [%r2], 7;",
    "a register": "mov.u32 %r4, 9;\nst.shared.b32 [%r2], %r4;",
    "a pair": "st.shared.v2.b32 [%r2], {3, 4};",
    "of each lane": "and.b32 %r4, %r0, 31;\nshl.b32 %r5, %r4, 2;\nadd.u32 %r5, %r5, %r2;\nst.shared.b32 [%r5], %r4;",
}
OF_SEVERAL = {
    "its thread": "st.shared.b32 [%r2], %r0;",
    "its warp": "shr.u32 %r4, %r0, 5;\nst.shared.b32 [%r2], %r4;",
    "its lane": "and.b32 %r4, %r0, 31;\nst.shared.b32 [%r2], %r4;",
    "two lanes to each place": "and.b32 %r4, %r0, 31;\nand.b32 %r5, %r0, 28;\nadd.u32 %r5, %r5, %r2;\n"
    "st.shared.b32 [%r5], %r4;",
    "data": "ld.shared.b32 %r4, [%r3];\nst.shared.b32 [%r2], %r4;",
    "elsewhere": "shr.u32 %r4, %r0, 5;\nadd.u32 %r5, %r2, %r4;\nst.shared.b16 [%r5], 1;\nst.shared.b64 [%r2], 0;",
    "one of two": "shr.u32 %r4, %r0, 5;\nst.shared.v2.b32 [%r2], {3, %r4};",
}


@pytest.mark.parametrize("name", OF_ONE_VALUE)
def test_one_value_is_to_review(name: str) -> None:
    strict = checked(OF_ONE_VALUE[name] + "\n", threads=64)
    assert {f.kind for f in strict.findings if f.level == "strict"} == {"G1"}
    practice = checked(OF_ONE_VALUE[name] + "\n", threads=64, rulings="practice")
    assert {f.level for f in practice.findings if f.kind == "G1"} == {"review"}
    assert any("stays equal" in said for said in practice.assumed)


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_several_are_an_error(name: str) -> None:
    assert "G1" in errors(checked(OF_SEVERAL[name] + "\n", threads=64, rulings="practice")), name


def test_who_reads_it_waits_for_all() -> None:
    text = "st.shared.b32 [%r2], 7;\n{}ld.shared.b32 %r4, [%r2];\n"
    assert not errors(checked(text.format("bar.sync 0;\n"), threads=64, rulings="practice"))
    assert errors(checked(text.format(""), threads=64, rulings="practice")) == {"G1"}


def test_a_strong_access_and_an_ordinary_one() -> None:
    text = "setp.lt.u32 %p1, %r0, 32;\n@%p1 st.relaxed.cta.shared.b32 [%r2], 7;\n@!%p1 ld.shared.b32 %r4, [%r2];\n"
    assert not errors(checked(text, threads=64, rulings="practice"))
    ordinary = text.replace("st.relaxed.cta.shared", "st.shared")
    assert errors(checked(ordinary, threads=64, rulings="practice")) == {"G1"}
