# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128 for kernels whose MMAs a library issues: two warpgroups of one tiled MMA, below each
other in M, become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import find
from porter.lang.text import Edit
from porter.model.facts import Index
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Multiply
from porter.passes.full_rate.joining import Consumers
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.renaming import Renamed, places, rename
from porter.passes.full_rate.sameness import Sameness
from porter.passes.full_rate.step import RULE, of_kernel, of_sources, title
from porter.passes.full_rate.turns import turns
from porter.passes.full_rate.waiting import Waiting
from porter.passes.needs import NOTHING
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

_MOST = 8


def take(context: TiledContext) -> int | None:
    """The warp that issues the M=128 MMAs of two warpgroups; None where a fact is missing, which is then named."""
    port = context.port
    kernels = [as_kernel(context, k.function) for k in context.kernels if k.roles is not None]
    if not kernels or len(kernels) != len(context.kernels):
        return None
    edits, found = _joined(context, kernels)
    called = ", ".join(k.function.name for k in kernels)
    for one in {(m.function.file.path, m.span, m.what): m for m in found}.values():
        port.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=called, what=one.what)
    if found:
        return None
    port.edits.setdefault(RULE, []).extend(edits)
    port.helpers.joined, port.helpers.issuer = True, kernels[0].roles.first * (WARPGROUP // WARP)
    return port.helpers.issuer


def as_kernel(context: TiledContext, function: Function) -> Kernel:
    """A kernel as the proofs for inline PTX have it."""
    kernel = next(k for k in context.kernels if k.function is function)
    assert kernel.roles is not None
    return Kernel(function, kernel.setup, kernel.threads, kernel.roles, False, frozenset(), False)


def _joined(context: TiledContext, kernels: Sequence[Kernel]) -> tuple[list[Edit], list[Missing]]:
    """The edits with which one MMA makes the tiles of two warpgroups, and what is not known for it."""
    found = [m for k in kernels for m in _missing(context, kernels[0].roles.first, k)]
    if found:
        return [], found
    edits, found = rename(context.port, [k.function for k in kernels], (), Renamed(cpp("thread_index"), _of_library))
    found += _elsewhere(context, kernels[0].function)
    if not edits:
        found.append(Missing(kernels[0].function, title(kernels[0].function), "nothing in it reads a thread's index"))
    return edits, found


def _of_library(fact: Index) -> str:
    terms = [(" / ", fact.step, 1), (" % ", fact.modulo, 0), (" + ", fact.offset, 0)]
    return cpp(
        "index_of_library",
        thread="first_thread_index()" if fact.uniform else "thread_index()",
        terms="".join(f"{sign}{number}" for sign, number, without in terms if number != without),
    )


def _elsewhere(context: TiledContext, kernel: Function) -> Iterator[Missing]:
    """Text of the port in headers: files that stay at M=64 may share it."""
    root = context.tiled.program.sources.root
    paths = {e.path for edits in context.port.edits.values() for e in edits}
    paths |= {p.file.path for p in places(context.tiled.program)}
    if paths - {root}:
        yield Missing(kernel, title(kernel), "a part of it stands in a header, which other files may share")


def _missing(context: TiledContext, first: int, kernel: Kernel) -> Iterator[Missing]:
    program, function = context.tiled.program, kernel.function
    whole = of_sources(context.port, NOTHING, kernel) or of_kernel(first, kernel)
    if not whole and context.tiled.atoms:
        whole = "it issues MMAs by their atoms, which say nothing about the rows of another warpgroup"
    if whole:
        yield Missing(function, title(function), whole)
        return
    threads = context.port.flow.threads
    consumers = TiledConsumers(program, threads, kernel, context=context)
    yield from consumers.missing()
    yield from Waiting(program, threads, consumers.sameness, kernel).missing()
    for f, span in turns(program, kernel):
        yield Missing(f, span, "the consumers take turns on this named barrier")


@dataclass(eq=False)
class TiledConsumers(Consumers):
    """The two warpgroups of a kernel that run tiled MMAs. That these lie below each other and have the same B, and that
    N is a multiple of 16, the port asserts at compile time."""

    context: TiledContext = field(kw_only=True)

    @cached_property
    def library(self) -> LibraryCalls:
        return LibraryCalls(self.program)

    @cached_property
    def sameness(self) -> Sameness:
        return Sameness(self.program, self.threads, self.kernel.roles.first, self.library)

    @cached_property
    def _uses(self) -> set[int]:
        return self.context.tiled.active

    @cached_property
    def _setting(self) -> set[int]:
        """ids of the functions that come to a setmaxnreg, or say whether an MMA adds to its accumulator."""
        return self.program.reaching([f for f in self.program.functions if any(self._states(f, f.body))])

    def _states(self, function: Function, node: Node) -> Iterator[Node]:
        """What a part of a function states for all warps together."""
        yield from (n for n in find(node, "call_expression") if self.library.of_a_warpgroup(function, n))
        yield from (n for n, _ in self._scales(function, node))

    def _scales(self, function: Function, node: Node) -> Iterator[tuple[Node, Node]]:
        """Assignments that say whether MMAs add to their accumulators, with their values."""
        for assigned in find(node, "assignment_expression"):
            left, right = assigned.child_by_field_name("left"), assigned.child_by_field_name("right")
            member = left.child_by_field_name("field") if left is not None and left.type == "field_expression" else None
            name = function.text(member) if member is not None else ""
            if right is not None and self.program.vocabulary.spellings.are("scale_of_d", name):
                yield assigned, right

    def _matters(self, function: Function, node: Node) -> bool:
        if self.context.activity.within(function, node) or any(self._states(function, node)):
            return True
        unread, key = self.context.tiled.unread, id(function.file)
        if any((key, n.id) in unread for n in find(node, "call_expression")):
            # what clears an accumulator decides whether its registers are stored in front of an MMA
            return True
        at = [n for f, n, _ in self.context.loads if f is function]
        at += [c.node for c in function.calls if any(id(t) in self._setting for t in self.program.targets(c))]
        return any(node.start_byte <= n.start_byte and n.end_byte <= node.end_byte for n in at)

    def _operands(self, function: Function) -> Iterator[Missing]:
        for assigned, value in self._scales(function, function.body):
            if not self.sameness.same(function, value):
                what = "whether an MMA adds to its accumulator may be another answer in the other consumer"
                yield Missing(function, function.span(assigned), what)
        for multiply in self.context.tiled.multiplies:
            if multiply.call.caller is function:
                yield from self._of_multiply(function, multiply)

    def _of_multiply(self, function: Function, multiply: Multiply) -> Iterator[Missing]:
        span = function.span(multiply.call.node)
        if not self.sameness.same(function, multiply.b):
            text = " ".join(function.text(multiply.b).split())
            yield Missing(function, span, f"B `{text}` may be another one in the other consumer")
        if multiply.mma.type not in ("identifier", "field_expression"):
            yield Missing(function, span, "it is not known which tiled MMA this is")
        for name, node in (("A", multiply.a), ("the accumulator", multiply.d)):
            if not self._is_same_part(function, node, 0):
                text = " ".join(function.text(node).split())
                yield Missing(function, span, f"{name} `{text}` may be another part in the other consumer")

    def _is_same_part(self, function: Function, node: Node, depth: int) -> bool:
        """Whether both consumers take the same part of what each has for itself."""
        if depth > _MOST:
            return False
        if node.type == "identifier":
            variable = resolve(function, node, function.text(node))
            if variable is None or variable.ambiguous:
                return False
            if variable.param is not None and variable.function.style is not Style.KERNEL:
                index, calls = variable.param.index, self.program.callers(variable.function)
                return bool(calls) and all(
                    index < len(c.args) and self._is_same_part(c.caller, c.args[index], depth + 1) for c in calls
                )
            declarator = variable.declarator
            value = declarator.child_by_field_name("value") if declarator is not None else None
            if value is None or self.library.element_of(variable.function, value) is None:
                return True
            return self._is_same_part(variable.function, value, depth + 1)
        element = self.library.element_of(function, node)
        arguments = node.child_by_field_name("arguments")
        if element is None or arguments is None:
            return self.sameness.same(function, node)
        return self.sameness.same(function, arguments) and self._is_same_part(function, element, depth + 1)
