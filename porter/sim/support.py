# SPDX-License-Identifier: Apache-2.0
"""Which instructions the simulator executes, asked of the code generator itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from porter.ptx.parser import parse_module
from porter.ptx.samples import HEAD, REGISTERS
from porter.sim.check.machine import CheckingMachine
from porter.sim.machine import INTERNAL_BASE, Machine
from porter.sim.memory import GlobalMemory
from porter.sim.program import load_program
from porter.sim.results import Launch, Options

_PARAMETER = 64


def kernel(texts: Sequence[str], target: str) -> str:
    """A module whose kernel `k` holds the instructions."""
    lines = [HEAD.format(version="9.0", target=target)]
    lines.append(f".visible .entry k(.param .align 8 .b8 parameter[{_PARAMETER}]) {{")
    lines += [REGISTERS, *texts, "END: ret;", "}"]
    return "\n".join(lines)


def _machine(text: str, kind: type[Machine], mode: str) -> Machine:
    module = parse_module(text)
    program = load_program(module, "k")
    internal = GlobalMemory(INTERNAL_BASE)
    addresses = {
        v.name: internal.alloc(max(v.size, 1), name=v.name)
        for v in program.variables.values()
        if v.space in ("global", "const")
    }
    options = Options(mode=mode)  # type: ignore[arg-type]
    launch = Launch((1, 1, 1), (128, 1, 1))
    return kind(program, launch, bytes(_PARAMETER), GlobalMemory(), internal, addresses, options, range(1), 0)


def refusals(texts: Sequence[str], target: str) -> list[str | None]:
    """For each instruction of a kernel: why the simulator does not execute it, or None if it does.

    The operands are those of `porter.ptx.samples`.
    """
    machine = _compiled(kernel(texts, target), Machine, "functional")
    return _by_text(machine, texts, machine.compiler.refused)


def _compiled(text: str, kind: type[Machine], mode: str) -> Machine:
    machine = _machine(text, kind, mode)
    for block in machine.program.blocks:
        for converged in (True, False):
            machine.compiler.compile(block.number, converged)
    return machine


def _by_text(machine: Machine, texts: Sequence[str], reasons: dict[int, str]) -> list[str | None]:
    """What was found at an instruction's index, by its place in `texts`: one line each."""
    first = kernel(texts, "sm_90a").split("\n").index(texts[0]) + 1 if texts else 0
    found: list[Any] = [None] * len(texts)
    for at, why in reasons.items():
        line = machine.program.code[at].line - first
        if 0 <= line < len(texts):
            found[line] = why or "not modelled"
    return found


__all__ = ["CheckingMachine", "kernel", "refusals"]
