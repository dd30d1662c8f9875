# SPDX-License-Identifier: Apache-2.0
"""Where sums go between registers and Tensor Memory: to registers behind the wait for the MMAs of a loop or statement
that leaves registers alone, and back in front of the next ones that add to what registers hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.facts import Fence, Wait, Zero
from porter.model.functions import Function
from porter.model.scopes import LOOPS, loop_around
from porter.model.tiled.accumulators import Multiply
from porter.passes.idiom.arms import Arms
from porter.passes.idiom.events import Events
from porter.passes.idiom.fragments import Fragments, Sum
from porter.passes.idiom.places import calls_in
from porter.passes.idiom.site import inside
from porter.passes.native.sites import Left
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.names import Names

_ZERO = re.compile(r"::\s*Zero\Z")
_SOME, _NOTHING, _UNKNOWN = "some", "nothing", "unknown"


@dataclass(eq=False)
class Move:
    """A sum that goes to registers behind a statement, or from there in front of one."""

    sum: Sum
    at: Node = field(repr=False)


@dataclass(eq=False)
class Residence:
    """Of the sums to which one function or lambda adds. Registers of others, which hand them over or stand around it,
    hold sums where it begins and where it ends.

    Raises:
        Left: MMAs have no wait behind them in front of what uses their sums.
    """

    fragments: Fragments
    scope: Function
    events: Events
    context: TiledContext
    names: Names
    arms: Arms
    loads: list[Move] = field(default_factory=list)
    """Behind waits, and behind loops that wait themselves."""
    stores: list[Move] = field(default_factory=list)
    """In front of what opens a batch, or of a loop that does."""
    cleared: dict[int, Node] = field(default_factory=dict)
    """Statements that multiply, by id, whose first step clears, with the call that set registers to zero."""

    def __post_init__(self) -> None:
        self.site, self.place = self.fragments.site, self.fragments.place
        tiled = self.site.tiled
        self._mentions = list(self.names.mentions())
        syncs = [s for s in tiled.synchronizations if s.call.caller is self.scope]
        syncs = [s for s in syncs if self.arms.is_live(self.scope, s.call.node)]
        gemms, calls = self.place.gemms, [m.call for m in self.place.multiplies if m.call.caller is self.scope]
        self.called = [c.node for c in calls if c.node.id in gemms]
        """Calls of functions that open a batch and multiply."""
        waiting = [c.node for c in calls if c.node.id in gemms and gemms[c.node.id].waits(c)]
        self.waits = [*(s.call.node for s in syncs if isinstance(s.fact, Wait)), *waiting]
        self.opens = [*(s.call.node for s in syncs if isinstance(s.fact, Fence)), *self.called]
        pending = {w.id: self._pending(w) for w in self.waits}
        self.idle = [w for w in self.waits if pending[w.id] == _NOTHING]
        """Waits for nothing, as each one waits for all MMAs in front of it."""
        self.unsure = [w for w in self.waits if pending[w.id] == _UNKNOWN]
        self.waits = [w for w in self.waits if w not in self.idle]
        for node in (*(s.call.node for s in syncs), *self.called):
            statement = node.parent
            around = statement.parent if statement is not None and statement.type == "expression_statement" else None
            if around is None or around.type != "compound_statement":
                raise self._left(node, "what opens, closes or waits for a batch as a statement in braces")
        for total in self.fragments.sums:
            if any(m.call.caller is self.scope for m in total.multiplies):
                self._settle(total)

    def _pending(self, wait: Node) -> str:
        """Whether MMAs may be pending at a wait: some that were issued since the last one."""
        if wait in self.called:
            return _SOME
        current, ended = wait.parent, [*self.waits, *calls_in(self.place, self.scope)]
        while current is not None and current.id != self.scope.body.id:
            for before in _in_front(current):
                opens, ends = ([n for n in nodes if inside(before, n)] for nodes in (self.opens, ended))
                if before.type == "expression_statement" and ends:
                    return _NOTHING
                if opens or ends:
                    return _UNKNOWN if ends else _SOME
            current = current.parent
            if current is not None and current.type in LOOPS:
                return _UNKNOWN
        return _NOTHING

    def _left(self, node: Node, what: str) -> Left:
        return self.place.left(node, what, self.scope)

    def multiplies(self, one: Sum) -> list[Multiply]:
        """Those of the scope that add to a sum."""
        return [m for m in one.multiplies if m.call.caller is self.scope]

    @property
    def active(self) -> list[Node]:
        """Where batches are opened and waited for, and what sums move in front of or behind."""
        return [*(m.at for m in (*self.loads, *self.stores)), *self.waits, *self.opens]

    def is_around(self, one: Sum) -> bool:
        """Whether others have the registers of a sum."""
        return one.is_handed or one.handle.function is not self.scope

    # --- what uses registers

    def _touches(self, one: Sum) -> list[Node]:
        """Where registers of a sum are used, by calls of lambdas with MMAs among others."""
        found, tiled = list(calls_in(self.place, self.scope)), self.site.tiled
        for function, node, key in self._mentions:
            if self.context.flight.root(tiled.handles[key]) is one.handle:
                if not self.arms.is_live(function, node):
                    continue
                if function is self.scope:
                    found.append(node)
                elif function not in self.place.scopes:
                    raise self.place.left(node, f"what uses `{one.handle.name}` where MMAs add to it", function)
        return found

    def _clears(self, one: Sum) -> list[Node]:
        """Calls that set registers to zero."""
        found = []
        for call in self.scope.calls:
            fact = self.site.program.facts.of_call(call)
            handle = self.site.tiled.handle_of(self.scope, call.args[0]) if call.args else None
            if isinstance(fact, Zero) and handle is not None and self.context.flight.root(handle) is one.handle:
                found.append(call.node)
        return found

    # --- where MMAs leave registers alone

    def _units(self, one: Sum, uses: list[Node]) -> list[Node]:
        """Statements with MMAs that add to a sum: loops with all that they run, where that leaves registers alone."""
        found: dict[int, Node] = {}
        for multiply in self.multiplies(one):
            node = self.events.multiplying(multiply.call.node)
            current = node
            while (loop := loop_around(current, self.scope.body)) is not None:
                if any(inside(loop, n) for n in (*uses, one.handle.declaration)):
                    break
                if loop.parent is None or loop.parent.type != "compound_statement":
                    raise self._left(loop, "braces around a loop with MMAs")
                node = current = loop
            found[node.id] = node
        return sorted(found.values(), key=lambda n: n.start_byte)

    def _settle(self, one: Sum) -> None:
        touches, clears = self._touches(one), self._clears(one)
        units = self._units(one, [*touches, *clears])
        around, start = self.is_around(one), one.handle.declaration.end_byte
        start = self.scope.body.start_byte if around else start
        newer: Node | None = None
        for index, unit in enumerate(units):
            # on other ways here registers hold what they held before
            ahead = [u for u in units[:index] if u.parent is not None and inside(u.parent, unit)]
            if newer is not None and newer not in ahead:
                raise self._left(newer, f"a wait for the MMAs of `{one.handle.name}` on the way that they are on")
            load = self._load(one, unit, touches, units)
            if newer is None:
                self._store(one, unit, ahead[-1].end_byte if ahead else start, touches, clears)
            if load is not None and (touches or around):
                self.loads.append(Move(one, load))
            newer = unit if load is None else None

    def _load(self, one: Sum, unit: Node, touches: list[Node], units: list[Node]) -> Node | None:
        """The statement behind which sums are complete; None if MMAs of another statement follow first."""
        last = max((m.call.node for m in self.multiplies(one) if inside(unit, m.call.node)), key=lambda n: n.end_byte)
        for wait in self.waits:
            block = wait.parent.parent if wait.parent is not None else None
            if block is not None and inside(unit, wait) and wait.end_byte >= last.end_byte and inside(block, last):
                return unit
        current = unit
        while True:
            following = current.next_named_sibling
            if following is None:
                above = current.parent
                if above is None or above.id == self.scope.body.id or above.type in LOOPS:
                    break
                current = above
                continue
            current = following
            if any(current.id == w.parent.id for w in self.waits if w.parent is not None):
                return current
            if any(inside(current, n) for n in (*touches, *self.waits)):
                break
            if any(inside(current, u) for u in units):
                return None
        raise self._left(unit, f"a wait for the MMAs of `{one.handle.name}` in front of what uses it")

    def _store(self, one: Sum, unit: Node, before: int, touches: list[Node], clears: list[Node]) -> None:
        """Registers go to Tensor Memory in front of MMAs that add to what they hold."""
        changed = [n for n in (*touches, *clears) if before <= n.start_byte < unit.start_byte]
        again = loop_around(unit, self.scope.body) is not None and not self._is_fresh(one, unit)
        again |= self.is_around(one) and before == self.scope.body.start_byte
        if not changed and (not again or self._zeroes(one, unit)):
            # nothing was written there since they were declared or since the last MMAs, or it counts for nothing
            return
        zero = self._cleared_in_front(one, unit, touches, clears)
        if zero is not None:
            self.cleared[unit.id] = zero
            return
        one.is_stored = True
        self.stores.append(Move(one, self._opening(unit)))

    def _is_fresh(self, one: Sum, unit: Node) -> bool:
        """Whether registers are declared in the same turn of a loop."""
        block = one.handle.declaration.parent
        return block is not None and unit.parent is not None and unit.parent.id == block.id

    def _zeroes(self, one: Sum, unit: Node) -> bool:
        """Whether the MMA is told in front of a statement that the first step clears."""
        first = min(m.call.node.start_byte for m in self.multiplies(one) if inside(unit, m.call.node))
        calls = [m.call for m in self.multiplies(one) if m.call.node.start_byte == first]
        if calls[0].node.id in self.place.gemms:
            return self.place.gemms[calls[0].node.id].clears(calls[0])
        told = [n for n in self._told(one) if n.start_byte < first]
        if not told or told[-1].parent is None or not _ZERO.search(self.scope.text(told[-1])):
            return False
        for node in _in_front(unit):
            if node.id == told[-1].parent.id:
                return True
            if any(m.mma.type == "identifier" and inside(node, m.call.node) for m in self.place.multiplies):
                return False
        return False

    def _cleared_in_front(self, one: Sum, unit: Node, touches: list[Node], clears: list[Node]) -> Node | None:
        """The statement that sets registers to zero, where the first step of the MMAs over all of k can do that."""
        whole = [m for m in one.multiplies if m.call.node.parent == unit and m.d.type == "identifier"]
        if not whole or self._told(one) or any(m.call.node in self.called for m in whole):
            return None
        for node in _in_front(unit):
            found = [c for c in clears if c.parent is not None and c.parent.id == node.id]
            if found and node.type == "expression_statement":
                return node
            if any(inside(node, n) for n in (*touches, *clears, one.handle.declaration)):
                return None
        return None

    def _told(self, one: Sum) -> list[Node]:
        """Where the kernel says of a tiled MMA whether it adds."""
        found = []
        for node in find(self.scope.body, "assignment_expression"):
            left = node.child_by_field_name("left")
            of = left.child_by_field_name("argument") if left is not None else None
            if of is not None and self.scope.text(of) == one.mma.name and "scale" in set(self.events.events(node)):
                found.append(node)
        return sorted(found, key=lambda n: n.start_byte)

    def _opening(self, unit: Node) -> Node:
        """The statement that opens the batch of a statement with MMAs, or that one where it opens batches itself."""
        if any(inside(unit, o) for o in self.opens):
            return unit
        return self.opening(unit)

    def opening(self, node: Node) -> Node:
        """The statement that opens the batch of MMAs: without another wait between, behind which others may read."""
        if any(c.parent is not None and c.parent.id == node.id for c in self.called):
            return node
        current: Node | None = node
        while current is not None and current.id != self.scope.body.id:
            if current.type in LOOPS and any(inside(current, w) for w in self.waits):
                break
            for before in _in_front(current):
                if any(before.id == o.parent.id for o in self.opens if o.parent is not None):
                    return before
                if any(inside(before, w) for w in self.waits):
                    break
            else:
                current = current.parent
                continue
            break
        raise self._left(node, "what opens a batch in front of its MMAs")


def _in_front(node: Node) -> Iterator[Node]:
    """Statements in front of one in its list, the nearest first."""
    current = node.prev_named_sibling
    while current is not None:
        if current.type != "comment":
            yield current
        current = current.prev_named_sibling
