# SPDX-License-Identifier: Apache-2.0
"""Which tensor a tensor map is of, from its address."""

from __future__ import annotations

import pytest

from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.verify.arguments import MapValue
from porter.verify.layout import Area, Layout

AREAS = [Area("A", 1 << 40, 4096), Area("B", 2 << 40, 4096)]
REACH = 1 << 39
"""In front of a tensor."""


def found(address: int, reach: int) -> Layout:
    map_ = TensorMap(TensorMapType.BFLOAT16, address, (64, 1 << 30, 1 << 30), (128, 128), (64, 64, 1))
    layout = Layout(list(AREAS), str, reach)
    assert layout.contents(map_.encode()) == ((0, MapValue("0")),) or not layout.maps
    return layout


@pytest.mark.parametrize(("address", "tensor", "offset"), [
    (1 << 40, "A", 0), ((1 << 40) + 1024, "A", 1024), ((1 << 40) - (1 << 37), "A", -(1 << 37)),
    ((2 << 40) - (1 << 37), "B", -(1 << 37)), ((2 << 40) - REACH, "B", -REACH),
])  # fmt: skip
def test_a_map_may_start_in_front_of_its_tensor(address: int, tensor: str, offset: int) -> None:
    of, map_ = found(address, REACH).maps["0"]
    assert (of, map_.address) == (tensor, offset)


@pytest.mark.parametrize(("address", "reach"), [
    ((2 << 40) - REACH - 16, REACH), ((2 << 40) + 4096, REACH), ((1 << 40) - 16, 0),
])  # fmt: skip
def test_one_that_starts_elsewhere_is_none(address: int, reach: int) -> None:
    assert not found(address, reach).maps
