# SPDX-License-Identifier: Apache-2.0
"""The directory that a source's project lies in."""

from __future__ import annotations

from pathlib import Path

BUILD_FILES = frozenset(
    {"CMakeLists.txt", "Makefile", "makefile", "GNUmakefile", "meson.build", "setup.py", "pyproject.toml"}
)
"""Names of files that say how a project is built."""


def project_root(path: Path) -> Path:
    """The directory that a source's project lies in: its repository, else the working directory if that is above it,
    else the directory above its own, which holds `include` beside `src`."""
    own = path.resolve().parent
    here = Path.cwd()
    for above in (own, *own.parents):
        if (above / ".git").exists():
            return above
    if own.is_relative_to(here) and here != here.parent:
        return here
    return own.parent if own.parent != own.parent.parent else own


def built_together(path: Path) -> Path:
    """The directory whose files are built into one program with a source: the topmost of its project that says how it
    is built, else its own. A folder without either, as the one of temporary files, holds programs of their own."""
    top, own = project_root(path), path.resolve().parent
    if (top / ".git").exists():
        return top
    above = [a for a in (own, *own.parents) if a.is_relative_to(top) and any((a / n).is_file() for n in BUILD_FILES)]
    return above[-1] if above else own
