# SPDX-License-Identifier: Apache-2.0
"""A function of many files, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Tell = Callable[[int, int], None]
"""Takes how many files are done, and of how many."""
_LARGEST_CHUNK = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def spread(
    function: Callable[[_Item], _Result], items: Sequence[_Item], jobs: int = 1, tell: Tell | None = None
) -> list[_Result]:
    """The function of every item, in order, in `jobs` processes if there is more than one item."""
    if jobs <= 1 or len(items) < 2:
        return _counted(map(function, items), len(items), tell)
    chunk = max(1, min(_LARGEST_CHUNK, len(items) // (4 * jobs)))
    with ProcessPoolExecutor(jobs) as pool:
        return _counted(pool.map(function, items, chunksize=chunk), len(items), tell)


def _counted(results: Iterable[_Result], total: int, tell: Tell | None) -> list[_Result]:
    found = []
    for result in results:
        found.append(result)
        if tell is not None:
            tell(len(found), total)
    return found
