# SPDX-License-Identifier: Apache-2.0
"""What moves evenly although its values are not known: addresses of threads of their own, in inner loops, and in loops
for the rest of a size, whose counters begin where it says. Mistakes of the same kinds that begin late are stopped."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from test_turns import is_proved, runs
from turning_kernels import HEAD, READY, flow_of, launched, wait

from porter.sync.checked import Verdict, check
from porter.sync.turns import find_lasso

UNIT = 1 << 14
STAGES = 3
COUNT = 20
QUADS = 43
"""Runs that show three periods: of six turns, and of twelve."""
THIRD = "mul.hi.u32 %r30, {0}, 0xAAAAAAAB;\nshr.u32 %r31, %r30, 1;\n"
PLACE = THIRD + "mul.lo.u32 %r32, %r31, {2};\nsub.u32 %r13, {1}, %r32;\nand.b32 %r12, %r31, 1;\n"
INITS = "".join(
    f"mbarrier.init.shared::cta.b64 [full+{8 * i}], 1;\nmbarrier.init.shared::cta.b64 [empty+{8 * i}], 1;\n"
    for i in range(STAGES)
)


def quick(names: Iterable[str], most: int = 3) -> list[object]:
    return [name if number < most else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(names)]


def stage(number: int, place: str, writes: bool) -> str:
    """A turn of the writer or of the reader, at the place in the ring that `place` gives in %r13, with parity %r12."""
    addresses = "add.u32 %r14, %r6, %r13;\nadd.u32 %r15, %r7, %r13;\nadd.u32 %r17, %r5, %r13;\n"
    if writes:
        waits = "xor.b32 %r19, %r12, 1;\n" + wait(f"$EMPTY{number}", "%r15", "%r19")
        return place + addresses + waits + "st.shared.u32 [%r17], 1;\nmbarrier.arrive.shared::cta.b64 _, [%r14];\n"
    reads = "ld.shared.u32 %r20, [%r17];\nmbarrier.arrive.shared::cta.b64 _, [%r15];\n"
    return place + addresses + wait(f"$FULL{number}", "%r14", "%r12") + reads


def kernel(write: str, read: str, ready: str = "") -> str:
    body = HEAD + INITS + READY.replace("bar.sync 0;\n", "bar.sync 0;\n" + ready, 1)
    return body + write + "bra $OUT;\n$READ:\n" + read + "$OUT:\nret;\n}\n"


# Rings whose addresses nobody knows -------------------------------------------------------------------

OWN = "mov.u32 %r40, %laneid;\n"
"""What is only known to stay the same."""
TURN = "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p6, %r10, %r1;\n"
EIGHTFOLD = "shl.b32 %r33, %r10, 3;\nadd.u32 %r33, %r33, %r40;\n"
BY_STEPS = {
    "a shift": EIGHTFOLD + PLACE.format("%r10", "%r33", 24),
    "a product": "mad.lo.u32 %r33, %r10, 8, %r40;\n" + PLACE.format("%r10", "%r33", 24),
    "put together": EIGHTFOLD + PLACE.format("%r10", "%r33", 24)
                    + "mov.b64 %d1, {%r13, %r40};\nshr.u64 %d2, %d1, 0;\ncvt.u32.u64 %r13, %d2;\n",
    "from above": "neg.s32 %r34, %r10;\nmul.lo.s32 %r34, %r34, -8;\nadd.u32 %r33, %r34, %r40;\n"
                  + PLACE.format("%r10", "%r33", 24),
    "low bits": EIGHTFOLD + PLACE.format("%r10", "%r33", 24) + "and.b32 %r13, %r13, 255;\n",
    "one of two": EIGHTFOLD + "add.u32 %r34, %r33, 24;\nsub.u32 %r35, %r34, 24;\nsetp.eq.u32 %p8, %r40, 0;\n"
                  "selp.b32 %r33, %r33, %r35, %p8;\n" + PLACE.format("%r10", "%r33", 24),
    "a sum that wraps": "mad.lo.u32 %r33, %r10, 8, 0xFFFFFF00;\nadd.u32 %r33, %r33, %r40;\nadd.u32 %r33, %r33, 256;\n"
                        + PLACE.format("%r10", "%r33", 24),
    "of another width": EIGHTFOLD + "cvt.u64.u32 %d1, %r40;\ncvt.u32.u64 %r36, %d1;\nadd.u32 %r33, %r33, %r36;\n"
                        + PLACE.format("%r10", "%r33", 24),
    "an inner loop": EIGHTFOLD + PLACE.format("%r10", "%r33", 24)
                     + "mov.u32 %r37, 0;\n$IN{n}:\nadd.u32 %r13, %r13, 8;\nadd.u32 %r37, %r37, 1;\n"
                       "setp.lt.u32 %p9, %r37, 2;\n@%p9 bra $IN{n};\nsub.u32 %r13, %r13, 16;\n",
}  # fmt: skip
LATER = {
    "a quotient that is too narrow": BY_STEPS["a shift"].replace(
        THIRD.format("%r10"), "mul.lo.u32 %r30, %r10, 43691;\nshr.u32 %r31, %r30, 17;\n"
    ),
    "a step that is not all": BY_STEPS["a shift"] + "shr.u32 %r36, %r33, 9;\nand.b32 %r36, %r36, 1;\n"
                              "shl.b32 %r36, %r36, 3;\nadd.u32 %r13, %r13, %r36;\n",
    "a bit of what is not known": BY_STEPS["a shift"] + "shr.u32 %r36, %r33, 9;\nand.b32 %r36, %r36, 1;\n"
                                  "xor.b32 %r12, %r12, %r36;\n",
    "a high half": BY_STEPS["a shift"] + "shr.u32 %r36, %r33, 9;\nand.b32 %r36, %r36, 1;\nmov.b64 %d1, {%r13, %r36};\n"
                   "shr.u64 %d2, %d1, 32;\ncvt.u32.u64 %r36, %d2;\nxor.b32 %r12, %r12, %r36;\n",
    "a mask that steps reach": BY_STEPS["a shift"] + "and.b32 %r36, %r33, 512;\nshr.u32 %r36, %r36, 9;\n"
                               "xor.b32 %r12, %r12, %r36;\n",
    "the smaller one of two that part": BY_STEPS["a shift"].replace(
        EIGHTFOLD, EIGHTFOLD + "add.u32 %r34, %r40, 512;\nmin.u32 %r33, %r33, %r34;\n"
    ),
    "an inner loop that begins to move": BY_STEPS["an inner loop"].replace(
        "sub.u32 %r13, %r13, 16;", "shr.u32 %r36, %r10, 6;\nadd.u32 %r13, %r13, %r36;\nsub.u32 %r13, %r13, 16;"
    ),
}  # fmt: skip


def by_steps(place: str) -> str:
    write, read = (
        f"$TURN{n}:\n" + stage(n, place.replace("{n}", str(n)), writes=not n) + TURN + f"@%p6 bra $TURN{n};\n"
        for n in (0, 1)
    )
    return kernel(write, read, OWN).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")


@pytest.mark.parametrize("name", quick(BY_STEPS))
def test_addresses_of_which_only_the_step_is_known_repeat(name: str) -> None:
    found, verdicts = runs(by_steps(BY_STEPS[name]), COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT), COUNT)


@pytest.mark.parametrize("name", quick(LATER))
def test_those_that_move_late_do_not(name: str) -> None:
    found, verdicts = runs(by_steps(LATER[name]), COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)


# Loops for the rest -----------------------------------------------------------------------------------

REST = "mov.u32 %r45, %r41;\nshl.b32 %r43, %r41, 3;\nneg.s32 %r44, %r42;\n"
ON = "add.u32 %r45, %r45, 1;\nadd.u32 %r43, %r43, 8;\nadd.s32 %r44, %r44, 1;\n"
RESTS = {
    "a counter and an address": PLACE.format("%r45", "%r43", 24),
    "a counter alone": "shl.b32 %r33, %r45, 3;\n" + PLACE.format("%r45", "%r33", 24),
    "an address of its own": "add.u32 %r33, %r43, %r40;\n" + PLACE.format("%r45", "%r33", 24),
    "a division": "div.u32 %r31, %r45, 3;\nmul.lo.u32 %r32, %r31, 24;\nsub.u32 %r13, %r43, %r32;\n"
                  "and.b32 %r12, %r31, 1;\n",
    "a remainder": "rem.u32 %r13, %r45, 3;\nshl.b32 %r13, %r13, 3;\ndiv.u32 %r31, %r45, 3;\nand.b32 %r12, %r31, 1;\n",
    "a signed one": "rem.s32 %r13, %r45, 3;\nshl.b32 %r13, %r13, 3;\ndiv.s32 %r31, %r45, 3;\nand.b32 %r12, %r31, 1;\n",
    "a wide product": "mul.wide.u32 %d1, %r45, 0xAAAAAAAB;\nshr.u64 %d2, %d1, 33;\ncvt.u32.u64 %r31, %d2;\n"
                      "mul.lo.u32 %r32, %r31, 24;\nsub.u32 %r13, %r43, %r32;\nand.b32 %r12, %r31, 1;\n",
}  # fmt: skip
FLIP = "and.b32 %r36, %r36, 1;\nxor.b32 %r12, %r12, %r36;\n"
LATE_RESTS = {
    "a bit of the counter": RESTS["a counter and an address"] + "shr.u32 %r36, %r45, 6;\n" + FLIP,
    "a bit of the address": RESTS["a counter and an address"] + "shr.u32 %r36, %r43, 9;\n" + FLIP,
    "a quotient that is too narrow": RESTS["a counter and an address"].replace(
        THIRD.format("%r45"), "mul.lo.u32 %r30, %r45, 43691;\nshr.u32 %r31, %r30, 17;\n"
    ),
    "a comparison": RESTS["a counter and an address"]
                    + "setp.gt.u32 %p9, %r45, 100;\nselp.u32 %r36, 1, 0, %p9;\n" + FLIP,
    "the smaller one": RESTS["a counter and an address"].replace("%r43", "%r33").replace(
        "mul.hi", "min.u32 %r33, %r43, 800;\nmul.hi"
    ),
    "a number that wraps": RESTS["a counter and an address"]
                           + "add.u32 %r36, %r45, 0x7FFFF000;\nshr.u32 %r36, %r36, 31;\n" + FLIP,
}  # fmt: skip


def with_rest(place: str, main: str = "", rest: str = "") -> str:
    """Turns by fours, and a loop for the rest of them, which begins where the fours have ended. `main` stands in each
    turn of the first loop, `rest` ahead of the second one."""

    def role(n: int) -> str:
        fours = "".join(
            stage(
                10 * n + turn,
                f"add.u32 %r38, %r10, {turn};\nshl.b32 %r33, %r38, 3;\n" + PLACE.format("%r38", "%r33", 24),
                writes=not n,
            )
            for turn in range(4)
        )
        return (
            f"setp.eq.u32 %p5, %r41, 0;\n@%p5 bra $REST{n};\n$MAIN{n}:\n{main}{fours}add.u32 %r10, %r10, 4;\n"
            f"setp.ne.u32 %p6, %r10, %r41;\n@%p6 bra $MAIN{n};\n$REST{n}:\nsetp.eq.u32 %p5, %r42, 0;\n@%p5 bra $OUT;\n"
            f"{rest}{REST}$TAIL{n}:\n{stage(10 * n + 5, place, writes=not n)}{ON}setp.ne.s32 %p7, %r44, 0;\n"
            f"@%p7 bra $TAIL{n};\n"
        )

    ready = OWN + "and.b32 %r41, %r1, 0x7FFFFFFC;\nand.b32 %r42, %r1, 3;\nmov.u32 %r46, 0;\n"
    return kernel(role(0), role(1), ready).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")


@pytest.mark.parametrize("name", quick(RESTS))
def test_a_loop_for_the_rest_repeats(name: str) -> None:
    found, verdicts = runs(with_rest(RESTS[name]), QUADS)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT), QUADS)


@pytest.mark.parametrize("name", quick(LATE_RESTS))
def test_one_that_goes_wrong_late_does_not(name: str) -> None:
    found, verdicts = runs(with_rest(LATE_RESTS[name]), QUADS)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), QUADS)


@pytest.mark.parametrize("name", ["a bit of the counter", "a bit of the address", "a comparison"])
def test_it_does_go_wrong(name: str) -> None:
    assert check(launched(flow_of(with_rest(LATE_RESTS[name])), 107)).verdict is Verdict.ERROR
