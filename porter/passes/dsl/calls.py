# SPDX-License-Identifier: Apache-2.0
"""A call in whose place a rule writes another text, with the arguments as they stand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from porter.lang.cute_dsl import DslFile
from porter.lang.python import is_closed
from porter.lang.text import Edit, Span, gap_edits
from porter.rules.pattern import parts
from porter.rules.python import Argument, written


def call_edits(
    file: DslFile, call: cst.Call, template: str, captured: Mapping[str, Sequence[Argument]]
) -> Iterator[Edit]:
    """The edits that make a call of a template: of the text between its arguments where those keep their order, so that
    what stands in them may change too, of the whole otherwise."""
    texts, names = parts(written(template, {n: "" for n, nodes in captured.items() if not nodes}))
    nodes = [captured[n] for n in names]
    for i, found in enumerate(nodes):
        if len(found) == 1 and not is_closed(found[0]) and _is_open(texts[i], texts[i + 1]):
            texts[i], texts[i + 1] = texts[i] + "(", ")" + texts[i + 1]
    spans = [Span(file.span(n[0]).start, file.span(n[-1]).end) for n in nodes]
    whole = file.span(call)
    if all(a.end <= b.start for a, b in itertools.pairwise(spans)):
        yield from gap_edits(file.path, file.source, whole, texts, spans)
        return
    given = [file.source[s.start : s.end].decode() for s in spans]
    text = "".join(a + b for a, b in zip(texts, [*given, ""], strict=True))
    yield Edit(file.path, whole, text.encode())


def _is_open(before: str, after: str) -> bool:
    """Whether operators may bind to what stands between two texts."""
    return not (before.rstrip()[-1:] in ("(", ",", "[", "=") and after.lstrip()[:1] in (")", ",", "]"))
