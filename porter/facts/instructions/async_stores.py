# SPDX-License-Identifier: Apache-2.0
"""st.async and red.async, which complete on an mbarrier (PTX ISA 9.7.9.12, 9.7.13.7), and st.bulk (9.7.9.13)."""

from __future__ import annotations

from porter.facts.events import Engine, Signal
from porter.facts.instructions.copies import land, place_of
from porter.facts.instructions.memory import touch
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.placed import look_at_place
from porter.facts.state import Block, Group, Warp
from porter.facts.values import bits, of_lane
from porter.ptx.alignment import BULK_STORE
from porter.ptx.bits import type_bytes


@family("st.async", "red.async")
def store_async(step: Step) -> Run:
    address, barrier = step.value("a"), step.value("mbar")
    size, values = type_bytes(step.ins.parts[-1]), step.values("b")
    nbytes = size * len(values)
    engine = Engine.RED_ASYNC if step.ins.parts[0] == "red" else Engine.STORE_ASYNC

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, arrives = address(machine, warp, group), barrier(machine, warp, group)
        look_at_place(machine, where, group.lanes, nbytes, step.at)
        for event, lane in machine.lane_starts(warp, group, engine.value, step.at):
            place = place_of(step, where, lane)
            block = machine.block_of(place, step.at)
            stored = [of_lane(v(machine, warp, group), lane) for v in values]

            def write(block: Block = block, place: int = place, stored: list[int | None] = stored) -> None:
                for index, value in enumerate(stored):
                    block.write(place + index * size, size, None if engine is Engine.RED_ASYNC else value)

            land(step, machine, warp, event, block.rank, place, nbytes, place_of(step, arrives, lane), engine,
                 write=write)  # fmt: skip
        machine.history.trace[warp.name].append((engine.value, where, Signal(arrives), nbytes, step.at))
        group.pc += 1
        return None

    return run


@family("st.bulk")
def store_bulk(step: Step) -> Run:
    address, size = step.value("a"), step.value("size")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, nbytes = address(machine, warp, group), size(machine, warp, group)
        if not isinstance(nbytes, int):
            raise step.not_understood("the size")
        look_at_place(machine, nbytes, group.lanes, 0, step.at, BULK_STORE)
        for event, lanes in machine.single(warp, group.lanes, "st.bulk", step.at):
            for lane in bits(lanes):
                place = place_of(step, where, lane)
                touch(machine, warp, event, 1 << lane, place, nbytes, True, step.at, multiple=BULK_STORE)
                machine.block_of(place, step.at).write(place, nbytes, None)
        group.pc += 1
        return None

    return run
