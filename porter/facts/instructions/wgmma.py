# SPDX-License-Identifier: Apache-2.0
"""wgmma (PTX ISA 9.7.15): a warpgroup's four warps meet at each, which reads shared memory until a wait_group."""

from __future__ import annotations

from porter.facts import cells
from porter.facts.events import Edge, Engine, Space
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Flight, Group, Held, Warp
from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.bits import unsigned
from porter.ptx.packing import operand_element_bits
from porter.ptx.wgmma import THREADS, WgmmaOp, umma_kind

_WARPS = THREADS // WARP


@family("wgmma")
def wgmma(step: Step) -> Run:
    match step.ins.parts[1]:
        case "fence":
            return _fence(step)
        case "commit_group":
            return _commit(step)
        case "wait_group":
            return _wait(step)
    return _mma(step)


def _fence(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        machine.joint(warp, group.lanes, "wgmma.fence", step.at)
        warp.flight.touched = {}
        group.pc += 1
        return None

    return run


def _commit(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        machine.joint(warp, group.lanes, "wgmma.commit_group", step.at)
        warp.flight.batch += 1
        group.pc += 1
        return None

    return run


def _wait(step: Step) -> Run:
    left = step.value("n")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        count = left(machine, warp, group)
        assert isinstance(count, int)
        event = machine.joint(warp, group.lanes, "wgmma.wait_group", step.at)
        flight = warp.flight
        done = flight.batch - unsigned(count, 32)
        for batch, access in flight.reads:
            if batch < done:
                access.end = event.index
        flight.reads = [(batch, a) for batch, a in flight.reads if batch >= done]
        flight.registers = {r: held for r, held in flight.registers.items() if held.batch >= done}
        machine.history.trace[warp.name].append(("wgmma wait", count, step.at))
        group.pc += 1
        return None

    return run


def _mma(step: Step) -> Run:
    op = WgmmaOp.of(step.ins.modifiers)
    in_registers = isinstance(step.ins["a"], ast.Vec)
    a = None if in_registers else step.value("a")
    b = step.value("b")
    trans = [step.optional(name) for name in ("trans_a", "trans_b")]
    d_names = tuple(n for n in step.registers("d") if n is not None)
    a_names = tuple(n for n in step.registers("a") if n is not None) if in_registers else ()
    operands, results = frozenset((*d_names, *a_names)), dict.fromkeys(d_names)
    bits = operand_element_bits(umma_kind(op.a_type), op.a_type)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        flight = warp.flight
        met = machine.warpgroup_meetings[warp.block.rank, warp.number // _WARPS, flight.issued]
        if all(w is not warp for w, _ in met):
            met.append((warp, machine.joint(warp, group.lanes, "wgmma meets", step.at).index))
        if len(met) < _WARPS:
            group.wait(lambda: len(met) >= _WARPS, lambda: f"{len(met)} of {_WARPS} warps of the warpgroup have come")
            return Outcome.BLOCKED
        flight.issued += 1
        if flight.touched is None:
            machine.problem("wgmma-fence", "the first wgmma has no wgmma.fence ahead of it", step.at)
        for place in {flight.touched[n] for n in operands & flight.touched.keys()} if flight.touched else ():
            # compilers move copies and the zeroing of accumulators below the fence (docs/rulings.md)
            level = "review" if step.flow.code.code[place].parts[0] == "mov" else "error"
            what = "registers of wgmma are written since the last wgmma.fence"
            machine.problem("wgmma-fence", what, step.at, level, other=place)
        event = machine.joint(warp, group.lanes, "wgmma", step.at)
        event.edges += [(Edge.EXECUTION, e) for w, e in met if w is not warp]
        tile = ("wgmma", warp.block.rank, warp.number // _WARPS, flight.issued)
        words = []
        for read, rows, depth, transposed in ((a, op.m, op.stored_k, trans[0]), (b, op.n, op.k, trans[1])):
            if read is None:
                continue
            word = read(machine, warp, group)
            major = transposed(machine, warp, group) if transposed is not None else 0
            if not isinstance(word, int) or not isinstance(major, int):
                raise step.not_understood("a descriptor, which is data,")
            words.append(word)
            touched = cells.of_operand(word, "sm_90", rows, depth, bits, bool(major))
            access = machine.access(Space(warp.block.rank, False), Engine.WGMMA, False, touched, event.index, None,
                                    step.at, ("wgmma", warp.name), tile, "an operand of wgmma")  # fmt: skip
            flight.reads.append((flight.batch, access))
        if a_names or flight.newest != (op.n, d_names):
            _overlap(machine, flight, d_names, a_names, op.n, step.at)
        flight.newest = op.n, d_names
        flight.registers.update(dict.fromkeys(d_names, Held(flight.batch, True, step.at, op.n)))
        group.registers.update(results)
        for name in a_names:
            flight.registers.setdefault(name, Held(flight.batch, False, step.at, op.n))
        machine.history.trace[warp.name].append(("wgmma", *words, step.at))
        group.pc += 1
        return None

    return run


def _overlap(
    machine: Machine, flight: Flight, d_names: tuple[str, ...], a_names: tuple[str, ...], columns: int, at: int
) -> None:
    """Registers of a wgmma in flight that another one takes: results of one shape alone go on (PTX ISA 9.7.15.7)."""
    for name in d_names:
        held = flight.registers.get(name)
        if held is not None and not (held.written and held.columns == columns):
            what = "a register of a wgmma in flight is a result of another shape, or one that A had, ahead of its wait"
            machine.problem("wgmma-wait", what, at, other=held.at)
            return
    for name in a_names:
        held = flight.registers.get(name)
        if held is not None and held.written:
            machine.problem("wgmma-wait", "A is a result of a wgmma in flight, ahead of its wait", at, other=held.at)
            return
