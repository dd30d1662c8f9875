# SPDX-License-Identifier: Apache-2.0
"""Rings of mbarriers that take longer to come round than all else: known for all numbers of turns from fewer than three
of their periods, and mistakes that begin where parts of the period meet late."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from test_turns import is_proved, runs
from turning_kernels import flow_of, launched, ring, wait

from porter.facts.events import Signal, WarpName
from porter.sync import turns
from porter.sync.checked import Verdict, check
from porter.sync.renaming import Renaming
from porter.sync.turns import Lasso, Recorder, find_lasso

SLOT = "and.b32 %r30, %r10, 3;\nshl.b32 %r30, %r30, 3;\nmov.u32 %r31, done;\nadd.u32 %r31, %r31, %r30;\n"
PARITY = "shr.u32 %r32, %r10, 2;\nand.b32 %r32, %r32, 1;\n"


def with_done(stages: int, slot: str = SLOT, store: str = "") -> str:
    """A ring of stages whose producer tells besides by one of four more mbarriers in each turn that it has stored."""
    done = slot + "mbarrier.arrive.shared::cta.b64 _, [%r31];\n"
    awaited = slot + PARITY + wait("$DONE", "%r31", "%r32")
    text = ring(stages=stages, store="st.shared.u32 [%r17], %r10;\n" + store + done, before_release=awaited)
    inits = "".join(f"mbarrier.init.shared::cta.b64 [done+{8 * i}], 1;\n" for i in range(4))
    text = text.replace("full[4]", "full[8]").replace("empty[4];\n", "empty[8];\n.shared .align 8 .b64 done[4];\n")
    return text.replace("mbarrier.init", inits + "mbarrier.init", 1)


def test_three_stages_and_four_mbarriers_take_a_period_and_twice_the_longer_ring() -> None:
    found, verdicts = runs(with_done(3), 42)
    assert set(verdicts) == {Verdict.CLEAN}
    lasso = find_lasso(found)
    assert lasso is not None
    assert (lasso.period, lasso.reach) == (24, 8)
    assert is_proved(lasso, 42)
    assert not is_proved(find_lasso(found[:40]), 40)
    assert not is_proved(find_lasso(found, renames=False), 42)


# the sum of a stage and some number of times a slot has a higher bit in one of all meetings of both
MEET = (
    "and.b32 %r33, %r10, {slots};\nmul.lo.u32 %r33, %r33, {stages};\nadd.u32 %r33, %r33, %r11;\n"
    "add.u32 %r33, %r33, {rest};\nshr.u32 %r33, %r33, {bit};\nshl.b32 %r33, %r33, 3;\nadd.u32 %r14, %r14, %r33;\n"
)


def meeting(stages: int, slots: int) -> str:
    """Another stage's mbarrier is arrived at where the last stage meets the last of so many numbers."""
    bit = (stages * slots).bit_length()
    return MEET.format(slots=slots - 1, stages=stages, rest=(1 << bit) - stages * slots + 1, bit=bit)


MEETINGS = [(3, 16, 40, False), (3, 16, 40, True), (7, 8, 50, False)]


@pytest.mark.parametrize(("stages", "slots", "most", "has_done"), MEETINGS)
def test_what_happens_where_a_stage_meets_low_bits_late(stages: int, slots: int, most: int, has_done: bool) -> None:
    store = meeting(stages, slots)
    plain = ring(stages=stages, store="st.shared.u32 [%r17], %r10;\n" + store)
    text = with_done(stages, store=store) if has_done else plain.replace("[4]", "[8]")
    first = next(i for i in range(stages * slots) if i % stages == stages - 1 and i % slots == slots - 1)
    assert first > most
    found, verdicts = runs(text, most)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found), most)
    assert check(launched(flow_of(text), first + 2)).verdict is Verdict.ERROR


RING = 5
A, B = WarpName(0, 0), WarpName(0, 1)


def recorders(others: Callable[[int], list[tuple[object, ...]]]) -> list[Recorder]:
    """Executions for 1 to 20 turns of a warp that waits for one of five mbarriers in each, and of another one."""
    traces = ({A: [entry(64 + 8 * (i % RING), i // RING % 2) for i in range(count)], B: others(count)}
              for count in range(1, 21))  # fmt: skip
    return [cast(Recorder, SimpleNamespace(traces=trace)) for trace in traces]


def test_a_warp_without_turns_names_what_takes_turns_behind_them_alone() -> None:
    last = turns._regular(recorders(lambda n: [entry(64 + 8 * (n % RING), n // RING % 2)]), 1, True)
    assert last == Lasso(2 * RING, 1, reach=2 * RING)
    # it may arrive at that one at any time
    assert turns._regular(recorders(lambda n: [entry(64, 0)]), 1, True) is None
    assert turns._regular(recorders(lambda n: [entry(256, 0)]), 1, True) == last


def entry(where: int, parity: int | None = None, at: int = 7) -> tuple[object, ...]:
    return "wait", Signal(where, parity), at


def test_one_mbarrier_stands_for_one_in_all_entries() -> None:
    of_all = Renaming()
    assert of_all.takes(entry(64, 0), entry(72, 1))
    assert of_all.takes(entry(64, 1), entry(72, 0))
    assert not of_all.copy().takes(entry(64), entry(80))
    assert not of_all.copy().takes(entry(80), entry(72))
    assert not of_all.copy().takes(entry(64, 0), entry(72, 0))
    assert not of_all.copy().takes(entry(72, 0, at=7), entry(64, 0, at=8))
    assert not of_all.copy().takes(entry(72), entry(64 | 1 << 24))
    assert of_all.periods() is None
    assert of_all.takes(entry(72, 0), entry(64, 0))
    # the parity turns once on the way round
    assert of_all.periods() == 4
