# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that kernels write are a part of what is left, in scratch memory by the tensor that they describe."""

from __future__ import annotations

import pytest
from test_tensor_copies import BEGIN, FOUND, TILE
from written import INPUT, MAPS, left

from porter.equal.outcome import Outcome, difference
from porter.facts.events import NotUnderstood

ARRIVE = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 512;\n"
WAIT = "L1:\nmbarrier.try_wait.parity.shared.b64 %p4, [%r8], 0;\n@!%p4 bra L1;\n"
REPLACED = "@%p1 tensormap.replace.tile.{field}.global.b1024.b{bits} [%d10], {value};\n"
COPIED = (
    "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r9], [%d10, {{0, {row}}}], [%r8];\n"
)
WHOLE = "mov.u32 %r9, room;\n" + COPIED.format(row=0)
HALVES = WHOLE + "add.u32 %r9, %r9, 256;\n" + COPIED.format(row=4)
OTHER_ADDRESS = "mov.u64 %d7, {where};\n" + REPLACED.format(field="global_address", bits=64, value="%d7")


def replaced(field: str, value: str, bits: int = 32) -> str:
    return REPLACED.format(field=field, bits=bits, value=value)


def leaves(change: str, copies: str, scratch: bool = True) -> Outcome:
    """A map is changed, copies take it, and the rows that it brings are stored."""
    body = f"{BEGIN}mov.u64 %d10, {MAPS};\n{change}{ARRIVE}{copies}{WAIT}{FOUND}"
    return left(body, maps=[TILE], scratch=[(MAPS, MAPS + 128)] if scratch else [])


SAME = replaced("box_dim", "1, 8")
HALF = replaced("box_dim", "1, 4")


def test_a_map_is_left_whether_or_not_a_copy_takes_it() -> None:
    one = leaves(replaced("global_dim", "1, 8"), "", scratch=False)
    other = leaves(replaced("global_dim", "1, 7"), "", scratch=False)
    assert difference(one, one) is None
    found = difference(one, other)
    assert found is not None
    assert 0 <= found.address - MAPS < 128


@pytest.mark.parametrize("offset", [0, 8])
def test_a_map_that_data_change_is_not_known(offset: int) -> None:
    of_data = f"ld.global.u64 %d7, [%d0+{offset}];\n" + replaced("global_address", "%d7", 64)
    with pytest.raises(NotUnderstood, match="tensor map"):
        leaves(of_data, WHOLE)


def test_maps_of_one_tensor_are_the_same_in_scratch_memory_alone() -> None:
    assert difference(leaves(SAME, WHOLE), leaves(HALF, HALVES)) is None
    assert difference(leaves(SAME, WHOLE, False), leaves(HALF, HALVES, False)) is not None


@pytest.mark.parametrize(
    "other",
    [
        replaced("global_dim", "1, 9"),
        replaced("global_dim", "0, 32"),
        replaced("global_stride", "0, 128", 64),
        replaced("elemtype", "8"),
        replaced("fill_mode", "1"),
        OTHER_ADDRESS.format(where=INPUT + 1024),
    ],
)
def test_a_map_of_another_tensor_differs(other: str) -> None:
    """Also where copies have brought the same before it was changed."""
    assert difference(leaves(SAME, WHOLE), leaves(SAME, WHOLE + WAIT.replace("L1", "L2") + other)) is not None


def test_maps_that_no_copy_has_taken_are_maps_and_other_bytes_are_not() -> None:
    zeros = "mov.u64 %d7, 0;\n@%p1 st.global.u64 [%d10], %d7;\n"
    assert difference(leaves(SAME, ""), leaves(HALF, "")) is None
    assert difference(leaves(SAME + zeros, ""), leaves(HALF + zeros, "")) is not None
