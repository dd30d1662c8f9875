# SPDX-License-Identifier: Apache-2.0
"""What a source calls the mbarrier that a place of it initializes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from porter.ptx.ast import SourceLoc

_NAME = r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*|\[[^\[\]]*\])*"
_BY_ARGUMENT = re.compile(r"[\w:<>.]*init\s*\(\s*(?P<argument>[^;]*)")
_BY_OBJECT = re.compile(rf"(?P<object>{_NAME})(?:\.|->)init\s*\(")
_WRAPPED = re.compile(
    r"(?:[\w:]+(?:<[^()]*>)?\s*)?\((?P<inside>.*)\)|\([\w:\s]+\*+\)\s*(?P<cast>.*)|&\s*(?P<of>.*)", re.DOTALL
)
_ELEMENT = re.compile(rf"(?P<base>{_NAME})\s*(?:\+(?P<plus>[^,]*)|\((?P<call>[^()]*)\))")
_INDEX = re.compile(r"\[\s*(?!\d+\s*\])[^\[\]]*\]")
_HEAD = re.compile(r"\s*(?:for|if|while)\s*\(")
_STATEMENT = 4
"""Lines in which one is looked for."""


def initialized(loc: SourceLoc) -> str | None:
    """The mbarrier that is initialized at a place, an index that is not a number left out: `full[]`, `storage.full[]`;
    None where the text there is no call of something like `init`, or the file is not to be read.

    >>> named("init(&full[i], 1);")
    'full[]'
    """
    lines = _lines(loc.file)
    text = "\n".join(lines[loc.line - 1 : loc.line - 1 + _STATEMENT])
    return named(text[max(loc.column - 1, 0) :])


def named(text: str) -> str | None:
    """The name in the statement that a text begins with.

    >>> named("mbarrier_init(smem_u32(ring.full(s)), 1)"), named("storage.loaded[s].init(1);"), named("init(b + i, 1)")
    ('ring.full()', 'storage.loaded[]', 'b[]')
    """
    while (head := _HEAD.match(text)) is not None:
        text = text[_closing(text, head.end()) + 1 :].lstrip()
    found = _BY_OBJECT.match(text)
    if found is not None:
        return _INDEX.sub("[]", found["object"])
    found = _BY_ARGUMENT.match(text)
    return _of_argument(_first(found["argument"])) if found is not None else None


def _first(arguments: str) -> str:
    """The first of a list, whose end need not be there."""
    return arguments[: _closing(arguments, 0, ",")].strip()


def _closing(text: str, start: int, ends: str = "") -> int:
    """Where brackets around a place are closed, or one of `ends` stands between no others; else the text's end."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth < 0 or (text[at] in ends and not depth):
            return at
    return len(text)


def _of_argument(text: str) -> str | None:
    element = _ELEMENT.fullmatch(text)
    if re.fullmatch(_NAME, text):
        return _INDEX.sub("[]", text) if not text.startswith("this->") else None
    if element is not None and ("." in element["base"] or element["call"] is None):
        if (element["plus"] or element["call"] or "").strip().isdigit():
            return text
        return element["base"] + ("[]" if element["call"] is None else "()")
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return None
    inside = wrapped["inside"] or wrapped["cast"] or wrapped["of"]
    return _of_argument(_first(inside)) if inside else None


@lru_cache(maxsize=64)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()
