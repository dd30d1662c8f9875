# SPDX-License-Identifier: Apache-2.0
"""Files of a port, written where a compiler finds them: at the same places to each other as the originals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.build.cache import default_directory, digest
from porter.build.closure import left_beside
from porter.build.layout import Layout


@dataclass(frozen=True)
class Tree:
    """Files below `base`, which is named by their content. `names` are the originals as the user would write them."""

    base: Path
    layout: Layout
    names: Mapping[Path, str]

    def place(self, path: Path) -> Path:
        """Where the file of an original is. Raises ValueError if it cannot be one of the tree's."""
        return self.layout.place(path, self.base)

    def has(self, path: Path) -> bool:
        return path.resolve() in self.names

    def include_dirs(self, include_dirs: Sequence[Path]) -> tuple[Path, ...]:
        """The tree's own directories, each in front of the original's, which holds what was not ported."""
        return self.layout.include_dirs(include_dirs, self.base)

    def original_names(self, text: str) -> str:
        """A compiler's words, with the user's names of the files instead of the tree's."""
        for path in sorted(self.names, key=lambda p: -len(str(p))):
            text = text.replace(str(self.place(path)), self.names[path])
        return text


def counterpart(original: Path, port: Path, path: Path) -> Path | None:
    """Where a file or directory of an original lies in the tree of its port, if it does. The ends of both paths tell
    which directory of the one stands for which of the other."""
    left, right, wanted = original.resolve(), port.resolve(), path.resolve()
    if wanted == left:
        return right
    while left != right and left.name == right.name and left != left.parent:
        left, right = left.parent, right.parent
        if wanted.is_relative_to(left):
            place = right / wanted.relative_to(left)
            if place.exists() and place != wanted:
                return place
    return None


def mirrored(original: Path, port: Path, directories: Iterable[Path]) -> tuple[Path, ...]:
    """Where these directories of an original lie in the tree of its port, those that do."""
    found = (counterpart(original, port, directory) for directory in directories)
    return tuple(dict.fromkeys(place for place in found if place is not None))


def own_first(original: Path, port: Path, directories: Iterable[Path]) -> tuple[Path, ...]:
    """These directories, each behind the one that stands for it in the tree of the port."""
    return tuple(dict.fromkeys(d for one in directories for d in (*mirrored(original, port, [one]), one)))


def left_out(original: Path, port: Path, include_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """Where quoted includes of a port, and of what lies in its tree, find what stands beside the originals alone."""
    return left_beside(original, include_dirs, lambda path: counterpart(original, port, path) is not None)


def write_tree(
    files: Mapping[str, bytes],
    include_dirs: Iterable[Path] = (),
    spare: Path | None = None,
    layout: Layout | None = None,
) -> Tree:
    """Write `files`, keyed by the originals' paths, below the user's cache, or below `spare` where that cannot be
    written. Without a layout they lie below the directories of `include_dirs` that hold some of them.

    Raises:
        OSError: neither can be.
    """
    names = {Path(path).resolve(): path for path in files}
    if layout is None:
        holding = [d for d in include_dirs if any(p.is_relative_to(d.resolve()) for p in names)]
        layout = Layout.of(names, holding)
    placed = {path.relative_to(layout.root): files[name] for path, name in names.items()}
    parts = (part for path in sorted(placed) for part in (os.fsencode(path), placed[path]))
    key = digest([*parts, *layout.key])[:24]
    base = default_directory() / "trees" / key
    try:
        _write(base, placed, layout)
    except OSError:
        if spare is None:
            raise
        base = spare / key
        _write(base, placed, layout)
    return Tree(base, layout, names)


def _write(base: Path, files: Mapping[Path, bytes], layout: Layout) -> None:
    layout.make(base)
    for path, data in files.items():
        target = base / path
        if target.is_file() and target.read_bytes() == data:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(target)
