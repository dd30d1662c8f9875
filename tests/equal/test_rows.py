# SPDX-License-Identifier: Apache-2.0
"""Instructions in a row that make data are done at once, and leave what they leave one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from porter.equal.meaning import Follower
from porter.equal.rows import Row
from porter.equal.turning import TurnFollower
from tests.equal.looping import LOAD, kernel, side
from tests.equal.written import left

_SHAPES = ("add.f32 {0}, {1}, {2};", "mul.rn.f32 {0}, {1}, {2};", "fma.rn.f32 {0}, {1}, {2}, {3};",
           "fma.rn.f32 {0}, {1}, 0f3FC00000, {0};", "max.f32 {0}, {1}, {2};", "ex2.approx.ftz.f32 {0}, {1};",
           "sub.f32 {0}, {1}, {2};", "setp.lt.f32 %p{4}, {1}, {2};", "cvt.rn.bf16x2.f32 %r{5}, {1}, {2};",
           "add.rn.bf16x2 %r{5}, %r{6}, %r{5};", "cvt.rn.f32.u32 {0}, %r{6};")  # fmt: skip
_KEPT = "".join(f"selp.f32 %f{9 + n}, %f0, %f1, %p{n};\n" for n in (1, 2, 3)) + "".join(
    f"st.global.f32 [%d1+{8192 * n}], %f{n};\nst.global.b32 [%d1+{8192 * (20 + n)}], %r{20 + n % 4};\n"
    for n in range(13)
)


def _some(dice: Random, count: int) -> str:
    """Instructions of which some take what others make, or write over it."""

    def one() -> str:
        floats = [f"%f{dice.randrange(8)}" for _ in range(4)]
        return dice.choice(_SHAPES).format(*floats, dice.randrange(1, 4), *(20 + dice.randrange(4) for _ in range(2)))

    ahead = "".join(f"mov.b32 %r{20 + n}, %f{n};\nadd.f32 %f{4 + n}, %f{n}, %f{n};\n" for n in range(4))
    ahead += "".join(f"setp.gt.f32 %p{n}, %f{n}, %f0;\n" for n in (1, 2, 3))
    return ahead + "\n".join(one() for _ in range(count)) + "\n" + _KEPT


@pytest.mark.parametrize("seed", range(6))
def test_a_row_leaves_what_its_instructions_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body, ran = _some(Random(seed), 60), list[Row]()
    run = Row.run

    def counted(row: Row, *given: Any) -> None:
        ran.append(row)
        run(row, *given)

    monkeypatch.setattr(Row, "run", counted)
    at_once = left(body)
    assert ran
    monkeypatch.setattr(Follower, "follow_row", lambda *given: False)
    alone = left(body)
    assert np.array_equal(at_once.addresses, alone.addresses)
    assert np.array_equal(at_once.words, alone.words)


def test_what_takes_a_result_comes_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: each instruction of a row takes what was there ahead of it."""
    body = "fma.rn.f32 %f4, %f0, %f1, %f2;\nfma.rn.f32 %f4, %f4, %f1, %f3;\n" + "st.global.f32 [%d1], %f4;\n"
    right = left(body)
    made = Row.__init__

    def forgetting(row: Row, *given: Any) -> None:
        made(row, *given)
        row._sources = [[None] * len(sources) for sources in row._sources]

    monkeypatch.setattr(Row, "__init__", forgetting)
    assert not np.array_equal(left(body).words, right.words)


def test_lanes_that_go_alone_are_followed_one_by_one() -> None:
    some = "setp.lt.u32 %p1, %r0, 5;\n@!%p1 bra END;\nmul.f32 %f0, %f0, %f1;\nmul.f32 %f1, %f0, %f2;\nEND:\n"
    row = left(f"{some}st.global.v2.f32 [%d1], {{%f0, %f1}};\n")
    apart = left("mul.f32 %f4, %f0, %f1;\nmov.b32 %r3, %f4;\nmul.f32 %f5, %f4, %f2;\nsetp.lt.u32 %p1, %r0, 5;\n"
                 "@%p1 mov.f32 %f0, %f4;\n@%p1 mov.f32 %f1, %f5;\nst.global.v2.f32 [%d1], {%f0, %f1};\n")  # fmt: skip
    assert np.array_equal(row.words, apart.words)


def test_a_turn_is_told_of_a_row_as_of_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the registers that are numbers, and no more where one of the row has made data of them."""
    turn = f"{LOAD}cvt.rn.f32.u32 %f1, %r2;\nadd.f32 %f4, %f4, %f0;\nmul.f32 %f2, %f1, %f1;\nmul.f32 %f4, %f4, %f2;\n"
    text = kernel(turn)
    at_once = side("a row", text).run(3, {}, {}).log
    monkeypatch.setattr(TurnFollower, "follow_row", lambda *given: False)
    alone = side("alone", text).run(3, {}, {}).log
    assert at_once == alone
