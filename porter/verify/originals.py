# SPDX-License-Identifier: Apache-2.0
"""What PTX says of originals, found once for all ports that are held against them, by what it is made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from porter.verify.budget import digest_of
from porter.verify.builder import BuiltKernel
from porter.verify.problem import Problem

MOST = 1 << 23
"""Bytes of outputs of which it is kept what they are made of, in 24 bytes each; what was used last stays."""
SMALL = 1 << 14
"""What something else that is known counts for."""
_KNOWN: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

T = TypeVar("T")


def forget() -> None:
    """Nothing is known then."""
    _KNOWN.clear()


def made_of(built: tuple[BuiltKernel, Problem]) -> Hashable:
    """What tells a program with its launch, and the data of its case, from others; of a case that is no file, nothing
    is known twice."""
    kernel, problem = built
    if not problem.case.path.is_file():
        return object()
    launch = problem.sizes, problem.arguments, problem.tensor_maps, problem.launch, problem.tensors
    return digest_of(problem.case, [kernel], [kernel.entry, repr(launch)])


def once(key: Hashable, make: Callable[[], T], weight: Callable[[T], int], keeps: Callable[[T], bool]) -> T:
    """What was made for a key, or is; it stays where it `keeps`, as far as the `weight` of all allows."""
    if key in _KNOWN:
        _KNOWN.move_to_end(key)
        return cast(T, _KNOWN[key][0])
    made = make()
    if keeps(made):
        _KNOWN[key] = made, weight(made)
        while len(_KNOWN) > 1 and sum(size for _, size in _KNOWN.values()) > MOST:
            _KNOWN.popitem(last=False)
    return made
