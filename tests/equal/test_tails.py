# SPDX-License-Identifier: Apache-2.0
"""What is behind a loop is followed once for all sizes that hold the same there, and again where they do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from looping import ADD, LOAD, kernel, side

from porter.equal import tails
from porter.equal.all_turns import AllTurns, OtherError, Side
from porter.equal.induction import Classes
from porter.equal.tails import Marks
from porter.facts.machine import Machine

AHEAD = (
    "setp.ne.u32 %p8, %r0, 0;\nmov.u32 %r11, room;\n@!%p8 mbarrier.init.shared::cta.b64 [%r11], 1;\n"
    "mov.u32 %r12, 0;\nbar.sync 0;\n"
)  # fmt: skip
PHASE = (
    "@!%p8 mbarrier.arrive.shared::cta.b64 _, [%r11];\n"
    "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], %r12;\n@!%p3 bra WAIT;\nxor.b32 %r12, %r12, 1;\n"
)  # fmt: skip
BY_PHASE = "shl.b32 %r3, %r12, 2;\ncvt.u64.u32 %d5, %r3;\nadd.s64 %d4, %d4, %d5;\nld.global.f32 %f0, [%d4];\n" + ADD
STAGE = "add.u32 %r5, %r5, 1;\nsetp.eq.u32 %p2, %r5, 7;\nselp.b32 %r5, 0, %r5, %p2;\n"
TURN = LOAD + ADD + "\n" + STAGE
KEPT = TURN + "mov.u32 %r8, room;\nst.shared.u32 [%r8], %r5;\n"
IF_FIVE = "setp.eq.u32 %p2, %r6, 5;\n@%p2 add.f32 %f4, %f4, %f4;\n"
STATE = "mov.u64 %d5, 0;\n@!%p8 mbarrier.arrive.shared::cta.b64 %d5, [%r11];\ncvt.u32.u64 %r6, %d5;\n"
UNLESS_TWO = "xor.b32 %r6, %r6, 2;\nmin.u32 %r6, %r6, 1;\n"
AS_DATA = "cvt.rn.f32.u32 %f3, %r6;\nadd.f32 %f4, %f4, %f3;\n"
FOUR = "setp.eq.u32 %p2, %r10, 256;\n@%p2 add.f32 %f4, %f4, %f4;\n"


def proved(original: str, port: str, units: int = 1) -> int:
    """The period with which both leave the same for all turns. Raises NotAllError, OtherError."""
    return AllTurns([side("original", original), side("port", port)], units, 1).period()


def test_phases_of_waits_make_a_period_no_longer() -> None:
    one = kernel(LOAD + ADD + "\n" + PHASE, AHEAD)
    assert proved(one, one, 2) == 1


def test_phases_by_which_data_are_found_do() -> None:
    one = kernel(LOAD + BY_PHASE + "\n" + PHASE, AHEAD)
    assert proved(one, one, 2) == 2


BEYOND = "fma.rn.f32 %f4, %f4, %f4, %f9;\n"
OF_ONE_LANE = "setp.ne.u32 %p4, %r0, 0;\n@%p4 bra OVER;\n"
BY_ITSELF = "st.global.f32 [%d1+4], %f4;\nOVER:\nmov.f32 %f4, 0f3F800000;\n"


@pytest.mark.parametrize(("ahead", "behind"), [("", BEYOND), (OF_ONE_LANE, BEYOND + BY_ITSELF)])
def test_what_is_behind_a_loop_is_followed_once(ahead: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[int] = []
    run = Side.run

    def counted(one: Side, units: int, *others: Any) -> Any:
        if not others[-1]:
            whole.append(units)
        return run(one, units, *others)

    monkeypatch.setattr(Side, "run", counted)
    text = kernel(ahead=ahead, behind=behind)
    proved(text, text)
    # two that show what repeats, and those with turns of their own and with given ones
    assert whole == [10, 10, 11, 11, 1, 1]


class Weakened(NamedTuple):
    """What is behind a loop without one of its conditions, two programs that it then takes for equal, and for how many
    turns they are not."""

    lacks: tuple[object, str, object]
    original: str
    port: str
    turns: int
    units: int = 1


def _without_memory(marks: Marks, *others: Any) -> object:
    found: Any = _CONTROL(marks, *others)
    return found if found is None else found[:2]


_CONTROL = Marks.control
WEAKENED = {
    "numbers in memory": Weakened(
        (Marks, "control", _without_memory), kernel(KEPT, behind="ld.shared.u32 %r6, [%r8];\n"),
        kernel(KEPT, behind="ld.shared.u32 %r6, [%r8];\n" + IF_FIVE), 5, 7,
    ),
    "numbers in registers": Weakened(
        (Marks, "_of_group", lambda marks, group: group.pc), kernel(TURN),
        kernel(TURN, behind="mov.u32 %r6, %r5;\n" + IF_FIVE), 5, 7,
    ),
    "what is held": Weakened((Classes, "refined", lambda held, *states: held), kernel(), kernel(behind=FOUR), 4),
    "what asks for more": Weakened(
        (tails, "_asking", lambda flow: frozenset[int]()),
        kernel(LOAD + ADD + "\n" + PHASE, AHEAD, STATE + "mov.u32 %r6, 1;\n" + AS_DATA),
        kernel(LOAD + ADD + "\n" + PHASE, AHEAD, STATE + UNLESS_TWO + AS_DATA), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAKENED)
def test_each_condition_stops_something_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = WEAKENED[name]
    with pytest.raises(OtherError) as error:
        proved(one.original, one.port, one.units)
    assert error.value.units == one.turns
    monkeypatch.setattr(*one.lacks)
    if name == "numbers in registers":
        # that what is live follows the turns is seen ahead of that as well
        monkeypatch.setattr(tails, "_following", lambda *loops: set[str]())
    proved(one.original, one.port, one.units)


def test_what_the_launch_gives_behind_a_loop() -> None:
    loads = "ld.param.u32 %r6, [size];\ncvt.u64.u32 %d4, %r6;\nadd.s64 %d1, %d1, %d4;\n"
    for behind, is_asked in ((loads, True), ("", False)):
        one = side("", kernel(behind=behind))
        store = next(at for at, ins in enumerate(one.flow.code.code) if ins.parts[0] == "st")
        marks = Marks(one.flow, {}, frozenset([store - 3 * is_asked]), frozenset())
        four, five = (marks.given(Machine(one.launched(units)), ()) for units in (4, 5))
        assert (four != five) is is_asked
