# SPDX-License-Identifier: Apache-2.0
"""What the files of a translation unit include, by their texts: which file, and the directory it is found in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from porter.diagnostics.reading import is_file

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_MAX_FILES = 500
"""How many files of one translation unit are looked through."""


@dataclass(frozen=True)
class Named:
    """An include of the file `by` that leads to the file `found`: `name` is what stands in quotes or angle brackets,
    `through` the include directory that has it, None where it is found from the directory of `by`."""

    by: Path
    name: str
    quoted: bool
    found: Path
    through: Path | None


@dataclass(frozen=True)
class Closure:
    """The files of a unit with their texts, what they include, and the names of includes that no file answers."""

    texts: dict[Path, str] = field(default_factory=dict)
    includes: list[Named] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)


def closure(source: Path, include_dirs: Sequence[Path] = (), quote_dirs: Sequence[Path] = ()) -> Closure:
    """What a compiler may read that is given `source` and these directories, whatever conditions say."""
    read = Closure()
    seen: set[Path] = set()
    work = [source]
    while work and len(seen) < _MAX_FILES:
        path = work.pop()
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        read.texts[path] = text
        for quote, name in INCLUDE.findall(text):
            quoted = quote == '"'
            places = [path.parent, *quote_dirs, *include_dirs] if quoted else list(include_dirs)
            at = next((i for i, place in enumerate(places) if is_file(place / name)), None)
            if at is None:
                read.absent.add(name)
                continue
            work.append(places[at] / name)
            beside = quoted and at == 0
            read.includes.append(Named(path, name, quoted, places[at] / name, None if beside else places[at]))
    return read


def left_beside(source: Path, include_dirs: Sequence[Path], has: Callable[[Path], bool]) -> tuple[Path, ...]:
    """Directories of originals that quoted includes of their ports need: of the files that a port `has`, those that
    find a header from their own directory that it has not."""
    found = closure(source, include_dirs).includes
    left = [i for i in found if i.quoted and i.through is None and has(i.by) and not has(i.found)]
    return tuple(dict.fromkeys(i.by.absolute().parent for i in left))
