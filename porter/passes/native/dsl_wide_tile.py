# SPDX-License-Identifier: Apache-2.0
"""Two CTAs that multiply together take tiles of twice the columns: what they bring of A is multiplied by twice as much
of B, half of which each of them has, so that shared memory has room for it.

PTX ISA 9.7.16.2.2 (shapes of MMAs of a pair). CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py.
"""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.mma import made_mma, tile_of
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, argument, assigned, found_in, one, operand
from porter.passes.idiom_dsl.words import Words
from porter.steps.step import Declared, Step

RULE = "PTR591"
_WIDEST = 256
_NAMED = m.Name() | m.Attribute(m.Name())


def _write(site: Site) -> None:
    kernel, text = site.kernel, site.kernel.text
    made = made_mma(kernel)
    tile = tile_of(kernel, made)
    name = tile.removesuffix("[:2]")
    if name == tile:
        raise Left("a tile with a name where the tiled MMA is made", made)
    if all(columns >= _WIDEST for _, columns in kernel.tiles.values()):
        raise Left(f"tiles of less than {_WIDEST} columns")
    value = _first_value(kernel, name)
    new = _with_columns(kernel, value)
    _require_alone(kernel, made, value)
    before = site.also

    def edits(draft: Draft, words: Words) -> None:
        if before is not None:
            before(draft, words)
        draft.replace(RULE, value, new, found_in(value, cst.Name))

    assert text.code(value) != new
    site.also = edits


def _first_value(kernel: Kernel, name: str) -> cst.BaseExpression:
    """What a tile's shape is, ahead of statements that keep its columns."""
    text, first = kernel.text, list[cst.BaseExpression]()
    for statement in found_in(kernel.text.module, cst.SimpleStatementLine):
        bound = assigned(statement)
        if bound is None or bound[0] != name:
            continue
        own = [n for n in (*found_in(bound[1], cst.Attribute), *found_in(bound[1], cst.Name)) if text.code(n) == name]
        if not own:
            first.append(bound[1])
            continue
        elements = bound[1].elements if isinstance(bound[1], cst.Tuple) else ()
        if len(elements) != 3 or "".join(text.code(elements[1].value).split()) != f"{name}[1]":
            raise Left(f"columns of `{name}` that stay where it is set again", statement)
    return one(first, f"values of `{name}`, the shape of a tile")


def _with_columns(kernel: Kernel, value: cst.BaseExpression) -> str:
    """The same shape with twice the columns, where an MMA has so many."""
    text = kernel.text
    if isinstance(value, cst.Tuple):
        elements = value.elements
        starred = isinstance(elements[0], cst.StarredElement)
        if len(elements) == 2 and starred and m.matches(elements[0].value, _NAMED):
            both, deep = text.code(elements[0].value), text.code(elements[1].value)
            return f"({both}[0], min(2 * {both}[1], {_WIDEST}), {deep})"
        if len(elements) == 3 and not any(isinstance(e, cst.StarredElement) for e in elements):
            rows, columns, deep = (text.code(e.value) for e in elements)
            return f"({rows}, min(2 * {operand(columns)}, {_WIDEST}), {deep})"
    if m.matches(value, _NAMED):
        whole = text.code(value)
        return f"({whole}[0], min(2 * {whole}[1], {_WIDEST}), *{whole}[2:])"
    raise Left("a shape of a tile that is written as rows, columns and depth", value)


def _require_alone(kernel: Kernel, made: cst.Call, value: cst.BaseExpression) -> None:
    """Raises Left: the function asks for the columns by what the shape is made of, beside what MMAs are laid out over,
    which the port has as one warpgroup."""
    text = kernel.text
    names = {n.value for n in found_in(value, cst.Name)} - {"self"}
    layout = argument(made, 5, "atom_layout_mnk")
    over = text.code(layout.value) if layout is not None else ""
    for node in found_in(text.function(value), cst.Name):
        parent = text.parent(node)
        skipped = isinstance(parent, cst.Param) or (isinstance(parent, cst.Attribute) and parent.attr is node)
        if node.value not in names or skipped or text.span(value).contains(text.span(node)):
            continue
        bound = assigned(text.statement(node))
        if bound is None or bound[0] != over:
            raise Left(f"columns that nothing but the shape of a tile is made of, as by `{node.value}`", node)


STEP = Step(
    "wide-tile", RULE, _write, "dsl", Declared(constants=True, maps=True),
    after={"cta-pair": "two CTAs that multiply together"}, cost=True,
)  # fmt: skip
