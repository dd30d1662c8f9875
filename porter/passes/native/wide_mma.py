# SPDX-License-Identifier: Apache-2.0
"""MMAs of twice the columns: the text of an instruction that names its registers one by one, and the arrays that hold
these."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find, inside
from porter.lang.text import Edit, Span, as_bytes
from porter.model.constants import Constants
from porter.model.functions import Function, array_extents, declared_name
from porter.model.program import Program
from porter.passes.native.sites import Left

_NUMBER = re.compile(r"\[\s*(\d+)\s*\]")
_PLACE = re.compile(r"(?<!%)((?:%%)*)%(\d+)")
_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def wider(function: Function, statement: AsmStatement, n: int, registers: int) -> Iterator[Edit]:
    """The edits of an asm statement with one MMA of `n` columns, whose sums are its first `registers` operands.

    Raises:
        Left: its registers are not elements of one array, in their order.
    """
    path = function.file.path
    held = statement.outputs[:registers]
    if statement.macro is not None or statement.macro_pieces or len(held) < registers or any(o.name for o in held):
        raise Left(function, statement.span, f"the registers of an MMA of {n} columns, by their numbers")
    more = _continued([" ".join(o.expr.split()) for o in held])
    if more is None:
        raise Left(function, statement.span, f"the registers of an MMA of {n} columns as elements of one array")
    text, count = re.subn(rf"(?<=\.m64n){n}(?=k\d)", str(2 * n), statement.template)
    if count != 1:
        raise Left(function, statement.span, f"one MMA of {n} columns in a statement")

    def moved(match: re.Match[str]) -> str:
        number = int(match[2])
        if number == registers - 1:
            return match[1] + ", ".join(f"%{i}" for i in range(number, 2 * registers))
        return f"{match[1]}%{number if number < registers else number + registers}"

    text = _PLACE.sub(moved, text)
    at = statement.template_span
    lines = function.file.source[at.start : at.end].count(b"\n")
    quoted = '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"' + "\n" * lines
    yield Edit(path, at, as_bytes(quoted))
    end = held[-1].expr_span.end
    close = function.file.source.index(b")", end) + 1
    yield Edit(path, Span(close, close), as_bytes("".join(f', "{held[-1].constraint}"({one})' for one in more)))


def _continued(elements: Sequence[str]) -> list[str] | None:
    """As many elements of an array again, behind these; None where they are not all of them in their order."""
    shapes = {_NUMBER.sub("[]", e) for e in elements}
    indices = [tuple(int(i) for i in _NUMBER.findall(e)) for e in elements]
    if len(shapes) != 1 or not indices[0]:
        return None
    varying = [p for p in range(len(indices[0])) if len({i[p] for i in indices}) > 1]
    if not varying:
        return None
    inner = [max(i[p] for i in indices) + 1 for p in varying[1:]]

    def at(position: int) -> dict[int, int]:
        found = {}
        for p, extent in zip(reversed(varying[1:]), reversed(inner), strict=True):
            position, found[p] = divmod(position, extent)
        return {**found, varying[0]: position}

    if any(i[p] != v for k, i in enumerate(indices) for p, v in at(k).items()):
        return None
    return [_with(elements[0], dict(enumerate(indices[0])) | at(k)) for k in range(len(elements), 2 * len(elements))]


def _with(element: str, indices: Mapping[int, int]) -> str:
    """An element of an array with other indices, by their places."""
    parts = _NUMBER.split(element)[::2]
    return parts[0] + "".join(f"[{indices[i]}]{part}" for i, part in enumerate(parts[1:]))


def arrays(
    program: Program, kernel: Function, constants: Constants, names: set[str], registers: int,
    follows: Sequence[tuple[str, Span]], around: Function | None,
) -> Iterator[Edit]:  # fmt: skip
    """The edits of declarations of arrays that hold the sums, by the names of variables, members and parameters:
    the extent that comes of the columns is twice as large, unless it is made of what `follows` by itself, as places.
    `around`: the function that is asked about alone.

    Raises:
        Left: an extent is neither.
    """
    for file in program.sources.files.values():
        for node in find(file.root, "declaration", "field_declaration", "parameter_declaration"):
            for declarator in node.children_by_field_name("declarator"):
                named, extents = declared_name(declarator), array_extents(declarator)
                if named is None or file.text(named) not in names or not extents:
                    continue
                if around is not None and not (file is around.file and inside(around.body, node)):
                    continue
                place = column_extent([constants.evaluate(file.text(e)) for e in extents], registers)
                extent = extents[place] if place is not None else None
                if extent is None or any(_follows(e, file.path, follows) for e in extents):
                    continue
                span = Span(extent.start_byte, extent.end_byte)
                if extent.type != "number_literal":
                    whole = next((f for f in program.functions if f.file is file), kernel)
                    raise Left(whole, span, f"that `{file.text(extent)}` follows from the width of a tile")
                value = constants.evaluate(file.text(extent))
                yield Edit(file.path, span, as_bytes(str(2 * (value or 0))))


def column_extent(extents: Sequence[int | None], registers: int) -> int | None:
    """Which extent of an array the columns of a tile make, where the inner ones are parts of `registers`."""
    for place in range(len(extents) - 1, -1, -1):
        inner = extents[place:]
        if None in inner:
            return None
        if math.prod(e or 0 for e in inner) == registers:
            return place
    return None


def _follows(node: Node, path: str, follows: Sequence[tuple[str, Span]]) -> bool:
    whole = Span(node.start_byte, node.end_byte)
    return any(p == path and whole.contains(span) for p, span in follows)
