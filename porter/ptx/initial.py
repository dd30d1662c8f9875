# SPDX-License-Identifier: Apache-2.0
"""What variables of a module hold before anybody writes to them (PTX ISA 5.4.4)."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from porter.ptx import ast
from porter.ptx.special import TYPE_BYTES


def initial_bytes(v: ast.VarDecl, addresses: Mapping[str, int]) -> bytes:
    """A module variable's initial contents, as far as they are given; `addresses` are those of variables by name."""
    out = bytearray()
    item = TYPE_BYTES.get(v.type, 1)
    for x in v.initial:
        if isinstance(x, str):
            m = re.match(r"(?:generic\()?([\w$.%]+)\)?(?:\+(-?\d+))?", x)
            value = addresses.get(m.group(1), 0) + int(m.group(2) or 0) if m else 0
            out += value.to_bytes(8, "little")[:item]
        elif isinstance(x, float):
            out += struct.pack({2: "<e", 4: "<f", 8: "<d"}[item], x)
        else:
            out += (x & ((1 << 8 * item) - 1)).to_bytes(item, "little")
    return bytes(out)
