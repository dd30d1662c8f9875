# SPDX-License-Identifier: Apache-2.0
"""Loops that leave the same for all numbers of turns, and those that do so only for the first ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from looping import ADD, LOAD, NotProvedError, are_blocks_alike, kernel, period_of_all, side

from porter.equal import all_turns
from porter.equal.all_turns import AllTurns, NotAllError, OtherError, Side
from porter.equal.induction import Classes
from porter.equal.periods import Growing, IrregularError
from porter.equal.places import Behind, LoopLines, Room
from porter.equal.turning import TurnFollower
from porter.sync.lines import Lines

ORIGINAL = kernel()
BYTES = "add.s64 %d4, %d0, %d4;\nld.global.f32 %f0, [%d4];\n" + ADD
INDEX = "mul.wide.u32 %d4, %r3, 512;\n" + BYTES
STAGE = (
    "mul.lo.u32 %r7, %r5, 128;\nshl.b32 %r8, %r0, 2;\nadd.u32 %r7, %r7, %r8;\nmov.u32 %r8, room;\n"
    "add.u32 %r7, %r7, %r8;\n"
)
ROW = "".join(f"mov.f32 %f{number}, %f9;\n" for number in range(10, 75))
LAST = "ld.global.f32 %f0, [%d3];\nadd.s64 %d3, %d3, 512;\n" + ADD + "\nadd.f32 %f4, %f4, %f{};\n"
TWO_TURNS = "setp.eq.u32 %p2, %r10, 128;\n@%p2 add.f32 %f4, %f4, %f4;\n"
SUM = "add.s64 %d4, %d0, %d4;\nld.global.f32 %f0, [%d4];\n" + ADD
WIDE = "mul.wide.u32 %d4, %r2, 512;\n"
NARROW = "shl.b32 %r3, %r2, 9;\ncvt.u64.u32 %d4, %r3;\n"
TWICE = "setp.ne.u32 %p2, %r3, 0;\n@%p2 add.f32 {0}, {0}, {0};\n"
NEXT = "add.u32 %r5, %r5, 1;\nsetp.eq.u32 %p2, %r5, {};\nselp.b32 %r5, 0, %r5, %p2;\n"
LINE = "".join(f"mov.f32 %f{number}, %f{number - 1};\n" for number in range(74, 10, -1))

SAME = {
    "a pointer that moves": "ld.global.f32 %f0, [%d3];\nadd.s64 %d3, %d3, 512;\n" + ADD,
    "an offset": "shl.b32 %r3, %r2, 9;\ncvt.u64.u32 %d4, %r2;\nshl.b64 %d4, %d4, 9;\n" + BYTES,
    "by way of stages in shared memory": LOAD + STAGE + "st.shared.f32 [%r7], %f0;\nld.shared.f32 %f1, [%r7];\n"
    "add.f32 %f4, %f4, %f1;\n" + NEXT.format(3),
    "by way of local memory": LOAD + "mov.b64 %d5, own;\nst.local.f32 [%d5], %f0;\nld.local.f32 %f1, [%d5];\n"
    "add.f32 %f4, %f1, %f4;",
}  # fmt: skip

LATE = {
    "the low bits of an index": "and.b32 %r3, %r2, 63;\n" + INDEX,
    "a high bit of an index": "shr.u32 %r3, %r2, 6;\nand.b32 %r3, %r3, 1;\nadd.u32 %r3, %r3, %r2;\n" + INDEX,
    "a field of an index": "bfe.u32 %r3, %r2, 6, 1;\nadd.u32 %r3, %r3, %r2;\n" + INDEX,
    "an index of 16 bits": "cvt.u16.u32 %h0, %r2;\ncvt.u32.u16 %r3, %h0;\n" + INDEX,
    "a product of 32 bits": "mul.lo.u32 %r3, %r2, 512;\ncvt.u64.u32 %d4, %r3;\n" + BYTES,
    "a sum of 32 bits": "cvt.u64.u32 %d4, %r5;\nadd.u32 %r5, %r5, 512;\n" + BYTES,
    "a shift of 32 bits": "shl.b32 %r3, %r2, 9;\ncvt.u64.u32 %d4, %r3;\n" + BYTES,
    "the smaller of two": "min.u32 %r3, %r2, 65;\n" + INDEX,
    "an index that goes faster": "mul.wide.u32 %d4, %r5, 512;\nadd.u32 %r5, %r5, 1;\nshr.u32 %r6, %r5, 6;\n"
    "add.u32 %r5, %r5, %r6;\n" + BYTES,
    "a comparison with a turn": LOAD + "setp.eq.u32 %p2, %r2, 65;\n@%p2 add.f32 %f0, %f0, %f0;\n" + ADD,
    "a choice by a turn": "setp.eq.u32 %p2, %r2, 65;\nselp.b32 %r3, 0, %r2, %p2;\n" + INDEX,
    "a branch by a turn": LOAD + "setp.ne.u32 %p2, %r2, 65;\n@%p2 bra ON;\nadd.f32 %f0, %f0, %f0;\nON:\n" + ADD,
    "a comparison of a counter of its own": LOAD + "add.u32 %r5, %r5, 1;\nsetp.eq.u32 %p2, %r5, 65;\n"
    "@%p2 add.f32 %f0, %f0, %f0;\n" + ADD,
    "bits of a counter of its own": LOAD + "add.u32 %r5, %r5, 1;\nand.b32 %r3, %r5, 64;\n" + TWICE.format("%f0") + ADD,
    "two comparisons": LOAD + "setp.gt.u32 %p2, %r2, 64;\nsetp.lt.and.u32 %p2, %r2, 66, %p2;\n"
    "@%p2 add.f32 %f0, %f0, %f0;\n" + ADD,
    "a counter that is kept in local memory": "mov.b64 %d5, own;\nst.local.u32 [%d5+8], %r2;\n"
    "ld.local.u32 %r3, [%d5+8];\nshr.u32 %r4, %r3, 6;\nadd.u32 %r3, %r3, %r4;\n" + INDEX,
    "a bit that is kept in local memory": "mov.b64 %d5, own;\nshr.u32 %r4, %r2, 6;\nst.local.u32 [%d5+8], %r4;\n"
    "ld.local.u32 %r3, [%d5+8];\nadd.u32 %r3, %r3, %r2;\n" + INDEX,
    "a predicate of bits": LOAD + "and.b32 %r3, %r2, 64;\n" + TWICE.format("%f0") + ADD,
    "a number as data": LOAD + "shr.u32 %r3, %r2, 6;\nand.b32 %r3, %r3, 1;\nmov.b32 %r4, %f0;\nxor.b32 %r4, %r4, %r3;\n"
    "mov.b32 %f0, %r4;\n" + ADD,
    "local memory by a counter": LOAD + "and.b32 %r3, %r2, 64;\nmov.b64 %d5, own;\ncvt.u64.u32 %d6, %r3;\n"
    "add.s64 %d5, %d5, %d6;\nst.local.f32 [%d5], %f0;\nmov.b64 %d5, own;\nld.local.f32 %f0, [%d5];\n" + ADD,
    "an address of shared memory that moves": LOAD + "and.b32 %r3, %r2, 64;\nshl.b32 %r3, %r3, 4;\n"
    "mov.u32 %r8, room;\nst.shared.f32 [%r8], %f0;\nadd.u32 %r8, %r8, %r3;\nld.shared.f32 %f0, [%r8];\n" + ADD,
}  # fmt: skip

BEHIND = {
    "16 bits of the size": "ld.param.u16 %r3, [size];\ncvt.u64.u32 %d4, %r3;\ncvt.u64.u32 %d5, %r10;\n"
    "sub.s64 %d4, %d4, %d5;\nadd.s64 %d1, %d1, %d4;\n",
    "a comparison with the size": "setp.eq.u32 %p2, %r10, 4160;\n@%p2 add.f32 %f4, %f4, %f4;\n",
    "a comparison of bits of the size": "and.b32 %r3, %r10, 4096;\n" + TWICE.format("%f4"),
    "a comparison of bits of a counter": "and.b32 %r3, %r2, 64;\n" + TWICE.format("%f4"),
    "a counter": "and.b32 %r3, %r2, 64;\ncvt.u64.u32 %d4, %r3;\nadd.s64 %d1, %d1, %d4;\n",
    "the size": "and.b32 %r3, %r10, 8192;\ncvt.u64.u32 %d4, %r3;\nadd.s64 %d1, %d1, %d4;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_loops_that_are_equal_for_all_turns(name: str) -> None:
    assert period_of_all(ORIGINAL, kernel(SAME[name])) in (1, 3, 4)


@pytest.mark.parametrize("name", LATE)
def test_mistakes_that_begin_at_a_later_turn(name: str) -> None:
    with pytest.raises((NotProvedError, NotAllError)):
        period_of_all(ORIGINAL, kernel(LATE[name]))


@pytest.mark.parametrize("name", BEHIND)
def test_what_is_behind_the_loop_follows_its_turns(name: str) -> None:
    with pytest.raises((NotProvedError, NotAllError)):
        period_of_all(ORIGINAL, kernel(behind=BEHIND[name]))


def test_data_that_are_handed_on_for_long() -> None:
    """A row of registers hands on what it is given: what the last one holds never changes."""
    assert period_of_all(kernel(LAST.format(9), ROW), kernel(LAST.format(74) + LINE, ROW)) == 1


SIZE, OF_TURN = "ld.param.u32 %r6, [size];\n", "mul.wide.u32 %d5, %r2, 512;\nadd.s64 %d4, %d4, %d5;\n" + BYTES
ROWS = SIZE + "mul.wide.u32 %d4, %r0, %r6;\n"
NARROW_ROWS = SIZE + "mul.lo.u32 %r3, %r0, %r6;\ncvt.u64.u32 %d4, %r3;\n"
CHOICE = "setp.lt.u32 %p2, %r0, 16;\nadd.s64 %d5, %d4, 4096;\n"
PART = "mul.wide.u32 %d4, %r2, 512;\nadd.s64 %d4, %d4, {};\n" + BYTES + "\n"
INSIDE = (
    "mov.u32 %r3, {};\nINSIDE:\nshl.b32 %r7, %r3, 4;\ncvt.u64.u32 %d5, %r7;\n{}"
    + PART.format("%d5")
    + "add.u32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, {};\n@%p2 bra INSIDE;\n"
)
PAIRS = {
    "rows of so many bytes as the size": (ROWS + OF_TURN, ROWS + OF_TURN.replace("%d5", "%d6")),
    "rows of one tensor or another": (
        ROWS + CHOICE + "selp.b64 %d4, %d4, %d5, %p2;\n" + OF_TURN,
        ROWS + CHOICE + "@!%p2 mov.b64 %d4, %d5;\n" + OF_TURN,
    ),
    "a loop inside": (PART.format(0) + PART.format(16), INSIDE.format(0, "", 2)),
    "bits beside those that move": ("shl.b32 %r3, %r2, 3;\nor.b32 %r3, %r3, 5;\n" + INDEX,
                                    "shl.b32 %r3, %r2, 3;\nadd.u32 %r3, %r3, 5;\n" + INDEX),
}  # fmt: skip
UNLIKE = {
    "rows whose place is too narrow": (ROWS + OF_TURN, NARROW_ROWS + OF_TURN),
    "bits that what moves comes to": ("add.u32 %r3, %r2, 64;\n" + INDEX, "or.b32 %r3, %r2, 64;\n" + INDEX),
    "a loop inside that reads what a turn keeps": (
        PART.format(0) + PART.format(16),
        "mov.b64 %d6, own;\nshr.u32 %r4, %r2, 6;\nst.local.u32 [%d6+8], %r4;\n"
        + INSIDE.format(0, "ld.local.u32 %r4, [%d6+8];\nadd.u32 %r3, %r3, %r4;\n", 2),
    ),
    "a loop inside that goes on from turn to turn": (
        PART.format(0) + PART.format(16), "and.b32 %r4, %r2, 64;\n" + INSIDE.format("%r4", "", 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_that_follow_the_size_in_a_loop(name: str) -> None:
    assert period_of_all(*map(kernel, PAIRS[name])) == 1


FIRST = LOAD + ADD + "\nmov.u32 %r2, 1;\nsetp.ge.u32 %p1, %r2, %r1;\n@%p1 bra DONE;\n"


def test_a_turn_that_stands_ahead_of_the_loop() -> None:
    assert period_of_all(ORIGINAL, kernel(ahead=FIRST, behind="DONE:\n")) == 1
    assert period_of_all(kernel(ahead=FIRST, behind="DONE:\n"), ORIGINAL) == 1
    with pytest.raises((NotAllError, OtherError)):
        period_of_all(ORIGINAL, kernel(ahead=FIRST.replace("%r2, 1;", "%r2, 2;"), behind="DONE:\n"))
    with pytest.raises((NotProvedError, NotAllError)):
        period_of_all(ORIGINAL, kernel(LATE["a field of an index"], FIRST, "DONE:\n"))


def test_turns_ahead_of_loops_beside_one_that_is_unrolled() -> None:
    """Of that nobody can tell; the others make as many turns as it, and those that are missing stand ahead of them."""
    nothing: Any = None
    unrolled, plain = (nothing, 1, 0, 0), (nothing, 2, 0, 0)
    both = [
        Growing(nothing, nothing, 4, {unrolled: [nothing] * 17, plain: [nothing] * turns}, {unrolled: 1, plain: 4})
        for turns in (73, 74)
    ]
    ahead = [[*counts.values()] for counts in all_turns._ahead(both, 4, 75)]
    assert ahead == [[0, 2], [0, 1]]
    assert all_turns._ahead(both, 4, 73 + 4 + 2) == []


@pytest.mark.parametrize("name", UNLIKE)
def test_numbers_that_are_others_in_a_late_turn(name: str) -> None:
    with pytest.raises((NotProvedError, NotAllError)):
        period_of_all(*map(kernel, UNLIKE[name]))


BLOCK = "mov.u32 %r9, %ctaid.x;\n"
BLOCKS = {
    "rows of its own": (BLOCK + "mul.wide.u32 %d4, %r9, 8192;\nadd.s64 %d0, %d0, %d4;\n", LOAD + ADD, True),
    "steps of its own": (BLOCK, "mul.lo.u32 %r3, %r2, %r9;\n" + INDEX, False),
    "a way of its own": (BLOCK + "setp.eq.u32 %p3, %r9, 0;\n@%p3 bra LOOP;\nmov.u32 %r5, 1;\n", LOAD + ADD, False),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_do_the_same_with_other_numbers(name: str) -> None:
    ahead, turn, are_alike = BLOCKS[name]
    assert are_blocks_alike(kernel(turn, ahead)) is are_alike


def test_a_few_turns_are_compared_by_themselves() -> None:
    with pytest.raises(OtherError) as error:
        period_of_all(ORIGINAL, kernel(behind=TWO_TURNS))
    assert error.value.units == 2


FOUR_TURNS = "setp.eq.u32 %p2, {}, {};\n@%p2 add.f32 %f4, %f4, %f4;\n"
BETWEEN = {
    "behind the loop": kernel(behind=FOUR_TURNS.format("%r10", 256)),
    "in each turn": kernel(LOAD + ADD + FOUR_TURNS.format("%r10", 256)),
    "a difference": kernel(behind="sub.u32 %r3, %r10, 256;\n" + FOUR_TURNS.format("%r3", 0)),
    "more than some": kernel(behind="setp.gt.u32 %p2, %r10, 255;\n" + "setp.lt.and.u32 %p2, %r10, 300, %p2;\n"
                             "@%p2 add.f32 %f4, %f4, %f4;\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_a_size_between_those_that_the_ends_show_and_the_longest(name: str) -> None:
    with pytest.raises(OtherError) as error:
        period_of_all(ORIGINAL, BETWEEN[name])
    assert error.value.units == 4


class Weakened(NamedTuple):
    """A proof that lacks one of its conditions, and a port that it then takes for equal."""

    lacks: tuple[object, str, object]
    port: str
    original: str = ORIGINAL


def _few(turns: AllTurns, units: int, *others: Any, **more: Any) -> list[TurnFollower]:
    return _RUN(turns, units if units > 2 else 1, *others, **more)


_RUN = AllTurns._run
WEAKENED = {
    "lines in loops": Weakened((LoopLines, "require", lambda lines: None), kernel(LATE["the low bits of an index"])),
    "room for all turns": Weakened(
        (Lines, "exact", lambda lines, line, signs=False: (line.first, line.step)), kernel(LATE["a sum of 32 bits"])
    ),
    "what a turn leaves": Weakened(
        (LoopLines, "_require_heads", lambda lines: None), kernel(LATE["an index that goes faster"])
    ),
    "sums behind loops": Weakened((Behind, "require", lambda lines: None), kernel(behind=BEHIND["the size"])),
    "room behind loops": Weakened(
        (Room, "__call__", lambda room, at: True), kernel(behind=NARROW + SUM), kernel(behind=WIDE + SUM)
    ),
    "room in loops": Weakened(
        (Room, "__call__", lambda room, at: True), kernel(NARROW_ROWS + OF_TURN), kernel(ROWS + OF_TURN)
    ),
    "comparisons": Weakened(
        (all_turns, "comparisons", lambda *runs: iter(())), kernel(LATE["a comparison with a turn"])
    ),
    "classes": Weakened(
        (Classes, "hold", lambda *states: True), kernel(LAST.format(74) + LINE + "mov.f32 %f10, %f0;", ROW),
        kernel(LAST.format(9), ROW),
    ),
    "sizes in between": Weakened((AllTurns, "_settle", lambda *runs: None), BETWEEN["behind the loop"]),
    "the first turns": Weakened((AllTurns, "_run", _few), kernel(behind=TWO_TURNS)),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAKENED)
def test_each_condition_stops_something_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = WEAKENED[name]
    with pytest.raises((NotAllError, OtherError)):
        period_of_all(one.original, one.port)
    monkeypatch.setattr(*one.lacks)
    assert period_of_all(one.original, one.port) == 1


class Torn:
    """Turns of a program that cannot be cut."""

    def stops(self, count: int) -> dict[Any, int]:
        raise IrregularError("lanes of a warp that go together in some turns alone", 3)


def test_turns_that_cannot_be_cut_are_no_internal_error() -> None:
    """An answer with the program and the place, as of all that is not regular."""
    sides = [side(name, ORIGINAL) for name in ("original", "port")]
    cut: Any = [Torn(), Torn()]
    with pytest.raises(NotAllError, match="in some turns alone") as found:
        AllTurns(sides, 1, 1)._stops(cut, 2)
    assert (found.value.program, found.value.at) == ("original", 3)


def test_nothing_is_begun_where_another_size_has_taken_longer_than_what_is_left() -> None:
    sides = [side(name, ORIGINAL) for name in ("original", "port")]
    assert AllTurns(sides, 1, 1, lambda: 3.0, 2.5).period() == 1
    both = AllTurns([side(name, ORIGINAL) for name in ("original", "port")], 1, 1, lambda: 3.0, 3.5)
    with pytest.raises(NotAllError, match="no time for as many turns"):
        both.period()
    assert both.slowest == 3.5


@pytest.mark.parametrize(("seconds", "runs"), [(0.5, 1), (19.5, 1), (20.5, 1), (21.5, 2), (31.5, 3)])
def test_no_execution_is_begun_without_time_for_it(monkeypatch: pytest.MonkeyPatch, seconds: float, runs: int) -> None:
    """As long as the slowest one before it, five seconds for each program, and longer by its units: 10, 11, 5."""
    left, begun, runs_of_side = [seconds], [0], Side.run

    def taking_five(self: Side, *given: Any, **more: Any) -> TurnFollower:
        left[0] -= 5
        begun[0] += 1
        return runs_of_side(self, *given, **more)

    monkeypatch.setattr(Side, "run", taking_five)
    both = AllTurns([side(name, ORIGINAL) for name in ("original", "port")], 1, 1, lambda: left[0])
    with pytest.raises(NotAllError, match="no time for as many turns"):
        both.period()
    assert begun[0] == 2 * runs
