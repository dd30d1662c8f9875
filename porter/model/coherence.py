# SPDX-License-Identifier: Apache-2.0
"""Where an accumulator moves between its registers and Tensor Memory, and whether that is enough.

The register array stays in the port as a mirror of the TMEM tile. A load is placed in front of the first
statement that touches the registers after an MMA, a store behind the last statement that changes them before
one. An abstract interpretation of the function then checks that every touch finds valid registers and every
MMA a valid tile; what it cannot show is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import find, inside
from porter.model.accumulators import Accumulator
from porter.model.events import Event, Kind, events_of
from porter.model.flow import FlowBuilder
from porter.model.interpret import Interpreter
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS

STATEMENT_LISTS = ("compound_statement", "case_statement", *PREPROCESSOR_BLOCKS)

_TOUCHES = (Kind.READ, Kind.WRITE, Kind.ALIAS)
_CHANGES = (Kind.WRITE, Kind.ALIAS)
_IN_FLIGHT = "it is read while MMAs that no wait covers may be in flight"
_UNFENCED = "threads use its registers and an MMA follows without a wgmma.fence in between"
_CODES = {_IN_FLIGHT: Code.ACCUMULATOR_IN_FLIGHT, _UNFENCED: Code.ACCUMULATOR_UNFENCED}
_MOST_GROUPS = 16
"""No wait leaves more groups pending: `wgmma.wait_group` takes an immediate, and CUTLASS none above 7."""


class Where(Enum):
    """Which copies of the accumulator hold its value."""

    NOWHERE = "not yet written"
    ZERO = "cleared"
    TMEM = "in Tensor Memory"
    BOTH = "in Tensor Memory and in registers"
    REGISTERS = "in registers"


@dataclass(frozen=True)
class _State:
    where: Where
    in_flight: int = -1
    """How many groups were committed since its last MMA, its own included; -1 if that MMA is known to be over."""
    written_at: int = -1
    """Byte offset of the last change by threads, while it is only in registers."""
    unfenced: bool = False
    """Whether it was stored since the warps last met."""


@dataclass(frozen=True, eq=False)
class Problem:
    """An event that finds the accumulator in the wrong place."""

    accumulator: Accumulator
    node: Node = field(repr=False)
    what: str
    written_at: int = -1
    code: Code = Code.ACCUMULATOR_MOVES
    of_original: bool = False
    """Whether the original is at fault: on every path it reads registers of MMAs in flight, or it lacks a fence."""


def place_loads(builder: FlowBuilder, accumulator: Accumulator) -> list[Node]:
    """Statements in front of which the accumulator must be loaded; registers them with `builder`."""
    function = accumulator.function
    events = events_of(builder.flow(function))
    # a cleared accumulator is cleared in Tensor Memory only, so reading it takes a load as after an MMA
    mma = [e.node for e in events if e.kind in (Kind.MMA, Kind.ZERO) and e.accumulator is accumulator]
    waits = [e.node for e in events if e.kind is Kind.WAIT]
    touches = [e.node for e in events if e.kind in _TOUCHES and e.accumulator is accumulator]
    stops = waits + [e.node for e in events if e.kind is Kind.MMA and e.accumulator is accumulator]
    anchors: list[Node] = []
    for touch in touches:
        anchor = _anchor(function.body, touch, mma, waits, stops, builder.leaving)
        if anchor is not None and not any(_covers(a, anchor, mma) for a in anchors):
            anchors.append(anchor)
    for anchor in anchors:
        builder.place_load(anchor, accumulator)
    return anchors


def place_stores(builder: FlowBuilder, accumulator: Accumulator) -> list[Node]:
    """Statements behind which the accumulator must be stored, because an MMA adds to what threads wrote there;
    registers them with `builder`."""
    function = accumulator.function
    placed: list[Node] = []
    while True:
        offsets = {p.written_at for p in check(builder, accumulator) if p.written_at >= 0}
        events = events_of(builder.flow(function))
        anchors: list[Node] = []
        for event in events:
            if event.kind in _CHANGES and event.accumulator is accumulator and event.node.start_byte in offsets:
                anchor = _store_anchor(function.body, event.node, accumulator, events)
                if anchor is not None and all(anchor.id != a.id for a in placed + anchors):
                    anchors.append(anchor)
        if not anchors:
            return placed
        placed += anchors
        for anchor in anchors:
            builder.place_store(anchor, accumulator)


def _store_anchor(body: Node, write: Node, accumulator: Accumulator, events: list[Event]) -> Node | None:
    """The last statement that changes the registers before the next fence or MMA, in the innermost block that
    holds both the change and an MMA."""
    own = [e for e in events if e.accumulator is accumulator]
    mma = [e.node for e in own if e.kind is Kind.MMA]
    writes = [e.node for e in own if e.kind in _CHANGES]
    stops = [e.node for e in events if e.kind in (Kind.FENCE, Kind.MMA)]
    for block, child in _blocks_above(body, write):
        if not any(inside(block, m) for m in mma):
            continue
        last = child
        for sibling in block.named_children:
            if sibling.start_byte <= child.start_byte:
                continue
            if any(inside(sibling, s) for s in stops):
                break
            if any(inside(sibling, w) for w in writes):
                last = sibling
        return last
    return None


def _blocks_above(body: Node, node: Node) -> list[tuple[Node, Node]]:
    """(block, its child that contains `node`), innermost first, up to and including the function body."""
    pairs = []
    inner, current = node, node.parent
    while current is not None:
        if current.type in STATEMENT_LISTS:
            pairs.append((current, inner))
        if current.id == body.id:
            break
        inner, current = current, current.parent
    return pairs


def _anchor(
    body: Node, touch: Node, mma: list[Node], waits: list[Node], stops: list[Node], leaving: dict[int, bool]
) -> Node | None:
    """The statement to load in front of: in the innermost block in which an MMA comes before the touch, but
    behind any wait that stands between the two."""
    for block, child in _blocks_above(body, touch):
        earlier = [m for m in mma if inside(block, m) and m.end_byte <= child.start_byte]
        # in a loop, also the MMA of the loop's last turn
        if not earlier and not (_in_loop(body, block) and any(inside(block, m) for m in mma)):
            continue
        between = [w for w in waits if inside(child, w) and w.end_byte <= touch.start_byte]
        if not between:
            return _before_exits(block, child, stops, leaving)
        last = max(between, key=lambda w: w.start_byte)
        for inner, inner_child in _blocks_above(body, touch):
            if inside(inner, last):
                return _before_exits(inner, inner_child, stops, leaving)
    return None


def _before_exits(block: Node, child: Node, stops: list[Node], leaving: dict[int, bool]) -> Node:
    """`child`, or the first of the statements between it and the last MMA or wait that may let single threads
    leave: a load needs the whole warp. `leaving` keeps by id of a node whether it holds such a statement."""
    first = child
    last = max((s.start_byte for s in stops if block.start_byte <= s.start_byte < child.start_byte), default=-1)
    for sibling in reversed(block.named_children):
        if sibling.start_byte >= child.start_byte or sibling.type in ("comment", "preproc_call"):
            continue
        if sibling.start_byte <= last:
            break
        if sibling.id not in leaving:
            exits = find(sibling, "return_statement", "break_statement", "continue_statement")
            leaving[sibling.id] = any(True for _ in exits)
        if leaving[sibling.id]:
            first = sibling
    return first


def _in_loop(body: Node, block: Node) -> bool:
    """Whether the block runs again and again."""
    node: Node | None = block
    while node is not None and node.id != body.id:
        if node.type in LOOPS or node.type == "lambda_expression":
            return True
        node = node.parent
    return False


def _covers(placed: Node, anchor: Node, mma: list[Node]) -> bool:
    """Whether a load in front of `placed` still holds at `anchor`: same block, no MMA in between."""
    if placed.id == anchor.id:
        return True
    if placed.parent is None or anchor.parent is None or placed.parent.id != anchor.parent.id:
        return False
    if placed.start_byte > anchor.start_byte:
        return False
    return not any(placed.start_byte <= m.start_byte < anchor.start_byte for m in mma)


def check(builder: FlowBuilder, accumulator: Accumulator) -> list[Problem]:
    """What the placed loads leave wrong; empty if every touch and every MMA finds its operand valid."""
    flow = builder.flow(accumulator.function)
    mma = [e.node for e in events_of(flow) if e.kind is Kind.MMA]
    interpreter = _Interpreter(accumulator, mma)
    interpreter.run(flow, {_State(Where.NOWHERE)})
    return interpreter.found() + _moved_by_some(builder, accumulator, events_of(flow))


def _moved_by_some(builder: FlowBuilder, accumulator: Accumulator, events: list[Event]) -> list[Problem]:
    """Loads and stores that some threads of a warp may not come to: either needs all of it, as an MMA does."""
    function = accumulator.function
    meetings = [e.node for e in events if e.kind in (Kind.MMA, Kind.FENCE, Kind.COMMIT, Kind.WAIT)]
    found = []
    for event in events:
        if event.kind not in (Kind.LOAD, Kind.STORE) or event.accumulator is not accumulator:
            continue
        at = event.node.start_byte if event.kind is Kind.LOAD else event.node.end_byte
        if builder.threads.apart(function, event.node, at, meetings):
            what = "it is read" if event.kind is Kind.LOAD else "it is changed"
            found.append(Problem(accumulator, event.node, f"{what} where some threads of a warp may have left"))
    return found


class _Interpreter(Interpreter[_State]):
    def __init__(self, accumulator: Accumulator, mma: list[Node]) -> None:
        super().__init__()
        self.accumulator = accumulator
        self.mma = mma
        self.problems: list[Problem] = []
        self._seen: set[tuple[int, str, int]] = set()
        self._loaded_in_flight: dict[int, set[bool]] = {}

    def found(self) -> list[Problem]:
        """The problems; those of loads in flight say whether no path avoids them."""
        return [
            replace(
                p,
                code=_CODES[p.what],
                of_original=p.what == _UNFENCED or self._loaded_in_flight.get(p.node.id) == {True},
            )
            if p.what in _CODES
            else p
            for p in self.problems
        ]

    def event(self, event: Event, state: _State) -> _State:
        if event.kind is Kind.COMMIT:
            groups = min(state.in_flight + 1, _MOST_GROUPS)
            return state if state.in_flight < 0 else replace(state, in_flight=groups)
        if event.kind is Kind.WAIT and event.pending is not None:
            # the newest `pending` groups may still run
            over = event.pending == 0 or state.in_flight > event.pending
            return replace(state, in_flight=-1) if over else state
        if event.kind is Kind.FENCE:
            return replace(state, unfenced=False)
        if event.accumulator is not self.accumulator:
            return state
        where = state.where
        if event.kind is Kind.DECLARE:
            return _State(Where.NOWHERE, state.in_flight)
        if event.kind is Kind.ZERO:
            return _State(Where.ZERO, state.in_flight)
        if event.kind is Kind.MMA:
            if where is Where.REGISTERS and not event.overwrites:
                what = "its registers are changed by threads and then added to by an MMA"
                self._problem(event, what, state.written_at)
            elif state.unfenced:
                self._problem(event, _UNFENCED)
            return _State(Where.TMEM, 0)
        if event.kind is Kind.LOAD:
            if where not in (Where.NOWHERE, Where.ZERO):
                self._loaded_in_flight.setdefault(event.node.id, set()).add(state.in_flight >= 0)
            if state.in_flight >= 0:
                self._problem(event, _IN_FLIGHT)
            if where is Where.REGISTERS:
                what = "its registers are changed by threads and then loaded again"
                self._problem(event, what, state.written_at)
            return _State(Where.BOTH if where is not Where.NOWHERE else where, unfenced=True)
        if event.kind is Kind.READ:
            if where in (Where.TMEM, Where.ZERO):
                self._problem(event, "it is read where no single load can be placed in front")
            return state
        if event.kind is Kind.WRITE:
            if where in (Where.TMEM, Where.ZERO):
                self._problem(event, "its registers are changed before they are read back")
            return _State(Where.REGISTERS, state.in_flight, event.node.start_byte, state.unfenced)
        if event.kind is Kind.ALIAS:
            if self._lives_across_mmas(event.node):
                self._problem(event, "a pointer or reference to it is kept across MMAs")
                return state
            if where in (Where.TMEM, Where.ZERO):
                self._problem(event, "it is read where no single load can be placed in front")
            if event.changes:
                return _State(Where.REGISTERS, state.in_flight, event.node.start_byte)
            return state
        if event.kind is Kind.STORE:
            if where in (Where.TMEM, Where.ZERO):
                self._problem(event, "it is changed on some paths only, and not read back on the others")
            return _State(Where.BOTH if where is Where.REGISTERS else where, state.in_flight, unfenced=True)
        return state

    def _lives_across_mmas(self, node: Node) -> bool:
        """Whether an MMA stands in the scope of what is declared at `node`, behind it."""
        scope = node.parent
        while scope is not None and scope.type not in STATEMENT_LISTS:
            scope = scope.parent
        return scope is None or any(inside(scope, m) and m.start_byte > node.start_byte for m in self.mma)

    def _problem(self, event: Event, what: str, written_at: int = -1) -> None:
        key = (event.node.start_byte, what, written_at)
        if key not in self._seen:
            self._seen.add(key)
            self.problems.append(Problem(self.accumulator, event.node, what, written_at))
