# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg, which moves registers between warps and their block (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from porter.facts.events import Move
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.ptx.arch import WARP
from porter.ptx.register_file import allocated


@family("setmaxnreg")
def setmaxnreg(step: Step) -> Run:
    action, value = step.ins.modifiers["action"], step.value("count")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        count, held, change = value(machine, warp, group), warp.registers, 0
        assert isinstance(count, int)
        if held is not None:
            if (count > held) if action == "dec" else (count < held):
                wrong = "more" if action == "dec" else "fewer"
                what = f"setmaxnreg.{action} {count}: {wrong} than the {held} registers that the warp's threads have"
                machine.problem("registers", what, step.at)
            change = WARP * (allocated(count) - allocated(held))
            if change > warp.block.registers:
                group.wait(
                    lambda: change <= warp.block.registers,
                    lambda: (
                        f"setmaxnreg.{action} {count} waits for {change} registers, and the block has "
                        f"{warp.block.registers} to give"
                    ),
                )
                return Outcome.BLOCKED
            warp.block.registers -= change
            warp.registers = count
        event = machine.joint(warp, group.lanes, "setmaxnreg", step.at)
        machine.history.moves[warp.name].append(Move(event.index, action, count, change, step.at))
        machine.history.trace[warp.name].append(("setmaxnreg", action, count, step.at))
        group.pc += 1
        return None

    return run
