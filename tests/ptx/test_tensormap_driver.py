# SPDX-License-Identifier: Apache-2.0
"""The hardware's tensor maps as the driver of a Hopper GPU encodes them: every field is read back."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from porter.ptx.tensormap_hw import decode_hardware

_DATA = json.loads(Path(__file__).with_name("driver_tensor_maps.json").read_text("utf-8"))
MAPS = [dict(zip(_DATA["fields"], row, strict=True)) for row in _DATA["maps"]]


@pytest.mark.parametrize("number", range(len(MAPS)))
def test_what_the_driver_encodes_is_read_back(number: int) -> None:
    given = MAPS[number]
    words = [int(word, 16) for word in given["words"].split()]
    found = decode_hardware(struct.pack("<16Q", *words, *[0] * (16 - len(words))))
    assert found.address == 0x7F0000000000
    for field, value in given.items():
        if field != "words":
            read = getattr(found, field)
            assert (list(read) if isinstance(value, list) else int(read)) == value, field
