# SPDX-License-Identifier: Apache-2.0
"""Whether a project builds for several architectures at once: then a port of it keeps Hopper."""

from __future__ import annotations

import re
from collections.abc import Mapping

from porter.diagnostics import Location
from porter.passes.build_kinds import kind_of
from porter.ptx.arch import CHIPS

_OTHERS = frozenset(map(str, CHIPS - {90}))
"""Chips other than Hopper, by the number of their architecture."""

_OPTION = re.compile(r"(?:\barch=compute_|\bcode=sm_|(?<![\w-])(?:-arch|--gpu-architecture)[=\s]+sm_)(\d+)[af]?\b")
_HOPPER = re.compile(r"(?<![\w.#])(?:(?:sm_|compute_)?90a|9\.0a)(?![\w.])")
_ITEM = re.compile(
    r"(?<![\w.-])(?:(?:sm_|compute_)?(\d{2,3})[af]?(?:-real|-virtual)?|(\d{1,2})\.(\d)[af]?(?:\+PTX)?)(?![\w.-])"
)
_OF_OPTION = re.compile(r"(?<![\w-])--?(?!\w*(?i:arch))[\w-]+[ \t=]+$|(?<!\w)(?!\w*(?i:arch|capab|sms?\b))\w+=$")
"""In front of a number that is an option's, or another variable's."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_OPEN = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_OF_ARCHITECTURES = re.compile(r"(?i)arch|capab|gencode|compute|\bsms?\b|nvcc")


def several_architectures(files: Mapping[str, bytes]) -> Location | None:
    """The line of build files at which Hopper is named with another chip, for one build of both; None if none is."""
    for path, source in sorted(files.items()):
        if b"90a" not in source and b"9.0a" not in source:
            continue
        text = source.decode("latin-1")
        if kind_of(path) != "presets":
            text = _COMMENT.sub(lambda m: " " * len(m[0]), text)
        line = _line_of_options(text) or _line_of_lists(text)
        if line is not None:
            return Location(path, line)
    return None


def _line_of_options(text: str) -> int | None:
    """Options of nvcc for Hopper and for another chip in one file."""
    found = [(m[1], m.start()) for m in _OPTION.finditer(text)]
    hopper = [at for _, at in found if _HOPPER.search(text, at, at + 40)]
    if hopper and any(number in _OTHERS for number, _ in found):
        return text.count("\n", 0, hopper[0]) + 1
    return None


def _line_of_lists(text: str) -> int | None:
    """A line, or what stands in parentheses or brackets, that lists Hopper and another chip."""
    at = 0
    for line in text.splitlines(keepends=True):
        if _OF_ARCHITECTURES.search(line) and _lists_both(line):
            return text.count("\n", 0, at) + 1
        at += len(line)
    for group in _OPEN.finditer(text):
        if "\n" in group[0] and _OF_ARCHITECTURES.search(group[0]) and _lists_both(group[0]):
            return text.count("\n", 0, group.start()) + 1
    return None


def _lists_both(text: str) -> bool:
    if _HOPPER.search(text) is None:
        return False
    items = [m for m in _ITEM.finditer(text) if _OF_OPTION.search(text, max(0, m.start() - 60), m.start()) is None]
    return bool({m[1] or m[2] + m[3] for m in items} & _OTHERS)
