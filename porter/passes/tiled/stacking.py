# SPDX-License-Identifier: Apache-2.0
"""Two m64 tiles of one warpgroup whose MMAs a library issues, as one M=128 MMA: which rows a thread has of them, the
tiled MMA says, so it is asked for others wherever an accumulator's parts are named. That both tiles are multiplied
together, by the same B, the header asserts at compile time, and where the second one lies it looks at.

A thread's index may tell what takes no part in rows. Any other use of it is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Edit, Span, as_bytes, as_text
from porter.model.facts import Index
from porter.model.functions import Call, Function, Style
from porter.model.kernels import Kernel
from porter.model.scopes import LOOPS, resolve
from porter.model.tiled.accumulators import Handle
from porter.model.tiled.operands import may_leave_registers
from porter.passes.full_rate.joining import Missing
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.full_rate.renaming import opaque, places, reached
from porter.passes.full_rate.step import ALONE, of_sources, title
from porter.passes.needs import NOTHING
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.names import Names
from porter.passes.tiled.text import cpp
from porter.ptx.tmem import LANES
from porter.ptx.wgmma import THREADS as WARPGROUP

_SHAPE = re.compile(r"\bShape\s*<([^,]*),")
_DEEPEST = 8
_ASKED = "which rows that means of two tiles is not known"
_CASTS = ("cast_expression", "parenthesized_expression", "condition_clause", "argument_list")
_NUMBERS = ("primitive_type", "sized_type_specifier", "type_identifier", "placeholder_type_specifier")
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", ">>")
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
_BRANCHES = ("if_statement", *LOOPS)


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


def stacked(context: TiledContext, kernels: Sequence[Kernel], names: Names) -> tuple[list[Edit], list[Missing]]:
    """The edits with which one MMA makes both tiles of a warpgroup, and what is not known for it."""
    found = [m for k in kernels for m in _of_kernel(context, k)]
    if found:
        return [], found
    rows = Rows(context, [k.function for k in kernels], names)
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
    yield from opaque(context.tiled.program, function, reached(context.tiled.program, [function]))
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
    number = re.fullmatch(r"(?:cute::)?(?:_(\d+)|(?:C|Int)<(.*)>)", extent)
    if number is None:
        return None
    return int(number[1]) if number[1] else context.tiled.program.value(handle.function, number[2])


@dataclass(eq=False)
class Rows:
    """Asks which rows threads have, wherever kernels do."""

    context: TiledContext
    kernels: list[Function]
    names: Names
    edits: list[Edit] = field(default_factory=list)
    _followed: set[tuple[int, int]] = field(default_factory=set)

    @cached_property
    def library(self) -> LibraryCalls:
        return LibraryCalls(self.context.tiled.program)

    @cached_property
    def _mine(self) -> set[int]:
        return reached(self.context.tiled.program, self.kernels)

    @cached_property
    def _foreign(self) -> set[int]:
        program = self.context.tiled.program
        return reached(program, [k for k in program.kernels if not any(k is one for one in self.kernels)])

    @cached_property
    def _touched(self) -> list[tuple[Function, Node]]:
        """Places that touch registers of accumulators."""
        return [(f, n) for f, n, _ in self.names.mentions()]

    def missing(self) -> Iterator[Missing]:
        """What is not known; fills `edits`."""
        yield from self._parts()
        for place in places(self.context.tiled.program):
            owner = place.function
            if owner is None:
                what = "`threadIdx` is read outside of functions that are followed"
                yield Missing(self.kernels[0], title(self.kernels[0]), what)
            elif id(owner) in self._mine:
                node = self._node(owner, place.span)
                yield from self._index(owner, node, 0) if place.whole else [self._at(owner, node)]
        for function in self._functions():
            for call in function.calls:
                if isinstance(self.context.tiled.program.facts.of_call(call), Index):
                    yield from self._index(function, call.node, 0)
                yield from self._waits(function, call)
            for statement in function.asm:
                if "bar.warp" in statement.template or "barrier" in statement.template:
                    yield Missing(function, statement.span, "asm waits for some threads, which may exchange rows")

    def _functions(self) -> Iterator[Function]:
        return (f for f in self.context.tiled.program.functions if id(f) in self._mine and f.style is not Style.MACRO)

    def _at(self, function: Function, node: Node, what: str = "") -> Missing:
        text = " ".join(function.text(node).split())
        return Missing(function, function.span(node), what or f"`{text}` tells a thread's index, and {_ASKED}")

    @staticmethod
    def _node(function: Function, span: Span) -> Node:
        start, end = span.start - function.shift, span.end - function.shift
        node = function.file.root.descendant_for_byte_range(start, end)
        assert node is not None
        while node.parent is not None and node.parent.type == "field_expression":
            node = node.parent
        return node

    # --- who says which rows a thread has

    def _parts(self) -> Iterator[Missing]:
        """Edit every place that asks a tiled MMA for a thread's part of an accumulator."""
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

    def _asked(self, function: Function, call: Node) -> tuple[Node | None, Node | None]:
        """The name of a call that asks for rows, and the tiled MMA or slice that tells them."""
        are = self.context.tiled.program.vocabulary.spellings.are
        callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return None, None
        if callee.type == "field_expression":
            name, asked = callee.child_by_field_name("field"), callee.child_by_field_name("argument")
            is_pointer = function.text(callee)[: -len(function.text(name)) if name is not None else None].rstrip()
            if name is not None and are("rows_by_object", function.text(name)):
                return name, None if is_pointer.endswith(("->", "template")) else asked
            return None, None
        name = callee
        while name.type == "qualified_identifier" and name.child_by_field_name("name") is not None:
            name = name.child_by_field_name("name") or name
        if are("rows_by_argument", function.text(name)):
            given = arguments.named_children
            return name, given[1] if len(given) == 2 else None
        return None, None

    def _edit(self, function: Function, asked: Node) -> Iterator[Missing]:
        path, span = function.file.path, function.span(asked)
        over = [e for all_of in self.context.port.edits.values() for e in all_of if e.path == path]
        over = [e for e in over if e.span.overlaps(span)]
        text = as_text(function.file.source[span.start : span.end])
        if over:
            yield self._at(function, asked, "another step of the port writes what tells the rows of a part")
        else:
            self.edits.append(Edit(path, span, as_bytes(cpp("rows_of", mma=text))))

    # --- what a thread's index tells

    def _index(self, function: Function, node: Node, depth: int) -> Iterator[Missing]:
        """Follow a value that a thread's index gives to where it is used."""
        above = node.parent
        if depth > _DEEPEST or above is None or (id(function), node.id) in self._followed:
            if depth > _DEEPEST:
                yield self._at(function, node)
            return
        self._followed.add((id(function), node.id))
        call = above.parent if above.type == "argument_list" else None
        if call is not None and call.type == "call_expression":
            yield from self._handed(function, call, node, depth)
        elif above.type in _CASTS:
            yield from self._index(function, above, depth)
        elif above.type == "init_declarator" and above.parent is not None:
            yield from self._declared(function, above, depth)
        elif above.type == "binary_expression":
            yield from self._combined(function, above, node, depth)
        elif above.type == "unary_expression" or _is_condition(above, node):
            yield from self._chosen(function, node, depth)
        else:
            yield self._at(function, above)

    def _handed(self, function: Function, call: Node, node: Node, depth: int) -> Iterator[Missing]:
        callee = call.child_by_field_name("function")
        if callee is not None and callee.type == "primitive_type":
            yield from self._index(function, call, depth)
            return
        named = self.library.named(function, call)
        spellings = self.context.tiled.program.vocabulary.spellings
        if named is not None and named[1] and spellings.are("slicing_method", named[0]):
            return
        calls = self.context.tiled.program.calls_by_node.get(call.id, ())
        targets = [
            (c, t) for c in calls if c.caller.file is function.file for t in self.context.tiled.program.targets(c)
        ]
        if not targets:
            yield self._at(function, call)
        for one, target in targets:
            index = next((i for i, a in enumerate(one.args) if a.id == node.id), len(target.params))
            param = target.params[index] if index < len(target.params) else None
            if param is None or target.style is Style.MACRO:
                yield self._at(function, call)
                continue
            for name in find(target.body, "identifier"):
                variable = resolve(target, name, param.name) if target.text(name) == param.name else None
                if variable is not None and variable.param is param:
                    yield from self._index(target, name, depth + 1)

    def _declared(self, function: Function, declarator: Node, depth: int) -> Iterator[Missing]:
        """A number that a variable begins with: all uses of the variable."""
        declaration, named = declarator.parent, declarator.child_by_field_name("declarator")
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        plain = named is not None and named.type == "identifier" and kind is not None and kind.type in _NUMBERS
        if declaration is None or not plain or named is None:
            yield self._at(function, declarator)
            return
        text = function.text(named)
        for other in self._functions():
            if other is not function and not _stands_in(other, function):
                continue
            for name in find(other.body, "identifier"):
                if other.text(name) != text or name.id == named.id:
                    continue
                inner = next((f for f in self._functions() if f is not other and _stands_in(f, other)
                              and f.body.start_byte <= name.start_byte < f.body.end_byte), None)  # fmt: skip
                variable = resolve(other, name, text)
                if inner is None and variable is not None and _is_declaration(variable.declaration, declaration):
                    yield from self._index(other, name, depth + 1)

    def _combined(self, function: Function, whole: Node, node: Node, depth: int) -> Iterator[Missing]:
        """An operation with a constant gives an index, a comparison with one chooses threads."""
        left, right = whole.child_by_field_name("left"), whole.child_by_field_name("right")
        sign = function.text(whole.children[1])
        other = right if left is not None and left.id == node.id else left
        value = self.context.tiled.program.value(function, function.text(other)) if other is not None else None
        if sign in ("&&", "||"):
            yield from self._chosen(function, whole, depth)
        elif value is None and sign in _COMPARISONS:
            yield self._at(function, whole)
        elif value is not None and sign in _COMPARISONS:
            yield from self._chosen(function, whole, depth)
        elif value is not None and sign in _ARITHMETIC:
            yield from self._index(function, whole, depth)
        else:
            yield self._at(function, whole)

    def _chosen(self, function: Function, condition: Node, depth: int) -> Iterator[Missing]:
        """What chosen threads do touches no registers of an accumulator."""
        above = condition.parent
        while above is not None and above.type in _CASTS:
            condition, above = above, above.parent
        if above is None or depth > _DEEPEST:
            yield self._at(function, condition)
        elif above.type == "init_declarator":
            yield from self._declared(function, above, depth)
        elif above.type == "binary_expression" and function.text(above.children[1]) in ("&&", "||"):
            yield from self._chosen(function, above, depth)
        elif above.type in ("unary_expression", "conditional_expression"):
            yield from self._chosen(function, above, depth)
        elif above.type == "assignment_expression":
            left = above.child_by_field_name("left")
            if left is None or left.type != "field_expression":
                yield self._at(function, above)
        elif not _is_condition(above, condition):
            yield self._at(function, above)
        elif self._touches(function, above):
            yield self._at(function, condition, "some warps do something else with registers of an accumulator")

    def _touches(self, function: Function, branch: Node) -> bool:
        """Whether registers of an accumulator are touched in a branch, which is not that of a role with MMAs."""
        if self.context.activity.within(function, branch):
            return False
        return any(
            f.file is function.file and branch.start_byte <= n.start_byte < branch.end_byte for f, n in self._touched
        )

    # --- who waits for whom

    def _waits(self, function: Function, call: Call) -> Iterator[Missing]:
        """Where warps wait for less than their warpgroup, they may hand rows to each other that are others then."""
        found = self.library.named(function, call.node)
        name = found[0] if found is not None else ""
        value = self.context.tiled.program.value
        whole = "NamedBarrier" in name and call.args and (count := value(function, function.text(call.args[0])))
        if name == "__syncwarp" or ("NamedBarrier" in name and (not whole or count % WARPGROUP)):
            yield self._at(function, call.node, "warps wait for less than their warpgroup, and may exchange rows")


def _stands_in(inner: Function, outer: Function) -> bool:
    """Whether one is a lambda of another, at any depth."""
    current = inner.parent if inner.style is Style.LAMBDA else None
    while current is not None and current is not outer:
        current = current.parent if current.style is Style.LAMBDA else None
    return current is outer


def _is_condition(branch: Node, node: Node) -> bool:
    condition = branch.child_by_field_name("condition") if branch.type in _BRANCHES else None
    return condition is not None and condition.start_byte <= node.start_byte < condition.end_byte


def _is_declaration(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id
