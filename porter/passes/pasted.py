# SPDX-License-Identifier: Apache-2.0
"""What the preprocessor puts together out of pieces, and the model did not read: wgmma, or nobody knows what."""

from __future__ import annotations

import re

from porter.diagnostics import Code, Diagnostic
from porter.lang import expansion
from porter.lang.asm import AsmStatement
from porter.lang.cuda import location
from porter.lang.expansion import Joined, joined_strings
from porter.model.functions import Style
from porter.model.program import Program

_INSTRUCTION = re.compile(r"wgmma\s*\.\s*(?:mma_async|fence|commit_group|wait_group)")
_PIECE = re.compile(rb"\bw(?:g(?:m(?:ma?)?)?)?\b|gmma|\\x|\\[0-7]|\bmma[_\w]*\.|\"\s*m?ma")
"""Without any of these no pieces make the word."""


def unread_pieces(program: Program) -> list[Diagnostic]:
    """NOT_ANALYSED for each wgmma in the expanded sources that is in none of the asm statements which were read."""
    files = program.sources.files.values()
    if not any(b"asm" in f.source for f in files) or not any(_PIECE.search(f.source) for f in files):
        return []
    found = []
    for joined in joined_strings(program.sources, _INSTRUCTION, _PIECE):
        if not _was_read(program, joined):
            what = f"`{joined.text}`, put together"
            if joined.chain:
                what += " by " + ", ".join(f"`{name}`" for name in dict.fromkeys(joined.chain))
            found.append(
                Diagnostic(Code.NOT_ANALYSED, location(program.sources.files[joined.path], joined.span), {"what": what})
            )
    return found


def unread_templates(program: Program) -> list[Diagnostic]:
    """UNREAD_PTX for each asm statement with a name in it that stands for nobody knows what. Of what rules speak for
    the body does not matter."""
    found = []
    said = [(f.file.path, f.span(f.body)) for f in program.leaf_bodies]
    for made in expansion.unread_templates(program.sources):
        if any(path == made.path and body.contains(made.span) for path, body in said):
            continue
        reason = f"`{made.text}` is not known"
        if made.chain:
            reason = f"in what `{made.chain[0]}` makes, {reason}"
        where = location(program.sources.files[made.path], made.span)
        found.append(Diagnostic(Code.UNREAD_PTX, where, {"reason": reason}))
    return found


def _was_read(program: Program, joined: Joined) -> bool:
    for function in program.functions:
        if function.style is not Style.MACRO:
            for statement in function.asm:
                if statement.path == joined.path and statement.span.contains(joined.span):
                    return _names_wgmma(statement)
    # macros with the statements themselves; what cannot be read in them is reported if it says wgmma
    macros = [f for f in program.functions if f.style is Style.MACRO and f.name in joined.chain]
    statements = [s for f in macros for s in f.asm]
    return any("wgmma" in s.template for s in statements) and all(_names_wgmma(s) or s.ptx for s in statements)


def _names_wgmma(statement: AsmStatement) -> bool:
    """Whether a statement is known to be wgmma: it was read, or it is refused for what could not be read of it."""
    return "wgmma" in statement.template
