# SPDX-License-Identifier: Apache-2.0
"""clusterlaunchcontrol (PTX ISA 9.7.13.17): a block asks for the work of one that has not begun."""

from __future__ import annotations

from porter.facts import cells
from porter.facts.events import Edge, Engine, Kind, Space
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value, of_lane, squeezed
from porter.ptx.arch import WARP
from porter.ptx.shared_window import OFFSET_MASK

RESPONSE_BYTES = 16
_WORD = 32


@family("clusterlaunchcontrol")
def clusterlaunchcontrol(step: Step) -> Run:
    if step.ins.parts[1] == "try_cancel":
        if step.has("multicast::cluster::all"):
            raise step.not_understood("the multicast")
        return _try_cancel(step)
    return _query(step)


def _try_cancel(step: Step) -> Run:
    response, address = step.value("response"), step.value("mbar")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, arrives = response(machine, warp, group), address(machine, warp, group)
        if not isinstance(where, int) or not isinstance(arrives, int):
            raise step.not_understood("the response or mbarrier")
        limit = machine.launched.geometry.handed_out
        machine.history.assumed.add(f"try_cancel hands {limit} further blocks to each block, then none")
        for event, _ in machine.lane_starts(warp, group, "try_cancel", step.at):
            barrier = machine.mbarrier(arrives, event, step.at, asynchronous=True)
            block = machine.block_of(where, step.at)
            granted = block.handed_out < limit
            block.handed_out += granted
            access = machine.access(Space(block.rank, False), Engine.LOAD, True,
                                    cells.of_bytes(where & OFFSET_MASK, RESPONSE_BYTES), event.index, None,
                                    step.at)  # fmt: skip
            words = (int(granted), block.handed_out if granted else 0, 0, 0)
            for index, word in enumerate(words):
                block.write(where + 4 * index, 4, word)
            landed = machine.event(Kind.STEP, "a response", None, 0, step.at, [(Edge.PROGRAM, event.index)])
            access.end = landed.index
            machine.landed(barrier, landed, RESPONSE_BYTES, step.at, warp.block.rank)
        machine.history.trace[warp.name].append(("try_cancel", where, arrives, step.at))
        group.pc += 1
        return None

    return run


def _query(step: Step) -> Run:
    """Porter's own form of a response: whether a block was handed out, then its index."""
    response = step.value("response")
    asks = step.has("is_canceled")
    names = [step.register("p")] if asks else step.registers("d")
    axis = next((p[-1] for p in step.ins.parts if p.startswith("get_first_ctaid::")), "x")
    start = 0 if asks else 1 + "xyz".index(axis)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        word = response(machine, warp, group)
        for index, name in enumerate(names):
            if name is not None:
                group.registers[name] = _part(word, start + index, group.lanes, asks)
        group.pc += 1
        return None

    return run


def _part(word: Value, index: int, lanes: int, is_predicate: bool) -> Value:
    field = 1 if is_predicate else (1 << _WORD) - 1
    found = (of_lane(word, lane) for lane in range(WARP))
    return squeezed(tuple(None if v is None else v >> _WORD * index & field for v in found), lanes)
