# SPDX-License-Identifier: Apache-2.0
"""Files of a port, written where a compiler finds them: at the same places to each other as the originals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.build.cache import default_directory, digest


@dataclass(frozen=True)
class Tree:
    """Files below `base`, which is named by their content. `common` is the directory that stands for it among the
    originals, `names` the originals as the user would write them."""

    base: Path
    common: Path
    names: Mapping[Path, str]
    directories: tuple[Path, ...]

    def place(self, path: Path) -> Path:
        """Where the file of an original is. Raises ValueError if it is none of the tree's."""
        return self.base / path.resolve().relative_to(self.common)

    def include_dirs(self, include_dirs: Sequence[Path]) -> tuple[Path, ...]:
        """The tree's own directories in front of the originals', which hold what was not ported."""
        own = [self.place(d) for d in include_dirs if d.resolve() in self.directories]
        return tuple(dict.fromkeys([*own, *include_dirs]))

    @property
    def quote_dirs(self) -> tuple[Path, ...]:
        """Where quoted includes find headers beside the originals that are not part of the tree. In angle brackets
        these directories are not searched: a header of the system may have the name of one of theirs."""
        return tuple(dict.fromkeys(p.parent for p in self.names))

    def original_names(self, text: str) -> str:
        """A compiler's words, with the user's names of the files instead of the tree's."""
        for path in sorted(self.names, key=lambda p: -len(str(p))):
            text = text.replace(str(self.place(path)), self.names[path])
        return text


def mirrored(original: Path, port: Path, directories: Iterable[Path]) -> tuple[Path, ...]:
    """Where these directories of an original lie in the tree of its port, those that do. The ends of both paths tell
    which directory of the one stands for which of the other."""
    left, right = original.resolve(), port.resolve()
    wanted = {d: d.resolve() for d in directories}
    found: dict[Path, Path] = {}
    while left != right and left.name == right.name and left != left.parent:
        left, right = left.parent, right.parent
        for given, directory in wanted.items():
            if given not in found and directory.is_relative_to(left):
                place = right / directory.relative_to(left)
                if place.is_dir() and place != directory:
                    found[given] = place
    return tuple(found[d] for d in wanted if d in found)


def write_tree(files: Mapping[str, bytes], include_dirs: Iterable[Path] = (), spare: Path | None = None) -> Tree:
    """Write `files`, keyed by the originals' paths, below the user's cache, or below `spare` where that cannot be
    written.

    Raises:
        OSError: neither can be.
    """
    names = {Path(path).resolve(): path for path in files}
    holding = {d.resolve() for d in include_dirs}
    holding = {d for d in holding if any(p.is_relative_to(d) for p in names)}
    common = Path(os.path.commonpath([*(p.parent for p in names), *holding]))
    placed = {path.relative_to(common): files[name] for path, name in names.items()}
    key = digest(part for path in sorted(placed) for part in (os.fsencode(path), placed[path]))[:24]
    base = default_directory() / "trees" / key
    try:
        _write(base, placed)
    except OSError:
        if spare is None:
            raise
        base = spare / key
        _write(base, placed)
    return Tree(base, common, names, tuple(sorted(holding)))


def _write(base: Path, files: Mapping[Path, bytes]) -> None:
    for path, data in files.items():
        target = base / path
        if target.is_file() and target.read_bytes() == data:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(target)
