# SPDX-License-Identifier: Apache-2.0
"""Rings of stages for all numbers of turns, and mistakes that begin late: each is stopped by one condition alone."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.facts.machine import Machine
from porter.sync import turns
from porter.sync.checked import Verdict, check
from porter.sync.turns import Lasso, Recorder, find_lasso

RIGHT = {
    "one stage": ring(stages=1),
    "two stages": ring(),
    "three stages": ring(stages=3),
    "four stages": ring(stages=4),
}
SKIP = "@%p7 bra $GO;\n"
LATE = {
    "by a comparison": "setp.gt.u32 %p7, %r10, 64;\n" + SKIP,
    "by a bit": "and.b32 %r30, %r10, 64;\nsetp.ne.u32 %p7, %r30, 0;\n" + SKIP,
    "by a shift": "shr.u32 %r30, %r10, 6;\nsetp.ne.u32 %p7, %r30, 0;\n" + SKIP,
    "by a product": "mul.hi.u32 %r30, %r10, 0x4000000;\nsetp.ne.u32 %p7, %r30, 0;\n" + SKIP,
    "by equality": "setp.eq.u32 %p7, %r10, 100;\n" + SKIP,
    "by a comparison from above": "sub.u32 %r30, 70, %r10;\nsetp.gt.s32 %p7, %r10, 70;\n" + SKIP,
}
TURNS = 30


def runs(text: str, count: int = TURNS) -> tuple[list[Recorder], list[Verdict]]:
    flow = flow_of(text)
    found, verdicts = [], []
    for number in range(1, count + 1):
        one = launched(flow, number)
        machine = Machine(one)
        found.append(Recorder(machine))
        verdicts.append(check(one, machine=machine).verdict)
    return found, verdicts


def is_proved(lasso: Lasso | None, count: int = TURNS) -> bool:
    return lasso is not None and not lasso.why_not and lasso.needed <= count


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_ring_is_right_for_all_numbers_of_turns(name: str) -> None:
    found, verdicts = runs(RIGHT[name])
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found))


@pytest.mark.parametrize("name", LATE)
def test_a_mistake_that_begins_late_keeps_it_from_all_numbers(name: str) -> None:
    text = ring(before_wait=LATE[name])
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))
    late = check(launched(flow_of(text), 110))
    assert late.verdict is Verdict.ERROR


OF_ONE_CLASS = """and.b32 %r30, %r1, 1;
setp.ne.u32 %p8, %r30, {};
@%p8 bra $WAITS;
setp.gt.u32 %p7, %r10, 64;
@%p7 bra $GO;
$WAITS:
"""


@pytest.mark.parametrize("odd", [0, 1])
def test_so_does_one_that_begins_late_for_odd_numbers_alone(odd: int) -> None:
    """The longest run of all is of one class."""
    text = ring(before_wait=OF_ONE_CLASS.format(odd))
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))
    assert check(launched(flow_of(text), 110 + odd)).verdict is Verdict.ERROR


OTHER_BARRIER = (
    # from turn 64 on another stage's barrier is arrived at
    "shr.u32 %r30, %r10, 6;\nmin.u32 %r30, %r30, 1;\nshl.b32 %r30, %r30, 3;\nxor.b32 %r14, %r13, %r30;\n"
    "add.u32 %r14, %r6, %r14;\n"
)


def test_an_operand_that_follows_a_counter_keeps_it_from_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ring(store=OTHER_BARRIER + "st.shared.u32 [%r17], %r10;\n")
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))
    assert check(launched(flow_of(text), 80)).verdict is Verdict.STRICT
    # the only condition that stops it
    monkeypatch.setattr(turns, "_operands", lambda *given: iter(()))
    assert is_proved(find_lasso(found))


def test_comparisons_are_what_stops_a_late_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = runs(ring(before_wait=LATE["by a comparison"]))
    monkeypatch.setattr(turns, "comparisons", lambda *given: iter(()))
    assert is_proved(find_lasso(found))


def test_registers_are_what_stops_a_counter_that_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    text = squared(store="shfl.sync.idx.b32 %r32, %r31, 0, 31, 1;\nst.shared.u32 [%r17], %r10;\n")
    found, _ = runs(text)
    assert not is_proved(find_lasso(found))
    monkeypatch.setattr(turns, "_registers", lambda *given: iter(()))
    assert is_proved(find_lasso(found))


THROUGH_MEMORY = {
    "loaded, and then shifted": ring(
        before_release="shr.u32 %r30, %r20, 6;\nsetp.ne.u32 %p7, %r30, 0;\n@%p7 bra $ON;\n"
    ),
    "shifted, and then stored": ring(
        store="shr.u32 %r30, %r10, 6;\nst.shared.u32 [%r17], %r30;\n",
        before_release="setp.ne.u32 %p7, %r20, 0;\n@%p7 bra $ON;\n",
    ),
    "counted by an atomic": ring(
        before_release="mov.u32 %r30, slots;\natom.shared.add.u32 %r31, [%r30+128], 1;\nshr.u32 %r31, %r31, 6;\n"
                       "setp.ne.u32 %p7, %r31, 0;\n@%p7 bra $ON;\n",
    ).replace("bar.sync 0;\n", "@!%p1 st.shared.u32 [slots+128], 0;\nbar.sync 0;\n", 1),
    "counted by a reduction": ring(
        before_release="mov.u32 %r30, slots;\nred.shared.add.u32 [%r30+128], 1;\nld.shared.u32 %r31, [%r30+128];\n"
                       "shr.u32 %r31, %r31, 6;\nsetp.ne.u32 %p7, %r31, 0;\n@%p7 bra $ON;\n",
    ).replace("bar.sync 0;\n", "@!%p1 st.shared.u32 [slots+128], 0;\nbar.sync 0;\n", 1),
    "exchanged": ring(
        before_release="mov.u32 %r30, slots;\natom.shared.exch.b32 %r32, [%r30+128], %r10;\n"
                       "ld.shared.u32 %r31, [%r30+128];\nshr.u32 %r31, %r31, 6;\nsetp.ne.u32 %p7, %r31, 0;\n"
                       "@%p7 bra $ON;\n",
    ).replace("bar.sync 0;\n", "@!%p1 st.shared.u32 [slots+128], 0;\nbar.sync 0;\n", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", THROUGH_MEMORY)
def test_a_counter_that_goes_through_memory(name: str) -> None:
    text = THROUGH_MEMORY[name]
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))
    assert check(launched(flow_of(text), 110)).verdict is Verdict.ERROR


def test_a_counter_that_squares_and_decides_nothing_does_not_matter() -> None:
    found, verdicts = runs(squared())
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found))


def test_one_that_decides_by_way_of_others_does() -> None:
    """A turn later its 19th bit is in the producer's parity, which is right for 91 turns."""
    last = "shr.u32 %r32, %r33, 18;\nand.b32 %r32, %r32, 1;\nxor.b32 %r19, %r19, %r32;\nmov.u32 %r33, %r31;\n"
    text = squared(last).replace("mov.u32 %r31, 0;\n", "mov.u32 %r31, 0;\nmov.u32 %r33, 0;\n")
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))
    assert check(launched(flow_of(text), 110)).verdict is Verdict.ERROR


def squared(behind: str = "", store: str = "st.shared.u32 [%r17], %r10;\n") -> str:
    square = "mul.lo.u32 %r30, %r10, %r10;\nadd.u32 %r31, %r31, %r30;\n"
    text = ring(before_wait=square + behind, store=store)
    return text.replace("mov.u32 %r12, 0;\n", "mov.u32 %r12, 0;\nmov.u32 %r31, 0;\n")


TOKEN = "mbarrier.arrive.shared::cta.b64 {}, [%r14];\n$TOKEN:\nmbarrier.try_wait.shared::cta.b64 %p4, [%r14], {};\n"


def by_token(token: str, between: str = "") -> str:
    """The producer waits for the phase that its own arrival belongs to."""
    wait = TOKEN.format("%d1", token).replace("$TOKEN:\n", between + "$TOKEN:\n") + "@!%p4 bra $TOKEN;\n"
    return ring(arrive=wait).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")


def test_a_token_says_its_phase_in_every_turn() -> None:
    found, verdicts = runs(by_token("%d1"))
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found))


def test_a_token_that_is_changed_late_is_stopped() -> None:
    late = "cvt.u64.u32 %d2, %r10;\nshr.u64 %d2, %d2, 6;\nadd.u64 %d3, %d1, %d2;\n"
    found, verdicts = runs(by_token("%d3", late))
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found))


def test_too_few_turns_are_no_proof() -> None:
    found, _ = runs(RIGHT["three stages"])
    lasso = find_lasso(found)
    assert lasso is not None
    short = find_lasso(found[: lasso.needed - 1])
    assert not is_proved(short, lasso.needed - 1)


WRONG = {
    "no wait for an empty stage": (ring(wait_empty=""), "deadlock"),
    "no arrival that says full": (ring(arrive=""), "deadlock"),
    "no release": (ring(release=""), "deadlock"),
    "a release too few": (ring(count=2), "deadlock"),
    "the store behind the arrival": (
        ring(store="mbarrier.arrive.shared::cta.b64 _, [%r14];\n", arrive="st.shared.u32 [%r17], %r10;\n"), "G1"),
    "the parity of the reader": (
        ring().replace("$READ:\n", "$READ:\nxor.b32 %r19, %r12, 1;\n").replace("[%r14], %r12;", "[%r14], %r19;"),
        "H33"),
    "release of another stage": (ring(release="mbarrier.arrive.shared::cta.b64 _, [empty];\n"), "deadlock"),
    "a relaxed release": (ring(release="mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r15];\n"), "G1"),
    "two arrivals": (ring(arrive="mbarrier.arrive.shared::cta.b64 _, [%r14], 2;\n"), "count"),
    "used before its initialization": (ring().replace("bar.sync 0;\n", ""), "H21"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found_at_a_few_turns(name: str) -> None:
    text, kind = WRONG[name]
    found = check(launched(flow_of(text), 7))
    assert found.verdict is Verdict.ERROR
    assert kind in {f.kind for f in found.findings}


def test_comparisons_of_lanes_are_recorded() -> None:
    """Every lane compares a number of its own: the sides change places in one after another."""
    first = "mov.u32 %r3, 0;\n$TURN:\nadd.u32 %r4, %r3, %r2;\nsetp.gt.u32 %p9, %r4, 40;\n"
    first += "@%p9 bra $SAME;\n$SAME:\nadd.u32 %r3, %r3, 1;\n"
    text = ring().replace("$READY:\n", first + "setp.lt.u32 %p8, %r3, %r1;\n@%p8 bra $TURN;\n$READY:\n", 1)
    flow = flow_of(text.replace("@%p1 bra $READY;\n", "", 1))
    recorder = Recorder(machine := Machine(one := launched(flow, 3)))
    check(one, machine=machine)
    at = next(i for i, ins in enumerate(flow.code.code) if ins.opcode == "setp.gt.u32")
    sides = [pairs for (_, place), pairs in recorder.comparisons.items() if place == at]
    assert len(sides) == 2
    assert sides[0] == [(0, (turn + lane, 40)) for turn in range(3) for lane in range(32)]
