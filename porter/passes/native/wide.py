# SPDX-License-Identifier: Apache-2.0
"""Tiles have twice the columns: accumulators in Tensor Memory leave room for them, and each element of A that is loaded
is multiplied by twice as many of B.

The step goes ahead of the port: the constant that is the width of a tile is twice as large in the text that is ported,
and with it what is made of it. What the text does not make of it is found from the facts of the kernel, or refuses the
step. Numbers of tiles are rounded up, so that products take as many columns as before: of a last half tile the loops
over sums store the first half.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, above, enclosing, find
from porter.lang.text import Edit, Span, as_bytes
from porter.model.accumulators import find_accumulators
from porter.model.constants import Constants, visible
from porter.model.counted import counted_from_zero
from porter.model.functions import Function, array_extents
from porter.model.pipeline.facts import HostLaunch
from porter.model.pipeline.operations import Operation, operations_of
from porter.model.pipeline.read import pipeline_of
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native.feeding import feeds, multiple_of
from porter.passes.native.host_places import HostPlaces
from porter.passes.native.sites import Left, OfFunction, path_of
from porter.passes.native.wide_mma import arrays, column_extent, wider
from porter.passes.native.width import Judging, Widths
from porter.ptx.umma import Kind, legal_n
from porter.steps.step import Declared, Step

RULE = "PTR285"
NAME = "wide"
WIDEST = max(legal_n(Kind.F16, 1))
"""Columns of one MMA."""
AS_WIDE = f"a tile of fewer than {WIDEST} columns"
_WORD = r"[A-Za-z_]\w*(?:::\w+)*"
_AXIS = re.compile(r"\bblockIdx\s*\.\s*([xyz])\b")


@dataclass(frozen=True)
class Wider:
    """The text of a kernel with tiles of twice the columns, as edits; `axis` is the dimension of the grid that counts
    them."""

    kernel: str
    edits: tuple[Edit, ...]
    axis: int


def widened(program: Program, launch: HostLaunch | None) -> Wider | None:
    """The wider text of the kernel that multiplies; None where there is none."""
    users = program.uses_tensor_core()
    kernels = [k for k in program.kernels if id(k) in users]
    if not kernels:
        return None
    if len(kernels) != 1 or len(program.kernels) != 1:
        at = (kernels or program.kernels)[0]
        raise Left(at, at.span(at.body), "that the file has one kernel")
    return _Wide(program, kernels[0], launch).take()


@dataclass(eq=False)
class _Wide(OfFunction):
    program: Program
    function: Function
    launch: HostLaunch | None

    def __post_init__(self) -> None:
        operations = operations_of(self.program, self.function).operations
        self.multiplies = [o for o in operations if o.kind == "mma" and o.multiplies is not None]
        self.copies = [o for o in operations if o.kind == "copy"]
        self.stores = [o for o in operations if o.kind == "store"]
        given = zip(self.function.template_params, self.launch.template if self.launch else (), strict=False)
        around = self.program.constants_around(self.function)
        self.constants: Constants = visible(around, self.function, dict(given))
        self.offsets = {d.name: d.text for d in pipeline_of(self.program, self.function).offsets}
        self.widths = Widths(self.program, self.function)

    def take(self) -> Wider:
        sizes = {o.multiplies.n for o in self.multiplies if o.multiplies is not None}
        if not sizes:
            raise self.lacks("which statements multiply")
        found, missing = [], []
        for copy, coordinate, size in self._columns():
            try:
                found.append(self._side(copy, coordinate, size, sizes))
            except Left as left:
                missing.append(left)
        if len(found) > 1:
            raise self.lacks("which copies bring A and which bring B")
        if not found:
            raise missing[0]
        return found[0]

    def _side(self, copy: Operation, coordinate: str, size: str, sizes: set[int]) -> Wider:
        """The step, if the columns of a tile are those by which a copy loads."""
        name, axis = self._constant(copy, coordinate)
        constant, literal = self.widths.literal(name.rpartition("::")[2])
        self.width = literal.value
        if 2 * self.width > WIDEST:
            raise self.lacks(AS_WIDE)
        self._clusters(axis)
        if self.width not in sizes or self.constants.evaluate(name) != self.width:
            raise self.lacks(f"MMAs of {self.width} columns, as many as a tile has")
        self.widths.require_own(constant, literal)
        self.mentions = list(self.widths.mentions(constant))
        host = HostPlaces(self.program, self.function, self.widths)
        if host.launches != 1:
            raise self.lacks("one place that launches it")
        judging = Judging(self.program, self.constants, self.widths, self.width, size, host)
        edits = [_edit(literal.file, literal.node, literal.instead(2 * self.width))]
        edits += (edit for mention in self.mentions for edit in judging.edits(mention))
        if not judging.rounds:
            raise self.lacks(f"a grid that host code makes of `{constant}`")
        names, registers = self._registers()
        follows = [(m.file.path, m.span) for m in self.mentions]
        named = 2 * self.width not in sizes
        if named:
            edits += self._instructions(registers)
        # where templates choose the instruction, parameters of others stay as they are
        around = None if named else self.function
        edits += arrays(self.program, self.function, self.constants, names, registers, follows, around)
        half = self._half(coordinate, size, "xyz"[axis], judging)
        edits += self._loops(judging.loops, names, registers, half)
        if any(e.path != self.program.sources.root for e in edits):
            raise self.lacks("all that makes a tile in the file itself: others may include its headers")
        return Wider(self.function.name, tuple(edits), axis)

    # --- Which columns a block has

    def _columns(self) -> Iterator[tuple[Operation, str, str]]:
        """A copy that fills B, the coordinate by which it takes the columns of a tile, and what host code calls their
        number. Where the text of MMAs does not say which of two copies that is, both."""
        launch = self.launch
        if launch is None or launch.grid is None:
            raise self.lacks("its launch: no host code in these files makes one that is understood")
        maps = {m.param: m for m in launch.maps}
        sides = [[o for o in self.copies if feeds(self.program, self.multiplies, o, operand)] for operand in ("a", "b")]
        if any(len(s) != 1 for s in sides) or sides[0] == sides[1]:
            if len(self.copies) != 2:
                raise self.lacks("one load of A and one of B for each stage")
            orders = [(0, 1), (1, 0)]
        else:
            self.copies, orders = [sides[0][0], sides[1][0]], [(0, 1)]
        dims = []
        for copy in self.copies:
            known = maps.get(copy.map)
            if known is None or len(known.dims) != 2 or len(copy.coords) != 2:
                raise path_of(copy)[0].left("the tensor map of what is loaded, of two dimensions")
            dims.append(known.dims)
        for a, b in orders:
            own = set(dims[b]) - set(dims[a])
            if len(own) != 1:
                raise self.lacks("which dimensions of A and B are rows and columns")
            size = own.pop()
            yield self.copies[b], self.copies[b].coords[dims[b].index(size)], size

    def _constant(self, copy: Operation, coordinate: str) -> tuple[str, int]:
        """The constant that columns of tiles are multiples of, and the dimension of the grid that counts tiles."""
        text = self._expanded(coordinate)
        axes = set(_AXIS.findall(text))
        if len(axes) != 1:
            raise path_of(copy)[0].left(f"that `{coordinate}` follows from the block's index in the grid")
        width = multiple_of(lambda v: self._first_of(_AXIS.sub(f"({v})", text)))
        if width is None:
            raise path_of(copy)[0].left(f"`{coordinate}` as a multiple of the tile's index")
        names = [n for n in dict.fromkeys(re.findall(_WORD, text)) if self.constants.evaluate(n) == width]
        if len(names) != 1:
            raise path_of(copy)[0].left(f"the constant that `{coordinate}` is a multiple of")
        return names[0], "xyz".index(axes.pop())

    def _first_of(self, text: str) -> int | None:
        """The value of a coordinate, of the first of the blocks of a cluster that each load a part of a tile."""
        if "cluster" in text:
            text = re.sub(rf"(?<![\w.:]){_WORD}\s*\(\s*\)", lambda m: "(0)" if "rank" in m[0] else m[0], text)
        return self.constants.evaluate(text)

    def _expanded(self, text: str) -> str:
        """A text with what its variables begin with in place of their names."""
        for _ in range(4):
            text = re.sub(
                rf"(?<![\w.:]){_WORD}(?![\w(.:])",
                lambda m: f"({self.offsets[m[0]]})" if m[0] in self.offsets else m[0],
                text,
            )
        return text

    def _clusters(self, axis: int) -> None:
        cluster = self.launch.cluster if self.launch is not None else None
        if cluster is not None and cluster[axis : axis + 1] not in ((), ("1",)):
            raise self.lacks("clusters that are one block wide in columns")
        if "__cluster_dims__" in self.function.text(self.function.node):
            raise self.lacks("a kernel without clusters of its own")

    # --- MMAs and the registers of their sums

    def _registers(self) -> tuple[set[str], int]:
        """Names of what holds the sums, and how many registers a thread has for those of one MMA."""
        found = find_accumulators(self.program)
        mine = [a for a in found.accumulators if a.sizes & {self.width}]
        counts = {self.width // 4 if a.packed else self.width // 2 for a in mine}
        if not mine or len(counts) != 1:
            raise self.lacks(f"accumulators of {self.width} columns")
        names = {a.name for a in mine} | {a.home.field_name for a in mine if a.home.field_name}
        for accumulator in mine:
            names |= set(re.findall(r"[A-Za-z_]\w*", accumulator.home.path))
        for params in found.params.values():
            for param in params:
                if param.is_scalars:
                    raise Left(param.function, param.function.span(param.function.body),
                               "sums in an array, where a function has them one by one")  # fmt: skip
                names |= {param.name, *re.findall(r"[A-Za-z_]\w*", param.path)}
        return names, counts.pop()

    def _instructions(self, registers: int) -> Iterator[Edit]:
        done: set[int] = set()
        for operation in self.multiplies:
            site = operation.sites[-1]
            function = site.frame.function
            for statement in function.asm:
                if statement.node.id == site.node.id and statement.node.id not in done:
                    done.add(statement.node.id)
                    yield from wider(function, statement, self.width, registers)
        if not done:
            raise self.lacks(f"the text of its MMAs of {self.width} columns")

    # --- What is done with sums

    def _half(self, coordinate: str, size: str, axis: str, judging: Judging) -> str:
        """What a thread asks to know whether the second half of the tile has columns; empty where copies store the
        tile, which leave out what is outside."""
        if self.stores:
            if judging.floors and not judging.checks:
                raise self.lacks("that host code asks for whole tiles, or rounds their number up")
            return ""
        given = {text: name for name, text in self.launch.sizes} if self.launch is not None else {}
        if size not in given:
            raise self.lacks("columns of the product as a parameter of the kernel, as the last tile may have fewer")
        whole = self._name()
        if "cluster" in self._expanded(coordinate):
            coordinate = f"blockIdx.{axis} * {whole}"
        behind = whole if judging.floors else f"{whole} / 2"
        return f"{coordinate} + {behind} {'<=' if judging.floors else '<'} {given[size]}"

    def _name(self) -> str:
        """The width, as the kernel calls it."""
        own = self.function.span(self.function.node)
        for mention in self.mentions:
            if mention.file is self.function.file and own.contains(mention.span) and not mention.word.derived:
                return mention.text(mention.node)
        raise self.lacks("the width of a tile in the kernel itself")

    def _loops(self, follow: Sequence[Node], names: set[str], registers: int, half: str) -> Iterator[Edit]:
        """Loops over sums. Those that end by the width, or by a number that stands for all registers, have twice as
        many turns; behind the MMAs the second half of these is for columns that there are."""
        last = max(o.sites[0].node.end_byte for o in self.multiplies)
        taken: set[tuple[str, int]] = set()
        for function in self.program.functions:
            for access in self._accesses(function, names):
                loop = self._over_columns(function, access, registers, follow)
                if loop is None:
                    continue
                key = function.file.path, loop.start_byte
                if key in taken:
                    continue
                taken.add(key)
                yield from self._loop(function, loop, follow, half if loop.start_byte >= last else "")

    def _accesses(self, function: Function, names: set[str]) -> Iterator[tuple[Node, list[Node]]]:
        """Elements of sums, and parts of these: the outermost expression and its indices, outermost first."""
        for node in find(function.body, "subscript_expression"):
            if node.parent is not None and node.parent.type == "subscript_expression":
                continue
            if self._is_mma(node):
                continue
            base, indices = _apart(node)
            word = re.search(r"([A-Za-z_]\w*)\s*\)?$", function.text(base)) if base is not None else None
            if word is not None and word[1] in names:
                yield node, indices

    def _is_mma(self, node: Node) -> bool:
        asm = enclosing(node, "gnu_asm_expression")
        return asm is not None and any(o.sites[-1].node.id == asm.id for o in self.multiplies)

    def _over_columns(
        self, function: Function, access: tuple[Node, list[Node]], registers: int, follow: Sequence[Node]
    ) -> Node | None:  # fmt: skip
        """The loop that an element's column goes by, one of those that `follow` the width before others; None for parts
        that have all columns."""
        node, indices = access
        extents = self._extents(function, node)
        place = column_extent([self._value(e) for e in extents], registers) if extents else None
        if place is None:
            raise Left(function, function.span(node), "how sums are held: the extents of their array")
        if place >= len(indices):
            return None
        index = indices[place]
        extent = self._value(extents[place]) or 0
        found: list[Node] = []
        for around in above(node, function.body):
            head = counted_from_zero(function, around)
            if head is None or not any(function.text(n) == head.name for n in find(index, "identifier")):
                continue
            turns = self._value(head.end)
            first, second, third = (self._evaluate(function, index, head.name, v) for v in (0, 1, 2))
            if turns is None or first is None or second is None or third is None:
                continue
            if third - second == second - first and (second - first) * turns == extent:
                found.append(around)
        if found:
            return next((f for f in found if any(f.id == loop.id for loop in follow)), found[0])
        raise Left(function, function.span(node), "a loop over all columns that this sum is one of")

    def _evaluate(self, function: Function, index: Node, variable: str, value: int) -> int | None:
        """An index with a value of one variable; others are zero."""
        text = function.text(index)

        def named(match: re.Match[str]) -> str:
            if match[0] == variable:
                return f"({value})"
            return match[0] if self.constants.evaluate(match[0]) is not None else "(0)"

        return self.constants.evaluate(re.sub(rf"(?<![\w.]){_WORD}(?![\w(:])", named, text))

    def _extents(self, function: Function, node: Node) -> list[Node]:
        """The extents of the array that a name of sums is declared with."""
        base, _ = _apart(node)
        name = re.findall(r"[A-Za-z_]\w*", function.text(base))[-1] if base is not None else ""
        if base is not None and base.type == "identifier":
            variable = resolve(function, base, name)
            held = variable.declarator if variable is not None and variable.declarator is not None else None
            if variable is not None and variable.param is not None:
                held = variable.param.node
            return array_extents(held) if held is not None else []
        for _, declared, declarator in self.widths.declared(name, "field_declaration"):
            if array_extents(declarator) and declared is not None:
                return array_extents(declarator)
        return []

    def _value(self, node: Node) -> int | None:
        return self.constants.evaluate((node.text or b"").decode())

    def _loop(self, function: Function, loop: Node, follow: Sequence[Node], half: str) -> Iterator[Edit]:
        """A loop over columns with twice as many turns."""
        head, body = counted_from_zero(function, loop), loop.child_by_field_name("body")
        assert head is not None
        assert body is not None
        turns = function.text(head.end)
        if not any(loop.id == f.id for f in follow):
            value = self._value(head.end)
            if head.end.type != "number_literal" or value is None:
                raise Left(function, function.span(head.end), f"that `{turns}` follows from the width of a tile")
            turns = str(2 * value)
            yield _edit(function.file, head.end, turns)
        if half and function is self.function:
            at = body.start_byte
            whole = turns if re.fullmatch(r"[\w:\s*/]+", turns) else f"({turns})"
            text = f"if ({head.name} < {whole} / 2 || {half}) "
            yield Edit(function.file.path, Span(at, at), as_bytes(text))


def _apart(node: Node) -> tuple[Node | None, list[Node]]:
    """What subscripts are of, and their indices, outermost first."""
    indices: list[Node] = []
    base: Node | None = node
    while base is not None and base.type == "subscript_expression":
        listed = base.child_by_field_name("indices")
        indices += listed.named_children if listed is not None else []
        base = base.child_by_field_name("argument")
    return base, indices[::-1]


def _edit(file: CudaFile, node: Node, text: str) -> Edit:
    return Edit(file.path, Span(node.start_byte, node.end_byte), as_bytes(text))


STEP = Step(
    NAME, RULE, None, follows=("promotion", "scales"), changes=Declared(constants=True, launch=("grid",), maps=True),
    chosen=True, cost=True,
)  # fmt: skip
