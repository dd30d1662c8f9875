# SPDX-License-Identifier: Apache-2.0
"""Two m64 tiles of one warpgroup whose MMAs a library issues, as one M=128 MMA: which rows a thread has of them, the
tiled MMA says, so it is asked for others wherever an accumulator's parts are named. That both tiles are multiplied
together, by the same B, the header asserts at compile time, and where the second one lies it looks at. What threads do
with rows that are not theirs any more, PTX says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Edit, Span, as_bytes, as_text
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel
from porter.model.tiled.accumulators import Handle
from porter.model.tiled.operands import may_leave_registers
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.renaming import reached
from porter.passes.full_rate.step import ALONE, of_sources, title
from porter.passes.needs import NOTHING
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.setup import TILE_RULE
from porter.passes.tiled.text import cpp
from porter.ptx.tmem import LANES

_SHAPE = re.compile(r"\bShape\s*<([^,]*),")


def alone(context: TiledContext, kernels: Sequence[Kernel]) -> bool:
    """Whether one warpgroup runs the MMAs of each kernel. Where the number of threads is that of the tiled MMA, its
    making says so, and the port asserts it at compile time."""
    counts = {k.roles.value for k in kernels}
    return counts == {1} or (counts <= {1, None} and _made_of_one(context))


def _made_of_one(context: TiledContext) -> bool:
    """Whether each tiled MMA of the sources is made of one atom."""
    program, made = context.tiled.program, 0
    spellings = program.vocabulary.spellings
    for file in program.sources.files.values():
        named = len(spellings.places("making_tiled_mma", file.lexed.code.decode("latin-1")))
        for call in find(file.root, "call_expression") if named else ():
            callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
            name = file.text(Span(callee.start_byte, callee.end_byte)) if callee is not None else ""
            if not spellings.are("making_tiled_mma", name.rpartition("::")[2]):
                continue
            given = [n for n in arguments.named_children if n.type != "comment"] if arguments is not None else []
            if len(given) != 1:
                return False
            named, made = named - 1, made + 1
        if named:
            return False
    return made > 0


def stacked(context: TiledContext, kernels: Sequence[Kernel]) -> tuple[list[Edit], list[Missing]]:
    """The edits with which one MMA makes both tiles of a warpgroup, and what is not known for it."""
    found = [m for k in kernels for m in _of_kernel(context, k)]
    if found:
        return [], found
    rows = Rows(context, [k.function for k in kernels])
    found = list(rows.missing())
    if not rows.edits and not found:
        function = kernels[0].function
        found.append(Missing(function, title(function), "nothing in it says which rows of an accumulator a thread has"))
    return rows.edits, found


def _of_kernel(context: TiledContext, kernel: Kernel) -> Iterator[Missing]:
    function = kernel.function
    whole = of_sources(context.port, NOTHING, kernel)
    if not whole and context.tiled.atoms:
        whole = "it issues MMAs by their atoms, each of which is for one tile"
    if not whole and any((rows := _rows(context, h)) is not None and rows % LANES for h in context.tiled.fragments):
        whole = ALONE
    if whole:
        yield Missing(function, title(function), whole)
        return
    for multiply in context.tiled.multiplies:
        caller = multiply.call.caller
        if may_leave_registers(context.tiled, multiply):
            what = "A comes from registers, for each tile of a warpgroup, or it is not known where it is"
            yield Missing(caller, caller.span(multiply.call.node), what)


def _rows(context: TiledContext, handle: Handle) -> int | None:
    """Rows of an accumulator, where its declaration says so."""
    text = handle.function.text(handle.value) if handle.value is not None else ""
    match = _SHAPE.search(text)
    extent = match[1].strip() if match is not None else ""
    name, _, argument = extent.partition("<")
    word = name.rpartition("::")[2].strip()
    if not context.tiled.program.vocabulary.spellings.are("static_number", word):
        return None
    if word.lstrip("_").isdigit():
        return int(word.lstrip("_"))
    return context.tiled.program.value(handle.function, argument.removesuffix(">"))


@dataclass(eq=False)
class Rows:
    """Asks which rows threads have, wherever kernels do."""

    context: TiledContext
    kernels: list[Function]
    edits: list[Edit] = field(default_factory=list)

    @cached_property
    def _mine(self) -> set[int]:
        return reached(self.context.tiled.program, self.kernels)

    @cached_property
    def _foreign(self) -> set[int]:
        program = self.context.tiled.program
        return reached(program, [k for k in program.kernels if not any(k is one for one in self.kernels)])

    def missing(self) -> Iterator[Missing]:
        """Edit every place that asks a tiled MMA for a thread's part of an accumulator; gives those that are not
        understood."""
        program = self.context.tiled.program
        seen: set[tuple[str, int]] = set()
        spellings = program.vocabulary.spellings
        for function in program.functions:
            if function.style is Style.MACRO:
                continue
            for call in find(function.body, "call_expression"):
                named, asked = self._asked(function, call)
                if named is None:
                    continue
                key = (function.file.path, function.span(named).start)
                if key in seen:
                    continue
                seen.add(key)
                if id(function) in self._foreign and id(function) not in self._mine:
                    continue
                if asked is None:
                    yield self._at(function, call, "which tiled MMA tells the rows of a part is not known")
                elif id(function) not in self._mine:
                    yield self._at(function, call, "host code says which rows of an accumulator a thread has")
                elif id(function) in self._foreign:
                    yield self._at(function, call, "also a kernel comes here that stays at M=64")
                elif function.file.path != program.sources.root:
                    yield self._at(function, call, "a part of it stands in a header, which other files may share")
                else:
                    yield from self._edit(function, asked)
        for path, file in program.sources.files.items():
            text = file.lexed.code.decode("latin-1")
            for of in ("rows_by_object", "rows_by_argument"):
                if any((path, start) not in seen for start, _ in spellings.places(of, text)):
                    what = "which rows a thread has is asked in a form that is not followed"
                    yield Missing(self.kernels[0], title(self.kernels[0]), what)

    def _at(self, function: Function, node: Node, what: str) -> Missing:
        return Missing(function, function.span(node), what)

    def _asked(self, function: Function, call: Node) -> tuple[Node | None, Node | None]:
        """The name of a call that asks for rows, and the tiled MMA or slice that tells them."""
        are = self.context.tiled.program.vocabulary.spellings.are
        callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return None, None
        if callee.type == "field_expression":
            name, asked = callee.child_by_field_name("field"), callee.child_by_field_name("argument")
            if name is None or asked is None or not are("rows_by_object", function.text(name)):
                return None, None
            between = function.text(callee)[asked.end_byte - callee.start_byte : -len(function.text(name))]
            return name, asked if between.strip() == "." else None
        name = callee
        while name.type == "qualified_identifier" and name.child_by_field_name("name") is not None:
            name = name.child_by_field_name("name") or name
        if are("rows_by_argument", function.text(name)):
            given = arguments.named_children
            return name, given[1] if len(given) == 2 else None
        return None, None

    def _edit(self, function: Function, asked: Node) -> Iterator[Missing]:
        path, span = function.file.path, function.span(asked)
        over = {
            rule
            for rule, edits in self.context.port.edits.items()
            if any(e.path == path and e.span.overlaps(span) for e in edits)
        }
        text = as_text(function.file.source[span.start : span.end])
        if over == {TILE_RULE}:
            # an accumulator is made like a part: all threads' parts have one shape
            return
        if over:
            yield self._at(function, asked, "another step of the port writes what tells the rows of a part")
        else:
            self.edits.append(Edit(path, span, as_bytes(cpp("rows_of", mma=text))))
