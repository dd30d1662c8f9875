# SPDX-License-Identifier: Apache-2.0
"""Headers of a project that its files include and that were not read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.diagnostics.reading import is_file
from porter.lang.coverage import missing_includes
from porter.lang.cuda import CudaFile
from porter.lang.known_headers import is_known
from porter.lang.lexical import lexed, without_mark
from porter.lang.sources import CUDA_ENDINGS, Include, Missing, SourceSet, read_source
from porter.lang.text import as_text
from porter.lang.trees import files_below
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
        sources = _not_there(path, include_dirs)
        includes = []
        for include in sources.includes if sources is not None else ():
            name = PurePosixPath(include.name)
            tail = "/" + "/".join(p for p in name.parts if p not in (".", ".."))
            if name.name not in ends or not any(w.endswith(tail) for w in whole):
                includes.append(include)
        if sources is not None:
            for diagnostic in missing_includes(replace(sources, includes=tuple(includes))):
                found.setdefault(str(diagnostic.values["name"]), diagnostic)
    return list(found.values())


def directories_taken(
    paths: Iterable[Path], include_dirs: Sequence[Path] = ()
) -> tuple[tuple[Path, ...], list[Diagnostic]]:
    """Directories in which headers are that files of some directories include, where one at or above the file, or a
    usual one there, has it and no other directory of those that were given; with a note for each. Files that were named
    are none's concern: what they need is for the author to say."""
    taken: dict[str, Diagnostic] = {}
    for tree in (p for p in paths if p.is_dir()):
        files = [p for p in files_below(tree) if p.is_file()]
        ends: dict[str, list[str]] = {}
        for file in files:
            ends.setdefault(file.name, []).append("/" + file.resolve().as_posix())
        for path in (p for p in files if p.suffix.lower() in CUDA_ENDINGS):
            sources = _not_there(path, include_dirs)
            for missing in sources.missing if sources is not None else ():
                directory = _only_one(missing, ends)
                if directory is not None and directory not in taken:
                    where = CudaFile(missing.include.path, read_source(path)).location(missing.include.span)
                    values = {"directory": directory, "name": missing.include.text}
                    taken[directory] = Diagnostic(Code.INCLUDE_DIRECTORY_TAKEN, where, values)
    return tuple(map(Path, taken)), list(taken.values())


def _only_one(missing: Missing, ends: dict[str, list[str]]) -> str | None:
    name = PurePosixPath(missing.include.name)
    if missing.hint is None or ".." in name.parts:
        return None
    there = [p for p in ends.get(name.name, ()) if p.endswith("/" + name.as_posix())]
    own = "/" + (Path(missing.hint) / name).resolve().as_posix()
    return missing.hint if there == [own] else None


def _not_there(path: Path, include_dirs: Sequence[Path]) -> SourceSet | None:
    """A file alone, with those of its includes that neither its own directory answers nor any that is searched; None
    where it has only such of known libraries."""
    try:
        source = read_source(path)
    except PorterError:
        return None
    names = {as_text(n) for n in _INCLUDE.findall(without_mark(source))}
    if all(is_known(n) for n in names):
        return None
    key = path.as_posix()
    searched = (*include_dirs, *stated_directories(path))
    includes = []
    for name, quoted, where in lexed(source).includes():
        places = [path.parent, *searched] if quoted else searched
        if not any(is_file(place / name) for place in places):
            text = f'"{name}"' if quoted else f"<{name}>"
            includes.append(Include(key, name, quoted, where, None, text))
    return SourceSet(key, {key: CudaFile(key, source)}, tuple(includes), include_dirs=searched)
