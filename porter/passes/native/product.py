# SPDX-License-Identifier: Apache-2.0
"""The first product of a loop's turns: which statements issue it and wait for it, where threads take its results, and
what has to hold for it to be issued a turn ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from porter.model.accumulators import Accumulator
from porter.model.events import Event, Kind, events_of
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel
from porter.model.pipeline.operations import Operation, operations_of
from porter.model.pipeline.read import pipeline_of
from porter.model.pipeline.rings import split_index
from porter.model.pipeline.who import Who
from porter.model.scopes import LOOPS, loop_around
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native.mainloop import inside
from porter.passes.native.next_turn import NextTurn
from porter.passes.native.sites import Left
from porter.ptx.arch import Limits

ONE_PRODUCT = "a loop that reads what a product gives, and multiplies again with that"
NO_USE = (ONE_PRODUCT,)
"""Why kernels have no use for the step."""
_SHARED_RING, _OWN_RING = 4, 2
"""Stages that a ring needs at least: while threads wait for the next turn's operand they hold what they have of this
turn, and the one who loads may bring operands in any order in a turn."""


@dataclass(eq=False)
class Product:
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
            raise self._left(self.function.body, ONE_PRODUCT)
        if stores:
            raise self._left(mine[0], self._why(loads, mine))
        self.load = loads[0]
        loop = self.load.parent.parent if self.load.parent is not None else None
        is_loop = loop is not None and loop.type in ("for_statement", "while_statement", "do_statement")
        if not is_loop or loop is None or not all(inside(loop, n) for n in mine):
            raise self._left(mine[0], self._why(loads, mine))
        self.loop = loop
        body = loop.child_by_field_name("body")
        if body is None or body.type != "compound_statement":
            raise self._left(loop, "statements of a loop in braces")
        self.body = body
        last = max(n.start_byte for n in mine)
        if not any(self._is_other(e) and e.node.start_byte > self.load.start_byte for e in self._in_loop):
            raise self._left(self.load, ONE_PRODUCT)
        if len(loads) != 1:
            raise self._left(loads[1], "one place where threads take the results of the first product")
        if last > self.load.start_byte:
            raise self._left(self.load, "all MMAs of the first product in one loop, in the turn that reads them")
        self._split(mine)

    def _why(self, loads: Sequence[Node], mine: Sequence[Node]) -> str:
        """What keeps a product whose results are not read in the block of a loop around its MMAs."""
        around = [n for load in loads for n in _loops_around(load, self.function)]
        if any(inside(loop, n) for loop in around for n in mine):
            some = [loop for loop in around if any(inside(loop, n) for n in mine)]
            if not all(inside(some[0], n) for n in mine):
                return "all MMAs of the first product in one loop, in the turn that reads them"
            if any(self._is_other(e) for e in self._events if inside(some[0], e.node)):
                return "that every turn of the loop takes the results of the first product, in its own block"
        return ONE_PRODUCT

    def _left(self, node: Node, what: str) -> Left:
        return Left(self.function, self.function.span(node), what)

    @cached_property
    def _events(self) -> list[Event]:
        return events_of(self.context.flow.flow(self.function))

    @property
    def _in_loop(self) -> list[Event]:
        return [e for e in self._events if inside(self.loop, e.node)]

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
            raise self._left(self.load, "a wait for the first product between its MMAs and their results")
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
        """
        Raises:
            Left: a fact is missing.
        """
        if self.function.style not in (Style.KERNEL, Style.DEVICE):
            raise self._left(self.function.body, "a product that a kernel or a function issues, no method or macro")
        home = self.accumulator.home
        if home.depth or home.path or home.is_separate or home.field_name:
            raise self._left(self.load, "one array of registers for the results of the first product")
        self._batches()
        self._results()
        self.next = NextTurn(
            self.program, self.function, self.loop, self.moved, self.done, self.rest,
            frozenset(a.name for a in self.context.accumulators.accumulators if a.function is self.function),
        )  # fmt: skip
        self.next.firsts()
        self._kept()
        self._threads()

    def _batches(self) -> None:
        """That the first product is a batch by itself, and that all waits are for all batches: only so does another
        order of two batches change nothing for who waits."""
        commits = self.events_in(self.moved, Kind.COMMIT)
        mmas = self.events_in(self.moved, Kind.MMA)
        if len(commits) != 1 or any(e.node.start_byte > commits[0].node.start_byte for e in mmas):
            raise self._left(self.moved[-1], "one commit behind the MMAs of the first product")
        if any(self._is_other(e) for e in mmas):
            raise self._left(self.moved[0], "a batch of the first product alone")
        fences = self.events_in(self.moved, Kind.FENCE)
        first = min(e.node.start_byte for e in mmas)
        if not any(e.node.start_byte <= first for e in fences):
            raise self._left(self.moved[0], "wgmma.fence ahead of the first product: threads meet there")
        for node in self.moved:
            if node.type in ("if_statement", "switch_statement") and any(inside(node, e.node) for e in mmas):
                raise self._left(node, "a first product that every turn issues")
        for event in self.events_in([self.body], Kind.WAIT):
            if event.pending != 0:
                raise self._left(event.node, "waits for all MMAs (wait_group 0)")
        if self.events_in(self.moved, Kind.WAIT):
            raise self._left(self.moved[0], "one wait for the first product, behind it")
        if other := self.events_in(self.done, Kind.MMA, Kind.COMMIT):
            raise self._left(other[0].node, "no MMAs until the first product's results are in registers")
        behind = self.events_in(self.rest, Kind.COMMIT)
        second = self.events_in(self.rest, Kind.MMA)
        if not behind or second[-1].node.start_byte > behind[-1].node.start_byte:
            raise self._left(second[-1].node, "a commit of the turn's last MMAs in that turn")
        for event in behind:
            if (loop := loop_around(event.node, self.body)) is not None:
                raise self._left(loop, "how many batches a turn commits")
        self.in_flight = 1 + len(behind)

    def _results(self) -> None:
        """That accumulators move to registers and back behind the first product alone."""
        touched = [
            (a, n) for found in (self.moves.loads, self.moves.stores) for a, nodes in found.items() for n in nodes
        ]
        for accumulator, node in touched:
            if accumulator.function is self.function and any(inside(s, node) for s in (*self.moved, *self.done)):
                raise self._left(node, "that no thread reads or writes sums until the first product is complete")

    def _kept(self) -> None:
        """Declarations of what is issued ahead that the rest of the turn reads as well: they stay beside."""
        self.kept = []
        for statement in self.moved:
            if statement.type != "declaration":
                continue
            if self.stays(statement):
                self.kept.append(statement)
                continue
            later = [v for node in (*self.done, *self.rest) for _, v in self.next.reads(node)]
            if any(v.declaration is not None and v.declaration.id == statement.id for v in later):
                self.kept.append(statement)

    # --- Who loads

    def _threads(self) -> None:
        """That others load what the first product reads, and need nothing of this turn for it that comes later."""
        kernel = self.kernel.function
        walk = operations_of(self.program, kernel)
        if walk.too_deep or any(o.kind == "unread" or "?" in o.barrier for o in walk.operations):
            raise Left(kernel, kernel.span(kernel.body), "what is done with mbarriers and copies in this kernel")
        threads = self.program.constants_in(kernel).evaluate(self.kernel.threads or "")
        who = Who(self.program, min(threads or Limits.threads_per_block, Limits.threads_per_block))
        runs: dict[int, frozenset[int]] = {}

        def run_by(operation: Operation) -> frozenset[int]:
            if id(operation) not in runs:
                found = who.runs(operation.sites)
                if found.threads is None:
                    raise self._at(operation, f"which threads `{found.unknown}` lets through")
                runs[id(operation)] = found.threads
            return runs[id(operation)]

        mine = [o for o in walk.operations if self._is_in(o, self.moved)]
        multiplies = [o for o in mine if o.kind == "mma"]
        if not multiplies:
            raise self._left(self.moved[0], "which statements multiply")
        if any(o.a_registers for o in multiplies) or any(o.kind not in ("mma", "wait", "ask") for o in mine):
            raise self._left(self.moved[0], "a first product of operands in shared memory, which others load")
        consumers = frozenset[int]().union(*map(run_by, multiplies))
        self.walk = walk.operations
        names = self.filled = {split_index(o.barrier)[0] for o in mine if o.kind == "wait"}
        if not names:
            raise self._left(self.moved[0], "an mbarrier that says when the first product's operands are there")
        loaders: set[int] = set()
        for operation in (o for o in walk.operations if o.barrier and split_index(o.barrier)[0] in names):
            if operation.kind in ("arrive", "arrive_tx", "expect_tx", "copy"):
                if run_by(operation) & consumers:
                    raise self._at(operation, "that others than those who multiply load operands")
                loaders |= run_by(operation)
        self._rings(walk.operations, names, loaders, consumers, run_by)

    def _rings(
        self,
        operations: Sequence[Operation],
        full: set[str],
        loaders: set[int],
        consumers: frozenset[int],
        run_by: object,
    ) -> None:
        assert callable(run_by)
        facts = pipeline_of(self.program, self.kernel.function)
        second = {
            split_index(o.barrier)[0]
            for o in operations
            if o.kind == "wait" and (self._is_in(o, self.rest) or self._is_in(o, self.done))
        }
        waited = {split_index(o.barrier)[0] for o in operations if o.kind == "wait" and run_by(o) & loaders}
        for name in sorted(waited):
            given = [
                o for o in operations
                if o.kind == "arrive" and split_index(o.barrier)[0] == name and run_by(o) & consumers
            ]  # fmt: skip
            here = [o for o in given if self._is_in(o, [self.body])]
            if not here:
                continue
            stages = next((r.stages.value for r in facts.rings if r.barrier == name and r.stages is not None), None)
            if stages is None:
                extent = next((b.extent for b in facts.barriers if b.name == name), None)
                stages = extent.value if extent is not None else None
            if any(self._is_in(o, self.moved) for o in here):
                raise self._at(here[0], "stages that are given back behind the wait for their MMAs")
            shared = bool(full & second) or len(here) > 1
            needed = _SHARED_RING if shared else _OWN_RING
            if stages is None:
                raise self._at(here[0], f"how many stages {name} is for")
            if stages < needed:
                raise self._at(here[0], f"{needed} stages of {name}: threads hold those of a turn, and need the next's")

    def _is_in(self, operation: Operation, statements: Sequence[Node]) -> bool:
        return any(
            s.frame.function is self.function and any(inside(n, s.node) for n in statements) for s in operation.sites
        )

    @staticmethod
    def _at(operation: Operation, what: str) -> Left:
        site = operation.sites[0]
        return Left(site.frame.function, site.frame.function.span(site.node), what)


def _loops_around(node: Node, function: Function) -> list[Node]:
    found = []
    above = node.parent
    while above is not None and above.id != function.body.id:
        if above.type in LOOPS:
            found.append(above)
        above = above.parent
    return found
