# SPDX-License-Identifier: Apache-2.0
"""Names of variables in PTX as their source has them."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"E(\d+)")
_NESTED = re.compile(r"\d+")


def local_name(symbol: str) -> str:
    """The name of a function's static variable, which nvcc mangles by the Itanium C++ ABI (section 5.1.6,
    `_ZZ <function> E <length> <name>`), or of a variable in namespaces (5.1.3, `_ZN <length> <name> ... E`); any other
    symbol as it is.

    >>> local_name("_ZZ6kernelPfE4full"), local_name("_ZN4gemm4smemE")
    ('full', 'smem')
    """
    if symbol.startswith("_ZN"):
        return _last_component(symbol.removeprefix("_ZN")) or symbol
    if not symbol.startswith("_ZZ"):
        return symbol
    for found in _LENGTH.finditer(symbol):
        name = symbol[found.end() : found.end() + int(found[1])]
        rest = symbol[found.end() + int(found[1]) :]
        if len(name) == int(found[1]) and re.fullmatch(r"(_\d+_?)?", rest):
            return name
    return symbol


def _last_component(nested: str) -> str:
    """Of a list of names with their lengths; empty where it is something else."""
    name = ""
    while (length := _NESTED.match(nested)) is not None:
        name = nested[length.end() : length.end() + int(length[0])]
        nested = nested[length.end() + int(length[0]) :]
    return name if nested == "E" else ""
