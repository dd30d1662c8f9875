# SPDX-License-Identifier: Apache-2.0
"""CTAs multiply in pairs: one thread issues MMAs of twice the rows and twice the columns for both.

A pair does what one CTA did, for half the rows and half the columns of the product. The first CTA adds nothing to the
coordinates of what it loads, the second one half of the rows or columns. Each has half of the rows of a sum, and the
columns of both halves, one behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import above, find
from porter.lang.text import Span
from porter.model.functions import Function, Style
from porter.model.pipeline.facts import HostLaunch
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import split_index
from porter.model.scopes import LOOPS, names_declared, resolve
from porter.passes import emit
from porter.passes.context import qualified
from porter.passes.full_rate.renaming import asking, reached
from porter.passes.native import mma_thread
from porter.passes.native.feeding import feeds, multiple_of
from porter.passes.native.grids import in_pairs
from porter.passes.native.mainloop import Pipelined, in_loop
from porter.passes.native.release import count_of
from porter.passes.native.sites import OWN_LINES, Changes, Left, Place, path_of, statement_of
from porter.passes.native.taking import Taking
from porter.passes.native.texts import indented, ported_text
from porter.ptx.tmem import LANES
from porter.ptx.umma import Kind, legal_n
from porter.steps.step import Declared, Ring, Step

RULE = "PTR194"
NAME = "pair"
CTAS = 2
BLOCK = re.compile(rb"\b(blockIdx|gridDim)\b(?:\s*\.\s*([xyz])\b)?")
_NAME = re.compile(r"(?<![\w.>:])[A-Za-z_]\w*(?!\s*(?:::|\())")


@dataclass(frozen=True)
class Side:
    """Rows or columns of a product: `size` is the kernel's parameter that says how many, `index` that of the coordinate
    by which `copies` load them, `tile` those of a CTA, `half` the variable that a pair has for half of them."""

    size: str
    index: int
    copies: tuple[Operation, ...]
    tile: int
    half: str


@dataclass(eq=False)
class Pair:
    """The step for one kernel."""

    kernel: Pipelined
    changes: Changes
    launch: HostLaunch | None
    sides: tuple[Side, Side] = field(init=False)

    def __post_init__(self) -> None:
        self.function: Function = self.kernel.kernel.function
        self.context = self.kernel.context
        self.program = self.kernel.program
        self.constants = self.kernel.constants
        self.move = mma_thread.moved(self.kernel)
        self.loads = self.program.unused("loads")
        self._sums()
        self._alone()
        self.sides = self._sides()

    # --- What has to be known

    def _sums(self) -> None:
        kernel = self.kernel
        if not self.context.helpers.joined:
            raise kernel.begin.left(f"MMAs of {LANES} rows for two consumers")
        if self.function is not kernel.function or len(kernel.accumulators) != 1 or kernel.accumulators[0].home.depth:
            raise kernel.begin.left("one accumulator in the kernel itself")
        if not in_loop(kernel.first, self.function):
            raise kernel.begin.left("a loop over tiles: halves of a product are in whole tiles")
        self.n = {o.multiplies.n for o in kernel.multiplies if o.multiplies is not None}
        widest = max(legal_n(Kind.F16, CTAS))
        if len(self.n) != 1 or CTAS * max(self.n) > widest:
            raise kernel.begin.left(f"MMAs of one width, of at most {widest // CTAS} columns")

    def _alone(self) -> None:
        """That no CTA knows of another, which host code says."""
        kernel, launch = self.kernel, self.launch
        if launch is None or launch.grid is None:
            raise kernel.begin.left("its launch: no host code in these files makes one that is understood")
        if launch.cluster is not None and launch.cluster != ("1", "1", "1"):
            raise kernel.begin.left("a launch without clusters")
        if launch.grid[1:] not in ((), ("1",), ("1", "1")):
            raise kernel.begin.left("a grid of one dimension, of which each block takes one tile after another")

    def _sides(self) -> tuple[Side, Side]:
        """Rows, by the copies that fill A, and columns, by those that fill B."""
        launch, kernel = self.launch, self.kernel
        assert launch is not None
        maps = {m.param: m for m in launch.maps}
        copies = [o for o in kernel.walk.operations if o.kind == "copy"]
        mine = [tuple(o for o in copies if feeds(self.program, kernel.multiplies, o, side)) for side in ("a", "b")]
        if any(not m for m in mine) or set(mine[0]) & set(mine[1]) or len(mine[0]) + len(mine[1]) != len(copies):
            raise kernel.begin.left("which copies bring A and which bring B")
        dims = []
        for group in mine:
            found = {maps[o.map].dims for o in group if o.map in maps}
            if len(found) != 1 or any(o.map not in maps for o in group) or len(next(iter(found))) != 2:
                raise path_of(group[0])[0].left("the tensor map of what is loaded, of two dimensions")
            dims.append(next(iter(found)))
        depth = set(dims[0]) & set(dims[1])
        if len(depth) != 1 or dims[0].index(next(iter(depth))) != dims[1].index(next(iter(depth))):
            raise kernel.begin.left("which dimension of A and B is that of the sum")
        index = 1 - dims[0].index(next(iter(depth)))
        given = {text: name for name, text in launch.sizes}
        sizes = [given.get(d[index], "") for d in dims]
        if not all(sizes) or sizes[0] == sizes[1]:
            raise kernel.begin.left("rows and columns of the product as parameters of the kernel")
        rows, columns = LANES, max(self.n)
        halves = [self.program.unused(f"half_{size.lower()}") for size in sizes]
        return (Side(sizes[0], index, mine[0], rows, halves[0]),
                Side(sizes[1], index, mine[1], columns, halves[1]))  # fmt: skip

    # --- The kernel, for half of a product

    def ahead(self) -> None:
        """What other steps have to find: a kernel that is run for half of a product, by pairs."""
        self._blocks()
        self._waits()
        names = {side.size: side for side in self.sides}
        first: Node | None = None
        region = self._region_span()
        for name in find(self.function.body, "identifier", "type_identifier"):
            text = self.function.text(name)
            if text not in names or region.contains(self.function.span(name)):
                continue
            self.changes.replace(self.function, self.function.span(name), names[text].half)
            first = name if first is None or name.start_byte < first.start_byte else first
        if first is None:
            raise self.kernel.begin.left("that the number of tiles follows from the size of the product")
        top = [first, *above(first, self.function.body)][-1]
        rows, columns = self.sides
        text = emit.lines(
            "pair_halves",
            half_of=qualified("half_of"),
            half_rows=rows.half,
            rows=rows.size,
            tile_rows=rows.tile,
            half_columns=columns.half,
            columns=columns.size,
            tile_columns=columns.tile,
        )
        span, text = self.context.statement_before(self.function, top, text, above_comments=True)
        self.changes.replace(self.function, span, text)

    def _waits(self) -> None:
        """Waits for what both CTAs load, and for what the MMAs of both give back, are waits for the other CTA."""
        names = {split_index(o.barrier)[0] for side in self.sides for o in side.copies}
        for operation in (
            o for n in {*names, self._empty(self.kernel.begin)} for o in self.kernel.operations(n, "wait")
        ):
            if not operation.by_parity or not operation.phase or "?" in operation.phase:
                raise path_of(operation)[0].left(f"a wait for {operation.barrier} by parity")
            text = f"{qualified('wait_of_pair')}(&{operation.barrier}, {operation.phase});"
            self.changes.statement(self._statement(operation), text)

    def _blocks(self) -> None:
        """Places that ask which CTA this is get the pair."""
        others = [k for k in self.program.kernels if k is not self.function]
        mine, foreign = reached(self.program, [self.function]), reached(self.program, others)
        counted = False
        for place in asking(self.program, BLOCK):
            inner, match = place.function, place.match
            if inner is None:
                raise self.kernel.begin.left("which CTA this is, outside of macros")
            known = id(inner) in mine
            if inner.style is Style.HOST or match[2] != b"x" or (id(inner) in foreign and not known):
                continue
            if others and (not known or id(inner) in foreign):
                # nobody judges kernels without MMAs
                raise Left(inner, place.span, "code that no other kernel comes to")
            counted |= match[1] == b"gridDim"
            helper = "pair_index()" if match[1] == b"blockIdx" else "pair_count()"
            self.changes.replace(inner, place.span, qualified(helper))
        if not counted:
            raise self.kernel.begin.left("blocks that take one tile after another, as far apart as there are blocks")

    # --- The two CTAs

    def take(self) -> None:
        """The rest of the step, behind that which gives MMAs a thread of their own."""
        self._barriers()
        self._drain()
        for side in self.sides:
            for copy in side.copies:
                self._load(copy, side)
        self._epilogue()
        self._declared()
        in_pairs(self.program, self.function, self.changes)

    def _barriers(self) -> None:
        """Bytes of both CTAs count on the mbarriers of the first."""
        kernel = self.kernel
        for name in {split_index(o.barrier)[0] for side in self.sides for o in side.copies}:
            for operation in kernel.operations(name, "init"):
                at = count_of(kernel, operation)
                self.changes.replace(at.function, at.span, str(CTAS))
            for operation in kernel.operations(name, "arrive_tx"):
                self._expects(operation, path_of(operation)[0])

    def _statement(self, operation: Operation) -> Place:
        """The statement of the kernel that is an operation."""
        place = path_of(operation)[0]
        return Place(place.function, statement_of(place))

    def _expects(self, operation: Operation, place: Place) -> None:
        if not operation.bytes or "?" in operation.bytes:
            raise place.left("how many bytes are expected")
        name, index = split_index(operation.barrier)
        empty = self._empty(place)
        text = f"{self.loads}.expect(&{operation.barrier}, &{empty.removesuffix('[]')}[{index}], {operation.bytes});"
        if not name.endswith("[]") or not index:
            raise place.left(f"which stage {operation.barrier} is for")
        self.changes.statement(self._statement(operation), text)

    def _empty(self, place: Place) -> str:
        """The mbarriers by which commits give stages back."""
        kernel = self.kernel
        found = {split_index(o.barrier)[0] for o in kernel.walk.operations
                 if o.kind == "arrive" and kernel.runs(o) & kernel.consumers}  # fmt: skip
        if len(found) != 1:
            raise place.left("one ring of mbarriers by which stages go back")
        return next(iter(found))

    def _drain(self) -> None:
        """No CTA ends before the commits of the other have arrived."""
        loops = {}
        for side in self.sides:
            for copy in side.copies:
                site = next(s for s in copy.sites if s.frame.function is self.function)
                around = [n for n in above(site.node, self.function.body) if n.type in LOOPS]
                if not around:
                    raise Place(self.function, site.node).left("loads in a loop")
                loops[around[-1].id] = around[-1]
        if len(loops) != 1:
            raise self.kernel.begin.left("one loop over tiles that loads")
        loop = next(iter(loops.values()))
        declared, drained = f"{qualified('PairLoads')} {self.loads};", f"{self.loads}.drain();"
        place = Place(self.function, loop)
        if loop.parent is not None and loop.parent.type == "compound_statement":
            self.changes.before(place, declared)
            self.changes.behind(place, [drained])
        else:
            span = self.function.span(loop)
            self.changes.replace(self.function, Span(span.start, span.start), f"{{ {declared} ")
            self.changes.replace(self.function, Span(span.end, span.end), f" {drained} }}")

    def _load(self, copy: Operation, side: Side) -> None:
        if any("?" in t for t in (copy.to, copy.map, copy.barrier, *copy.coords)) or len(copy.coords) != 2:
            raise path_of(copy)[0].left("what is loaded, in words of the kernel")
        coords = list(copy.coords)
        coords[side.index] += f" + {qualified('pair_rank')}() * {side.half}"
        text = f"{qualified('load_of_pair')}(&{copy.to}, &{copy.map}, &{copy.barrier}, {coords[0]}, {coords[1]});"
        self.changes.statement(self._statement(copy), text)

    # --- Sums of both halves of the columns

    def _region(self) -> list[Node]:
        """Statements of the consumers behind the MMAs of a tile, but those that lead to the next one."""
        block = self.move.range[0].parent
        assert block is not None
        last = self.move.range[-1]
        nodes = [n for n in block.named_children if n.start_byte > last.start_byte]
        while nodes and nodes[-1].id in self._going():
            nodes.pop()
        if not nodes:
            raise self.kernel.begin.left("what is done with the sums of a tile")
        return nodes

    def _going(self) -> set[int]:
        """Statements that lead to the next tile, by their ids."""
        return {s.id for level in self.move.slice.levels for s in level.statements}

    def _region_span(self) -> Span:
        """From the end of the line that the range ends in to that of the last statement."""
        source, nodes = self.function.file.source, self._region()
        start = source.find(b"\n", self.function.span(self.move.range[-1]).end)
        end = source.find(b"\n", self.function.span(nodes[-1]).end)
        if source[self.function.span(nodes[-1]).end : end].strip() or start < 0:
            raise Place(self.function, nodes[-1]).left(OWN_LINES)
        return Span(start, end)

    def _tile_variable(self, side: Side) -> tuple[str, int]:
        """The variable that a consumer has for the tile's place among rows or columns, and how many of them it
        counts."""
        copy, found = side.copies[0], {self._factor(one, one.coords[side.index]) for one in side.copies}
        if len(found) != 1:
            raise path_of(copy)[0].left("one variable that says which tile is loaded")
        name, factor = next(iter(found))
        if factor <= 0 or side.tile % factor:
            raise path_of(copy)[0].left(f"tiles of {side.tile}, counted in a part of that: `{copy.coords[side.index]}`")
        return name, factor

    def _factor(self, copy: Operation, text: str) -> tuple[str, int]:
        """The variable that a coordinate is a multiple of, and of what."""
        names = [n for n in dict.fromkeys(_NAME.findall(text)) if self.constants.evaluate(n) is None]
        if len(names) == 1:
            name = names[0]
            factor = multiple_of(lambda v: self.constants.evaluate(re.sub(rf"\b{name}\b", f"({v})", text)))
            if factor is not None:
                return name, factor
        raise path_of(copy)[0].left(f"`{text}` as a multiple of the tile's index")

    def _epilogue(self) -> None:
        """The sums of each half of the columns are stored as those of a tile were."""
        function, context = self.function, self.context
        nodes = self._region()
        (rows, row_factor), (columns, column_factor) = (self._tile_variable(s) for s in self.sides)
        again = self._derived({rows, columns}, nodes)
        pad = context.indent(function, function.span(self.move.range[0]))
        (row_side, column_side) = self.sides
        own_row, first_column, part = (context.names.fresh(n) for n in ("pair_row", "pair_column", "part"))
        opening = emit.lines(
            "pair_stores",
            ctas=CTAS,
            rank=qualified("pair_rank"),
            part=part,
            tile=context.names.tile(self.kernel.accumulators[0]),
            width=max(self.n),
            row=rows,
            row_type=self._kind(rows),
            own_row=own_row,
            row_shift=_over(row_side.half, row_factor),
            row_place=_times(rows, row_factor),
            rows=row_side.size,
            column=columns,
            column_type=self._kind(columns),
            first_column=first_column,
            column_shift=_over(column_side.half, column_factor),
            column_place=_times(columns, column_factor),
            columns=column_side.size,
        )
        before = [*opening.splitlines(), *(f"    {line}" for line in again)]
        span = self._region_span()
        inner = ported_text(context, function, Span(span.start, span.end)).strip("\n")
        body = indented(inner, pad, pad + "    ")
        body[0] = pad + "    " + body[0].lstrip()
        text = "".join(f"\n{pad}{line}" for line in before) + "".join(f"\n{line}" for line in body) + f"\n{pad}}}"
        self.changes.whole(function, span, text)

    def _kind(self, name: str) -> str:
        variable = resolve(self.function, self.move.range[0], name)
        declaration = variable.declaration if variable is not None else None
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        return self.function.text(kind) if kind is not None else "auto"

    def _derived(self, tiles: set[str], region: list[Node]) -> list[str]:
        """Declarations in front of the range that follow from the tile, and are used behind it: they are made again."""
        block = self.move.range[0].parent
        assert block is not None
        lines, names = [], set(tiles)
        going = self._going()
        for node in block.named_children:
            if node.start_byte >= self.move.range[0].start_byte:
                break
            if node.type != "declaration" or node.id in going:
                continue
            held = node.children_by_field_name("declarator")
            values = [v for d in held if (v := d.child_by_field_name("value")) is not None]
            if not names & {self.function.text(n) for v in values for n in find(v, "identifier")}:
                continue
            declared = names_declared(self.function, node)
            names |= declared
            if any(self.function.text(n) in declared for r in region for n in find(r, "identifier")):
                lines.append(" ".join(ported_text(self.context, self.function, self.function.span(node)).split()))
        return lines

    def _declared(self) -> None:
        """The kernel is one of clusters of two."""
        source = self.function.file.source
        whole = self.function.span(self.function.node)
        at = source.rfind(b"__global__", max(0, whole.start - 200), self.function.span(self.function.body).start)
        if at < 0:
            raise self.kernel.begin.left("`__global__` of the kernel")
        end = at + len(b"__global__")
        self.changes.replace(self.function, Span(end, end), f" __cluster_dims__({CTAS}, 1, 1)")


def _over(half: str, factor: int) -> str:
    return half if factor == 1 else f"({half} / {factor})"


def _times(name: str, factor: int) -> str:
    return name if factor == 1 else f"{name} * {factor}"


def _write(taking: Taking) -> None:
    """Steps that move statements find those of a pair: they are taken again behind what a pair changes."""
    launch, found = taking.launch, taking.found
    taking.context.helpers.buffers = 2 if "double-buffer" in taking.trial.names else 1
    _take(taking, found, launch, Pair.ahead)
    taking.rebuild()
    _take(taking, taking.found, launch, Pair.take)
    taking.context.helpers.paired = True


def _take(
    taking: Taking, found: list[Pipelined], launch: HostLaunch | None, part: Callable[[Pair], None]
) -> None:  # fmt: skip
    """Make the edits of a part of the step."""
    if len(found) != 1:
        raise found[0].begin.left("that the file has one kernel")
    if taking.context.helpers.permuted:
        raise found[0].begin.left(
            "rows of A in the places of their MMA: here they change places, and a pair halves them"
        )
    changes = Changes(taking.context, RULE)
    part(Pair(found[0], changes, launch))
    changes.make()


STEP = Step(
    NAME, RULE, _write, after={mma_thread.NAME: mma_thread.OWN_THREAD},
    changes=Declared(rows=True, roles=True, barriers=True, launch=("grid", "cluster"), rings=(Ring("stages", "k"),)),
    beside={"tiles": "tiles that are a number of CTAs apart: these are handed out one by one"},
    follows=("double-buffer",), rebuilds=(mma_thread.NAME, "double-buffer"), cost=True,
)  # fmt: skip
