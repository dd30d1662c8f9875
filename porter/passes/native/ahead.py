# SPDX-License-Identifier: Apache-2.0
"""The first product of a loop's turn is issued a turn ahead: once threads have its last results in registers, and
before they compute from them. So the tensor core multiplies meanwhile, and in the next turn nobody waits for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from porter.lang.cuda import inside
from porter.lang.text import Span
from porter.model.kernels import Kernel
from porter.passes import emit, epilogue
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native.product import NO_USE, ONE_PRODUCT, Product
from porter.passes.native.second import second_of
from porter.passes.native.sites import Changes, Left, OfFunction, Place, own_lines
from porter.passes.native.texts import lines_at, ported_text, tile_lines
from porter.steps.step import Step

RULE = "PTR280"
NAME = "ahead"


def take(context: PortContext, moves: Moves) -> Changes:
    """The edits of the step, for all kernels."""
    changes = Changes(context, RULE)
    first = Place(context.kernels[0].function, context.kernels[0].function.body)
    if context.helpers.sync_in_wait:
        raise first.left("wgmma.fence ahead of each batch")
    if context.helpers.tracked:
        raise first.left("where sums are read and written")
    rings = []
    done: set[int] = set()
    for kernel in context.kernels:
        product = _product(context, kernel, moves)
        product.check()
        if product.loop.id not in done:
            done.add(product.loop.id)
            _Ahead(product).write(changes)
        rings.append(product.in_flight)
    context.helpers.ring = max(context.helpers.ring, *rings)
    context.batches = replace(context.batches, ring=context.helpers.ring)
    return changes


def _product(context: PortContext, kernel: Kernel, moves: Moves) -> Product:
    """The first product of a kernel's loop: the only one, or there is no such step."""
    found, why = [], None
    for accumulator in context.accumulators.accumulators:
        if id(kernel.function) in context.program.reaching([accumulator.function]):
            try:
                found.append(Product(context, kernel, moves, accumulator))
            except Left as left:
                why = why or (left if left.what not in NO_USE else None)
    function = kernel.function
    if len(found) == 1:
        return found[0]
    if why is not None and not found:
        raise why
    what = "one product of a turn that threads compute from" if found else ONE_PRODUCT
    raise Left(function, function.span(function.body), what)


@dataclass(eq=False)
class _Ahead(OfFunction):
    """The edits for one product, and for the one behind it."""

    product: Product

    def __post_init__(self) -> None:
        product = self.product
        self.context, self.function, self.moves = product.context, product.function, product.moves
        self.accumulator, self.loop, self.load = product.accumulator, product.loop, product.load
        self.moved, self.kept, self.next = product.moved, product.kept, product.next
        self.second = second_of(product)

    def write(self, changes: Changes) -> None:
        function, names = self.function, self.context.names
        issue = names.fresh("issue_ahead")
        firsts = self.next.firsts()
        params = ", ".join(f"{kind} {name}" for kind, name, _ in firsts)
        tile = names.tile(self.accumulator)
        inner = "    "
        second = self.second
        condition = " ".join(function.text(self.next.condition).split())
        lines = [
            "// The first product of a turn, issued while threads compute from that of the turn before.",
            f"const auto {issue} = [&]({params}) __attribute__((always_inline)) {{",
            f"{inner}if (!({condition})) return{' false' if second else ''};",
            *(f"{inner}{line}" for line in self._tile()),
            *self._issued(inner),
            *(f"{inner}{line}" for line in emit.lines("begun", tile=tile).splitlines()),
            *([f"{inner}return true;"] if second else []),
            "};",
            *(second.ahead() if second else []),
            f"{issue}({', '.join(value for *_, value in firsts)});",
        ]
        changes.before(Place(function, self.loop), "\n".join(lines))
        self._without(changes)
        if second is not None:
            second.write(changes)
        self._call(changes, issue, [name for _, name, _ in firsts], tile)

    def _tile(self) -> list[str]:
        """The declaration of the accumulator in a turn, if it has one of its own."""
        declared = self.accumulator.variable.declaration
        if declared is None or not inside(self.loop, declared):
            return []
        tile = re.compile(rf"\b{re.escape(self.context.names.tile(self.accumulator))}\b")
        found = [line for line in tile_lines(self.context, self.accumulator) if tile.search(line)]
        if not found:
            raise self.left(declared, "where the accumulator of the first product is declared")
        return found

    def _span(self) -> Span:
        """Whole lines of what is issued ahead."""
        first = self.context.before(self.function, self.moved[0]).start
        lines = own_lines(self.function, Span(first, self.function.span(self.moved[-1]).end))
        return Span(lines.start, lines.end + 1)

    def _issued(self, inner: str) -> list[str]:
        function = self.function
        span = self._span()
        text = ported_text(self.context, function, span)
        pad = self.context.indent(function, function.span(self.moved[0]))
        lines = (line for line in text.replace("\r\n", "\n").split("\n") if line.strip())
        return [inner + (line[len(pad) :] if line.startswith(pad) else line.lstrip()) for line in lines]

    def _without(self, changes: Changes) -> None:
        """What is issued ahead leaves the turn, but for declarations that the rest of it reads."""
        function = self.function
        texts = []
        for statement in self.kept:
            texts += lines_at(
                self.context, function, statement, self.context.indent(function, function.span(statement))
            )
        changes.whole(function, self._span(), "".join(f"{line}\n" for line in texts))

    def _call(self, changes: Changes, issue: str, names: Sequence[str], tile: str) -> None:
        """Behind the load of the results."""
        function = self.function
        second = self.second
        given = f"const bool {second.issued} = " if second is not None else ""
        captures = ", ".join(["&", *(f"{n} = {n}" for n in names)])
        updates = [f"    {line}" for node in self.next.updates for line in self._updated(node)]
        lines = [
            f"{given}[{captures}]() mutable __attribute__((always_inline)) {{",
            *updates,
            f"    {'return ' if given else ''}{issue}({', '.join(names)});",
            "}();",
            *(second.at_once() if second is not None else []),
        ]
        ahead, at = epilogue.spans_of_moves(self.context, self.accumulator, self.load)[0]
        load = epilogue.load_of(self.context, self.accumulator)
        changes.without(ahead, function, at)
        others = [
            a for a, nodes in self.moves.loads.items()
            if a is not self.accumulator and a.function is function and any(n.id == self.load.id for n in nodes)
        ]  # fmt: skip
        loads = [epilogue.load_of(self.context, a) for a in others]
        text = "\n".join([f"{tile}.accumulate = true;", load, *loads, *lines])
        span, whole = self.context.statement_before(function, self.load, text, behind_labels=True)
        changes.replace(function, span, whole)

    def _updated(self, node: Node) -> list[str]:
        lines = lines_at(self.context, self.function, node)
        update = self.loop.child_by_field_name("update")
        return [f"{lines[0]};"] if update is not None and node.id == update.id and len(lines) == 1 else lines


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context, taking.moves).make(), follows=("stages",), chosen=True, cost=True
)
