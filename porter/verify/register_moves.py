# SPDX-License-Identifier: Apache-2.0
"""Whether ptxas takes a kernel's setmaxnreg for what it says.

It ignores the instruction where it does not know how many registers the kernel starts with, which the PTX tells
(`porter.ptx.register_file`), and for reasons that only it knows: a call of a function that it cannot see into (C7504),
code that needs more registers than are left. Then nothing waits for registers.
"""

from __future__ import annotations

from porter.diagnostics import Code, PorterError
from porter.sim import Launch, Outcome
from porter.sim.loader import load_program
from porter.sim.registers import launch_registers
from porter.verify.builder import BuiltKernel

_ABOUT_REGISTERS = (Code.SIM_DEADLOCK, Code.SIM_REGISTERS)


def stopped_for_nothing(kernel: BuiltKernel, launch: Launch, outcome: Outcome) -> bool:
    """Whether a run may have stopped for a setmaxnreg that ptxas ignores."""
    if kernel.assembled is None or not any(f.code in _ABOUT_REGISTERS for f in outcome.findings):
        return False
    expected = launch_registers(load_program(kernel.module, kernel.entry), launch)
    if not expected:
        return False
    try:
        done = kernel.assembled()
    except PorterError:
        return False
    used = done.resources.get(kernel.entry)
    alone = len(kernel.module.entries()) == 1
    warned = any("setmaxnreg" in text and "ignored" in text for text in done.warnings)
    return used is not None and (used.registers != expected or (alone and warned))
