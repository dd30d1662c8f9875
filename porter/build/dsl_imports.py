# SPDX-License-Identifier: Apache-2.0
"""What the import of a kernel's file depended on: the files that were read, and the places that were looked in."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import porter


@dataclass(frozen=True)
class Imported:
    """`files` are all modules outside of the standard library, the DSL and Porter. `names` are, by directory, the
    names that were looked for in it, found or not: a new file of one of these names may be imported in place of
    another."""

    files: list[str]
    names: dict[str, list[str]]


def imported(missed: Iterable[tuple[str, Sequence[str] | None]], dsl: Path, ours: Path) -> Imported:
    """What this process imported so far. `missed` are names that nobody found, with the directories that were looked
    in (None: `sys.path`); `dsl` is the directory of the DSL's packages, `ours` that of temporary files."""
    known = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    foreign = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    settled = [dsl, ours, Path(porter.__file__).parent]

    @cache
    def counts(name: str) -> bool:
        path = Path(name)
        if any(path.is_relative_to(d) for d in settled):
            return False
        return not any(path.is_relative_to(d) for d in known) or any(path.is_relative_to(d) for d in foreign)

    files: set[str] = set()
    names: dict[str, set[str]] = {}
    search = [p for p in sys.path if p and counts(p)]
    for name, module in list(sys.modules.items()):
        root, _, child = name.rpartition(".")
        file = getattr(module, "__file__", None)
        if file and counts(str(file)):
            files.add(str(Path(file)))
        parent = sys.modules.get(root) if root else None
        for directory in search if not root else _path_of(parent):
            if counts(directory):
                names.setdefault(directory, set()).add(child)
    for name, path in missed:
        for directory in search if path is None else path:
            if counts(directory):
                names.setdefault(directory, set()).add(name.rpartition(".")[2])
    return Imported(sorted(files), {d: sorted(n) for d, n in sorted(names.items())})


def _path_of(module: object) -> list[str]:
    try:
        return [str(p) for p in getattr(module, "__path__", ())]
    except TypeError:  # a stand-in's
        return []
