# SPDX-License-Identifier: Apache-2.0
"""Calls of libraries that stand for an instruction, beside wgmma of the source's own. The headers that hold the asm
statements are not among the sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.lang.asm import AsmOperand, AsmStatement
from porter.lang.macros import Macros
from porter.lang.sources import SourceSet
from porter.lang.text import Span
from porter.model.facts import TENSOR_CORE, Commit, Facts, Fence, Wait
from porter.model.functions import Call
from porter.ptx.inline import parse_template

_QUALIFIED = r"(?:(?:::\s*)?\b[A-Za-z_]\w*\s*::\s*)*(?:::\s*)?\b(?:%s)\b"


def unread_macros(sources: SourceSet, facts: Facts, read: set[str]) -> Iterator[tuple[str, Span, str]]:
    """Macros in use whose text holds what may be a call of a library: file, place of the text, and why. `read` are
    those whose calls are read like a function's; one that only stands for a name is expanded where it is used."""
    words = [w for w, asked in facts.vocabulary.items() if any(r.kind in TENSOR_CORE for r in asked)]
    if not words:
        return
    pattern = re.compile(_QUALIFIED % "|".join(map(re.escape, words)))
    definitions = [(path, m) for path, file in sources.files.items() for m in file.lexed.macros()]
    all_macros = Macros.of(m for _, m in definitions)
    used: set[str] | None = None
    for path, macro in definitions:
        text = macro.joined.decode("utf-8", "replace")
        names = ["".join(found.split()) for found in pattern.findall(text)]
        if macro.name in read or not names or (macro.params is None and "(" not in text and len(names) == 1):
            continue
        if used is None:
            written = {w for file in sources.files.values() for w in re.findall(r"[A-Za-z_]\w*", file.lexed.plain_text)}
            used = written.union(*(all_macros.words(w) for w in written & set(all_macros.by_name)))
        why = next((w for name in names if (w := facts.of_text(name, TENSOR_CORE))), "")
        if macro.name in used and why:
            yield path, macro.body_span, f"{why} in macro `{macro.name}`, which is not followed"


def as_statement(call: Call, fact: Fence | Commit | Wait) -> AsmStatement:
    """The asm statement that a call stands for. Its span has no semicolon."""
    function = call.caller
    at = function.span(call.node)
    inputs: tuple[AsmOperand, ...] = ()
    if isinstance(fact, Fence):
        template = "wgmma.fence.sync.aligned;"
    elif isinstance(fact, Commit):
        template = "wgmma.commit_group.sync.aligned;"
    else:
        template = "wgmma.wait_group.sync.aligned %0;"
        place = Span(call.name_span.end, call.name_span.end)
        inputs = (AsmOperand("n", fact.pending, place, None, None, False),)
    return AsmStatement(
        path=function.file.path,
        node=call.node,
        span=at,
        template_span=at,
        template=template,
        outputs=(),
        inputs=inputs,
        clobbers=("memory",),
        volatile=True,
        where=function.file.location(at),
        ptx=parse_template(template),
        shift=function.shift,
    )
