# SPDX-License-Identifier: Apache-2.0
"""clusterlaunchcontrol (PTX ISA 9.7.13.17): a block asks for the work of one that has not begun."""

from __future__ import annotations

from porter.facts.events import Event, Signal
from porter.facts.instructions.copies import beside, land, place_of
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.placed import look_at_place
from porter.facts.state import Group, Warp
from porter.facts.values import Value, of_lane, squeezed
from porter.ptx.alignment import RESPONSE_BYTES
from porter.ptx.arch import WARP

_WORD = 32


@family("clusterlaunchcontrol")
def clusterlaunchcontrol(step: Step) -> Run:
    return _try_cancel(step) if step.ins.parts[1] == "try_cancel" else _query(step)


def _try_cancel(step: Step) -> Run:
    response, address = step.value("response"), step.value("mbar")
    everyone = step.has("multicast::cluster::all")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, arrives = response(machine, warp, group), address(machine, warp, group)
        limit = machine.launched.geometry.handed_out
        machine.history.assumed.add(f"try_cancel hands {limit} further blocks to each block, then none")
        look_at_place(machine, where, group.lanes, RESPONSE_BYTES, step.at)
        for event, lane in machine.lane_starts(warp, group, "try_cancel", step.at):
            place, mbar = place_of(step, where, lane), place_of(step, arrives, lane)
            granted = warp.block.handed_out < limit
            warp.block.handed_out += granted
            geometry = machine.launched.geometry
            words = (1, *geometry.first_of(warp.block.handed_out)) if granted else (0, 0, 0, 0)
            ranks = range(len(machine.blocks)) if everyone else [machine.block_of(place, step.at).rank]
            for rank in ranks:
                _answer(step, machine, warp, event, beside(place, rank), beside(mbar, rank), words)
        machine.history.trace[warp.name].append(("try_cancel", where, Signal(arrives), step.at))
        group.pc += 1
        return None

    return run


def _answer(
    step: Step, machine: Machine, warp: Warp, event: Event, place: int, mbar: int, words: tuple[int, ...]
) -> None:
    """The response to one block, which its mbarrier counts."""
    block = machine.block_of(place, step.at)

    def write() -> None:
        for index, word in enumerate(words):
            block.write(place + 4 * index, 4, word)

    land(step, machine, warp, event, block.rank, place, RESPONSE_BYTES, mbar, write=write)


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
