# SPDX-License-Identifier: Apache-2.0
"""Names of variables in PTX as their source has them."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"E(\d+)")


def local_name(symbol: str) -> str:
    """The name of a function's static variable, which nvcc mangles by the Itanium C++ ABI (section 5.1.6,
    `_ZZ <function> E <length> <name>`); any other symbol as it is.

    >>> local_name("_ZZ6kernelPfE4full")
    'full'
    """
    if not symbol.startswith("_ZZ"):
        return symbol
    for found in _LENGTH.finditer(symbol):
        name = symbol[found.end() : found.end() + int(found[1])]
        rest = symbol[found.end() + int(found[1]) :]
        if len(name) == int(found[1]) and re.fullmatch(r"(_\d+_?)?", rest):
            return name
    return symbol
