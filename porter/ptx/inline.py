# SPDX-License-Identifier: Apache-2.0
"""Parser of inline-PTX templates: the text of an `asm` statement after C string unescaping.

`%0` is an operand, `%%r` the register `%r`, `%=` a number unique to the statement (it stays in names as
written). Source: CUDA "Inline PTX Assembly", sections 1.1 to 1.3; PTX ISA 9.0, section 4.
"""

from __future__ import annotations

from porter.ptx.ast import Statement, Template
from porter.ptx.lexer import PtxSyntaxError, Tokens
from porter.ptx.statements import Body

__all__ = ["PtxSyntaxError", "parse_template"]


def parse_template(text: str) -> Template:
    """The statements of an inline-asm template, in order.

    The last statement may lack its semicolon. An unbalanced brace is an error: such a template has no meaning
    without its neighbours.

    Raises:
        PtxSyntaxError: the text is not PTX; the position is relative to the template.
    """
    parser = Body(Tokens(text, template=True), template=True)
    body: list[Statement] = []
    while parser.texts[parser.at]:
        parser.statement(body)
    return Template(tuple(body))
