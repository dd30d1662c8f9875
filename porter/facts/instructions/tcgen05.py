# SPDX-License-Identifier: Apache-2.0
"""tcgen05: Tensor Memory and its products (PTX ISA 9.7.16)."""

from __future__ import annotations

from porter.facts import cells
from porter.facts.events import Edge, Engine, Event, Kind, Signal, Space
from porter.facts.instructions.memory import touch
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Block, Group, Load, Warp
from porter.facts.values import alike, bits, first
from porter.ptx import ast
from porter.ptx.bits import unsigned
from porter.ptx.memory_order import Scope
from porter.ptx.mma_cells import MmaArguments, decode_idesc, layout_of
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.tmem import (
    ALLOCATIONS,
    COLUMNS,
    LANES,
    MIN_ALLOCATION,
    SHIFT_COLUMNS,
    WARP_LANES,
    column_of,
    d_columns,
    lane_of,
)
from porter.ptx.tmem_access import TmemAccess, lane_of_block, lane_problem, leaves_quarter_out
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.umma import UmmaOp

_PAIR = "cta_group::2"
_MASK = 32
"""Lanes of each element of disable-output-lane."""


@family("tcgen05")
def tcgen05(step: Step) -> Run:
    head = step.ins.parts[1]
    if head.startswith("fence"):
        return _fence(step)
    if head.startswith("wait"):
        return _wait(step)
    match head:
        case "alloc":
            return _alloc(step)
        case "dealloc":
            return _dealloc(step)
        case "relinquish_alloc_permit":
            return _relinquish(step)
        case "mma":
            return _mma(step)
        case "cp":
            return _cp(step)
        case "shift":
            return _shift(step)
        case "commit":
            return _commit(step)
        case "ld" | "st":
            return _access(step)
    raise step.not_understood("the effect")


def _fence(step: Step) -> Run:
    kind = Kind.BEFORE_SYNC if "before" in step.ins.opcode else Kind.AFTER_SYNC

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        machine.single(warp, group.lanes, "tcgen05.fence", step.at, kind)
        group.pc += 1
        return None

    return run


def _wait(step: Step) -> Run:
    loads = "wait::ld" in step.ins.opcode

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        event = machine.joint(warp, group.lanes, f"tcgen05.{step.ins.parts[1]}", step.at, Kind.TMEM)
        done = warp.open_loads if loads else warp.open_stores
        for access in done:
            access.end = event.index
        done.clear()
        if loads:
            warp.loaded.clear()
        group.pc += 1
        return None

    return run


# Allocation -------------------------------------------------------------------------------------------


def _blocks(step: Step, machine: Machine, warp: Warp) -> list[Block]:
    """The blocks whose Tensor Memory an instruction is about: that of its warp, or both of a pair."""
    if not step.has(_PAIR):
        return [warp.block]
    peer = warp.block.rank ^ 1
    if peer >= len(machine.blocks):
        raise step.not_understood("a pair of blocks, which is not there,")
    return [warp.block, machine.blocks[peer]]


def _alloc(step: Step) -> Run:
    target, count = step.value("dst"), step.value("columns")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        where, columns = target(machine, warp, group), count(machine, warp, group)
        if not isinstance(where, int) or not isinstance(columns, int):
            raise step.not_understood("the place or count")
        block = warp.block
        asked = _asked(step, machine, warp, group)
        if asked is None:
            return Outcome.BLOCKED
        event = machine.joint(warp, group.lanes, "tcgen05.alloc", step.at, Kind.ALLOC)
        event.edges += asked
        block.allocations.append((event.index, step.at))
        start = 0
        while any(start < known + size and known < start + columns for known, size in block.columns.items()):
            start += MIN_ALLOCATION
        if columns not in ALLOCATIONS:
            machine.problem("alloc", f"tcgen05.alloc of {columns} columns", step.at)
        if start + columns > COLUMNS:
            machine.problem("alloc", f"tcgen05.alloc of {columns} columns, which are not free", step.at)
            start = 0
        block.columns[start] = columns
        block.pairs[start] = step.has(_PAIR)
        machine.access(Space(block.rank, True), Engine.ALLOC, True, cells.of_columns(start, columns), event.index,
                       event.index, step.at, ("warp", warp.name), _pair(step, block))  # fmt: skip
        place = where & OFFSET_MASK | block.base
        touch(machine, warp, event, 1, place, 4, True, step.at)
        block.write(place, 4, start)
        machine.history.trace[warp.name].append(("alloc", columns, step.at))
        group.pc += 1
        return None

    return run


def _asked(step: Step, machine: Machine, warp: Warp, group: Group) -> list[tuple[Edge, int]] | None:
    """Edges from the other block of a pair, which has to ask for its columns as well; None while it has not."""
    if not step.has(_PAIR):
        return []
    mine = warp.block
    _, peer = sorted(_blocks(step, machine, warp), key=lambda block: block is not mine)
    number = len(mine.allocations)
    if len(mine.asked) == number:
        mine.asked.append(machine.joint(warp, group.lanes, "tcgen05.alloc is asked for", step.at).index)
    if len(peer.asked) <= number:
        group.wait(lambda: len(peer.asked) > number, lambda: "tcgen05.alloc waits for that of the other block")
        return None
    return [(Edge.EXECUTION, peer.asked[number])]


def _pair(step: Step, block: Block) -> tuple[int, int] | None:
    """Equal for the allocations of both blocks of a pair."""
    return (block.rank & ~1, len(block.allocations)) if step.has(_PAIR) else None


def _dealloc(step: Step) -> Run:
    address, count = step.value("taddr"), step.value("columns")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        where, columns = address(machine, warp, group), count(machine, warp, group)
        if not isinstance(where, int) or not isinstance(columns, int):
            raise step.not_understood("the address or count")
        event = machine.joint(warp, group.lanes, "tcgen05.dealloc", step.at, Kind.TMEM)
        block, start = warp.block, column_of(where)
        if block.columns.get(start) != columns or block.pairs.get(start) != step.has(_PAIR):
            known = ", ".join(f"{n} at {at}" for at, n in block.columns.items()) or "none"
            what = f"tcgen05.dealloc of {columns} columns at {start}; allocated are: {known}"
            machine.problem("dealloc", what, step.at)
        block.columns.pop(start, None)
        for freed in _blocks(step, machine, warp):
            # what one block of a pair frees may be gone in the other one
            machine.access(Space(freed.rank, True), Engine.DEALLOC, True, cells.of_columns(start, columns),
                           event.index, event.index, step.at, ("warp", warp.name))  # fmt: skip
        group.pc += 1
        return None

    return run


def _relinquish(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        event = machine.joint(warp, group.lanes, "tcgen05.relinquish_alloc_permit", step.at)
        warp.block.relinquished.append(event.index)
        group.pc += 1
        return None

    return run


def _allocated(machine: Machine, block: Block, column: int, columns: int, at: int) -> None:
    if not any(start <= column and column + columns <= start + n for start, n in block.columns.items()):
        known = ", ".join(f"{start} to {start + n - 1}" for start, n in block.columns.items()) or "none"
        what = f"columns {column} to {column + columns - 1} are not allocated; allocated are: {known}"
        machine.problem("alloc", what, at)


# Loads and stores -------------------------------------------------------------------------------------


def _access(step: Step) -> Run:
    access = TmemAccess.of(step.ins.modifiers)
    address, split = step.value("taddr"), step.optional("split")
    names = sorted(step.flow.writes[step.at])
    engine = Engine.TMEM_ST if access.store else Engine.TMEM_LD
    what = "" if access.store else "Tensor Memory that tcgen05.ld loads"

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        where = address(machine, warp, group)
        half = split(machine, warp, group) if split is not None else 0
        if not isinstance(where, int) or not isinstance(half, int):
            raise step.not_understood("the address")
        column, lane = column_of(where), lane_of_block(lane_of(where), warp.block.rank)
        if lane != lane_of(where):
            text = f"lane {lane_of(where)} counts over the blocks of the pair"
            machine.problem("lane of pair", text, step.at, "strict")
        if (problem := lane_problem(lane, access.shape, warp.number)) is not None:
            machine.problem("lanes", problem, step.at)
            raise step.not_understood("the lanes")
        if leaves_quarter_out(lane, warp.number):
            machine.problem("lanes", f"lane {lane} is not of the quarter of warp {warp.number}", step.at, "strict")
            lane += WARP_LANES * (warp.number % 4)
        event = machine.joint(warp, group.lanes, engine.value, step.at)
        _allocated(machine, warp.block, column, access.columns, step.at)
        if half:
            _allocated(machine, warp.block, column + half, access.columns, step.at)
        touched = cells.of_access(access, lane, column, half)
        found = machine.access(Space(warp.block.rank, True), engine, access.store, touched, event.index, None, step.at,
                               ("warp", warp.name), must_be_written=what)  # fmt: skip
        (warp.open_stores if access.store else warp.open_loads).append(found)
        load = Load(found, set(names))
        for name in names:
            group.registers[name] = None
            warp.loaded[name] = frozenset(((load, name),))
        machine.history.trace[warp.name].append((engine.value, where, step.at))
        group.pc += 1
        return None

    return run


# Products, copies, shifts ------------------------------------------------------------------------------


_OPERANDS = ("d", "a", "b", "idesc", "enable_input_d", "meta", "scale_a", "scale_b", "zero_column_mask")


def _mma(step: Step) -> Run:
    op = UmmaOp.of(step.ins.modifiers)
    operands = {name: step.value(name) for name in _OPERANDS if name in step.ins}
    disabled = step.values("disable_output_lane") if "disable_output_lane" in step.ins else []
    in_tensor = isinstance(step.ins["a"], ast.Mem)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        words = {name: alike(value(machine, warp, group), group.lanes) for name, value in operands.items()}
        known = {name: v for name, v in words.items() if isinstance(v, int)}
        if len(known) < len(words):
            raise step.not_understood("an operand, which is data,")
        masks = [alike(value(machine, warp, group), group.lanes) for value in disabled]
        lanes_off = [m for m in masks if isinstance(m, int)]
        if len(lanes_off) < len(masks):
            raise step.not_understood("the mask of lanes that are not written, which is data,")
        a = known["a"]
        arguments = MmaArguments(
            known["d"],
            None if in_tensor else a,
            a if in_tensor else None,
            known["b"],
            bool(known["enable_input_d"] & 1),
            metadata=known.get("meta"),
            scale_a=known.get("scale_a"),
            scale_b=known.get("scale_b"),
            disable_lanes=sum(unsigned(m, _MASK) << _MASK * i for i, m in enumerate(lanes_off)) or None,
            zero_columns=known.get("zero_column_mask"),
        )
        _Issued(step, machine, warp, group, "tcgen05.mma").product(op, known["idesc"], arguments)
        machine.history.trace[warp.name].append(("mma", *known.values(), *lanes_off, step.at))
        group.pc += 1
        return None

    return run


def _cp(step: Step) -> Run:
    op = TmemCopy.of(step.ins.modifiers)
    address, descriptor = step.value("taddr"), step.value("source_desc")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, source = address(machine, warp, group), descriptor(machine, warp, group)
        if not isinstance(where, int) or not isinstance(source, int):
            raise step.not_understood("an operand, which is data,")
        issued = _Issued(step, machine, warp, group, "tcgen05.cp")
        read = cells.of_operand(source, "sm_100", op.rows, op.row_bytes, 8, False)
        written = cells.of_copy(op, where)
        for block in issued.blocks:
            issued.access(Space(block.rank, False), Engine.CP, False, read, None, "what tcgen05.cp copies")
            _allocated(machine, block, column_of(where), op.row_bytes // 4, step.at)
            issued.access(Space(block.rank, True), Engine.CP, True, written, where, "")
        machine.history.trace[warp.name].append(("cp", where, source, step.at))
        group.pc += 1
        return None

    return run


def _shift(step: Step) -> Run:
    address = step.value("taddr")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        if not isinstance(where, int):
            raise step.not_understood("the address")
        issued = _Issued(step, machine, warp, group, "tcgen05.shift")
        touched = cells.of_shift(where)
        for block in issued.blocks:
            _allocated(machine, block, column_of(where), SHIFT_COLUMNS, step.at)
            issued.access(Space(block.rank, True), Engine.SHIFT, True, touched, where, "what tcgen05.shift moves")
        machine.history.trace[warp.name].append(("shift", where, step.at))
        group.pc += 1
        return None

    return run


class _Issued:
    """An operation of the tensor core that one thread has issued. `blocks`: those that have a part in it."""

    def __init__(self, step: Step, machine: Machine, warp: Warp, group: Group, what: str) -> None:
        if group.lanes.bit_count() != 1:
            machine.problem("issue", f"{what} is issued by {group.lanes.bit_count()} threads", step.at)
        lane = first(group.lanes)
        self._machine, self._at = machine, step.at
        self._event = machine.single(warp, 1 << lane, what, step.at)[0][0]
        self._end = machine.mma_of(warp, lane, self._event, what, step.at)
        self._pipe = "mma", warp.name, lane
        self.blocks = _blocks(step, machine, warp)
        for block in self.blocks:
            machine.reach(self._event, block.rank, warp, what, step.at)
            machine.reach(self._end, block.rank, warp, f"the end of {what}", step.at)

    def access(self, space: Space, engine: Engine, write: bool, touched: int, tile: object, what: str) -> None:
        """`what` it reads, if that must have been written."""
        self._machine.access(space, engine, write, touched, self._event.index, self._end.index, self._at, self._pipe,
                             tile, what)  # fmt: skip

    def product(self, op: UmmaOp, idesc: int, arguments: MmaArguments) -> None:
        decoded = decode_idesc(op, idesc)
        in_tensor = cells.of_product(op, idesc, arguments)
        in_shared = cells.of_product_operands(op, idesc, arguments)
        columns = d_columns(layout_of(op, decoded.m), decoded.n)
        tiles = {
            "d": (op.cta_group, op.kind, decoded.m, decoded.n, arguments.d_addr),
            "a": ("a", op.cta_group, arguments.a_tmem),
        }
        for block in self.blocks:
            for name, touched in sorted(in_shared.items()):
                what = f"{name.upper()} of tcgen05.mma"
                self.access(Space(block.rank, False), Engine.MMA, False, touched, None, what)
            _allocated(self._machine, block, column_of(arguments.d_addr), columns, self._at)
            off = (arguments.disable_lanes or 0) >> LANES * (block.rank & 1) * (op.cta_group - 1)
            written = ~cells.of_lanes(off & ((1 << LANES) - 1))
            for part in in_tensor:
                what = _READ[part.what] if part.what != "d" or arguments.enable_d else ""
                tile = tiles.get(part.what, part.what)
                touched = part.cells & written if part.what == "d" else part.cells
                self.access(Space(block.rank, True), Engine.MMA, part.write, touched, tile, what)


_READ = {
    "d": "the accumulator that tcgen05.mma adds to",
    "a": "A in Tensor Memory",
    "metadata": "the metadata of a sparse A",
    "scale": "the scale factors of tcgen05.mma",
}


def _commit(step: Step) -> Run:
    address = step.value("mbar")
    mask = step.optional("mask") if step.has("multicast::cluster") else None

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        wanted = mask(machine, warp, group) if mask is not None else 0
        if not isinstance(where, int) or not isinstance(wanted, int):
            raise step.not_understood("the mbarrier")
        ranks = list(bits(wanted & 0xFFFF)) if mask is not None else [where >> RANK_SHIFT]
        for event, lane in machine.lane_starts(warp, group, "tcgen05.commit", step.at):
            if lane not in warp.newest_mma:
                machine.problem("commit", "tcgen05.commit by a thread that has issued nothing", step.at, "strict")
            for rank in ranks:
                _arrive(step, machine, warp, lane, event, where & OFFSET_MASK | rank << RANK_SHIFT)
        machine.history.trace[warp.name].append(("commit", Signal(where), wanted, step.at))
        group.pc += 1
        return None

    return run


def _arrive(step: Step, machine: Machine, warp: Warp, lane: int, event: Event, place: int) -> None:
    """What a commit stands for, the next one of its thread stands for as well: they arrive in order."""
    barrier = machine.mbarrier(place, event, step.at, asynchronous=True)
    done, queue = tuple(warp.mmas[lane]), warp.commits[lane]
    before = [warp.newest_mma[lane]] if lane in warp.newest_mma else []

    def finish() -> None:
        newest = warp.newest_arrival.get(lane)
        edges = [(Edge.EXECUTION, e) for e in (event.index, *before, *(() if newest is None else (newest,)))]
        arrival = machine.event(Kind.COMMIT, "tcgen05.commit arrives", None, 0, step.at, edges)
        warp.newest_arrival[lane] = arrival.index
        arrival.completes = done
        machine.reach(arrival, place >> RANK_SHIFT, warp, "a commit", step.at)
        # a commit has the scope of the cluster (PTX ISA 9.7.16.12.1)
        machine.arrive(barrier, arrival, 1, step.at, warp.block.rank, scope=Scope.CLUSTER)

    def land() -> None:
        while finish in queue:
            queue.pop(0)()

    queue.append(finish)
    machine.later(land)
