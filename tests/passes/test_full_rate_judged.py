# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs that are wrong are not given, whatever is proposed: PTX refuses them, or a run does. The kernels and what
is said of each: `scripts/shadow_steps.py`."""

from __future__ import annotations

import pytest
from full_rate_groups import WRONG
from scripts_loaded import script

RIGHT = {
    # what nobody has written decides, and the compiler says what it is
    ("what parts consumers", "a pointer to a flag"),
    ("what parts consumers", "what a helper writes to an element by a pointer"),
    ("what parts consumers", "what a helper writes to an element behind the first"),
    ("what parts consumers", "what a helper writes to an element by a reference"),
    ("what parts consumers", "what a helper writes to a member by a pointer"),
    ("what parts consumers", "what a helper writes to a member by a reference"),
    # the index that is not renamed chooses A alone, which one thread reads for both
    ("an index that is not renamed", "a register that a macro names"),
    ("an index that is not renamed", "a library by a macro"),
    ("an index that is not renamed", "a library in a default"),
    ("an index that is not renamed", "a library that is handed on"),
    ("an index that is not renamed", "a thread that a library asks for"),
    ("what is hidden", "an index that a macro pastes"),
    ("what is hidden", "an index that macros paste"),
    # warps that meet hand no rows to each other, and rows behind the last come in order
    ("two tiles", "a tile that ends the loop"),
    ("two tiles", "two warps among themselves"),
    ("two tiles", "two warps among themselves, by a helper"),
    ("two tiles", "half a row"),
    ("two tiles", "a tile at a time, by a helper"),
    ("two tiles", "a tile at a time, all warps"),
    # one MMA for both ends in one batch, behind one barrier
    ("two tiles", "a batch for each tile"),
    ("two tiles", "a wait in between"),
}
"""Kernels that M=128 MMAs are right for."""
QUICK = [("two tiles", "a warp that adds for many rows")]
"""What only sizes show that no case has."""
CASES = [(group, name) for group, kernels in WRONG.items() for name in kernels if (group, name) not in RIGHT]


@pytest.mark.external
@pytest.mark.parametrize(
    ("group", "name"), [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES]
)
def test_what_is_wrong_is_not_given(group: str, name: str) -> None:
    row = script("scripts/shadow_steps.py").shadow(group, name)
    assert not row.given, row
