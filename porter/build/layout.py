# SPDX-License-Identifier: Apache-2.0
"""How files of a port lie to each other: includes lead from one to the other by the names that they have among the
originals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from porter.build.closure import Named
from porter.diagnostics.reading import is_file


@dataclass(frozen=True)
class Layout:
    """Files lie below a directory as their originals lie below `root`. `links` are those of the originals that includes
    pass through, with what they lead to, and `directories` those that they pass through and no file is in."""

    root: Path
    links: Mapping[Path, Path] = field(default_factory=dict)
    directories: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, files: Iterable[Path], holding: Iterable[Path] = (), includes: Iterable[Named] = ()) -> Layout:
        """The lowest root of these files, of the directories `holding` them, and of all that the includes pass through
        on their way from the directory that they are looked for in."""
        links: dict[Path, Path] = {}
        directories: set[Path] = set()
        for include in includes:
            _follow(include, links, directories)
        parents = {p.resolve().parent for p in files}
        root = Path(os.path.commonpath({*parents, *(d.resolve() for d in holding), *directories}))
        made = {above for parent in parents for above in (parent, *parent.parents)}
        return cls(root, links, frozenset(directories - made))

    def place(self, path: Path, base: Path) -> Path:
        """Where an original's counterpart is below `base`. Raises ValueError for one that is not below the root."""
        spelt = path.parent.resolve() / path.name
        return base / (spelt if spelt in self.links else path.resolve()).relative_to(self.root)

    def include_dirs(self, include_dirs: Sequence[Path], base: Path) -> tuple[Path, ...]:
        """The counterpart of each directory below `base`, where it has one, in front of it."""
        found: list[Path] = []
        for directory in include_dirs:
            with suppress(ValueError):
                own = self.place(directory.resolve(), base)
                found += [own] if own.is_dir() else []
            found.append(directory)
        return tuple(dict.fromkeys(found))

    def make(self, base: Path) -> None:
        """The links and directories, below `base`. Raises OSError."""
        for directory in self.directories:
            self.place(directory, base).mkdir(parents=True, exist_ok=True)
        for link, target in self.links.items():
            at = base / link.relative_to(self.root)
            at.parent.mkdir(parents=True, exist_ok=True)
            if not at.is_symlink():
                at.symlink_to(os.path.relpath(base / target.relative_to(self.root), at.parent))

    @property
    def key(self) -> list[bytes]:
        """What it adds to files, as text that tells one layout from another."""
        links = [f"{link.relative_to(self.root)} {os.path.relpath(to, link)}" for link, to in self.links.items()]
        directories = [str(directory.relative_to(self.root)) for directory in self.directories]
        return [os.fsencode(one) for one in [*sorted(links), *sorted(directories)]]


def _follow(include: Named, links: dict[Path, Path], directories: set[Path]) -> None:
    """The way of an include, step by step as the system goes it."""
    if PurePath(include.name).is_absolute():
        return
    at = (include.through or include.by.parent).resolve()
    if include.through is None:
        _step(at / include.by.name, links)
    for part in PurePath(include.name).parts:
        directories.add(at)
        at = at.parent if part == ".." else _step(at / part, links)


def _step(path: Path, links: dict[Path, Path]) -> Path:
    if path.is_symlink():
        links[path] = path.resolve()
    return links.get(path, path)


@dataclass(frozen=True)
class Completed:
    """Which originals have a counterpart in what is written, and the includes that lead to an original all the same."""

    written: frozenset[Path]
    astray: tuple[Named, ...]


def completed(
    written: Iterable[Path], there: Iterable[Path], includes: Sequence[Named], include_dirs: Sequence[Path]
) -> Completed:
    """`written`, with those files of `there` without which an include of a written file would lead elsewhere than in
    the original: a compiler looks beside the file that includes, then, for what is left out, beside its original, then
    in `include_dirs`, where counterparts come first."""
    have, all_files = {p.resolve() for p in written}, {p.resolve() for p in there}
    while True:
        own = [i for i in includes if i.by.resolve() in have]
        beside: dict[Path, set[Path]] = {}
        for include in own:
            if include.through is None and include.found.resolve() not in have:
                beside.setdefault(include.by.parent, set()).add(include.found.resolve())
        more: set[Path] = set()
        astray: list[Named] = []
        for include in own:
            wanted = include.found.resolve()
            if _first(include, have, beside, include_dirs) == (wanted, wanted in have):
                continue
            if wanted not in have:
                more.add(wanted)
                continue
            astray.append(include)
            for directory, left in beside.items():
                more |= left if is_file(directory / include.name) else set()
        more &= all_files - have
        if not more:
            return Completed(frozenset(have), tuple(astray))
        have |= more


def _first(
    include: Named, have: set[Path], beside: Iterable[Path], include_dirs: Iterable[Path]
) -> tuple[Path | None, bool]:
    """What an include of a written file leads to: an original, and whether its counterpart is taken."""
    wanted = include.found.resolve()
    if PurePath(include.name).is_absolute():
        return wanted, False
    if include.through is None and wanted in have:
        return wanted, True
    for directory in beside if include.quoted else ():
        if is_file(directory / include.name):
            return (directory / include.name).resolve(), False
    for directory in include_dirs:
        if is_file(directory / include.name):
            found = (directory / include.name).resolve()
            return found, found in have
    return None, False
