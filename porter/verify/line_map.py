# SPDX-License-Identifier: Apache-2.0
"""Which line of an original a line of its port is: the lines that the port left alone, found by comparing the files."""

from __future__ import annotations

import bisect
import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.ptx.ast import SourceLoc


@dataclass(frozen=True)
class _Hunks:
    """(first line, first line of the original, count) of the stretches that are alike, all 0-based, in order."""

    blocks: tuple[tuple[int, int, int], ...]

    def same(self, line: int) -> int | None:
        """The original's line, None for one that the port changed or added. Lines count from 1."""
        at = bisect.bisect_right(self.blocks, line - 1, key=lambda b: b[0]) - 1
        if at < 0:
            return None
        start, original, count = self.blocks[at]
        return original + line - start if line - 1 < start + count else None

    def nearest(self, line: int) -> int:
        """The original's line: the same one, else the first one that stood in its place, else the one above."""
        if (same := self.same(line)) is not None:
            return same
        stood = self.changed(line)
        return stood[0] if stood else max(stood.start - 1, 1)

    def changed(self, line: int) -> range:
        """The original's lines that stood where the port has this changed or added line; empty for one left alone."""
        if self.same(line) is not None:
            return range(0)
        at = bisect.bisect_right(self.blocks, line - 1, key=lambda b: b[0]) - 1
        first = self.blocks[at][1] + self.blocks[at][2] if at >= 0 else 0
        return range(first + 1, self.blocks[at + 1][1] + 1)


@functools.lru_cache(maxsize=64)
def _hunks(port: str, original: str, stamps: tuple[int, int]) -> _Hunks:
    lines = [_lines(Path(p)) for p in (port, original)]
    # In long files lines that are everywhere are matched beside others only: of all pairs there are too many.
    matcher = SequenceMatcher(None, lines[0], lines[1], autojunk=max(map(len, lines)) > _LONG)
    # The last block is empty and stands at both ends.
    return _Hunks(tuple((b.a, b.b, b.size) for b in matcher.get_matching_blocks()))


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


_LONG = 20_000
COPY_SUFFIX = "_sm100"
"""What the name of a package that the port has a copy of ends with there."""


class LineMap:
    """Lines of a port's files as lines of the original's: `original` and `port` are the files that were compiled.

    A header or module belongs to the one that lies in the same place relative to its root, a module in the port's own
    copy of an installed package to that package's. Files that cannot be read have no lines in common.
    """

    def __init__(self, original: Path, port: Path) -> None:
        self._roots = port.resolve(), original.resolve()
        self._pairs: dict[tuple[str, str], bool] = {}

    def same(self, port: SourceLoc | None, original: SourceLoc | None) -> bool:
        """Whether both places are one line that the port left alone, reached through the same lines by inlining."""
        mine, theirs = chain(port), chain(original)
        return bool(mine) and len(mine) == len(theirs) and all(map(self._same, mine, theirs))

    def stands_for(self, port: SourceLoc | None, original: SourceLoc | None) -> bool:
        """Whether the port's place is the original's, left alone or replaced."""
        return self.same(port, original) or self.replaced(port, original)

    def replaced(self, port: SourceLoc | None, original: SourceLoc | None) -> bool:
        """Whether the port's place stands where the original's stood: from the outermost function inwards the lines
        are the same, up to one that the port changed, in whose stead the original's line was."""
        for mine, theirs in zip(chain(port), chain(original), strict=False):
            if self._same(mine, theirs):
                continue
            hunks = self._between(mine[0], theirs[0])
            return hunks is not None and theirs[1] in hunks.changed(mine[1])
        return False

    def _same(self, mine: tuple[str, int], theirs: tuple[str, int]) -> bool:
        if mine[0] == theirs[0]:
            return mine[1] == theirs[1]
        hunks = self._between(mine[0], theirs[0])
        return hunks is not None and hunks.same(mine[1]) == theirs[1]

    def _between(self, port: str, original: str) -> _Hunks | None:
        key = port, original
        if key not in self._pairs:
            self._pairs[key] = self._belong(Path(port), Path(original))
        if not self._pairs[key]:
            return None
        try:
            return _hunks(port, original, (os.stat(port).st_mtime_ns, os.stat(original).st_mtime_ns))
        except OSError:
            return None

    def _belong(self, port: Path, original: Path) -> bool:
        mine, theirs = port.resolve(), original.resolve()
        if mine == theirs or (mine, theirs) == self._roots:
            return True
        beside = [os.path.relpath(p, root.parent) for p, root in zip((mine, theirs), self._roots, strict=True)]
        if beside[0] == beside[1] or _copied(beside[0], theirs):
            return True
        # Source out of a string is compiled from a file of its own, far from the one that holds the string.
        far = not any(p.is_relative_to(root.parent) for p, root in zip((mine, theirs), self._roots, strict=True))
        return far and mine.name == theirs.name


def placed_in_original(error: PorterError, original: Path, port: Path, search: Sequence[Path] = ()) -> PorterError:
    """The obstacles of a port, which nobody has seen, at the lines of the original that they come from; any other
    error as it is. `original` and `port` are the files that were compiled. What the port has its own copy of is looked
    for in `search`, and where the interpreter looks."""
    if error.diagnostic.code is not Code.DSL_OBSTACLE or original.resolve() == port.resolve():
        return error
    places = [*search, *(Path(p) for p in sys.path if p)]
    found = [replace(d, where=original_place(d.where, original, port, places)) for d in error.diagnostics]
    return PorterError.of(found)


def original_place(where: Location | None, original: Path, port: Path, search: Sequence[Path]) -> Location | None:
    """The place in the original's tree; a file that only the port has keeps its name."""
    if where is None:
        return None
    made, root = Path(where.path).resolve(), port.resolve().parent
    theirs = [original.parent, *original.absolute().parent.parents]
    for above, beside in zip([root, *root.parents], theirs, strict=False):
        if not made.is_relative_to(above):
            continue
        name = made.relative_to(above)
        copied = [directory / of for of in _copied_from(name) for directory in search]
        there = next((p for p in (beside / name, *copied) if p.is_file()), None)
        if there is not None:
            return Location(str(there), nearest_line(made, there, where.line) if where.line else 0)
    return where


def nearest_line(port: Path, original: Path, line: int) -> int:
    """The original's line that a line of its port is, or that stood there. Raises OSError."""
    stamps = os.stat(port).st_mtime_ns, os.stat(original).st_mtime_ns
    return _hunks(str(port), str(original), stamps).nearest(line)


def _copied_from(name: Path) -> list[Path]:
    """`quack/gemm.py` of `quack_sm100/gemm.py`, `gemm.py` of `gemm_sm100.py`."""
    top, ending = os.path.splitext(name.parts[0])
    return [Path(top.removesuffix(COPY_SUFFIX) + ending, *name.parts[1:])] if top.endswith(COPY_SUFFIX) else []


def chain(loc: SourceLoc | None) -> list[tuple[str, int]]:
    """The outermost function's line first."""
    return [(at.file, at.line) for at in loc.outwards()][::-1] if loc is not None else []


def _copied(beside: str, original: Path) -> bool:
    """Whether a file of the port, `quack_sm100/gemm.py` or `gemm_sm100.py`, is the copy of a package's,
    `.../quack/gemm.py`, or of a module, `.../gemm.py`."""
    parts = Path(beside).parts
    stem, ending = os.path.splitext(parts[-1])
    if stem.endswith(COPY_SUFFIX) and original.name == stem.removesuffix(COPY_SUFFIX) + ending:
        return True
    for i, package in enumerate(parts[:-1]):
        module = package.removesuffix(COPY_SUFFIX), *parts[i + 1 :]
        if package.endswith(COPY_SUFFIX) and original.parts[-len(module) :] == module:
            return True
    return False
