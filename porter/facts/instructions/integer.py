# SPDX-License-Identifier: Apache-2.0
"""Instructions that compute: integers and predicates as numbers, everything else as data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from porter.facts.instructions.registry import COMPUTES, Outcome, Run, Step, family
from porter.facts.integers import operation
from porter.facts.machine import Machine
from porter.facts.operands import Reader, reader
from porter.facts.state import Group, Warp
from porter.facts.values import Value, apply, bits, of_lane, squeezed
from porter.ptx import ast, table
from porter.ptx.arch import WARP

_TYPE_BITS = {"8": 8, "16": 16, "32": 32, "64": 64, "128": 128}


@family(COMPUTES)
def compute(step: Step) -> Run:
    operands = step.ins.operands
    if is_data(step.ins):
        return _data(step)
    if isinstance(operands[0], ast.Vec):
        return _unpacked(step)
    if isinstance(operands[1], ast.Vec):
        return _packed(step)
    targets = [operands[0].first, operands[0].second] if isinstance(operands[0], ast.Pair) else [operands[0]]
    names = [step.flow.code.renamed(step.at, o.name) if isinstance(o, ast.Reg) else None for o in targets]
    given = [reader(step.flow.code, step.at, o) for o in operands[1:]]
    return _comparing(step, names, given) if step.ins.parts[0] == "setp" else _number(step, names[0], given)


def is_data(ins: table.Decoded) -> bool:
    """Whether the result is data whatever the operands are."""
    operands = ins.operands
    vectors = [isinstance(o, ast.Vec) for o in operands]
    if any(vectors):
        return len(operands) != 2
    if isinstance(operands[0], ast.Pair) and ins.parts[0] != "setp":
        return True
    return ins.parts[0] != "selp" and operation(ins.parts) is None


def _data(step: Step) -> Run:
    """The result is data."""
    written = step.flow.writes[step.at]

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        group.registers.update(dict.fromkeys(written))
        group.pc += 1
        return None

    return run


def _number(step: Step, name: str | None, given: list[Reader]) -> Run:
    parts = step.ins.parts

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if name is not None:
            group.registers[name] = apply(parts, [g(machine, warp, group) for g in given], group.lanes)
        group.pc += 1
        return None

    return run


def _comparing(step: Step, names: list[str | None], given: list[Reader]) -> Run:
    """A comparison writes its result, and behind `|` the opposite."""
    parts, at = step.ins.parts, step.at
    opposite = names[1] if len(names) > 1 else None

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        found = compared(machine, warp, at, parts, [g(machine, warp, group) for g in given], group.lanes)
        if names[0] is not None:
            group.registers[names[0]] = found
        if opposite is not None:
            # with a further predicate it is not the opposite of the result
            alone = len(given) == 2
            group.registers[opposite] = apply(("not", "pred"), [found], group.lanes) if alone else None
        group.pc += 1
        return None

    return run


def compared(
    machine: Machine, warp: Warp, at: int, parts: tuple[str, ...], values: Sequence[Value], lanes: int
) -> Value:  # fmt: skip
    """The result of a comparison, which the machine is told of where both sides are numbers."""
    if machine.on_comparison is not None and (sides := _sides(values[0], values[1], lanes)):
        machine.on_comparison(warp, at, sides)
    return apply(parts, values, lanes)


def _sides(left: Value, right: Value, lanes: int) -> tuple[tuple[int, int], ...]:
    """Both sides of a comparison by lane, where they are numbers; once where all lanes have the same."""
    if left is None or right is None:
        return ()
    if isinstance(left, int) and isinstance(right, int):
        return ((left, right),)
    return _by_lane(left, right, lanes)


@lru_cache(maxsize=1 << 12)
def _by_lane(left: Value, right: Value, lanes: int) -> tuple[tuple[int, int], ...]:
    sides = ((of_lane(left, lane), of_lane(right, lane)) for lane in bits(lanes))
    return tuple((a, b) for a, b in sides if a is not None and b is not None)


def _unpacked(step: Step) -> Run:
    """`mov.b64 {a, b}, c`."""
    names = [
        step.flow.code.renamed(step.at, o.name) if isinstance(o, ast.Reg) else None
        for o in table.items(step.ins.operands[0])
    ]
    source = reader(step.flow.code, step.at, step.ins.operands[1])
    width = _TYPE_BITS[step.ins.parts[-1][1:]] // len(names)
    field = (1 << width) - 1

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        whole = source(machine, warp, group)
        for index, name in enumerate(names):
            if name is not None:
                group.registers[name] = _field(whole, width * index, field, group.lanes)
        group.pc += 1
        return None

    return run


def _field(whole: Value, shift: int, field: int, lanes: int) -> Value:
    if isinstance(whole, tuple):
        return squeezed(tuple(None if v is None else v >> shift & field for v in whole), lanes)
    return None if whole is None else whole >> shift & field


def _packed(step: Step) -> Run:
    """`mov.b64 c, {a, b}`."""
    target = step.ins.operands[0]
    name = step.flow.code.renamed(step.at, target.name) if isinstance(target, ast.Reg) else None
    pieces = [reader(step.flow.code, step.at, o) for o in table.items(step.ins.operands[1])]
    width = _TYPE_BITS[step.ins.parts[-1][1:]] // len(pieces)
    field = (1 << width) - 1

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        values = [p(machine, warp, group) for p in pieces]
        if name is not None:
            group.registers[name] = _joined(values, width, field, group.lanes)
        group.pc += 1
        return None

    return run


def _joined(values: list[Value], width: int, field: int, lanes: int) -> Value:
    if any(v is None for v in values):
        return None
    if all(isinstance(v, int) for v in values):
        return sum((v & field) << width * i for i, v in enumerate(values) if isinstance(v, int))
    rows = [[of_lane(v, lane) for v in values] for lane in range(WARP)]
    whole: list[int | None] = []
    for row in rows:
        known = [v for v in row if v is not None]
        whole.append(sum((v & field) << width * i for i, v in enumerate(known)) if len(known) == len(row) else None)
    return squeezed(tuple(whole), lanes)
