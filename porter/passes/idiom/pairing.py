# SPDX-License-Identifier: Apache-2.0
"""Two CTAs multiply together: one issues MMAs of 256 rows for both. Each keeps its own tile of 128 rows, and brings
half of the rows of B; what both bring completes on mbarriers of the first. Which tiles a pair has follows from the
grid, of which two CTAs below each other are one, or from a loop over tiles, which both CTAs run for tiles of twice the
rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Call, Function, Style, declared_name
from porter.model.scopes import resolve
from porter.passes.full_rate.proposing import Boxes
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp
from porter.passes.native.grids import even_grid
from porter.passes.native.sites import Left

RULE = "PTR783"
_BLOCK = re.compile(rb"\b(blockIdx|gridDim)\s*\.\s*([xyz])\b")
_ALIAS = re.compile(r"(\w+)\s*\{\s*\}\s*\)\s*\Z")
_EXTENT = r"\s*\(\s*[^(),]+(?:\{{\s*\}})?\s*,\s*(?:(?:\w+\s*::\s*)*\w+)\s*[<(]\s*(?P<extent>[^,]+?)\s*,"
_DEEPEST = 4
_WIDEST = 112


@dataclass(frozen=True)
class Load:
    """A load of a box, with the function that is called and the coordinate of rows of its operand."""

    call: Call = field(repr=False)
    callee: Node = field(repr=False)
    map: str
    tensor: Node = field(repr=False)
    row: Node = field(repr=False)

    @property
    def function(self) -> Function:
        return self.call.caller


@dataclass(eq=False)
class Pairing:
    """Writes what CTAs of a pair do. Raises Left, each of its functions."""

    site: Site
    loop: Mainloop
    boxes: Boxes | None

    def __post_init__(self) -> None:
        site = self.site
        names = site.tile_names
        if site.types.warpgroups != 2 or site.types.rows != 128 or names is None or site.types.depth:
            raise self.left("a tile of 128 rows with names, of two warpgroups that share its columns")
        self.rows, self.columns = names
        text = site.kernel.text(site.kernel.node) + site.kernel.file.text(site.kernel.head)
        if "__cluster_dims__" in text:
            raise self.left("a kernel without clusters")

    def left(self, what: str, node: Node | None = None, function: Function | None = None) -> Left:
        return self.site.left(node or self.site.handle.declaration, what, function)

    def replace(self, function: Function, node: Node | Span, text: str) -> None:
        self.site.draft.replace(RULE, function, node if isinstance(node, Span) else function.span(node), text)

    # --- operands

    def operands(self) -> None:
        """Fragments of what a CTA has; called ahead of what renames threads' parts."""
        site, kernel = self.site, self.site.kernel
        self.tensors: dict[str, str] = {}
        for node in find(kernel.body, "call_expression"):
            callee, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if callee is None or given is None or callee.type != "field_expression" or len(given.named_children) != 1:
                continue
            of, named = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
            match = re.fullmatch(r"(partition_(?:fragment_)?)([AB])", kernel.text(named)) if named is not None else None
            if of is None or match is None or kernel.text(of) not in site.slices:
                continue
            tensor = given.named_children[0]
            if tensor.type != "identifier" or match[2] in self.tensors:
                raise self.left("each operand as one tensor of shared memory", node)
            self.tensors[match[2]] = kernel.text(tensor)
            site.rewritten.append(node)
            text = cpp("operand_of_pair", c=site.c, tensor=kernel.text(tensor), mma=site.mma)
            whole = cpp("fragment", slice=site.name("cta_mma"), operand=match[2], tensor=text)
            self.replace(kernel, node, whole if "fragment" in match[1] else text)
        if set(self.tensors) != {"A", "B"}:
            raise self.left("both operands in shared memory")
        value = site.handle.value
        tokens = (
            [n for n in find(value, "identifier", "type_identifier") if kernel.text(n) == self.rows]
            if value is not None
            else []
        )
        if len(tokens) != 1:
            raise self.left("the rows of its tile by a name where the accumulator is declared")
        self.replace(kernel, tokens[0], f"2 * {self.rows}")
        self.of_columns()

    def of_columns(self) -> None:
        """The columns of the accumulator stay."""

    def take(self) -> None:
        kernel = self.site.kernel
        self.layouts = {op: self._layout_of(kernel, name) for op, name in self.tensors.items()}
        if self.layouts["A"] == self.layouts["B"]:
            raise self.left("layouts of A and B with names of their own")
        self._pipeline()
        loads = list(self._loads())
        of_a, of_b = ([one for one in loads if self._operand(one) == operand] for operand in "AB")
        if len(of_a) != 1 or len(of_b) != 1 or len(loads) != 2:
            raise self.left("one load that brings A and one that brings B")
        for load in loads:
            self.replace(load.function, load.callee, cpp("load_of_pair"))
        rank = cpp("rank", c=self.site.c)
        self.brings_b(of_b[0], rank)
        self._tiles(of_a[0], rank)

    def brings_b(self, load: Load, rank: str) -> None:
        """Each CTA loads half of the rows of a tile."""
        self._layout()
        text = cpp("half_of_box", c=self.site.c, coordinate=_summand(load.function, load.row), rank=rank,
                   tensor=load.function.text(load.tensor))  # fmt: skip
        self.on_a_line(load, text)
        self._box(load)

    def on_a_line(self, load: Load, text: str) -> None:
        """A coordinate on a line of its own, where the line would be long."""
        span, source = load.function.span(load.row), load.function.file.source
        start = source.rfind(b"\n", 0, span.start) + 1
        front = source[start : span.start].rstrip(b" ")
        if len(front) + len(text) > _WIDEST and front.strip():
            pad = self.site.port.indent(load.function, span)
            span, text = Span(start + len(front), span.end), f"\n{pad}{text}"
        self.replace(load.function, span, text)

    # --- shared memory

    def _layout_of(self, function: Function, name: str, depth: int = 0) -> str:
        """The name of the layout that a tensor is made with."""
        for one, text in self._values(function, name):
            match = _ALIAS.search(text)
            if match is not None:
                return match[1]
            if re.fullmatch(r"\w+", text) and depth < _DEEPEST:
                return self._layout_of(one, text, depth + 1)
        raise self.left(f"the layout of `{name}` by its name", function.body, function)

    def _values(self, function: Function, name: str) -> Iterator[tuple[Function, str]]:
        """What a variable begins with, and what callers hand in for a parameter, each with where it stands."""
        for declarator in find(function.body, "init_declarator"):
            named, value = declared_name(declarator), declarator.child_by_field_name("value")
            if named is not None and value is not None and function.text(named) == name:
                yield function, function.text(value)
        index = next((i for i, p in enumerate(function.params) if p.name == name), None)
        for call in self.site.program.callers(function) if index is not None else ():
            if index is not None and index < len(call.args):
                yield call.caller, call.caller.text(call.args[index]).strip("&* ")

    def _layout(self) -> None:
        """The layout of B has half of its rows."""
        layout, found = self.layouts["B"], []
        spellings = self.site.program.vocabulary.spellings
        for file in self.site.program.sources.files.values():
            text = file.lexed.plain_text
            for alias in re.finditer(rf"\busing\s+{layout}\s*=\s*([^;]*);", text):
                for made in spellings.matches("layout_of_shape", alias[1]):
                    match = re.match(_EXTENT.format(), alias[1][made.end() :])
                    if match is not None:
                        start = alias.start(1) + made.end() + match.start("extent")
                        found.append((file, Span(start, start + len(match["extent"])), match["extent"]))
        if len(found) != 1 or not re.search(rf"\b{self.columns}\b", found[0][2]):
            raise self.left(f"the rows of `{layout}` as `{self.columns}`, by which it is made")
        file, span, text = found[0]
        self.site.draft.replace(
            RULE, owner_of(self.site, file), span, re.sub(rf"\b{self.columns}\b", f"{self.columns} / 2", text)
        )

    def _pipeline(self) -> None:
        """What both CTAs bring is expected by the first."""
        kernel, done = self.site.kernel, set[str]()
        for node in find(kernel.body, "assignment_expression"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            named = left.child_by_field_name("field") if left is not None else None
            if named is None or right is None:
                continue
            field_name, text = kernel.text(named), kernel.text(right)
            if field_name == "is_leader":
                text = f"({text})" if re.search(r"\|\||\?|(?<![=!<>])=(?!=)", text) else text
                self.replace(kernel, right, cpp("leads", c=self.site.c, leads=text))
            elif field_name == "transaction_bytes" and re.search(rf"(?<![/%]) *\b{self.columns}\b", text):
                self.replace(kernel, right, f"2 * {_factor(right, self.bytes_of_cta(text))}")
            else:
                continue
            done.add(field_name)
        if done != {"is_leader", "transaction_bytes"}:
            raise self.left(f"who leads a pipeline, and its bytes with `{self.columns}`")

    def bytes_of_cta(self, text: str) -> str:
        """What a CTA brings to a stage, by what it brings alone."""
        return re.sub(rf"\b{self.columns}\b", f"{self.columns} / 2", text)

    # --- loads

    def reached(self) -> list[Function]:
        return [f for f in self.site.program.functions if f is self.site.kernel or self.site.comes_to(f)]

    def _loads(self) -> Iterator[Load]:
        spellings = self.site.program.vocabulary.spellings
        for function in self.reached():
            for call in function.calls:
                callee = call.node.child_by_field_name("function")
                parts = function.text(callee).split("::") if callee is not None else []
                if callee is None or len(parts) < 2 or parts[-1].strip() != "copy":
                    continue
                if not spellings.are("load_of_box", parts[-2].strip()):
                    continue
                tensor = next(find(call.args[3], "identifier"), None) if len(call.args) == 6 else None
                if tensor is None or function.style is Style.MACRO:
                    raise self.left("a load of a box of two dimensions, to a part of a tensor", call.node, function)
                map_ = self._in_kernel(function, function.text(call.args[0]).strip("&* "))
                yield Load(call, callee, map_, tensor, call.args[5])

    def _in_kernel(self, function: Function, name: str, depth: int = 0) -> str:
        """What the kernel hands in for a function's parameter."""
        if function is self.site.kernel:
            return name
        found = {(id(f), text): (f, text) for f, text in self._values(function, name)}
        if len(found) != 1 or depth > _DEEPEST:
            raise self.left(f"what the kernel hands in for `{name}`", function.body, function)
        return self._in_kernel(*next(iter(found.values())), depth + 1)

    def _operand(self, load: Load) -> str:
        layout = self._layout_of(load.function, load.function.text(load.tensor))
        return next((op for op, name in self.layouts.items() if name == layout), "")

    def _box(self, load: Load) -> None:
        """The box of B has half of the rows."""
        root = self.site.program.sources
        known = self.boxes(Path(root.root), root.include_dirs) if self.boxes is not None else ()
        found = next((k.of(load.map) for k in known if k.kernel == self.site.kernel.name), "no host code makes it")
        if isinstance(found, str):
            raise self.left(f"the box of `{load.map}`: {found}", load.call.node, load.function)
        path, start, end = found.at
        if found.rows != self.site.types.columns:
            raise self.left(f"a box of all rows of B: it has {found.rows}", load.call.node, load.function)
        text = found.text if re.fullmatch(r"[\w:]+", found.text) else f"({found.text})"
        file = root.files[path]
        self.site.draft.replace(RULE, owner_of(self.site, file), Span(start, end), f"{text} / 2")

    # --- which tiles

    def _expanded(self, function: Function, node: Node, depth: int = 0) -> str:
        """An expression with what variables begin with in their place."""
        text, at = "", node.start_byte
        for name in [node] if node.type == "identifier" else find(node, "identifier"):
            variable = resolve(function, name, function.text(name))
            values = list(self._values(function, function.text(name))) if variable is not None else []
            text += function.file.source[at : name.start_byte].decode("utf-8", "replace")
            text += f"({values[0][1]})" if len(values) == 1 and depth < _DEEPEST else function.text(name)
            at = name.end_byte
        return text + function.file.source[at : node.end_byte].decode("utf-8", "replace")

    def _tiles(self, load: Load, rank: str) -> None:
        site = self.site
        axes = set(re.findall(r"\bblockIdx\s*\.\s*([xy])\b", self._expanded(load.function, load.row)))
        if len(axes) == 1 and not self.loop.turns:
            name = axes.pop()
            axis, of = "xy".index(name), re.compile(r"\bblockIdx\s*\.\s*([xyz])\b")
            kernel = site.kernel
            self.guard = self._guard(
                lambda n: set(of.findall(self._expanded(kernel, n))) == {name}, f"int(blockIdx.{name})", "return"
            )
        elif not axes and self.loop.turns:
            axis = 0
            self.guard = self._of_loop(load, rank)
        else:
            raise self.left("the rows that a block has, by its place in the grid or by a loop over tiles")
        self.axis = axis
        dims = ", ".join("2" if i == axis else "1" for i in range(3))
        source, head = site.kernel.file.source, site.kernel.head.start
        at = source.rfind(b"__global__", 0, site.kernel.span(site.kernel.body).start)
        if at < 0 or source.find(b";", at, head) >= 0:
            raise self.left("`__global__` of the kernel")
        end = at + len(b"__global__")
        site.draft.insert(RULE, site.kernel, end, cpp("clusters", dims=dims))
        for caller, node, text in even_grid(site.program, site.kernel, axis):
            self.replace(caller, node, text)
        self.columns_axis = self.halves_grid()

    def halves_grid(self) -> int | None:
        """The dimension of the grid that counts half the tiles along columns: none."""
        return None

    OUTSIDE = "outside"

    def beside(self, coordinates: Node | None) -> dict[str, Any]:
        """What else a CTA asks of a tile's coordinates before it leaves."""
        return {}

    def _guard(self, is_row: Callable[[Node], bool], row: str, leave: str) -> str:
        """What a CTA does whose tile lies behind the last row."""
        kernel = self.site.kernel
        for node in find(kernel.body, "call_expression"):
            callee, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if callee is None or given is None or kernel.text(callee).split("::")[-1] != "local_tile":
                continue
            tensor, where = ([n for n in given.named_children if n.type != "comment"] + [given] * 3)[0:3:2]
            declared = self.site.value_of(kernel.text(tensor)) if tensor.type == "identifier" else None
            where = self.site.value_of(kernel.text(where)) or where if where.type == "identifier" else where
            listed = where.child_by_field_name("arguments")
            at = [i for i, n in enumerate(listed.named_children) if is_row(n)] if listed is not None else []
            if declared is None or len(at) != 1 or declared.start_byte > self.loop.last.start_byte:
                continue
            self.result, self.extent, self.tile = declared, at[0], node
            return cpp(self.OUTSIDE, c=self.site.c, row=row, rows=self.rows, index=at[0], tensor=kernel.text(tensor),
                       leave=leave, **self.beside(listed))  # fmt: skip
        raise self.left("the tile of results by the place of its rows, of a tensor in front of MMAs")

    def _of_loop(self, load: Load, rank: str) -> str:
        """Both CTAs of a pair run the loop over tiles of twice the rows; each takes its half."""
        kernel, row = self.site.kernel, self.brought(load, self.rows, "A", rank)
        name = self.takes_its_own(row, load.function.text(row), "tile_row", rank)
        guard = self._guard(lambda n: kernel.text(n) == load.function.text(row), name, "continue")
        made = [n for n in find(self.result, "call_expression") if kernel.text(n).split("(")[0].endswith("make_shape")]
        listed = made[0].child_by_field_name("arguments") if len(made) == 1 else None
        extents = [n for n in listed.named_children if n.type != "comment"] if listed is not None else []
        if len(extents) <= self.extent or extents[self.extent].type != "identifier":
            raise self.left("the rows of results as a variable", self.result)
        self.halved(kernel.text(extents[self.extent]), self.rows)
        self.in_loop(extents)
        self._blocks()
        return guard

    def in_loop(self, extents: list[Node]) -> None:
        """Columns of the loop over tiles stay. `extents`: those of results."""

    def brought(self, load: Load, size: str, operand: str, rank: str) -> Node:
        """Load one of two tiles; gives the index by which the CTA would load its only one."""
        function, named = load.function, re.compile(rf"(?:\w+::)*{size}\Z")
        left, right = load.row.child_by_field_name("left"), load.row.child_by_field_name("right")
        sign = function.text(load.row.children[1]) if load.row.type == "binary_expression" else ""
        factors = [n for n in (left, right) if n is not None and not named.match(function.text(n))]
        if sign != "*" or len(factors) != 1:
            raise self.left(f"rows of {operand} as a tile's index times `{size}`", load.row, function)
        new = cpp("row_of_pair", row=function.text(factors[0]), rank=rank)
        front = function.file.text(Span(load.row.start_byte, factors[0].start_byte))
        behind = function.file.text(Span(factors[0].end_byte, load.row.end_byte))
        self.on_a_line(load, f"{front}({new}){behind}")
        return factors[0]

    def takes_its_own(self, index: Node, text: str, name: str, which: str) -> str:
        """Name the one of two tiles whose results threads have, where the loop over tiles says the index of both."""
        site, kernel, outer = self.site, self.site.kernel, self.loop.outermost_loop()
        body = outer.child_by_field_name("body") if outer is not None and outer.type == "for_statement" else None
        if outer is None or body is None or body.type != "compound_statement":
            raise self.left("a loop over tiles that goes on in its head")
        name = site.name(name)
        places = [n for n in find(body, index.type) if kernel.text(n) == text and not inside(self.loop.last, n)]
        declared = next((n.parent.parent for n in places if n.parent is not None and
                         n.parent.child_by_field_name("declarator") == n), None)  # fmt: skip
        at = site.draft.end_of(kernel, declared) if declared is not None else kernel.span(body).start + 1
        pad = site.port.indent(kernel, kernel.span(outer)) + site.unit
        row = cpp("row_of_pair", row=text, rank=which)
        site.draft.insert(RULE, kernel, at, f"\n{pad}{cpp('declared_row', name=name, row=row)}")
        for node in places:
            if declared is None or not inside(declared, node):
                self.replace(kernel, node, name)
        return name

    def halved(self, size: str, extent: str) -> None:
        """Loops over tiles count those of pairs, by the extent of one."""
        count = 0
        for function in self.reached():
            names = [size] if function is self.site.kernel else [
                p.name for i, p in enumerate(function.params)
                if any(i < len(c.args) and c.caller is self.site.kernel and c.caller.text(c.args[i]) == size
                       for c in self.site.program.callers(function))]  # fmt: skip
            for node in find(function.body, "identifier", "type_identifier"):
                if function.text(node) in names and not self._is_extent(function, node):
                    self.counts_tiles(function, node, extent)
                    rows = cpp("rows_of_pairs", c=self.site.c, size=function.text(node),
                               rows=self._named(function, extent))  # fmt: skip
                    above = node.parent
                    whole = above is not None and above.type == "binary_expression"
                    self.replace(function, node, f"({rows})" if whole else rows)
                    count += 1
        if not count:
            raise self.left(f"a loop over tiles that is made of `{size}`")

    def _is_extent(self, function: Function, node: Node) -> bool:
        """Whether the rows of a product are those of a tensor there, or are handed on."""
        above = node.parent
        while above is not None and above.id != function.body.id:
            if above.type == "call_expression":
                callee = above.child_by_field_name("function")
                name = function.text(callee) if callee is not None else ""
                own = any(c.node.id == above.id and self.site.program.targets(c) for c in function.calls)
                if own or "make_" in name:
                    return True
            above = above.parent
        return False

    def counts_tiles(self, function: Function, node: Node, extent: str) -> None:
        """Raises Left where the size of the product is asked for something else than how many tiles there are."""

    def _named(self, function: Function, extent: str) -> str:
        """The extent of a tile, as a function can name it."""
        found = re.search(rf"\b[\w:]*\b{extent}\b", function.text(function.body))
        return found[0] if found is not None else extent

    def _blocks(self) -> None:
        """Places that ask which block this is get the pair."""
        kernels = [k for k in self.site.program.kernels if k is not self.site.kernel]
        for file in self.site.program.sources.files.values():
            for match in _BLOCK.finditer(file.lexed.code):
                span = Span(match.start(), match.end())
                if any(k.file is file and k.span(k.node).contains(span) for k in kernels):
                    continue
                if match[2] != b"x":
                    raise self.left("a grid of one dimension")
                around = file.source[: span.start].rstrip()[-1:] + file.source[span.end :].lstrip()[:1]
                text = f"{match[0].decode()} / 2"
                whole = text if around in (b"()", b"=;", b"(,", b",)") else f"({text})"
                self.site.draft.replace(RULE, owner_of(self.site, file), span, whole)


def _summand(function: Function, node: Node) -> str:
    text = function.text(node)
    return f"({text})" if node.type in ("conditional_expression", "assignment_expression") else text


def _factor(node: Node, text: str) -> str:
    """An expression as one that something is multiplied with."""
    operators = {c.type for c in node.children} if node.type == "binary_expression" else set()
    return text if node.type != "binary_expression" or operators & {"*"} else f"({text})"
