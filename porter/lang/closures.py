# SPDX-License-Identifier: Apache-2.0
"""Which files the sources of a project lead to, before any of them is parsed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from porter.diagnostics import PorterError
from porter.lang.lexical import without_mark
from porter.lang.sources import Headers, is_header, is_python, read_source, tidy

_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)', re.MULTILINE)


def with_headers(sources: Sequence[Path], include_dirs: Sequence[Path]) -> tuple[list[Path], dict[str, set[str]]]:
    """The sources and the headers that they lead to, and for each CUDA file it and all files that it includes, directly
    or not. Headers of libraries are not followed."""
    walk = _Walk({os.path.realpath(p): p for p in sources}, include_dirs)
    for path in sorted(sources, key=is_header):
        walk.visit(path)
    closures: dict[str, set[str]] = {}
    for key in walk.includes:
        seen, pending = {key}, [key]
        while pending:
            for target in walk.includes[pending.pop()]:
                if target not in seen:
                    seen.add(target)
                    pending.append(target)
        closures[key] = seen
    return list(dict.fromkeys([*sources, *walk.known.values()])), closures


class _Walk:
    def __init__(self, known: dict[str, Path], include_dirs: Sequence[Path]) -> None:
        self.known = known
        self.includes: dict[str, list[str]] = {}
        self._include_dirs = include_dirs

    def visit(self, path: Path) -> None:
        """A file, and what it includes, with its own directories in front of those of the file that led to it."""
        pending: list[tuple[Path, tuple[Headers, ...]]] = [(path, ())]
        while pending:
            path, above = pending.pop()
            if is_python(path) or path.as_posix() in self.includes:
                continue
            found = self.includes[path.as_posix()] = []
            try:
                names = [(q == b'"', os.fsdecode(n)) for q, n in _QUOTED.findall(without_mark(read_source(path)))]
            except PorterError:
                continue
            headers = (Headers(path, self._include_dirs), *above[:1]) if names else ()
            for quoted, name in dict.fromkeys(names):
                target = next((t for h in headers if (t := h.find(path.parent, name, quoted)) is not None), None)
                if target is not None:
                    header = self.known.setdefault(os.path.realpath(target), tidy(target))
                    found.append(header.as_posix())
                    pending.append((header, headers))


def not_included(headers: Iterable[str], sources: Iterable[str], closures: Mapping[str, Collection[str]]) -> list[str]:
    """The headers that are compiled by themselves: neither the sources nor others of these headers lead to them. Of
    headers that include each other it is the first."""
    reached = {path for source in sources for path in closures.get(source, ())}
    alone = sorted(set(headers) - reached)
    return [
        path
        for path in alone
        if not any(
            path in closures.get(other, ()) and (other < path or other not in closures.get(path, ()))
            for other in alone
            if other != path
        )
    ]
