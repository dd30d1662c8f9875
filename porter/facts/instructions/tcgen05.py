# SPDX-License-Identifier: Apache-2.0
"""tcgen05: Tensor Memory and its products (PTX ISA 9.7.16)."""

from __future__ import annotations

from porter.facts import cells
from porter.facts.events import Access, Edge, Engine, Event, Kind, Space
from porter.facts.instructions.memory import touch
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Block, Group, Warp
from porter.facts.values import bits, first
from porter.ptx import ast
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.packing import operand_element_bits
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.tmem import ALLOCATIONS, COLUMNS, MIN_ALLOCATION, column_of, d_columns, d_layout, lane_of
from porter.ptx.tmem_access import TmemAccess, lane_problem, leaves_quarter_out
from porter.ptx.umma import UmmaOp

_PAIR = "cta_group::2"


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
        event = machine.joint(warp, group.lanes, "tcgen05.alloc", step.at, Kind.ALLOC)
        block = warp.block
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
        machine.access(Space(block.rank, True), Engine.ALLOC, True, cells.of_columns(start, columns), event.index,
                       event.index, step.at, ("warp", warp.name))  # fmt: skip
        place = where & OFFSET_MASK | block.base
        touch(machine, warp, event, 1, place, 4, True, step.at)
        block.write(place, 4, start)
        machine.history.trace[warp.name].append(("alloc", columns, step.at))
        group.pc += 1
        return None

    return run


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
        if block.columns.get(start) != columns:
            known = ", ".join(f"{n} at {at}" for at, n in block.columns.items()) or "none"
            what = f"tcgen05.dealloc of {columns} columns at {start}; allocated are: {known}"
            machine.problem("dealloc", what, step.at)
        block.columns.pop(start, None)
        machine.access(Space(block.rank, True), Engine.DEALLOC, True, cells.of_columns(start, columns), event.index,
                       event.index, step.at, ("warp", warp.name))  # fmt: skip
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
    names = [] if access.store else [n for n in step.registers("r") if n is not None]
    engine = Engine.TMEM_ST if access.store else Engine.TMEM_LD
    what = "" if access.store else "Tensor Memory that tcgen05.ld loads"

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        where = address(machine, warp, group)
        half = split(machine, warp, group) if split is not None else 0
        if not isinstance(where, int) or not isinstance(half, int):
            raise step.not_understood("the address")
        lane, column = lane_of(where), column_of(where)
        if (problem := lane_problem(lane, access.shape, warp.number)) is not None:
            machine.problem("lanes", problem, step.at)
            raise step.not_understood("the lanes")
        if leaves_quarter_out(lane, warp.number):
            lane += 32 * (warp.number % 4)
        event = machine.joint(warp, group.lanes, engine.value, step.at)
        _allocated(machine, warp.block, column, access.columns, step.at)
        if half:
            _allocated(machine, warp.block, column + half, access.columns, step.at)
        touched = cells.of_access(access, lane, column, half)
        found = machine.access(Space(warp.block.rank, True), engine, access.store, touched, event.index, None, step.at,
                               ("warp", warp.name), must_be_written=what)  # fmt: skip
        (warp.open_stores if access.store else warp.open_loads).append(found)
        for name in names:
            group.registers[name] = None
            warp.loaded[name] = step.at
        machine.history.trace[warp.name].append((engine.value, where, step.at))
        group.pc += 1
        return None

    return run


# Products ---------------------------------------------------------------------------------------------


def _mma(step: Step) -> Run:
    op = UmmaOp.of(step.ins.modifiers)
    if op.sparse or op.ws or op.block_scale or "disable_output_lane" in step.ins:
        raise step.not_understood("the kind")
    operands = {name: step.value(name) for name in ("d", "a", "b", "idesc", "enable_input_d")}
    in_tensor = isinstance(step.ins["a"], ast.Mem)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        words = {name: value(machine, warp, group) for name, value in operands.items()}
        known = {name: v for name, v in words.items() if isinstance(v, int)}
        if len(known) < len(words):
            raise step.not_understood("an operand, which is data,")
        if group.lanes.bit_count() != 1:
            machine.problem("issue", f"tcgen05.mma is issued by {group.lanes.bit_count()} threads", step.at)
        lane = first(group.lanes)
        event = machine.single(warp, 1 << lane, "tcgen05.mma", step.at)[0][0]
        end = machine.mma_of(warp, lane, event, "tcgen05.mma", step.at)
        _product(step, machine, warp, op, known, in_tensor, event, end, ("mma", warp.name, lane))
        machine.history.trace[warp.name].append(("mma", *known.values(), step.at))
        group.pc += 1
        return None

    return run


def _product(
    step: Step, machine: Machine, warp: Warp, op: UmmaOp, words: dict[str, int], in_tensor: bool, event: Event,
    end: Event, pipe: object,
) -> None:  # fmt: skip
    try:
        idesc = InstructionDescriptor.decode(words["idesc"], op.kind)
        layout = d_layout(idesc.m, op.cta_group)
    except ValueError as error:
        raise step.not_understood(f"the instruction descriptor ({error})") from None
    a_bits, b_bits = (operand_element_bits(op.kind, t) for t in (idesc.a_type, idesc.b_type))
    blocks = _blocks(step, machine, warp)
    lane, column = lane_of(words["d"]), column_of(words["d"])
    accumulators = cells.of_accumulator(lane, column, layout, idesc.m, idesc.n)
    tile = (words["d"], idesc.m, idesc.n)

    def access(space: Space, write: bool, touched: int, tile: object, what: str) -> Access:
        return machine.access(space, Engine.MMA, write, touched, event.index, end.index, step.at, pipe, tile, what)

    for index, block in enumerate(blocks):
        shared, tensor = Space(block.rank, False), Space(block.rank, True)
        rows, columns = idesc.m // len(blocks), idesc.n // len(blocks)
        if in_tensor:
            touched = cells.of_tensor_operand(lane_of(words["a"]), column_of(words["a"]), layout, a_bits)
            access(tensor, False, touched, "A", "A in Tensor Memory")
        else:
            touched = cells.of_operand(words["a"], "sm_100", rows, a_bits, idesc.a_mn_major)
            access(shared, False, touched, None, "A of tcgen05.mma")
        touched = cells.of_operand(words["b"], "sm_100", columns, b_bits, idesc.b_mn_major)
        access(shared, False, touched, None, "B of tcgen05.mma")
        _allocated(machine, block, column, d_columns(layout, idesc.n), step.at)
        adds = words["enable_input_d"] & 1
        access(tensor, True, accumulators[index], tile, "the accumulator that tcgen05.mma adds to" if adds else "")


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
        machine.history.trace[warp.name].append(("commit", where, wanted, step.at))
        group.pc += 1
        return None

    return run


def _arrive(step: Step, machine: Machine, warp: Warp, lane: int, event: Event, place: int) -> None:
    barrier = machine.mbarrier(place, event, step.at, asynchronous=True)
    done = tuple(warp.mmas[lane])
    newest = warp.newest_mma.get(lane)

    def finish() -> None:
        arrival = machine.event(
            Kind.COMMIT, "tcgen05.commit arrives", None, 0, step.at, [(Edge.EXECUTION, event.index)]
        )
        if newest is not None:
            arrival.edges.append((Edge.EXECUTION, newest))
        arrival.completes = done
        machine.reach(arrival, place >> RANK_SHIFT, warp, "a commit", step.at, arrives=True)
        machine.arrive(barrier, arrival, 1, step.at, warp.block.rank)

    machine.later(finish)
