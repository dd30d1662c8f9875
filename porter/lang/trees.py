# SPDX-License-Identifier: Apache-2.0
"""Which files of a tree are sources."""

from __future__ import annotations

import os
from pathlib import Path

from porter.diagnostics import Code, PorterError
from porter.lang.sources import CUDA_ENDINGS, PYTHON_ENDINGS


def source_files(path: Path, python: bool = True) -> list[Path]:
    """The path itself, or every source below a directory, sorted; hidden directories are left out.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if not path.is_dir():
        return [path]
    endings = CUDA_ENDINGS | PYTHON_ENDINGS if python else CUDA_ENDINGS
    found = [p for p in files_below(path) if p.suffix.lower() in endings]
    if not found:
        raise PorterError(Code.NO_SOURCES, path=path)
    return found


def files_below(path: Path) -> list[Path]:
    """All files below a directory but hidden ones, sorted."""
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted(p for p in found if p.is_file())
