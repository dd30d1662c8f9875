# SPDX-License-Identifier: Apache-2.0
"""Messages as comments in a port, each on a line of its own above the place, and a text without them.

A mark reads `// porter[PT2503]: ...`, in Python and build files `# porter[...]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import libcst as cst

from porter.diagnostics import Diagnostic
from porter.lang.diff import split_lines
from porter.lang.lexical import Lexed
from porter.lang.matching import LineMatcher
from porter.lang.python import python_module
from porter.lang.sources import CUDA_ENDINGS, is_python
from porter.lang.text import MARK, EditGroup, LineIndex, Safety

_MARK = re.compile(rb"[ \t]*(?://|\#) porter\[[A-Z]+\d+\]: [^\n]*(?:\n|$)")


def unmarked(source: bytes) -> bytes:
    """The text without lines that are marks; all other bytes stay."""
    return b"".join(line for line in split_lines(source) if not _MARK.fullmatch(line))


def marked(
    old: Mapping[str, bytes], new: Mapping[str, bytes], said: Iterable[Diagnostic], groups: Iterable[EditGroup]
) -> dict[str, bytes]:
    """The files of a port that change, with marks: what is `said` of places of their originals, and edits to review.

    A place where a comment would not be one, or would cut a line in two, gets none.
    """
    wanted: dict[str, dict[int, list[str]]] = {}
    for d in said:
        if d.where is not None and d.where.line:
            wanted.setdefault(d.where.path, {}).setdefault(d.where.line, []).append(f"[{d.code.id}]: {d.message}")
    indexes = {path: LineIndex(text) for path, text in old.items()}
    for group in groups:
        first = group.edits[0]
        if group.safety is Safety.REVIEW and first.path in indexes:
            line = indexes[first.path].line_column(first.span.start)[0]
            text = f"[{group.rule}]: review: {group.title}"
            wanted.setdefault(first.path, {}).setdefault(line, []).append(text)
    return {
        path: _with(path, text, _carried(old.get(path, b""), text, wanted.get(path, {})))
        for path, text in new.items()
        if text != old.get(path)
    }


def _carried(old: bytes, new: bytes, notes: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """The notes by lines of the port: the same line, else the one that stands in its place."""
    if not notes:
        return {}
    found: dict[int, list[str]] = {}
    codes = LineMatcher(split_lines(old), split_lines(new)).get_opcodes()
    for line, texts in notes.items():
        for _, a0, a1, b0, b1 in codes:
            if a0 <= line - 1 < a1:
                found.setdefault(min(b0 + line - 1 - a0, max(b1 - 1, b0)) + 1, []).extend(texts)
    return found


def _with(path: str, source: bytes, notes: Mapping[int, list[str]]) -> bytes:
    lines, sign = split_lines(source), b"//" if Path(path).suffix.lower() in CUDA_ENDINGS else b"#"
    result, index, is_code = source, LineIndex(source), _code_of(path, source)
    # from the end, so that numbers of lines above stay; each is kept only where it is nothing but a comment
    for number in sorted(notes, reverse=True):
        if number > len(lines) or (number > 1 and lines[number - 2].rstrip().endswith(b"\\")):
            continue
        at = lines[number - 1]
        indent = at[: len(at) - len(at.lstrip(b" \t"))]
        end = b"\r\n" if at.endswith(b"\r\n") else b"\n"
        texts = [" ".join(text.split()).rstrip("\\").encode() for text in dict.fromkeys(notes[number])]
        tried = [
            *lines[: number - 1],
            *(indent + sign + b" porter" + text + end for text in texts),
            *lines[number - 1 :],
        ]
        made = b"".join(tried)
        if is_code(result, made, index.line_start(number)):
            lines, result = tried, made
    return result


def _code_of(path: str, source: bytes) -> Callable[[bytes, bytes, int], bool]:
    """Whether the code of a file stays, from the one text to the other, with comments at an offset."""
    if is_python(Path(path)):
        file = python_module(source)
        strings = [file.span(n) for n in file.nodes(cst.SimpleString, cst.FormattedString)] if file is not None else []
        at_mark = 0 if source.startswith(MARK) else -1
        return lambda one, other, at: (
            file is not None and at != at_mark and not any(s.start < at < s.end for s in strings)
        )
    if Path(path).suffix.lower() in CUDA_ENDINGS:
        return lambda one, other, at: Lexed(one).uncommented.split() == Lexed(other).uncommented.split()
    return lambda one, other, at: True
