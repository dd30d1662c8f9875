# SPDX-License-Identifier: Apache-2.0
"""Long texts: diagnostics by ID, and the exit codes. The reference pages are made from the same functions."""

from __future__ import annotations

import string
from dataclasses import dataclass
from difflib import get_close_matches

from porter.diagnostics import EXIT_CODE_TEXT, Code, PorterError


@dataclass(frozen=True)
class Explanation:
    """`fields` are label and text, in the order they are shown."""

    name: str
    title: str
    fields: tuple[tuple[str, str], ...]


def explain(name: str) -> Explanation:
    """The explanation of a diagnostic ID (any case) or of the word `exit-codes`.

    Raises:
        PorterError: UNKNOWN_ID, with close names in the detail.
    """
    if name.lower() == "exit-codes":
        fields = tuple((str(int(code)), text) for code, text in EXIT_CODE_TEXT.items())
        return Explanation("exit-codes", "what the exit status of a command says", fields)
    code = Code.by_id(name)
    if code is None:
        near = get_close_matches(name.upper(), [c.id for c in Code], n=3)
        raise PorterError(Code.UNKNOWN_ID, name=name, detail=f"close: {', '.join(near)}" if near else "")
    return explain_code(code)


def explain_code(code: Code) -> Explanation:
    info = code.value
    return Explanation(
        info.id,
        readable_title(info.title),
        (
            ("severity", info.severity.value),
            ("exit code", f"{int(info.exit_code)} ({EXIT_CODE_TEXT[info.exit_code]})"),
            ("what", info.detail),
            ("next step", info.next_step),
        ),
    )


def readable_title(template: str) -> str:
    """A title with its placeholders as `<name>`."""
    pieces = []
    for text, field, _, _ in string.Formatter().parse(template):
        pieces.append(text + (f"<{field}>" if field else ""))
    return "".join(pieces)


def all_codes() -> list[Explanation]:
    """Every diagnostic, by ID."""
    return [explain_code(code) for code in sorted(Code, key=lambda c: c.id)]
