# SPDX-License-Identifier: Apache-2.0
"""The other translation units of a source's project."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from porter.lang.sources import CUDA_ENDINGS, HEADER_ENDINGS
from porter.project.root import built_together

_MOST = 5000
"""Units that are looked at: what has more is no project of one program."""
_LARGEST = 1 << 20
_PASSED_OVER = frozenset({"third_party", "3rdparty", "node_modules", "site-packages", "build"})


_ASKED: ContextVar[list[Path] | None] = ContextVar("_ASKED", default=None)


@contextmanager
def asking_for_neighbours() -> Iterator[list[Path]]:
    """The roots whose neighbours are asked for meanwhile: what is made then is made of other files too."""
    asked: list[Path] = []
    token = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(token)


def units_around(root: Path, own: Collection[Path]) -> Iterator[tuple[Path, bytes]]:
    """The translation units of the project of `root` with their texts, without its `own`, as resolved paths."""
    if (asked := _ASKED.get()) is not None:
        asked.append(root)
    seen, top = 0, built_together(root)
    for folder, folders, names in os.walk(top if root.is_absolute() else os.path.relpath(top)):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _PASSED_OVER)
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() not in CUDA_ENDINGS - HEADER_ENDINGS or path.resolve() in own:
                continue
            seen += 1
            if seen > _MOST:
                return
            try:
                if path.stat().st_size <= _LARGEST:
                    yield path, path.read_bytes()
            except OSError:
                continue
