# SPDX-License-Identifier: Apache-2.0
"""Headers of a project: those that its files lead to, and those that they include and that were not read."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

from porter.diagnostics import Diagnostic, PorterError
from porter.diagnostics.reading import is_file
from porter.lang.coverage import missing_includes
from porter.lang.cuda import CudaFile
from porter.lang.known_headers import is_known
from porter.lang.lexical import lexed
from porter.lang.sources import HEADER_ENDINGS, Headers, Include, SourceSet, is_python, read_source, tidy
from porter.project.include_dirs import stated_directories

_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)', re.MULTILINE)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)', re.MULTILINE)


def with_headers(sources: Sequence[Path], include_dirs: Sequence[Path]) -> tuple[list[Path], dict[str, set[str]]]:
    """The sources and the headers that they lead to, and for each CUDA file it and all files that it includes, directly
    or not. Headers of libraries are not followed."""
    walk = _Walk({os.path.realpath(p): p for p in sources}, include_dirs)
    for path in sorted(sources, key=lambda p: p.suffix.lower() in HEADER_ENDINGS):
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
                names = [(q == b'"', os.fsdecode(n)) for q, n in _QUOTED.findall(read_source(path))]
            except PorterError:
                continue
            names = [(quoted, name) for quoted, name in names if not is_known(name)]
            headers = (Headers(path, self._include_dirs), *above[:1]) if names else ()
            for quoted, name in dict.fromkeys(names):
                target = next((t for h in headers if (t := h.find(path.parent, name, quoted)) is not None), None)
                if target is not None:
                    header = self.known.setdefault(os.path.realpath(target), tidy(target))
                    found.append(header.as_posix())
                    pending.append((header, headers))


def headers_not_found(
    paths: Iterable[Path], read: Collection[str], include_dirs: Sequence[Path] = ()
) -> list[Diagnostic]:
    """UNRESOLVED_INCLUDE for each header that one of the files includes, once, at its first place. A header that ends
    like one of the files that were `read` is one of them, whatever directory its name starts from."""
    ends = {PurePosixPath(path).name for path in read}
    whole = ["/" + path for path in read]
    found: dict[str, Diagnostic] = {}
    for path in paths:
        try:
            source = read_source(path)
        except PorterError:
            continue
        names = {n.decode("utf-8", "surrogateescape") for n in _INCLUDE.findall(source)}
        if all(is_known(n) for n in names):
            continue
        key = path.as_posix()
        searched = (*include_dirs, *stated_directories(path))
        includes = []
        for name, quoted, where in lexed(source).includes():
            places = [path.parent, *searched] if quoted else searched
            tail = "/" + "/".join(p for p in PurePosixPath(name).parts if p not in (".", ".."))
            there = any(is_file(place / name) for place in places)
            if not there and (PurePosixPath(name).name not in ends or not any(w.endswith(tail) for w in whole)):
                text = f'"{name}"' if quoted else f"<{name}>"
                includes.append(Include(key, name, quoted, where, None, text))
        sources = SourceSet(key, {key: CudaFile(key, source)}, tuple(includes), include_dirs=searched)
        for diagnostic in missing_includes(sources):
            found.setdefault(str(diagnostic.values["name"]), diagnostic)
    return list(found.values())
