# SPDX-License-Identifier: Apache-2.0
"""Where headers of the trees on a command line are, beyond what it says: what there is to say about that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.diagnostics import Diagnostic
from porter.project.submodules import empty_submodules
from porter.scan.headers import directories_taken


def looked_in(paths: Sequence[Path], include_dirs: tuple[Path, ...]) -> tuple[tuple[Path, ...], list[Diagnostic]]:
    """The directories of -I with those that are taken for it, and notes on these and on submodules that are empty."""
    taken, notes = directories_taken(paths, include_dirs)
    return (*include_dirs, *taken), [*notes, *empty_submodules(paths)]
