# SPDX-License-Identifier: Apache-2.0
"""Instructions as functions of an execution: found by opcode, compiled once for each place of an entry."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from types import ModuleType
from typing import Generic, TypeVar

import porter.facts.instructions as families
from porter.facts.events import NotUnderstood
from porter.facts.flow import Flow, called
from porter.facts.machine import Machine
from porter.facts.operands import Reader, reader
from porter.facts.state import Group, Warp
from porter.facts.values import Value, bits, merged
from porter.ptx import ast, table
from porter.ptx.forms.grammar import Completion


class Outcome(Enum):
    BLOCKED = auto()
    """The group waits, and comes to the instruction again."""
    PARTED = auto()
    """Lanes have parted or ended."""
    MET = auto()
    """The group has come behind a wait: others go on as well, so that none is passed by a phase that it waits for."""


Run = Callable[["Machine", Warp, Group], Outcome | None]
"""Executes one instruction for a group, whose `pc` it moves on."""


@dataclass(frozen=True)
class Step:
    """An instruction at its place in an entry."""

    flow: Flow
    at: int
    ins: table.Decoded

    def has(self, modifier: str) -> bool:
        """Whether the opcode has a part."""
        return modifier in self.ins.parts

    def value(self, name: str) -> Reader:
        """The operand of a name; of a vector without a known length use `values`."""
        return reader(self.flow.code, self.at, self.ins[name])

    def optional(self, name: str) -> Reader | None:
        return self.value(name) if name in self.ins else None

    def values(self, name: str) -> list[Reader]:
        return [reader(self.flow.code, self.at, o) for o in table.items(self.ins[name])]

    def register(self, name: str) -> str | None:
        """The register that an operand writes; None for `_` and for what is not there."""
        operand = self.ins.get(name)
        return self.flow.code.renamed(self.at, operand.name) if isinstance(operand, ast.Reg) else None

    def registers(self, name: str) -> list[str | None]:
        """The same of a vector's elements."""
        return [
            self.flow.code.renamed(self.at, o.name) if isinstance(o, ast.Reg) else None
            for o in table.items(self.ins[name])
        ]

    def not_understood(self, what: str) -> NotUnderstood:
        return NotUnderstood(f"{what} of {self.ins.opcode}", self.at)


COMPUTES = "computes"
"""Stands for all instructions that read and write registers alone, and have no family of their own."""
Made = TypeVar("Made")


class Families(Generic[Made]):
    """What is made of instructions, by how their opcode begins. Each module of a package registers its own."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package
        self._factories: dict[str, Callable[[Step], Made]] = {}

    def __call__(self, *heads: str) -> Callable[[Callable[[Step], Made]], Callable[[Step], Made]]:
        """Have a function be for instructions whose opcode begins with one of these parts, or two of them."""

        def known(factory: Callable[[Step], Made]) -> Callable[[Step], Made]:
            self._factories.update(dict.fromkeys(heads, factory))
            return factory

        return known

    @cached_property
    def _all(self) -> dict[str, Callable[[Step], Made]]:
        for module in pkgutil.iter_modules(self._package.__path__):
            importlib.import_module(f"{self._package.__name__}.{module.name}")
        return self._factories

    def own(self, ins: ast.Instruction) -> Callable[[Step], Made] | None:
        """The function for an instruction, if it has a family of its own."""
        return self._all.get(".".join(ins.parts[:2])) or self._all.get(ins.parts[0])

    @property
    def computing(self) -> Callable[[Step], Made]:
        return self._all[COMPUTES]


family: Families[Run] = Families(families)


def compiled(flow: Flow, at: int) -> Run:
    """What executes the instruction at a place.

    Raises:
        NotUnderstood: nothing is known of it.
    """
    found: Run | None = flow.runs[at]
    if found is None:
        found = flow.runs[at] = _compile(flow, at)
    return found


def _compile(flow: Flow, at: int) -> Run:
    ins, written = flow.decoded[at], flow.code.code[at]
    if ins is None:
        raise NotUnderstood(f"the instruction {written.opcode}", at)
    factory = family.own(ins) or (family.computing if computes(ins) else None)
    if factory is None:
        raise NotUnderstood(f"the instruction {written.opcode}", at)
    step = Step(flow, at, ins)
    run = factory(step)
    return run if ins.guard is None or ins.parts[0] == "bra" else _guarded(step, run, ins.guard)


def computes(ins: table.Decoded) -> bool:
    """Whether an instruction does nothing but compute what it writes to registers."""
    form = ins.form
    if family.own(ins) is not None:
        return False
    alone = form.completion is form.commits is form.awaits is Completion.NONE
    return bool(ins.bound) and alone and all(row.kind not in _ELSEWHERE for row, _ in ins.bound)


_ELSEWHERE = frozenset(("memory", "label", "callee", "list"))
"""Kinds of operands that are no values."""

HAS_EFFECT = frozenset(
    ("mbarrier", "bar", "barrier", "tcgen05", "wgmma", "cp", "fence", "membar", "elect", "setmaxnreg", "exit", "ret",
     "clusterlaunchcontrol", "stmatrix", "ldmatrix", "call", "griddepcontrol", "tensormap")
)  # fmt: skip
"""Instructions that must not depend on data, as others wait for what they do."""


OF_RUNTIME = frozenset(("vprintf", "malloc", "free"))
"""Functions of the device runtime whose calls order nothing (CUDA C++ Programming Guide, formatted output, dynamic
allocation)."""
_APART = ("bar", "barrier", "mbarrier")
"""Instructions at which some lanes may wait while the others go on."""
_MEMORY = ("ld", "ldu", "st", "atom", "red")
_NOT_SHARED = frozenset(("global", "const", "local", "param"))


def orders(ins: ast.Instruction) -> bool:
    """Whether an instruction does something that others may wait for: a condition on data must not decide it."""
    parts = ins.parts
    if called(ins) in OF_RUNTIME:
        return False
    elsewhere = any(p.split("::")[0] in _NOT_SHARED for p in parts)
    return parts[0] in HAS_EFFECT or (parts[0] in _MEMORY and not elsewhere)


def _guarded(step: Step, run: Run, guard: ast.Guard) -> Run:
    condition = reader(step.flow.code, step.at, guard.operand)
    written = step.flow.writes[step.at]
    flipped = int(guard.negated)
    ends = step.ins.parts[0] in ("exit", "ret")
    decides = orders(step.ins)
    opaque = step.ins.parts[0] in ("ld", "ldu", "st")

    def guarded(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        holds = condition(machine, warp, group)
        taken = lanes_where(holds, group.lanes, flipped)
        if taken is None:
            if opaque and decides:
                # what may be stored counts as stored, and what may be loaded as loaded
                machine.is_taken = False
                outcome = run(machine, warp, group)
                machine.is_taken = True
                group.registers.update(dict.fromkeys(written))
                return outcome
            if decides:
                raise step.not_understood("the guard, which is data,")
            if step.ins.parts[0] == "st":
                warp.local.forget()
            group.registers.update(dict.fromkeys(written))
            group.pc += 1
            return None
        if not taken:
            group.pc += 1
            return None
        if taken == group.lanes:
            return run(machine, warp, group)
        if ends:
            warp.groups.append(group.parted(group.pc + 1, group.lanes & ~taken))
            run(machine, warp, group)
            return Outcome.PARTED
        return _for_some(machine, warp, group, taken)

    def _for_some(machine: Machine, warp: Warp, group: Group, taken: int) -> Outcome | None:
        before = {name: group.registers.get(name) for name in written}
        lanes, group.lanes = group.lanes, taken
        outcome = run(machine, warp, group)
        group.lanes = lanes
        if outcome is Outcome.BLOCKED:
            if step.ins.parts[0] not in _APART:
                raise step.not_understood("the wait of some lanes")
            warp.groups.append(group.parted(group.pc + 1, lanes & ~taken))
            group.narrow()
            return outcome
        for name, old in before.items():
            group.registers[name] = merged(old, group.registers.get(name), taken, lanes)
        return outcome

    return guarded


def lanes_where(condition: Value, lanes: int, flipped: int = 0) -> int | None:
    """The lanes for which a predicate holds, or does not where `flipped`; None if that is data."""
    if condition is None:
        return None
    if isinstance(condition, int):
        return lanes if condition & 1 != flipped else 0
    found = 0
    for lane in bits(lanes):
        value = condition[lane]
        if value is None:
            return None
        found |= (value & 1 ^ flipped) << lane
    return found
