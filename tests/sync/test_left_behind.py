# SPDX-License-Identifier: Apache-2.0
"""What a turn makes of counters, or of its last turn alone, and what is done behind the loop by that."""

from __future__ import annotations

import pytest
from test_turns import is_proved, runs
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check
from porter.sync.turns import find_lasso

UNIT = 1 << 14
COUNT = 14
EXTRA = ".shared .align 8 .b64 full[4];\n.shared .align 8 .b64 extra[1];"


def left(turn: str, behind: str) -> str:
    """A reader that does `turn` in each turn, and behind its loop waits for ever unless `behind` sets %p7."""
    wait = "$AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [extra], 0;\n@!%p4 bra $AGAIN;\n"
    text = ring().replace("@%p6 bra $READ;\n", f"{turn}@%p6 bra $READ;\n{behind}@%p7 bra $OUT;\n{wait}")
    text = text.replace("bar.sync 0;\n", "bar.sync 0;\nmov.u32 %r40, 0;\nmov.u32 %r42, 0;\n")
    text = text.replace(".shared .align 8 .b64 full[4];", EXTRA)
    return text.replace("@%p1 bra $READY;\n", "@%p1 bra $READY;\nmbarrier.init.shared::cta.b64 [extra], 1;\n")


LAST = "sub.u32 %r40, %r10, 1;\n"
COUNTED = "add.u32 %r42, %r42, 1;\n@!%p6 "
RIGHT = {
    "the last index": left(LAST, "add.u32 %r40, %r40, 1;\nsetp.eq.u32 %p7, %r40, %r1;\n"),
    "turns and two": left("add.u32 %r40, %r10, 2;\n", "sub.u32 %r40, %r40, %r1;\nsetp.eq.u32 %p7, %r40, 2;\n"),
    "by either way": left(
        "@%p5 sub.u32 %r40, %r10, 1;\n@!%p5 add.u32 %r40, %r10, -1;\n", "setp.lt.u32 %p7, %r40, %r1;\n"
    ),
    "twice as many": left("shl.b32 %r40, %r10, 1;\n", "setp.gt.u32 %p7, %r40, %r1;\n"),
    "a counter that is one more in the end": left(
        f"{COUNTED}add.u32 %r42, %r42, 1;\n", "setp.gt.u32 %p7, %r42, %r1;\n"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_moves_evenly_is_compared_behind_a_loop(name: str) -> None:
    found, verdicts = runs(RIGHT[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT), COUNT)


LATE = {
    "a high part": left("shr.u32 %r40, %r10, 6;\n", "setp.lt.u32 %p7, %r40, 1;\n"),
    "the smaller one": left("min.u32 %r40, %r10, 64;\n", "setp.eq.u32 %p7, %r40, %r1;\n"),
    "what crosses a number": left("sub.u32 %r40, %r10, 100;\n", "setp.lt.s32 %p7, %r40, 0;\n"),
    "what comes to a number": left(
        "shl.b32 %r40, %r10, 1;\n", "sub.u32 %r40, %r40, %r1;\nsetp.lt.s32 %p7, %r40, 100;\n"
    ),
    "what has no room": left("shl.b32 %r40, %r10, 26;\n", "setp.ne.u32 %p7, %r40, 0;\n"),
    "a bit": left(LAST, "and.b32 %r40, %r40, 64;\nsetp.eq.u32 %p7, %r40, 0;\n"),
    "a part": left(LAST, "shr.u32 %r40, %r40, 6;\nsetp.eq.u32 %p7, %r40, 0;\n"),
    "one turn left out": left(
        "setp.eq.u32 %p8, %r10, 110;\n@!%p8 sub.u32 %r40, %r10, 1;\n",
        "add.u32 %r40, %r40, 1;\nsetp.eq.u32 %p7, %r40, %r1;\n",
    ),
    "a part of the counter, in the end": left(f"{COUNTED}shr.u32 %r42, %r42, 6;\n", "setp.lt.u32 %p7, %r42, 1;\n"),
    "a bit of it": left(f"{COUNTED}and.b32 %r42, %r42, 64;\n", "setp.lt.u32 %p7, %r42, 1;\n"),
    "the smaller one, in the end": left(f"{COUNTED}min.u32 %r42, %r42, 64;\n", "setp.eq.u32 %p7, %r42, %r1;\n"),
    "in two instructions": left(
        f"{COUNTED}shl.b32 %r42, %r42, 26;\n@!%p6 shr.u32 %r42, %r42, 31;\n", "setp.lt.u32 %p7, %r42, 1;\n"
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_mistake_of_later_turns_is_stopped(name: str) -> None:
    found, verdicts = runs(LATE[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    late = 128 if name == "what has no room" else 110
    assert check(launched(flow_of(LATE[name]), late)).verdict is Verdict.ERROR
