# SPDX-License-Identifier: Apache-2.0
"""A kernel as the rules of SM100's own words look at it: its accumulator, its tiled MMA, who multiplies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.block_size import threads_of
from porter.model.facts import Index
from porter.model.functions import Call, Function, declared_name, outermost
from porter.model.kernels import top_level
from porter.model.program import Program
from porter.model.roles import warpgroup_roles
from porter.model.thread_values import several_dimensions
from porter.model.tiled.accumulators import Handle, Multiply, Tiled
from porter.model.tiled.activity import Activity
from porter.passes.context import PortContext
from porter.passes.full_rate.proposing import Boxes
from porter.passes.idiom.asked import Asked
from porter.passes.idiom.draft import Draft
from porter.passes.idiom.text import cpp, qualifier
from porter.passes.idiom.types import Types
from porter.passes.native.sites import Left
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

_TILE = re.compile(r"\bShape\s*<\s*(?:\w+::)*Int\s*<\s*([\w:]+)\s*>\s*,\s*(?:\w+::)*Int\s*<\s*([\w:]+)\s*>")
_REGISTERS = re.compile(r"\At(\w)r(\w+)\Z")


@dataclass(eq=False)
class Site:
    """One kernel and its accumulator, `handle`, to which `multiplies` add."""

    port: PortContext
    tiled: Tiled
    activity: Activity
    draft: Draft
    kernel: Function
    handle: Handle
    multiplies: list[Multiply]
    accumulators: int = 1
    types: Types = field(init=False)
    every: frozenset[Types] = frozenset()
    """Those of all instantiations; `types` are of the widest."""
    first_warpgroup: int = 0
    warpgroups: int | None = None
    """How many warpgroups multiply, by the branches that lead there; None if that is an expression."""
    count: str = ""
    """The same as an expression."""
    threads: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    allocated: str = ""
    """Columns of Tensor Memory, where they are not those of the accumulator alone."""
    allocated_at: int = 0
    """The byte in front of which they are allocated."""
    groups: int = 0
    """Warpgroups that issue MMAs, each with mbarriers of its own; 0 where one warp issues those of all."""
    columns_apart: bool = False
    """Whether each warpgroup has all lanes of columns of its own."""
    meets_whole: bool = False
    """Whether a warpgroup meets by the barrier of all threads."""
    asked: Asked = field(default_factory=Asked)
    boxes: Boxes | None = None
    rewritten: list[Node] = field(default_factory=list)
    """Calls of threads' parts that are written anew as a whole."""
    is_named: bool = False
    """Whether `tensor` is taken."""
    rotates: bool = False
    """Whether accumulators are handed over by a pipeline, from a warp of its own that issues, tile by tile."""

    def __post_init__(self) -> None:
        self.c = qualifier(self.port.program)
        register = _REGISTERS.match(self.handle.name)
        files = self.port.program.sources.files.values()
        self._words = {w.decode() for f in files for w in re.findall(rb"[A-Za-z_]\w*", f.lexed.code)}
        self.tensor = self.fresh(f"t{register[1]}t{register[2]}" if register else "tCtC")

    @property
    def program(self) -> Program:
        return self.port.program

    @property
    def at(self) -> Node:
        """The node of the kernel that declares its accumulator, or calls who does."""
        if outermost(self.handle.function) is self.kernel:
            return self.handle.declaration
        return min((c.node for c in self.calls_to(self.handle.function)), key=lambda n: n.start_byte)

    def calls_to(self, function: Function) -> list[Call]:
        """Calls in the kernel by which it comes to a function."""
        reaching, targets = self.program.reaching([function]), self.program.targets
        calls = (c for f in self.program.functions if outermost(f) is self.kernel for c in f.calls)
        return [c for c in calls if any(id(t) in reaching and outermost(t) is not self.kernel for t in targets(c))]

    def left(self, node: Node, what: str, function: Function | None = None) -> Left:
        where = function or self.kernel
        return Left(where, where.span(node) if node != where.body else where.head, what)

    def name(self, wanted: str) -> str:
        """A name of the port's in this kernel."""
        if wanted not in self.names:
            self.names[wanted] = self.fresh(wanted)
        return self.names[wanted]

    def fresh(self, wanted: str) -> str:
        """A name that no code of the sources has."""
        name, number = wanted, 1
        while name in self._words:
            number += 1
            name = f"{wanted}{number}"
        self._words.add(name)
        return name

    @property
    def mma(self) -> str:
        """The tiled MMA, as the kernel names it."""
        function, node = self.handle.mma or (self.kernel, self.kernel.body)
        if function is not self.kernel or node.type != "identifier":
            raise self.left(self.handle.declaration, f"the tiled MMA of `{self.handle.name}`, by a name of the kernel")
        text = function.text(node)
        return self.slices.get(text, text)

    @property
    def slices(self) -> dict[str, str]:
        """Threads' parts of tiled MMAs in the kernel, by name, with the MMA that each is of."""
        found = {}
        for declarator in find(self.kernel.body, "init_declarator"):
            name, value = declared_name(declarator), declarator.child_by_field_name("value")
            match = re.fullmatch(r"(\w+)\s*\.\s*get_(?:thread_)?slice\s*\(.*\)", self.kernel.text(value), re.DOTALL) \
                if value is not None else None  # fmt: skip
            if name is not None and match is not None and match[1] in self._mmas:
                found[self.kernel.text(name)] = match[1]
        return found

    @property
    def _mmas(self) -> set[str]:
        """What multiplies in the kernel, or in what it hands its MMA to, are handed as the MMA."""
        found = set()
        for multiply in self.multiplies:
            for _, node in self.tiled.handed_in(multiply.call.caller, multiply.mma):
                found.add(self.kernel.text(node) if node.type == "identifier" else "")
        return found

    @property
    def tile_names(self) -> tuple[str, str] | None:
        """The kernel's names of the rows and columns of its tile; None if it has numbers."""
        value: Node | None = self.handle.value
        for _ in range(4):
            if value is None:
                return None
            match = _TILE.search(self.kernel.text(value))
            if match is not None:
                return (match[1], match[2]) if not match[1].isdigit() and not match[2].isdigit() else None
            arguments = value.child_by_field_name("arguments")
            last = arguments.named_children[-1] if arguments is not None and arguments.named_children else None
            inner = next((n for n in find(last, "identifier")), None) if last is not None else None
            value = self.value_of(self.kernel.text(inner)) if inner is not None else None
        return None

    def value_of(self, name: str) -> Node | None:
        """What the only local variable of a name is declared with."""
        found = [
            d
            for d in find(self.kernel.body, "init_declarator")
            if (n := declared_name(d)) is not None and self.kernel.text(n) == name
        ]
        return found[0].child_by_field_name("value") if len(found) == 1 else None

    def declared_as(self, step: int, before: int) -> str:
        """A variable at the top of the kernel, in front of a byte, that is the index of a thread's group of so many."""
        for statement in top_level(self.kernel):
            if statement.type != "declaration" or statement.start_byte >= before:
                continue
            for declarator in statement.children_by_field_name("declarator"):
                value, name = declarator.child_by_field_name("value"), declared_name(declarator)
                if value is None or name is None or not self._is_index(value, step):
                    continue
                written = [n for n in self.kernel.named(self.kernel.text(name)) if _is_written(n)]
                if not written:
                    return self.kernel.text(name)
        return ""

    def _is_index(self, value: Node, step: int) -> bool:
        """Whether a call gives the index of a thread's group of so many, the same to all threads of a warp."""
        call = self.tiled.tensors.call(self.kernel, value) if value.type == "call_expression" else None
        fact = self.program.facts.of_call(call) if call is not None else None
        return isinstance(fact, Index) and (fact.step, fact.modulo, fact.offset, fact.uniform) == (step, 0, 0, True)

    def warp_at(self, before: int) -> str:
        return self.declared_as(WARP, before)

    @property
    def warpgroup_index(self) -> str:
        """The index of a thread's warpgroup among those that multiply."""
        name = self.declared_as(WARPGROUP, self.at.start_byte)
        base = name or "int(threadIdx.x) / 128"
        return f"{base} - {self.first_warpgroup}" if self.first_warpgroup else base

    def comes_to(self, function: Function) -> bool:
        """Whether the kernel calls a function, itself or through others."""
        return id(self.kernel) in self.program.reaching([function])

    def is_shared(self, function: Function) -> bool:
        """Whether another kernel of the sources comes to a function, too."""
        reaching = self.program.reaching([function])
        return any(id(k) in reaching for k in self.program.kernels if k is not self.kernel)

    @property
    def first_warp(self) -> int:
        return self.first_warpgroup * (WARPGROUP // WARP)

    @property
    def issuing_warp(self) -> int:
        """The warp that issues MMAs: of its own it is the last one of the warpgroup in front of those that multiply."""
        return self.first_warp - self.asked.issuer

    @property
    def multiplying_threads(self) -> str:
        """How many threads multiply: as the kernel says it of its pipeline, else a number."""
        count = self.types.threads
        for node in find(self.kernel.body, "assignment_expression"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            field = left.child_by_field_name("field") if left is not None else None
            if field is not None and right is not None and self.kernel.text(field) == "num_consumers":
                text = self.kernel.text(right)
                if self.program.constants_in(self.kernel).evaluate(text) == count:
                    return text
        return str(count)

    @property
    def is_whole(self) -> bool:
        """Whether all threads of a block multiply."""
        if self.first_warpgroup or self.threads is None:
            return False
        value = self.program.constants_in(self.kernel).evaluate(self.threads)
        return value == self.types.threads or bool(re.search(r"\bsize\s*\(", self.threads))

    @property
    def columns(self) -> int:
        """Columns of Tensor Memory, as many as can be allocated."""
        of_operand = self.types.depth * self.types.bits // 32 * max(1, self.types.rows // 128)
        wanted = max(32, self.types.rows // 128 * self.types.columns + of_operand)
        return 1 << (wanted - 1).bit_length()

    @property
    def columns_text(self) -> str:
        if self.allocated:
            return self.allocated
        names = self.tile_names
        named = names is not None and self.types.rows == 128 and not self.types.depth
        whole = all(t.columns >= 32 and t.columns & (t.columns - 1) == 0 for t in self.every)
        return self.of_mma(names[1]) if names is not None and named and whole else str(self.columns)

    def of_mma(self, columns: str) -> str:
        """Columns of an MMA, by those of a tile."""
        if not self.asked.wide:
            return columns
        return str(2 * int(columns)) if columns.isdigit() else f"2 * {columns}"

    @property
    def cluster(self) -> str:
        """The shape of a cluster of a pair; empty where CTAs multiply alone."""
        return cpp("shape_of_pair", c=self.c) if self.asked.pair else ""

    @property
    def allocated_columns(self) -> str:
        """Columns of all accumulators that take turns."""
        text, buffers = self.columns_text, self.asked.buffers
        if text.startswith("2 * "):
            return f"{2 * buffers} * {text.removeprefix('2 * ')}"
        return text if buffers == 1 else f"{buffers} * {text}"

    @property
    def unit(self) -> str:
        """By how much the file indents."""
        body = top_level(self.kernel)[0]
        inner = self.port.indent(self.kernel, self.kernel.span(body))
        return "  " if inner == "  " else "\t" if inner.startswith("\t") else "    "


def _is_written(name: Node) -> bool:
    above = name.parent
    if above is None:
        return False
    if above.type == "update_expression":
        return True
    return above.type == "assignment_expression" and above.child_by_field_name("left") == name


def sites_of(port: PortContext, tiled: Tiled, draft: Draft) -> Iterator[Site]:
    """The kernels of a program, each with its accumulator.

    Raises:
        Left: one has none, or several.
    """
    program, activity = port.program, Activity(tiled)
    if tiled.atoms:
        call = tiled.atoms[0].call
        raise Left(call.caller, call.caller.span(call.node), "MMAs by a TiledMMA: an atom is called by hand")
    for kernel in program.kernels:
        if id(kernel) not in tiled.active:
            continue
        handles = [h for h in tiled.fragments if id(kernel) in program.reaching([h.function])]
        if not handles:
            raise Left(kernel, kernel.head, "one accumulator, declared in the kernel: there are 0")
        if several_dimensions(program):
            raise Left(kernel, kernel.head, "blocks of one dimension")
        found = [m for m in tiled.multiplies if id(kernel) in program.reaching([m.call.caller])]
        own = [h for h in handles if h.function is kernel]
        first = min(own or handles, key=lambda h: h.declaration.start_byte)
        site = Site(port, tiled, activity, draft, kernel, first, found)
        site.accumulators = len(handles)
        site.threads = threads_of(program, kernel)
        roles = warpgroup_roles(
            program, kernel, top_level(kernel), partial(activity.within, kernel), site.threads,
            program.constants_in(kernel),
        )  # fmt: skip
        if not roles.exact:
            raise Left(kernel, kernel.head, "which warpgroups of a block multiply")
        site.first_warpgroup, site.warpgroups, site.count = roles.first, roles.value, roles.count
        yield site


def inside(outer: Node | Span, inner: Node) -> bool:
    start, end = (outer.start, outer.end) if isinstance(outer, Span) else (outer.start_byte, outer.end_byte)
    return start <= inner.start_byte and inner.end_byte <= end
