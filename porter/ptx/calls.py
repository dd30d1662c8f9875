# SPDX-License-Identifier: Apache-2.0
"""The calls that code was inlined through, as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

_SHOWN = 2
"""So many calls within one library in a row are named, each by its place."""


def inlined(file: str, calls: Iterable[tuple[str, int]]) -> str:
    """`, inlined at gemm.cuh:8, inlined at gemm.cu:10` of code that stands in `file`, from the innermost call out.

    What a library's headers call of each other says nothing to who calls them: more than two calls in a row that stand
    below the `include` folder of `file` are counted.
    """
    library = _library(file)
    return "".join(_told(library, calls))


def _told(library: str, calls: Iterable[tuple[str, int]]) -> Iterator[str]:
    for within, group in groupby(calls, lambda call: bool(library) and call[0].startswith(library)):
        places = [f", inlined at {path}:{line}" for path, line in group]
        if within and len(places) > _SHOWN:
            yield f", inlined through {len(places)} calls of the same library"
        else:
            yield from places


def _library(file: str) -> str:
    """The path of the innermost folder `include` that a file stands below."""
    head, folder, _ = file.rpartition("/include/")
    return head + folder
