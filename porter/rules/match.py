# SPDX-License-Identifier: Apache-2.0
"""Where a rule's pattern matches. Recognizes only; what becomes of a match is the engine's business."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath

from porter.lang.cuda import CudaFile
from porter.lang.cute_dsl import DslFile
from porter.lang.sources import CUDA_ENDINGS
from porter.lang.text import Span
from porter.rules.pattern import beginnings, required
from porter.rules.rule import Region, Rule


@dataclass(frozen=True)
class Match:
    rule: Rule
    path: str
    span: Span
    text: str
    replacement: str | None


def matches(rule: Rule, file: CudaFile) -> Iterator[Match]:
    """Matches of a pattern rule in a parsed source."""
    if rule.pattern is None or not _reads(rule, file.path):
        return
    text = visible(file, rule.region)
    if not any(word in text for word in required(rule.pattern)) or _ending(rule.pattern).search(text) is None:
        return
    if rule.region not in (Region.CODE, Region.TEXT) and not _may_match(rule.pattern, text):
        return
    for region in regions(file, rule.region):
        yield from _in_text(rule, file.path, file.source, region, text)


_ANCHOR = re.compile(r"(?<![\\\[])\^|(?<!\\)\$|\\[AZz]")


_PARTS = re.compile(r"\((?:\\.|[^()\\])*\)|\\.|\[(?:\\.|[^\]\\])*\]")
_LAST_WORD = re.compile(r"(\\b)(\w+)((?:\(\?![^()]*\))?)\Z")


@cache
def _ending(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """What every match ends with, if that is a word: a text without it is passed over faster. Else what matches
    everywhere."""
    alternatives = pattern.pattern
    while (shorter := _PARTS.sub("", alternatives)) != alternatives:
        alternatives = shorter
    found = _LAST_WORD.search(pattern.pattern)
    if found is None or "|" in alternatives or pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return re.compile("")
    # a pattern that begins with letters is searched for faster than one that begins with \b
    return re.compile(rf"{found[2]}(?<!\w{found[2]}){found[3]}")


def _reads(rule: Rule, path: str) -> bool:
    """Whether a rule looks at a CUDA file: one of no known ending is a header that some source includes."""
    known = PurePath(path).suffix.lower() in CUDA_ENDINGS
    return rule.reads(path) or (rule.language == "cuda" and not known)


def _may_match(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a match in some part of the text is possible. An anchor may hold at the edge of a part only."""
    if _ANCHOR.search(pattern.pattern) is not None:
        return True
    return next(found_in(pattern, text, 0, len(text)), None) is not None


def found_in(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """What `pattern.finditer` finds; it is tried only where a match can begin."""
    words = beginnings(pattern)
    if "" in words:
        yield from pattern.finditer(text, start, end)
        return
    for at in sorted({at for word in words for at in _places(word, text, start, end)}):
        if at >= start and (found := pattern.match(text, at, end)) is not None:
            yield found
            start = found.end()


def _places(word: str, text: str, start: int, end: int) -> Iterator[int]:
    at = text.find(word, start, end)
    while at >= 0:
        yield at
        at = text.find(word, at + 1, end)


def text_matches(rule: Rule, path: str, source: bytes) -> Iterator[Match]:
    """Matches in a file that is not CUDA source (build files); the region is the whole text."""
    if rule.pattern is None or not rule.reads(path) or rule.region is not Region.TEXT:
        return
    yield from _in_text(rule, path, source, Span(0, len(source)), source.decode("latin-1"))


def python_matches(rule: Rule, file: DslFile) -> Iterator[Match]:
    """Matches in the contents of a Python file's strings, in its comments, or in the code between; each string and each
    comment is a text of its own."""
    if rule.pattern is None or not rule.reads(file.path) or rule.region not in _PYTHON_REGIONS:
        return
    if not any(word.encode() in file.source for word in required(rule.pattern)):
        return
    for region in file.regions[_PYTHON_REGIONS.index(rule.region)]:
        text = file.source[region.start : region.end].decode("utf-8")
        for found in rule.pattern.finditer(text):
            start = region.start + len(text[: found.start()].encode())
            span = Span(start, start + len(found.group().encode()))
            replacement = found.expand(rule.replace) if rule.replace is not None else None
            yield Match(rule, file.path, span, found.group(), replacement)


_PYTHON_REGIONS = (Region.STRING, Region.COMMENT, Region.CODE)


def visible(file: CudaFile, region: Region) -> str:
    """The file with everything that a region does not show blanked, a character for each byte."""
    return file.lexed.plain_text if region is Region.CODE else file.lexed.source_text


def regions(file: CudaFile, region: Region) -> Iterator[Span]:
    if region in (Region.CODE, Region.TEXT):
        yield Span(0, len(file.source))
    elif region is Region.DIRECTIVE:
        for match in _CONDITION.finditer(file.lexed.code):
            yield Span(match.start(1), match.end(1))
    else:
        yield from file.literals(*_NODES[region])


_NODES = {Region.STRING: ("string_content", "raw_string_content"), Region.COMMENT: ("comment",)}


_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)


def _in_text(rule: Rule, path: str, source: bytes, region: Span, text: str) -> Iterator[Match]:
    """`text` has a character for each byte, so that offsets are byte offsets."""
    assert rule.pattern is not None
    for found in found_in(rule.pattern, text, region.start, region.end):
        if found.end() == found.start():
            continue
        span = Span(found.start(), found.end())
        replacement = found.expand(rule.replace) if rule.replace is not None else None
        yield Match(rule, path, span, source[span.start : span.end].decode("utf-8", "replace"), replacement)
