# SPDX-License-Identifier: Apache-2.0
"""Rows of A change places in shared memory, so that those of an M=128 tile arrive where threads look for them.

Lane L of an M=128 accumulator holds row L of A in shared memory. Threads of the sources have row 16w+r of tile h, and
look for it in lane 32w+16h+r. So row 64h+16w+r of each 128 is loaded to the place of row 32w+16h+r: 16 rows at a
time, by a tensor map whose box has that many. These are two groups of 8 rows, after which every swizzle begins again
(PTX ISA, Swizzling Modes), so that rows are swizzled as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node

from porter.lang.sources import is_python
from porter.lang.text import Edit, Span, as_bytes
from porter.model.facts import Mbarrier
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel
from porter.model.pipeline.facts import KernelBoxes
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.pipeline.operations import Operation, Site
from porter.model.registers import CASTS
from porter.model.scopes import resolve
from porter.passes.context import PortContext, qualified
from porter.passes.full_rate.loads import Loads
from porter.passes.full_rate.proposing import Boxes, HostSide, Proposal, written_over
from porter.passes.full_rate.renaming import reached
from porter.passes.native.sites import Left, Place, is_all, path_of, statement_of
from porter.ptx.ast import Mem
from porter.ptx.table import items
from porter.ptx.tmem import LANES
from porter.ptx.wgmma import M

PART = 16
"""Rows that a warp has of an m64 tile."""
_INTEGERS = re.compile(r"(?:u?int(?:8|16|32|64)?(?:_t)?|unsigned|long|size_t)\Z")
_DEEPEST = 8
_SIMPLE = ("identifier", "number_literal", "field_expression", "call_expression", "subscript_expression")
"""What a sum or a product needs no parentheses around."""


def permute(context: PortContext, found: Proposal, host: HostSide) -> None:
    """Where all that keeps kernels from M=128 MMAs is which thread has which rows, and host code says what tensor maps
    it makes: what it does not say is missing, too."""
    if not found.rows or found.missing or host.boxes is None:
        return
    try:
        found.permuted = tuple(_permuted(context, host.boxes, host.both_chips))
    except Left as left:
        what = f"nor can rows of A be loaded in another order: {left.what}"
        found.rows.append(Left(left.function, left.span, what))


def _permuted(context: PortContext, boxes: Boxes, both_chips: bool) -> dict[Edit, None]:
    """The edits for rows of A that all kernels of a source set load by tensor maps of these boxes; `both_chips`: the
    port stands beside the original, which has the same host code."""
    root = context.program.sources
    in_strings = is_python(Path(root.root))
    known = {} if in_strings else {k.kernel: k for k in boxes(Path(root.root), root.include_dirs)}
    edits: dict[Edit, None] = {}
    for kernel in context.kernels:
        name = kernel.function.name
        loads = Loads(context.program, kernel, known.get(name, KernelBoxes(name)))
        if both_chips:
            raise loads.of_kernel("the tensor maps of its port are others than those of the original beside it")
        edits |= dict.fromkeys(_Permuting(context, kernel, loads).edits())
    return edits


@dataclass(eq=False)
class _Permuting:
    context: PortContext
    kernel: Kernel
    loads: Loads
    _edits: dict[Edit, None] = field(default_factory=dict)

    def edits(self) -> list[Edit]:
        """Those of the loads and of the host code."""
        mine = self.loads.of_a()
        name = self.context.program.unused("part")
        for copy in mine:
            box = self.loads.box(copy)
            if box.rows % LANES and box.rows not in (M, M // 2):
                raise self.loads.left(
                    copy, f"A is loaded {box.rows} rows at a time, not in whole tiles or halves of one"
                )
            self._load(copy, mine, box.rows, box.row_bytes, name)
            path, start, end = box.at
            root = self.context.program.sources
            if path != root.root:
                raise self.loads.left(copy, "its tensor map is made in a header, which other files may include")
            if root.files[path].text(Span(start, end)) != box.text:
                raise self.loads.left(copy, "the host code that makes its tensor map does not stand beside the kernel")
            self._edits[Edit(path, Span(start, end), str(PART).encode())] = None
        edits = list(self._edits)
        if written_over(self.context, edits) is not None:
            raise self.loads.of_kernel("another step of the port writes where A is loaded")
        return edits

    # --- A load

    def _load(self, copy: Operation, mine: Sequence[Operation], rows: int, row_bytes: int, name: str) -> None:
        """Load 16 rows at a time, each to its own place."""
        index = self._level(copy, mine)
        site = copy.sites[index]
        function = site.frame.function
        to, row = self._operands(copy, index)
        statement = statement_of(Place(function, site.node))
        if statement.type != "expression_statement" or function.style is Style.MACRO:
            raise self.loads.left(copy, "a load of A is no statement of its own")
        path, (opened, closed) = function.file.path, ("", "") if row.type in _SIMPLE else ("(", ")")
        given = f", {opened}{function.text(row)}{closed} / {PART} % {LANES // PART}"
        of_tile = given if rows < LANES else ""
        pad = self.context.indent(function, function.span(statement)) + "    "
        begin = function.span(statement).start
        self._insert(path, begin, f"for (int {name} = 0; {name} < {rows // PART}; ++{name})\n{pad}", function)
        self._insert(path, function.span(to).start, f"{qualified('rows_of_a')}<{row_bytes}>(", function)
        self._insert(path, function.span(to).end, f", {name}{of_tile})", function)
        if opened:
            self._insert(path, function.span(row).start, opened, function)
        self._insert(path, function.span(row).end, f"{closed} + {PART} * {name}", function)

    def _insert(self, path: str, at: int, text: str, function: Function) -> None:
        self._edits[Edit(path, Span(at, at), as_bytes(text.replace("\n", function.file.newline)))] = None

    def _level(self, copy: Operation, mine: Sequence[Operation]) -> int:
        """Which of the places on the way to a load is for such loads alone, and does nothing else: the innermost."""
        program, others = self.context.program, self.context.program.kernels
        foreign = reached(program, [k for k in others if not any(k is own.function for own in self.context.kernels)])
        for index in range(len(copy.sites) - 1, -1, -1):
            site = copy.sites[index]
            if id(site.frame.function) in foreign or site.frame.function.file.path != program.sources.root:
                continue
            through = [o for o in self.loads.walk.operations if any(_is_at(s, site) for s in o.sites)]
            if not all(any(o is m for m in mine) and o.map == copy.map for o in through):
                continue
            if any(o.sites[-1].node.id != copy.sites[-1].node.id for o in through):
                raise self.loads.left(copy, "a load of A is no statement of its own")
            below = path_of(copy)[index + 1 :]
            if not all(map(is_all, below)):
                raise self.loads.left(copy, "a load of A is made by a function that does something else, too")
            return index
        raise self.loads.left(copy, "the statement that loads A is for something else, too")

    def _operands(self, copy: Operation, index: int) -> tuple[Node, Node]:
        """The expressions, at a place on the way to a load, of where it writes to and of its first row."""
        last = copy.sites[-1]
        to, row = self._of_asm(last) or self._of_call(last) or (None, None)
        if to is None or row is None:
            raise self.loads.left(copy, "the operands of a load of A are not known")
        frame: Frame | None = last.frame
        target = copy.sites[index].frame
        nodes = [to, row]
        while frame is not None and frame is not target:
            nodes = [self._handed(copy, frame, node, i == 0) for i, node in enumerate(nodes)]
            frame = frame.outer
        return nodes[0], nodes[1]

    @staticmethod
    def _of_asm(site: Site) -> tuple[Node, Node] | None:
        found = site.only("cp")
        coords, to = (found.get(name) if found is not None else None for name in ("coords", "dst"))
        if coords is None or to is None:
            return None
        bases = (o.base if isinstance(o, Mem) and not o.offset else o for o in (to, items(coords)[1]))
        where, row = map(site.expression, bases)
        return (where, row) if where is not None and row is not None else None

    def _of_call(self, site: Site) -> tuple[Node, Node] | None:
        """The same of a call of a library."""
        function, program = site.frame.function, self.context.program
        for call in program.calls_by_node.get(site.node.id, ()):
            fact = program.facts.of_call(call) if call.caller.file is function.file else None
            if not isinstance(fact, Mbarrier) or not fact.coords:
                continue
            texts = [" ".join(function.text(a).split()) for a in call.args]
            coords = [" ".join(c.split()) for c in fact.coords.split(",")]
            at = [i for i in range(len(texts)) if texts[i : i + len(coords)] == coords]
            to = [i for i, t in enumerate(texts) if t == " ".join(fact.to.split())]
            if len(at) == 1 and len(to) == 1 and len(coords) == 2:
                return call.args[to[0]], call.args[at[0] + 1]
        return None

    def _handed(self, copy: Operation, frame: Frame, node: Node, is_place: bool) -> Node:
        """What the caller hands over for an expression that is a parameter of a function, and that alone."""
        function = frame.function
        for _ in range(_DEEPEST):
            inner = self._within(function, node, is_place)
            if inner is not None:
                node = inner
                continue
            name = function.text(node)
            variable = resolve(function, node, name) if node.type == "identifier" else None
            if variable is None or variable.function is not function or Wording(self.context.program).changes(
                function, name
            ):  # fmt: skip
                break
            if variable.param is not None:
                given = frame.bound.get(name)
                kind = self.context.program.names.type_of_param(function, variable.param)
                if given is None or kind.reference:
                    break
                return given
            value = first_value(variable)
            if value is None:
                break
            node = value
        raise self.loads.left(copy, f"`{function.text(node)}`, of a load of A, is not what a call hands over")

    def _within(self, function: Function, node: Node, is_place: bool) -> Node | None:
        """The expression inside parentheses, a cast, or a call that gives its address in shared memory."""
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            return node.named_children[0]
        if node.type == "cast_expression":
            return node.child_by_field_name("value")
        if node.type != "call_expression":
            return None
        callee, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = listed.named_children if listed is not None else []
        name = function.text(callee).split("<")[0].strip() if callee is not None else ""
        if len(given) != 1:
            return None
        if name in CASTS or _INTEGERS.match(name):
            return given[0]
        if not is_place:
            return None
        program, wording = self.context.program, Wording(self.context.program)
        calls = [c for c in program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        targets = [t for c in calls for t in program.targets(c)]
        known = name == "__cvta_generic_to_shared" or (bool(targets) and all(map(wording.gives_address, targets)))
        return given[0] if known else None


def _is_at(site: Site, other: Site) -> bool:
    return site.node.id == other.node.id and site.frame.function is other.frame.function
