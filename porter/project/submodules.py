# SPDX-License-Identifier: Apache-2.0
"""Submodules of a repository that were not fetched (git-submodule(1), gitmodules(5))."""

from __future__ import annotations

import configparser
import os
from collections.abc import Sequence
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.diagnostics.reading import read_file

_NAMES = ".gitmodules"


def empty_submodules(paths: Sequence[Path]) -> list[Diagnostic]:
    """EMPTY_SUBMODULE for each submodule in or around the directories that has no file, in the order of their names."""
    found: dict[Path, Diagnostic] = {}
    for directory in (p for p in paths if p.is_dir()):
        own = directory.resolve()
        file = next((a / _NAMES for a in (own, *own.parents) if (a / _NAMES).is_file()), None)
        for name in _stated(file) if file is not None else ():
            assert file is not None
            place = (file.parent / name).resolve()
            if place.is_relative_to(file.parent) and not _has_files(place):
                where = Location(str(file) if directory.is_absolute() else os.path.relpath(file))
                found.setdefault(place, Diagnostic(Code.EMPTY_SUBMODULE, where, {"path": name}))
    return list(found.values())


def _stated(file: Path) -> list[str]:
    """The paths that it names, which Git writes with slashes."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        lines = (line.strip() for line in read_file(file).decode("utf-8", "replace").splitlines())
        parser.read_string("\n".join(lines))
    except (configparser.Error, PorterError):
        return []
    return sorted({parser[s]["path"] for s in parser.sections() if s.startswith("submodule ") and "path" in parser[s]})


def _has_files(place: Path) -> bool:
    try:
        with os.scandir(place) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
