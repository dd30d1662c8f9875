# SPDX-License-Identifier: Apache-2.0
"""The tiled MMA: one atom for a block's whole tile, issued for one CTA, and one warpgroup that reads it.

CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py, make_trivial_tiled_mma. A tile of 128 rows is one MMA; of
256 rows it would be two, or one of a pair of CTAs.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import Seen, agreed
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.text import Draft, Left, argument, assigned, found_in, method, one, operand
from porter.passes.idiom_dsl.words import Words
from porter.ptx.tmem import COLUMNS
from porter.ptx.umma import Kind, legal_m, legal_n

RULE = "PTR581"
_NUMBERS = m.Tuple([m.Element(m.Integer()), m.Element(m.Integer()), m.Element(m.Integer())])
_SECOND = m.Subscript(m.Name() | m.Attribute(), [m.SubscriptElement(m.Index(m.Integer("1")))])
_OF_TILE = m.Tuple([m.Element(), m.Element(_SECOND)])
"""`(64, tile[1])`: what a block's tile is called."""
_FIRST = ("a_dtype", "b_dtype", "a_leading_mode", "b_leading_mode", "acc_dtype")


def require(kernel: Kernel) -> None:
    """Raises Left: an MMA that has no sister in one atom of one CTA."""
    for seen in kernel.multiplies:
        op = seen.value(0, "atom")["op"]
        if "SMEM" not in str((op.get("a_src") or {}).get("text")):
            raise Left("A from registers", seen.call)
        if "Sparse" in op["kind"]:
            raise Left("a sparse MMA", seen.call)
        a, b = op["a_dtype"]["type"], op["b_dtype"]["type"]
        if a != b and not (a.startswith("Float8") and b.startswith("Float8")):
            raise Left(f"operands of {a} and {b}", seen.call)
    kind = Kind.I8 if any("I8" in s.value(0, "atom")["op"]["kind"] for s in kernel.multiplies) else Kind.F16
    for rows, columns in kernel.tiles.values():
        if rows not in legal_m(kind, 1) or columns not in legal_n(kind, 1):
            raise Left(f"a tile of {rows} x {columns}, which no MMA of one CTA has")
    number = len(kernel.accumulator.names)
    if any(number * columns > COLUMNS for _, columns in kernel.tiles.values()):
        raise Left(f"{number} accumulators, for which Tensor Memory has not enough columns")
    if set(kernel.tiles) != {s.case for s in kernel.multiplies}:
        raise Left("a tiled MMA that is made elsewhere")


def warpgroups_said(kernel: Kernel) -> tuple[int, str]:
    """How many warpgroups share a tile, and what the kernel calls that number.

    Raises:
        Left: the number is not said where the tiled MMA is made, or in words that the kernel does not have.
    """
    layout = argument(made_mma(kernel), 5, "atom_layout_mnk")
    rows, columns, deep = agreed(kernel.warpgroups, "warpgroups")
    if layout is not None and m.matches(layout.value, _NUMBERS):
        return rows * columns * deep, str(rows * columns * deep)
    if layout is None or (columns, deep) != (1, 1):
        raise Left("warpgroups that share more than the rows of a tile", made_mma(kernel))
    first = layout.value.elements[0].value if isinstance(layout.value, cst.Tuple) else layout.value
    if not kernel.is_global(first):
        raise Left("warpgroups whose number is not written where the tiled MMA is made", layout.value)
    number = operand(kernel.text.code(first))
    return rows, number if first is not layout.value else f"{number}[0]"


def made_mma(kernel: Kernel) -> cst.Call:
    return one(list(dict.fromkeys(s.call for s in kernel.facts.of("make_mma"))), "calls that make a tiled MMA")


def edit(kernel: Kernel, draft: Draft, words: Words, epilogue_tile: str, is_shared: bool) -> None:
    """`epilogue_tile`: its name in the kernel; empty where the accumulator is read as a whole. `is_shared`: all
    warpgroups read it."""
    text = kernel.text
    made = made_mma(kernel)
    plain = [argument(made, i, k) for i, k in enumerate(_FIRST)]
    layout, tiler = argument(made, 5, "atom_layout_mnk"), argument(made, 6, "tiler_mn")
    if layout is None or tiler is None or None in plain:
        raise Left("a tiled MMA whose arguments are not named one by one", made)
    tile = tile_of(kernel, made)
    group = f"{words['tcgen05']}.CtaGroup.{'TWO' if words['pair'] else 'ONE'}"
    whole = _of_pair(tile) if words["pair"] else tile
    draft.replace(RULE, layout, group if layout.keyword is None else f"cta_group={group}")
    draft.replace(RULE, tiler, whole if layout.keyword is None and len(made.args) == 7 else f"mma_tiler_mn={whole}")
    if (source := argument(made, 7, "a_source")) is not None:
        draft.replace(RULE, source, text.code(source))
    if not is_shared:
        _one_warpgroup(kernel, draft, layout.value)
    if epilogue_tile:
        _epilogue_tile(kernel, draft, epilogue_tile, tile, is_shared)
    for call in found_in(kernel.function, cst.Call):
        if method(call, "get_slice") == kernel.mma and len(call.args) == 1 and not draft.is_gone(text.span(call)):
            draft.replace(RULE, call.args[0], "0")


def tile_of(kernel: Kernel, made: cst.Call) -> str:
    """Rows and columns of a block's tile, as the file calls them where the tiled MMA is made."""
    text, found = kernel.text, set[str]()
    tiler = argument(made, 6, "tiler_mn")
    if tiler is not None and m.matches(tiler.value, _OF_TILE):
        columns = cst.ensure_type(tiler.value, cst.Tuple).elements[1].value
        return f"{text.code(cst.ensure_type(columns, cst.Subscript).value)}[:2]"
    layouts = kernel.facts.of("operand_layout")
    if any(seen.case not in kernel.tiles for seen in layouts):
        return _shared_tile(kernel, made, layouts)
    for seen in layouts:
        value = argument(seen.call, 1, "tile_shape_mnk")
        if value is not None and list(seen.value(1, "tile_shape_mnk")[:2]) == list(kernel.tiles[seen.case]):
            found.add(_spelled(kernel, value.value, made))
    if len(found) != 1:
        raise Left("a tile that has no name where the tiled MMA is made", made)
    return found.pop()


def _shared_tile(kernel: Kernel, made: cst.Call, layouts: Sequence[Seen]) -> str:
    """The same where several kernels have the tiled MMA: rows as layouts of operands have them, columns as the MMA."""
    text, tiler = kernel.text, argument(made, 6, "tiler_mn")
    assert tiler is not None
    columns = {s.case: s.value(6, "tiler_mn") for s in kernel.facts.at(made) if s.case in kernel.tiles}
    own = [s for s in layouts if s.case in kernel.tiles]
    values = list(dict.fromkeys(argument(s.call, 1, "tile_shape_mnk") for s in own))
    rows = {_spelled(kernel, v.value, made) for v in values if v is not None}
    same = all(s.value(1, "tile_shape_mnk")[0] == kernel.tiles[s.case][0] for s in own)
    right = all(given is not None and list(given)[1] == kernel.tiles[case][1] for case, given in columns.items())
    if len(rows) != 1 or None in values or not same or not right or not isinstance(tiler.value, cst.Tuple):
        raise Left("a tile that has no name where the tiled MMA of several kernels is made", made)
    tile = rows.pop()
    first = f"{tile.removesuffix('[:2]')}[0]" if tile.endswith("[:2]") else tile[1:-1].split(", ")[0]
    return f"({first}, {text.code(tiler.value.elements[1].value)})"


def _of_pair(tile: str) -> str:
    """The tile of two CTAs below each other."""
    if tile.endswith("[:2]"):
        name = tile.removesuffix("[:2]")
        return f"(2 * {name}[0], {name}[1])"
    rows, columns = tile[1:-1].split(", ")
    return f"(2 * {operand(rows)}, {columns})"


def _spelled(kernel: Kernel, value: cst.BaseExpression, made: cst.Call) -> str:
    text = kernel.text
    function = text.function(made)
    if isinstance(value, cst.Name):
        bound = [s for s in found_in(function, cst.SimpleStatementLine) if (assigned(s) or ("",))[0] == value.value]
        if bound and text.span(bound[0]).start > text.span(made).start:
            tile = assigned(bound[0])
            if tile is None or not isinstance(tile[1], cst.Tuple) or len(bound) > 1:
                raise Left("a tile that is named behind the tiled MMA", made)
            return f"({', '.join(text.code(e.value) for e in tile[1].elements[:2])})"
    if isinstance(value, cst.Tuple):
        return f"({', '.join(text.code(e.value) for e in value.elements[:2])})"
    return f"{text.code(value)}[:2]"


def _one_warpgroup(kernel: Kernel, draft: Draft, layout: cst.BaseExpression) -> None:
    """What the atoms are laid out over is one warpgroup, wherever that is said: registers hold a part of the tile."""
    if not any(layout_ != (1, 1, 1) for layout_ in kernel.warpgroups):
        return
    text, name = kernel.text, kernel.text.code(layout)
    said = [s for s in found_in(text.module, cst.SimpleStatementLine) if (assigned(s) or ("",))[0] == name]
    bound = assigned(one(said, f"assignments of `{name}`, over which the atoms are laid out"))
    assert bound is not None
    draft.replace(RULE, bound[1], "(1, 1, 1)")


def _epilogue_tile(kernel: Kernel, draft: Draft, name: str, tile: str, is_shared: bool) -> None:
    """A tile of the epilogue, which the kernel calls `name`, has all rows of an atom, and the columns that it had."""
    text = kernel.text
    seen = [s for s in kernel.facts.of("divide") if text.function(s.call) is kernel.function]
    reduced = not is_shared and any(layout != (1, 1, 1) for layout in kernel.warpgroups)
    whole = not reduced and all(
        isinstance(t := s.value(1, "tiler"), list) and t[0] == kernel.tiles[s.case][0] for s in seen
    )
    if is_shared and seen and whole:
        return
    calls = list(dict.fromkeys(s.call for s in kernel.facts.of("epilogue_tile")))
    for call in calls:
        shape, cooperative = argument(call, 0, "tile_shape_mnk"), argument(call, 2, "is_cooperative")
        override = argument(call, 3, "epi_tile_override")
        if shape is None or (override is not None and _given(kernel.facts.at(call))):
            raise Left("an epilogue tile that is given", call)
        rows = f"{text.code(shape.value)}[0] == 128"
        if cooperative is None:
            draft.replace(RULE, call.args[-1], f"{text.code(call.args[-1])}, is_cooperative={rows}", [call.args[-1]])
        else:
            draft.replace(RULE, cooperative.value, rows, [])
    if calls or (seen and whole):
        return
    said = [s for s in found_in(text.module, cst.SimpleStatementLine) if (assigned(s) or ("",))[0] == name]
    values = [v[1] for s in said if (v := assigned(s)) is not None and text.code(v[1]) != "None"]
    value = one(values, f"assignments of `{name}`, the epilogue's tile")
    first = tile.removesuffix("[:2]") + "[0]" if tile.endswith("[:2]") else tile.strip("()").split(",")[0]
    draft.around(RULE, value, f"({first}, ", "[1])")


def _given(seen: Sequence[Seen]) -> bool:
    return agreed([s.value(3, "epi_tile_override") is not None for s in seen], "an epilogue tile that is given")
