# SPDX-License-Identifier: Apache-2.0
"""The first product of a loop's turns: which statements issue it and wait for it, where threads take its results, and
what has to hold for it to be issued a turn ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import above, inside
from porter.model.accumulators import Accumulator
from porter.model.events import Event, Kind, events_of
from porter.model.functions import Style
from porter.model.kernels import Kernel
from porter.model.pipeline.operations import operations_of
from porter.model.pipeline.rings import split_index
from porter.model.scopes import LOOPS, loop_around
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native.next_turn import NextTurn
from porter.passes.native.sites import OfFunction, is_in

ONE_PRODUCT = "a loop that reads what a product gives, and multiplies again with that"
NO_USE = (ONE_PRODUCT,)
"""Why kernels have no use for the step."""


@dataclass(eq=False)
class Product(OfFunction):
    """One accumulator whose MMAs begin each turn of a loop. `moved` are the statements from the beginning of the turn
    to its commit, `wait` that which waits for it, `load` that in front of which its results come to registers.

    Raises:
        Left: it is none.
    """

    context: PortContext
    kernel: Kernel
    moves: Moves
    accumulator: Accumulator

    def __post_init__(self) -> None:
        self.function = self.accumulator.function
        self.program = self.context.program
        loads, stores = self.moves.loads[self.accumulator], self.moves.stores[self.accumulator]
        mine = [e.node for e in self._events if e.kind is Kind.MMA and e.accumulator is self.accumulator]
        if not mine or not loads:
            raise self.left(self.function.body, ONE_PRODUCT)
        if stores:
            raise self.left(mine[0], self._why(loads, mine))
        self.load = loads[0]
        body = self.load.parent
        loop = body.parent if body is not None and body.type == "compound_statement" else None
        is_loop = loop is not None and loop.type in ("for_statement", "while_statement", "do_statement")
        if not is_loop or loop is None or not all(inside(loop, n) for n in mine):
            raise self.left(mine[0], self._why(loads, mine))
        self.loop = loop
        self._in_loop = [e for e in self._events if inside(loop, e.node)]
        assert body is not None
        self.body = body
        last = max(n.start_byte for n in mine)
        if not any(self._is_other(e) and e.node.start_byte > self.load.start_byte for e in self._in_loop):
            raise self.left(self.load, ONE_PRODUCT)
        if len(loads) != 1:
            raise self.left(loads[1], "one place where threads take the results of the first product")
        if last > self.load.start_byte:
            raise self.left(self.load, "all MMAs of the first product in one loop, in the turn that reads them")
        self._split(mine)

    def _why(self, loads: Sequence[Node], mine: Sequence[Node]) -> str:
        """What keeps a product whose results are not read in the block of a loop around its MMAs."""
        around = [n for load in loads for n in above(load, self.function.body) if n.type in LOOPS]
        some = [loop for loop in around if any(inside(loop, n) for n in mine)]
        if some:
            if not all(inside(some[0], n) for n in mine):
                return "all MMAs of the first product in one loop, in the turn that reads them"
            if any(self._is_other(e) for e in self._events if inside(some[0], e.node)):
                return "that every turn of the loop takes the results of the first product, in its own block"
        return ONE_PRODUCT

    @cached_property
    def _events(self) -> list[Event]:
        return events_of(self.context.flow.flow(self.function))

    def _is_other(self, event: Event) -> bool:
        return event.kind is Kind.MMA and event.accumulator is not self.accumulator

    # --- Parts of a turn

    def _split(self, mine: Sequence[Node]) -> None:
        """Find what begins a turn, what waits for it, and what is done until its results are in registers."""
        statements = [n for n in self.body.named_children if n.type not in ("comment", "preproc_call")]
        load = next(i for i, n in enumerate(statements) if n.id == self.load.id)
        last = max(i for i, n in enumerate(statements) if any(inside(n, m) for m in mine))
        waits = [
            i for i, n in enumerate(statements[:load])
            if i > last and any(e.kind is Kind.WAIT and inside(n, e.node) for e in self._in_loop)
        ]  # fmt: skip
        if last >= load or not waits:
            raise self.left(self.load, "a wait for the first product between its MMAs and their results")
        self.wait = statements[waits[0]]
        first = next(i for i, n in enumerate(statements) if not self.stays(n))
        self.moved = statements[first : waits[0]]
        self.done = statements[waits[0] : load]
        self.rest = statements[load:]

    def stays(self, node: Node) -> bool:
        """Whether a statement declares the registers, which are not what is issued ahead."""
        declared = self.accumulator.variable.declaration
        return declared is not None and node.id == declared.id

    def events_in(self, statements: Sequence[Node], *kinds: Kind) -> list[Event]:
        return [e for e in self._in_loop if e.kind in kinds and any(inside(n, e.node) for n in statements)]

    # --- Facts

    def check(self) -> None:
        """Look at what has to hold for it to be issued a turn ahead."""
        if self.function.style not in (Style.KERNEL, Style.DEVICE):
            raise self.left(self.function.body, "a product that a kernel or a function issues, no method or macro")
        home = self.accumulator.home
        if home.depth or home.path or home.is_separate or home.field_name:
            raise self.left(self.load, "one array of registers for the results of the first product")
        self._batches()
        self.next = NextTurn(
            self.program, self.function, self.loop, self.moved, self.done, self.rest,
            frozenset(a.name for a in self.context.accumulators.accumulators if a.function is self.function),
        )  # fmt: skip
        self.next.firsts()
        self._kept()
        self.walk = operations_of(self.program, self.kernel.function).operations
        mine = [o for o in self.walk if is_in(o, self.function, self.moved)]
        self.filled = {split_index(o.barrier)[0] for o in mine if o.kind == "wait"}

    def _batches(self) -> None:
        """How many batches a turn commits."""
        behind = self.events_in(self.rest, Kind.COMMIT)
        for loop in filter(None, (loop_around(event.node, self.body) for event in behind)):
            raise self.left(loop, "how many batches a turn commits")
        self.in_flight = 1 + len(behind)

    def _kept(self) -> None:
        """Declarations of what is issued ahead that the rest of the turn reads as well: they stay beside."""
        self.kept = []
        for statement in self.moved:
            if statement.type != "declaration":
                continue
            later = [v for node in (*self.done, *self.rest) for _, v in self.next.reads(node)]
            named = any(v.declaration is not None and v.declaration.id == statement.id for v in later)
            if named or self.stays(statement):
                self.kept.append(statement)
