# SPDX-License-Identifier: Apache-2.0
"""Names of variables in PTX as their source has them."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"E(\d+)")
_OF_FILE = re.compile(r"(\d+)_INTERNAL_")
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


def without_file(symbol: str) -> str:
    """A symbol without the name that nvcc gives to what a file keeps for itself, which has a hash of the file in it.

    >>> without_file("_ZN34_INTERNAL_0a1b2c3d_4_k_cu_1234567_5tableE")
    '_ZN5tableE'
    """
    found = _OF_FILE.search(symbol)
    return symbol if found is None else symbol[: found.start()] + symbol[found.end(1) + int(found[1]) :]


def _last_component(nested: str) -> str:
    """Of a list of names with their lengths; empty where it is something else."""
    name = ""
    while (length := _NESTED.match(nested)) is not None:
        name = nested[length.end() : length.end() + int(length[0])]
        nested = nested[length.end() + int(length[0]) :]
    return name if nested == "E" else ""
