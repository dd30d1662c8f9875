# SPDX-License-Identifier: Apache-2.0
"""Code that ports bring along, as it stands in `mappings/emit`: files in sections, of which a port gets what it needs.

    //@ section NAME [if CONDITION | for LIST]    up to the next one; text in front of the first is for its reader
    //@ if CONDITION … //@ else … //@ end         lines in a section
    //@ for LIST … //@ end                        lines once for each element of a list, whose values they have too

A condition is made of names with `not`, `and`, `or`, in this order of binding. `$name` and `${name}` are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from porter.rules.load import mappings_directory

_SECTION = re.compile(r"//@ section (\w+)(?: (if|for) (\w[\w ]*))?")
_BETWEEN = {".hpp": "\n", ".py": "\n\n"}
_INNER = re.compile(r"//@ (?:(if|for) (\w[\w ]*)|else|end)")


@dataclass
class Block:
    """Lines and blocks that are written if a condition holds, or for each element of a list; `otherwise` else."""

    how: str = ""
    what: str = ""
    lines: list[Template | Block] = field(default_factory=list)
    otherwise: list[Template | Block] = field(default_factory=list)

    def written(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Its text for each time that it is written."""
        if self.how == "for":
            for element in values[self.what]:
                yield _text(self.lines, {**values, **element})
        else:
            yield _text(self.lines if self.holds(values) else self.otherwise, values)

    def holds(self, values: Mapping[str, Any]) -> bool:
        return not self.how or _holds(self.what, values)


def _text(lines: list[Template | Block], values: Mapping[str, Any]) -> str:
    return "".join(
        line.substitute(values) if isinstance(line, Template) else "".join(line.written(values)) for line in lines
    )


def _holds(condition: str, values: Mapping[str, Any]) -> bool:
    for connective, judge in ((" or ", any), (" and ", all)):
        if connective in condition:
            return judge(_holds(part, values) for part in condition.split(connective))
    name = condition.removeprefix("not ")
    return bool(values[name]) is (name == condition)


@cache
def sections(file: str) -> dict[str, Block]:
    """The sections of a file of `mappings/emit` by name, in order."""
    text = (mappings_directory() / "emit" / file).read_text("utf-8")
    start = text.index("\n//@ section") + 1
    return parsed(text[start:], file, text.count("\n", 0, start) + 1)


def parsed(text: str, file: str, first: int = 1) -> dict[str, Block]:
    """The sections of a text whose first line has the number `first`.

    Raises:
        ValueError: a line stands in no section, or a mark says nothing or stands where none fits.
    """
    found: dict[str, Block] = {}
    around: list[tuple[Block, list[Template | Block]]] = []
    for number, line in enumerate(text.splitlines(), first):
        section, inner = _SECTION.fullmatch(line), _INNER.fullmatch(line)
        fits = bool(around or section) and bool(section or inner or not line.startswith("//@"))
        if section is not None:
            fits = section[1] not in found and len(around) < 2
            block = found[section[1]] = Block(section[2] or "", section[3] or "")
            around = [(block, block.lines)]
        elif fits and inner is None:
            around[-1][1].append(Template(line + "\n"))
        elif fits and inner is not None and inner[1]:
            block = Block(inner[1], inner[2])
            around[-1][1].append(block)
            around.append((block, block.lines))
        elif fits:
            fits = len(around) > 1
            block, _ = around.pop()
            if line == "//@ else":
                around.append((block, block.otherwise))
        if not fits:
            raise ValueError(f"{file}:{number}: `{line}` does not fit")
    if len(around) != 1:
        raise ValueError(f"{file}: the last block has no end")
    return found


def lines(section: str, file: str = "kernel.cuh", /, **values: Any) -> str:
    """A section of what a port writes among the lines of a kernel, without the last line break."""
    return "".join(sections(file)[section].written(values)).strip("\n")


def emitted(file: str, values: Mapping[str, Any]) -> str:
    """The sections that `values` ask for, with a blank line between them."""
    parts = (part.strip("\n") for block in sections(file).values() for part in block.written(values))
    return "\n\n".join(filter(None, parts)) + "\n"


def joined(file: str, parts: Sequence[str]) -> str:
    """A file that stands in parts in a folder of its name, each of what stands in front of it. Parts of Python are
    modules of a package there; the first one imports what all use, and of others this takes what `# ---` begins."""
    ending = Path(file).suffix
    folder = mappings_directory() / "emit" / Path(file).stem
    first, *others = ((folder / f"{part}{ending}").read_text("utf-8") for part in parts)
    if ending == ".py":
        others = [text[text.index("\n# --- ") + 1 :] for text in others]
    return _BETWEEN[ending].join([first, *others])
