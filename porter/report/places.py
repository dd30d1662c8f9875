# SPDX-License-Identifier: Apache-2.0
"""Instructions of PTX as people find them."""

from __future__ import annotations

from porter.facts.code import Code
from porter.ptx.calls import inlined


def instruction(code: Code, at: int) -> str:
    """Its opcode and its place."""
    return f"{code.code[at].opcode} at {place_of(code, at)}"


def place_of(code: Code, at: int | None) -> str:
    """Source file and line with the calls it was inlined through, or the PTX line."""
    if at is None:
        return "no place"
    ins = code.code[at]
    if ins.loc is None:
        return f"PTX line {ins.line}"
    first, *rest = ins.loc.outwards()
    through = inlined(first.file, ((loc.file, loc.line) for loc in rest))
    return f"{first.file}:{first.line}{through} (PTX line {ins.line})"


def own_place_of(code: Code, at: int) -> str:
    """The line of the kernel itself that an instruction comes from, or the PTX line."""
    ins = code.code[at]
    *_, own = ins.loc.outwards() if ins.loc is not None else (None,)
    return f"PTX line {ins.line}" if own is None else f"{own.file}:{own.line} (PTX line {ins.line})"
