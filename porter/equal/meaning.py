# SPDX-License-Identifier: Apache-2.0
"""Follows an execution, and does with data what its instructions do."""

from __future__ import annotations

import importlib
import pkgutil
import struct
from collections.abc import Callable
from functools import cache

import numpy as np

import porter.equal.meanings as families
from porter.equal.contents import Contents, Taken
from porter.equal.words import Words, constant, opposite, word
from porter.facts.instructions.registry import Step, lanes_where
from porter.facts.machine import Machine
from porter.facts.operands import Reader, reader
from porter.facts.state import Group, Warp
from porter.facts.values import Value, is_known
from porter.ptx import ast
from porter.ptx.arch import WARP

Then = Callable[[], None]
Means = Callable[[Contents, Warp, Group, Taken], Then | None]
"""Called ahead of an instruction, with what it finds; what it gives is called behind it, unless it has to wait."""
Factory = Callable[[Step], Means | None]
_FACTORIES: dict[str, Factory] = {}
COMPUTES = "computes"


def meaning(*heads: str) -> Callable[[Factory], Factory]:
    """Have a function make what follows instructions whose opcode begins with one of these parts, or two of them."""

    def known(factory: Factory) -> Factory:
        _FACTORIES.update(dict.fromkeys(heads, factory))
        return factory

    return known


@cache
def _factories() -> dict[str, Factory]:
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")
    return _FACTORIES


class Follower:
    """Follows the execution of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.contents = Contents(machine)
        self._machine = machine
        self._known: dict[int, Then | Means | None] = machine.flow.__dict__.setdefault("_meanings", {})
        machine.follow = self.follow

    def follow(self, warp: Warp, group: Group) -> Then | None:
        """What the instruction that a group comes to does to data.

        Raises:
            NotUnderstood: nobody knows.
        """
        at, flow = group.pc, self._machine.flow
        if at not in self._known:
            self._known[at] = _made(Step(flow, at, ins)) if (ins := flow.decoded[at]) is not None else None
        means = self._known[at]
        if means is None:
            return None
        guard = flow.code.code[at].guard
        taken = Taken(group.lanes)
        if guard is not None and flow.code.code[at].parts[0] != "bra":
            value = reader(flow.code, at, guard.operand)(self._machine, warp, group)
            lanes = lanes_where(value, group.lanes, int(guard.negated))
            if lanes == 0:
                return None
            if lanes is not None:
                taken = Taken(lanes)
            else:
                predicate = read(Step(flow, at, flow.decoded[at]), guard.operand, 1)(self.contents, warp, group)  # type: ignore[arg-type]
                taken = Taken(group.lanes, opposite(predicate) if guard.negated else predicate)
        return means(self.contents, warp, group, taken)  # type: ignore[call-arg,return-value]


def _made(step: Step) -> Means | None:
    known = _factories()
    factory = known.get(".".join(step.ins.parts[:2])) or known.get(step.ins.parts[0]) or known[COMPUTES]
    return factory(step)


# Operands ---------------------------------------------------------------------------------------------

Read = Callable[[Contents, Warp, Group], Words]


def read(step: Step, operand: ast.Operand, size: int) -> Read:
    """What gives the bytes [32, size] of an operand."""
    match operand:
        case ast.Imm(is_float=True):
            number = _bits(operand, size)
            return lambda contents, warp, group: constant(number, size)
        case ast.Reg(name):
            register = step.flow.code.renamed(step.at, name)
            return lambda contents, warp, group: contents.read(warp, group, register, size)
        case ast.Neg(_, inner) if size == 1:
            of_inner = read(step, inner, size)
            return lambda contents, warp, group: opposite(of_inner(contents, warp, group))
        case ast.Vec(items):
            return _together([read(step, item, size // len(items)) for item in items])
    number_of = reader(step.flow.code, step.at, operand)
    return _of_number(step, number_of, size, operand.name if isinstance(operand, ast.SpecialReg) else "")


def _bits(immediate: ast.Imm, size: int) -> int:
    if immediate.bits is not None and size >= 4:
        return immediate.bits
    return int.from_bytes(struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], immediate.value), "little")


def _together(pieces: list[Read]) -> Read:
    return lambda contents, warp, group: np.concatenate([p(contents, warp, group) for p in pieces], axis=1)


_TIMERS = ("clock", "globaltimer")


def _of_number(step: Step, number_of: Reader, size: int, name: str = "") -> Read:
    timer = np.broadcast_to(word(name), (WARP, size)) if name.startswith(_TIMERS) else None

    def found(contents: Contents, warp: Warp, group: Group) -> Words:
        value = number_of(contents.machine, warp, group)
        if not is_known(value, group.lanes):
            if timer is None:
                raise step.not_understood("an operand")
            return timer
        return contents.value(warp, "", value, size)

    return found


def lane_addresses(step: Step, value: Value, lanes: int) -> dict[int, int]:
    """Address by lane.

    Raises:
        NotUnderstood: it is data.
    """
    if not is_known(value, lanes):
        raise step.not_understood("an address, which is data,")
    if isinstance(value, int):
        return {lane: value for lane in range(32) if lanes >> lane & 1}
    assert value is not None
    return {lane: v for lane, v in enumerate(value) if lanes >> lane & 1 and v is not None}
