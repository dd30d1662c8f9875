# SPDX-License-Identifier: Apache-2.0
"""The two m64 tiles of one warpgroup, which one M=128 MMA makes together: the loops that count them, and the terms that
say which rows of a tile a warp has.

Lane L of the M=128 accumulator holds row L, and warp w reaches lanes 32w to 32w + 31. Its part of tile m are rows
32w + 16m and on, which the sources call 64m + 16w: so 16 (m + w) stands in the place of 64m. That the port does the
same is for its judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import enclosing, find, inside
from porter.lang.text import Edit, as_bytes
from porter.model.accumulators import Accumulator
from porter.model.counted import counted
from porter.model.functions import Function, Style, declared_name
from porter.model.kernels import Kernel
from porter.model.mentions import Mention
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep
from porter.model.thread_values import ThreadValues
from porter.passes.context import qualified
from porter.passes.native.sites import Left
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.ptx.wgmma import M

TILES = 2
_DEEPEST = 8
_PART = M // (WARPGROUP // WARP)
"""Rows of a tile that a warp has."""
_SHIFT = M.bit_length() - 1
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False)
class TileLoop:
    """A loop that runs over both tiles: `name` is the tile's index."""

    function: Function
    node: Node
    name: str

    @property
    def body(self) -> Node:
        body = self.node.child_by_field_name("body")
        assert body is not None
        return body


def tile_loop(program: Program, accumulator: Accumulator, function: Function, index: str, at: Node) -> TileLoop | None:
    """The `for` from 0 to the number of the tiles, in steps of one, that counts an index."""
    variable = resolve(function, at, index) if _NAME.fullmatch(index) else None
    loop = variable.declaration.parent if variable is not None and variable.declaration is not None else None
    if loop is None or loop.type != "for_statement":
        return None
    found = counted(function, loop)
    if found is None or found.name != index or found.sign == "<=" or found.step != "1":
        return None
    extent = "".join(function.text(found.end).split())
    whole = program.value(function, extent) == TILES or extent == "".join(accumulator.home.tile_extents[0].split())
    if not whole or program.value(function, function.text(found.first)) != 0:
        return None
    return TileLoop(function, loop, index)


@dataclass(eq=False)
class Tiles:
    """Asks about one accumulator of two tiles, which a kernel owns."""

    program: Program
    kernel: Kernel
    accumulator: Accumulator
    terms: list[tuple[Function, Node, str]] = field(default_factory=list)
    """Terms that are 64 times the index of a tile, with its name."""
    interleaved: bool = False
    """Whether tiles of two warpgroups take turns: the second tile of one begins 128 rows behind its first."""

    def edits(self) -> list[Edit]:
        """What stands in the place of the terms."""
        call = qualified("tile_row")
        return [Edit(f.file.path, f.span(n), as_bytes(f"{call}({name})")) for f, n, name in self.terms]

    # --- MMAs

    def same_a(self) -> bool:
        """Whether the tiles have the same rows of A, other columns, say."""
        loops = [loop for function, node, index in self._selections() for loop in self._counting(function, node, index)]
        return any(not told for loop in loops for told in self._told(loop.function, loop.body, {loop.name}, 0))

    def _selections(self) -> Iterator[tuple[Function, Node, str]]:
        """Where a tile is chosen: an MMA, or a call that is handed one."""
        own = {id(t): s for s in self.program.statements for t in s.steps}
        for function, step in self.accumulator.steps:
            if step.d.prefix:
                yield function, own[id(step)].statement.node, step.d.prefix[0]
        for argument in self.accumulator.arguments:
            if argument.registers.prefix or argument.param.depth == 0:
                yield argument.call.caller, argument.call.node, next(iter(argument.registers.prefix), "")

    def _counting(self, function: Function, node: Node, index: str, depth: int = 0) -> list[TileLoop]:
        """The loops that count an index, which a function may be handed; none where that is not known of one."""
        found = tile_loop(self.program, self.accumulator, function, index, node)
        param = function.param(index)
        if found is not None or param is None or depth > _DEEPEST:
            return [found] if found is not None else []
        calls = [c for c in self.program.callers(function) if param.index < len(c.args)]
        loops = [self._counting(c.caller, c.node, c.caller.text(c.args[param.index]), depth + 1) for c in calls]
        return [loop for found in loops for loop in found] if all(loops) else []

    def _told(self, function: Function, body: Node, own: set[str], depth: int) -> Iterator[bool]:
        """Whether A of each MMA in the turn of a loop goes by what differs between the tiles (`own`)."""
        for node in find(body, "init_declarator", "assignment_expression"):
            name = declared_name(node) if node.type == "init_declarator" else node.child_by_field_name("left")
            if name is not None and _words(function.text(node)) & own:
                own |= {function.text(name)}
        for statement in self.program.steps_in(function):
            if inside(body, statement.statement.node):
                yield from (bool(_words(s.a) & own) for s in statement.steps if isinstance(s, MmaStep))
        uses = self.program.uses_tensor_core()
        for call in (c for c in function.calls if inside(body, c.node) and depth < _DEEPEST):
            for target in (t for t in self.program.targets(call) if id(t) in uses):
                handed = {
                    p.name for p, a in zip(target.params, call.args, strict=False) if _words(function.text(a)) & own
                }
                around = own if target.style is Style.LAMBDA else set()
                yield from self._told(target, target.body, handed | around, depth + 1)

    # --- rows

    def rows(self, mentions: Sequence[Mention]) -> Iterator[Left]:
        """Fill `terms`; `mentions` are all places that name the registers but for MMAs."""
        loops: dict[int, TileLoop] = {}
        for mention in mentions:
            loop = self._loop_of(mention)
            if loop is None:
                what = f"`{mention.text}` is used otherwise than tile by tile in a loop"
                yield Left(mention.function, mention.function.span(mention.function.body), what)
            else:
                loops.setdefault(loop.node.id, loop)
        values = ThreadValues(self.program, (self.kernel.roles.first + (self.kernel.roles.value or 1)) * WARPGROUP)
        for loop in loops.values():
            for name in find(loop.body, "identifier"):
                if loop.function.text(name) == loop.name and not self._chooses(name):
                    yield from self._in_sum(loop, name, values)

    def _loop_of(self, mention: Mention) -> TileLoop | None:
        """The loop whose index chooses the tile."""
        function, end = mention.function, mention.offset + len(mention.text)
        node = function.file.root.descendant_for_byte_range(mention.offset, end)
        if mention.macro or node is None or function is not self.kernel.function:
            return None
        while node.parent is not None and node.parent.type == "field_expression":
            node = node.parent
        chosen = node.parent
        if chosen is None or chosen.type != "subscript_expression" or enclosing(node, "lambda_expression") is not None:
            return None
        listed = chosen.child_by_field_name("indices") or chosen.child_by_field_name("index")
        index = function.text(listed).strip("[] ") if listed is not None else ""
        return tile_loop(self.program, self.accumulator, function, index, chosen)

    def _chooses(self, name: Node) -> bool:
        """Whether an index chooses registers of a tile."""
        listed = name.parent
        chosen = listed.parent if listed is not None and listed.type == "subscript_argument_list" else listed
        if chosen is None or chosen.type != "subscript_expression":
            return False
        root = next(find(chosen, "identifier"), None)
        return root is not None and self.kernel.function.text(root) in self.accumulator.home.names

    def _in_sum(self, loop: TileLoop, name: Node, values: ThreadValues) -> Iterator[Left]:
        """Take the term `m * 64` of a sum that says which rows a warp has."""
        function, term = loop.function, name.parent
        at = Left(
            function, function.span(name), f"the tile's index `{loop.name}` is used for something else than its rows"
        )
        if term is None or term.type != "binary_expression":
            yield at
            return
        left, sign, right = term.children[0], function.text(term.children[1]), term.children[2]
        factor = self.program.value(function, function.text(right if left.id == name.id else left))
        self.interleaved |= (sign, factor) == ("*", TILES * M)
        if (sign, factor) != ("*", M) and not (sign == "<<" and left.id == name.id and factor == _SHIFT):
            yield at
        elif not self._is_row(function, term, values):
            what = "which rows of a tile a warp has is not told by 64 times the tile's index and 16 times the warp's"
            yield Left(function, function.span(term), what)
        else:
            self.terms.append((function, term, loop.name))

    def _is_row(self, function: Function, term: Node, values: ThreadValues) -> bool:
        """Whether the terms of the sum around one that is the tile's add 16 for each warp."""
        whole, signs = term, 1
        while whole.parent is not None:
            above = whole.parent
            sign = function.text(above.children[1]) if above.type == "binary_expression" else ""
            if sign not in ("+", "-") and above.type != "parenthesized_expression":
                break
            signs *= -1 if sign == "-" and above.children[2].id == whole.id else 1
            whole = above
        total = [0] * values.threads
        for part, sign_of in _terms(function, whole, 1):
            found = values.of(function, part) if part.id != term.id else None
            if found is not None and None not in found:
                total = [t + sign_of * (v or 0) for t, v in zip(total, found, strict=True)]
        first = self.kernel.roles.first * WARPGROUP
        warps = [total[t] - total[t // WARPGROUP * WARPGROUP + t % WARP] for t in range(first, values.threads)]
        return signs == 1 and all(rows == _PART * (t // WARP % (WARPGROUP // WARP)) for t, rows in enumerate(warps))


def _words(text: str) -> set[str]:
    return set(_NAME.findall(text))


def _terms(function: Function, node: Node, sign: int) -> Iterator[tuple[Node, int]]:
    """The terms of a sum, each with its sign."""
    if node.type == "parenthesized_expression" and len(node.named_children) == 1:
        yield from _terms(function, node.named_children[0], sign)
    elif node.type == "binary_expression" and function.text(node.children[1]) in ("+", "-"):
        minus = function.text(node.children[1]) == "-"
        yield from _terms(function, node.children[0], sign)
        yield from _terms(function, node.children[2], -sign if minus else sign)
    else:
        yield node, sign
