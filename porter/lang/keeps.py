# SPDX-License-Identifier: Apache-2.0
"""Comments that ask for a place to be left as it is: `// porter: keep PTR150`, `# porter: keep PT7001, PT7003`.

One covers its own line, or, where nothing else stands there, the next line that is not blank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from porter.diagnostics import Location

_KEEP = re.compile(rb"(?://|/\*|\#)[ \t]*porter:[ \t]*keep\b[ \t]*([A-Z]+\d+(?:[ \t]*,[ \t]*[A-Z]+\d+)*)?")


@dataclass(frozen=True)
class Keep:
    """One ID that a comment at `where` names, for line `line`; an empty `id` where it names none."""

    id: str
    line: int
    where: Location


def keeps_in(path: str, source: bytes) -> Iterator[Keep]:
    """All that a file asks for."""
    if b"porter:" not in source:
        return
    lines = source.split(b"\n")
    for number, text in enumerate(lines, 1):
        found = _KEEP.search(text)
        if found is None:
            continue
        covered = number
        if not text[: found.start()].strip():
            below = (n for n, line in enumerate(lines[number:], number + 1) if line.strip())
            covered = next(below, number)
        where = Location(path, number, found.start() + 1)
        ids = found[1].split(b",") if found[1] else [b""]
        yield from (Keep(one.strip().decode("ascii"), covered, where) for one in ids)


@dataclass(eq=False)
class Keeps:
    """What files ask for, and what of it was made use of. `read` gives the text of a file, or nothing."""

    read: Callable[[str], bytes]
    _of_file: dict[str, list[Keep]] = field(default_factory=dict)
    used: set[Keep] = field(default_factory=set)

    def of(self, path: str) -> list[Keep]:
        if path not in self._of_file:
            self._of_file[path] = list(keeps_in(path, self.read(path)))
        return self._of_file[path]

    def covers(self, path: str, lines: range, ids: Iterable[str]) -> Keep | None:
        """The comment that asks for one of these IDs on one of these lines."""
        wanted = set(ids)
        for keep in self.of(path):
            if keep.id in wanted and keep.line in lines:
                self.used.add(keep)
                return keep
        return None

    def unused(self, paths: Iterable[str]) -> list[Keep]:
        return [keep for path in paths for keep in self.of(path) if keep not in self.used]
