# SPDX-License-Identifier: Apache-2.0
"""The step for kernels whose blocks have one tile each, by their place in a grid of rows and columns: half as many
blocks stand along the second dimension, and pairs along the first. Each has the tiles that are half a grid apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.scopes import resolve
from porter.passes.full_rate.renaming import reached
from porter.passes.native.pair import BLOCK, RULE, Side, asking
from porter.passes.native.sites import Changes, Left
from porter.passes.native.tile_places import TilePlace, as_text
from porter.passes.native.tiled_loads import Load
from porter.passes.native.tiled_pair import TiledPair
from porter.passes.tiled.text import cpp

_AXES = ("x", "y")
_DEEPEST = 8
_INDEX = "blockIdx"
_CAST = re.compile(r"\b(?:static_cast\s*<[\w\s:]+>|(?:u?int(?:32_t|64_t)?|unsigned(?:\s+int)?|size_t))\s*(?=\()")


@dataclass(eq=False)
class TiledGridPair(TiledPair):
    """The step for one kernel."""

    of_tiles: ClassVar[bool] = True

    def _in_loop(self) -> None:
        if self.move.slice.loops:
            raise self.kernel.begin.left("one tile for each block of a grid of two dimensions")

    def _grid(self, grid: tuple[str, ...]) -> None:
        if len(grid) < len(_AXES) or grid[len(_AXES) :] not in ((), ("1",)):
            raise self.kernel.begin.left("a grid of two dimensions")
        self.grid = grid

    # --- Places of tiles

    def _place_of(self, load: Load, index: int, tile: int) -> TilePlace:
        """The block's index that a coordinate is a multiple of."""
        function, launch = self.function, self.launch
        assert launch is not None
        words = _CAST.sub("", self._words(load.frame, load.coords[index], 0))
        axes = set(re.findall(rf"\b{_INDEX}\s*\.\s*(\w)", words))
        given = dict(zip(function.template_params, launch.template, strict=False))
        constants = self.constants.extended({n: v for n, v in given.items() if v.isdigit()})
        at = [constants.evaluate(re.sub(rf"\b{_INDEX}\s*\.\s*\w", f"({v})", words)) for v in (0, 1, 2, 5)]
        if len(axes) != 1 or not axes <= set(_AXES) or at != [0, tile, 2 * tile, 5 * tile]:
            text = load.place.function.text(load.coords[index])
            raise load.place.left(f"`{text}` as {tile} times the block's index")
        root = next(n for n in (*find(self.function.node, "identifier"), self.function.node))
        return TilePlace(f"{_INDEX}.{axes.pop()}", root, tile)

    def _words(self, frame: Frame, node: Node, depth: int) -> str:
        """An expression in the kernel's words, with what variables of its function begin with in their place."""
        function, wording = frame.function, Wording(self.program)
        found, at = "", node.start_byte
        for name in [node] if node.type == "identifier" else find(node, "identifier"):
            variable = resolve(function, name, function.text(name))
            value = first_value(variable) if variable is not None and variable.function is function else None
            declared = variable.declaration if variable is not None else None
            fixed = declared is not None and re.match(r"(?:static\s+)?const(?:expr)?\b", function.text(declared))
            changes = variable is not None and not fixed and wording.changes(function, variable.name)
            if value is not None and not changes and depth < _DEEPEST:
                words = f"({self._words(frame, value, depth + 1)})"
            else:
                words = wording.words(frame, name)
            found += as_text(function, at, name.start_byte) + words
            at = name.end_byte
        return found + as_text(function, at, node.end_byte)

    def _counts_parts(self, side: Side) -> bool:
        """The grid has a block for each tile; a last one that is not whole is one of them, or is none."""
        if len({p.text for p in self.places}) != len(_AXES):
            raise self.kernel.begin.left("rows along one dimension of the grid, and columns along the other")
        assert self.launch is not None
        place = next(p for p, s in zip(self.places, ("rows", "columns"), strict=True) if self._is_of(s, side))
        count = self.grid[_AXES.index(place.text[-1])]
        dim = next(text for name, text in self.launch.sizes if name == side.size)
        size, tile = re.escape(dim), side.tile
        if re.fullmatch(rf"{size} // {tile}", count):
            return False
        up = (rf"ceil_div\({size}, {tile}\)", rf"\({size} \+ {tile - 1}\) // {tile}",
              rf"\({tile - 1} \+ {size}\) // {tile}", rf"-\(-{size} // {tile}\)",
              rf"\({size} - 1\) // {tile} \+ 1", rf"\({size} \+ {tile} - 1\) // {tile}")  # fmt: skip
        if any(re.fullmatch(pattern, count) for pattern in up):
            return True
        raise self.kernel.begin.left(f"as many blocks as there are tiles of {tile} in `{side.size}`: {count}")

    def _is_of(self, what: str, side: Side) -> bool:
        assert self.launch is not None
        load = self.groups[what == "columns"][0]
        dims = next(m.dims for m in self.launch.maps if m.param == load.map)
        return dict(self.launch.sizes)[side.size] == dims[side.index]

    @staticmethod
    def _first(place: TilePlace) -> str:
        return cpp("pair_index") if place.text.endswith("x") else place.text

    @staticmethod
    def _count(place: TilePlace) -> str:
        return cpp("pair_count") if place.text.endswith("x") else "gridDim.y"

    # --- What changes

    def ahead(self) -> None:
        """Nothing is done for half of a product but what is loaded and stored."""

    def take(self) -> None:
        self._asked()
        super().take()

    def _half_of_loads(self, load: Load, place: TilePlace, side: Side) -> str:
        return f"int({self._count(place)}) * {side.tile}"

    def _asked(self) -> None:
        """Places that ask which block this is: loads and stores alone.

        Raises:
            Left: something else does.
        """
        self._known_functions()
        nodes = [*self._region(), *self._for_each_part()]
        pairs = Changes(self.context, RULE)
        for function in self._reached():
            if self._stands_in(function):
                continue
            for match in BLOCK.finditer(function.file.lexed.code[slice(*_bytes(function))]):
                start = _bytes(function)[0] + match.start()
                span = Span(start, start + len(match[0]))
                if function is self.function and any(function.span(n).contains(span) for n in nodes):
                    continue
                if match[1] != _INDEX.encode() or match[2] is None or match[2].decode() not in _AXES:
                    raise Left(function, span, "that loads and stores alone ask for the block")
                if match[2] == b"x":
                    pairs.replace(function, span, cpp("pair_index"))
        pairs.make()

    def _known_functions(self) -> None:
        """That no macro, and no function of which it is not known who calls it, asks for the block."""
        mine = {id(f) for f in self._reached()}
        foreign = reached(self.program, [k for k in self.program.kernels if k is not self.function])
        for inner, span, _ in asking(self.program):
            if inner is None:
                raise self.kernel.begin.left("which block this is, outside of macros")
            if id(inner) not in mine and id(inner) not in foreign:
                raise Left(inner, span, "who calls what asks for the block")
            if id(inner) in mine & foreign:
                raise Left(inner, span, "code that no other kernel comes to")

    def _stands_in(self, function: Function) -> bool:
        """Whether it is a lambda, whose text is that of the function around it."""
        return function.parent is not None

    # --- Stores

    def _asks_place(self, declaration: Node) -> bool:
        return BLOCK.search(self.function.text(declaration).encode()) is not None

    def _shifts(self) -> list[tuple[str, str]]:
        return [(self._first(p), self._count(p)) for p in self.places]

    def _outside(self, names: list[str]) -> str:
        return super()._outside([f"int({name})" for name in names])


def _bytes(function: Function) -> tuple[int, int]:
    span = function.span(function.node)
    return span.start, span.end
