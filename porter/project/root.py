# SPDX-License-Identifier: Apache-2.0
"""The directory that a source's project lies in."""

from __future__ import annotations

from pathlib import Path


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
