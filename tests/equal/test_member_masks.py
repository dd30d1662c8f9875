# SPDX-License-Identifier: Apache-2.0
"""What lanes with the same member mask give each other, which others have no part in."""

from __future__ import annotations

import pytest
from written import are_equal

SETUP = "setp.lt.f32 %p1, %f0, %f1;\nmov.b32 %r2, %f0;\nshr.u32 %r5, %r0, {shift};\nshl.b32 %r5, %r5, {shift};\n"
SETUP += "mov.b32 %r6, {lanes};\nshl.b32 %r6, %r6, %r5;\n"
OUT = "st.global.b32 [%d1], %r2;\n"
COLLECTIVES = {
    "ballot": "vote.sync.ballot.b32 %r2, %p1, %r6;\n",
    "any": "vote.sync.any.pred %p2, %p1, %r6;\nselp.b32 %r2, 1, 0, %p2;\n",
    "redux": "redux.sync.add.s32 %r2, %r2, %r6;\n",
    "match": "match.any.sync.b32 %r2, %r2, %r6;\n",
}
SHUFFLE = "shfl.sync.bfly.b32 %r2, %r2, 1, 31, %r6;\n"


def of(lanes: int, text: str, apart: bool = False) -> str:
    """A kernel whose masks are of so many lanes. `apart`: the first twelve lanes come ahead of the others."""
    setup = SETUP.format(shift=lanes.bit_length() - 1, lanes=(1 << lanes) - 1)
    if not apart:
        return f"{setup}{text}{OUT}"
    first = "setp.lt.u32 %p3, %r0, 12;\n@%p3 bra NOW;\nbra LATER;\nNOW:\n"
    return f"{setup}{first}{text}{OUT}bra END;\nLATER:\nmov.b32 %r9, 6;\nbra NOW;\nEND:\n"


@pytest.mark.parametrize("name", COLLECTIVES)
def test_masks_of_other_lanes(name: str) -> None:
    text = COLLECTIVES[name]
    assert are_equal(of(8, text), of(8, text))
    assert are_equal(of(8, text), of(8, text, apart=True))
    assert not are_equal(of(8, text), of(16, text))
    assert not are_equal(of(8, text), of(8, text).replace("%r6;", "-1;"))


def test_shuffles_within_parts() -> None:
    """The value is put where it came from, and lanes that come later have theirs still."""
    assert are_equal(of(8, SHUFFLE), of(16, SHUFFLE))
    assert are_equal(of(8, SHUFFLE), of(8, SHUFFLE, apart=True))
    assert not are_equal(of(8, SHUFFLE), of(8, SHUFFLE.replace("1, 31", "2, 31"), apart=True))
