# SPDX-License-Identifier: Apache-2.0
"""Loops over stages inside of loops over tiles: each turn of the outer one repeats the inner one by itself."""

from __future__ import annotations

import pytest
from test_turns import LATE, is_proved, runs
from turning_kernels import ring

from porter.sync.checked import Verdict
from porter.sync.turns import find_lasso

TILES = 3
COUNT = 34


def tiled(text: str, tiles: int = TILES) -> str:
    for label, place in (("WRITE", 128), ("READ", 132)):
        assert text.count(f"@%p6 bra ${label};\n") == 1
        text = text.replace(f"${label}:\n", f"mov.u32 %r40, 0;\n$TILE{label}:\nmov.u32 %r10, 0;\n${label}:\n", 1)
        # what is done once a tile parts the turns of two
        again = f"st.shared.u32 [%r5+{place}], %r10;\n"
        again += f"add.u32 %r40, %r40, 1;\nsetp.lt.u32 %p9, %r40, {tiles};\n@%p9 bra $TILE{label};\n"
        text = text.replace(f"@%p6 bra ${label};\n", f"@%p6 bra ${label};\n{again}", 1)
    # the reader comes by a jump, ahead of which nothing sets its tile
    return text.replace("@%p3 bra $READ;", "@%p3 bra $READER;").replace(
        "mov.u32 %r40, 0;\n$TILEREAD", "$READER:\nmov.u32 %r40, 0;\n$TILEREAD"
    )


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("tiles", [1, 2, 3])
def test_a_ring_goes_on_over_tiles(stages: int, tiles: int) -> None:
    found, verdicts = runs(tiled(ring(stages=stages), tiles), COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found), COUNT)


@pytest.mark.parametrize("name", LATE)
def test_a_mistake_that_begins_late_is_stopped(name: str) -> None:
    found, verdicts = runs(tiled(ring(before_wait=LATE[name])), COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found), COUNT)


@pytest.mark.parametrize("name", LATE)
def test_so_is_one_of_the_last_tile(name: str) -> None:
    last = LATE[name].replace("@%p7 bra", "setp.eq.u32 %p10, %r40, 2;\nand.pred %p7, %p7, %p10;\n@%p7 bra")
    found, verdicts = runs(tiled(ring(before_wait=last)), COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found), COUNT)


def test_a_stage_too_few_for_some_tiles_is_an_error() -> None:
    """The second tile begins at the first stage again, whatever the first one left."""
    anew = tiled(ring(stages=2)).replace("$TILEREAD:\n", "$TILEREAD:\nmov.u32 %r11, 0;\nmov.u32 %r12, 0;\n")
    _, verdicts = runs(anew, 5)
    assert Verdict.ERROR in verdicts
