# SPDX-License-Identifier: Apache-2.0
"""Headers of a project that its files include and that were not read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

from porter.diagnostics import Diagnostic, PorterError
from porter.diagnostics.reading import is_file
from porter.lang.coverage import missing_includes
from porter.lang.cuda import CudaFile
from porter.lang.known_headers import is_known
from porter.lang.lexical import lexed, without_mark
from porter.lang.sources import Include, SourceSet, read_source
from porter.lang.text import as_text
from porter.project.include_dirs import stated_directories

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)', re.MULTILINE)


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
        names = {as_text(n) for n in _INCLUDE.findall(without_mark(source))}
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
