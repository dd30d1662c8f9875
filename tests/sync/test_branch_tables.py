# SPDX-License-Identifier: Apache-2.0
"""brx.idx: warps that find what they do in a table, as compilers write it for roles of warps."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors

from porter.sync.checked import Checked

KERNEL = """shr.u32 %r4, %r0, 5;
{index}
roles: .branchtargets first, second, third;
brx.idx %r4, roles;
first:
st.shared.b32 [%r2], 1;
{leaves}
bra.uni end;
second:
{comes}
ld.shared.b32 %r5, [%r2];
bra.uni end;
third:
{comes}
ld.shared.b32 %r5, [%r2];
end:
"""
PARTS = {"index": "", "leaves": "barrier.arrive 1, 96;", "comes": "barrier.sync 1, 96;"}


def found(**parts: str) -> Checked:
    return checked(KERNEL.format(**{**PARTS, **parts}), threads=96)


def test_each_warp_takes_its_own_way() -> None:
    one = found()
    assert not one.unknown
    assert not errors(one)


@pytest.mark.parametrize("left_out", [{"leaves": ""}, {"leaves": "", "comes": ""}])
def test_ways_that_do_not_meet(left_out: dict[str, str]) -> None:
    assert errors(found(**left_out)) == ({"G1"} if "comes" in left_out else {"deadlock"})


def test_who_takes_which_way() -> None:
    """The first two ways change places: what reads is a warp that is not the second."""
    other = KERNEL.replace("first, second", "second, first")
    assert not errors(checked(other.format(**PARTS), threads=96))
    assert errors(checked(other.format(**{**PARTS, "leaves": "", "comes": ""}), threads=96)) == {"G1"}


def test_a_place_that_the_table_has_not() -> None:
    assert "brx.idx" in found(index="add.u32 %r4, %r4, 1;").unknown
