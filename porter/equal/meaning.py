# SPDX-License-Identifier: Apache-2.0
"""Follows an execution, and does with data what its instructions do."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

import porter.equal.meanings as families
from porter.equal.contents import UNDEFINED, Contents, Taken, Way, fitted
from porter.equal.forms import Forms
from porter.equal.rows import Made, Read, Row
from porter.equal.words import Words, constant, of_predicates, opposite, spread, word
from porter.facts.events import NotUnderstood
from porter.facts.instructions.registry import Families, Step, lanes_where
from porter.facts.machine import Machine
from porter.facts.operands import Reader, reader
from porter.facts.state import Group, Warp
from porter.facts.values import ALL, Value, bits, is_known
from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.bits import type_bytes
from porter.ptx.special import FORMAT_BYTES

Then = Callable[[], None]
Means = Callable[[Contents, Warp, Group, Taken], Then | None]
"""Called ahead of an instruction, with what it finds; what it gives is called behind it, unless it has to wait."""
meaning: Families[Means | None] = Families(families)
in_a_row: Families[Made | None] = Families(families)
"""What is made by instructions of which those in a row are done at once."""


class Follower:
    """Follows the execution of a machine."""

    def __init__(self, machine: Machine, forms: Forms | None = None, undefined: np.uint64 = UNDEFINED) -> None:
        self.contents = Contents(machine, forms, undefined)
        self._machine = machine
        self._known: dict[int, Means | None] = machine.flow.__dict__.setdefault("_meanings", {})
        self._rows: dict[tuple[int, ...], Row | None] = machine.flow.__dict__.setdefault("_rows", {})
        machine.follow, machine.follow_row = self.follow, self.follow_row

    def follow(self, warp: Warp, group: Group) -> Then | None:
        """What the instruction that a group comes to does to data.

        Raises:
            NotUnderstood: nobody knows.
        """
        means = self._means(group.pc)
        taken = self._taken(warp, group, None) if means is not None else None
        if means is None or taken is None:
            return None
        if self._machine.flow.code.code[group.pc].parts[0] == "bra":
            return self._branch(warp, group)
        return means(self.contents, warp, group, taken)

    def follow_row(self, warp: Warp, group: Group, row: tuple[int, ...]) -> bool:
        """What instructions in a row do to data, if all lanes come to them; whether that is done."""
        if row not in self._rows:
            made = [self._made_alone(at) for at in row]
            known = [one for one in made if one is not None]
            self._rows[row] = Row(known) if len(known) == len(row) else None
        found = self._rows[row] if group.lanes == ALL else None
        if found is not None:
            found.run(self.contents, warp, group)
        return found is not None

    def _made_alone(self, at: int) -> Made | None:
        flow = self._machine.flow
        ins = flow.decoded[at]
        assert ins is not None
        return in_a_row.computing(Step(flow, at, ins)) if meaning.own(ins) is None else None

    def _means(self, at: int) -> Means | None:
        if at not in self._known:
            flow = self._machine.flow
            self._known[at] = _made(Step(flow, at, ins)) if (ins := flow.decoded[at]) is not None else None
        return self._known[at]

    def _taken(self, warp: Warp, group: Group, path: Words | None) -> Taken | None:
        """The lanes that come to the instruction and that its guard lets go; None if there are none."""
        flow, at = self._machine.flow, group.pc
        guard, lanes, where = flow.code.code[at].guard, group.lanes, path
        if guard is not None and flow.code.code[at].parts[0] != "bra":
            value = reader(flow.code, at, guard.operand)(self._machine, warp, group)
            of_guard = lanes_where(value, group.lanes, int(guard.negated))
            if of_guard is None:
                predicate = self._guard(warp, group)
                where = predicate if where is None else of_predicates("and", where, predicate)
            else:
                lanes = of_guard
        if not lanes:
            return None
        old = {} if where is None else {n: self.contents.held(warp, group, n, 8) for n in flow.writes[at]}
        return Taken(lanes, where, old)

    def _guard(self, warp: Warp, group: Group) -> Words:
        flow, at = self._machine.flow, group.pc
        ins = flow.decoded[at]
        assert ins is not None
        assert ins.guard is not None
        found = read(Step(flow, at, ins), ins.guard.operand, 1)(self.contents, warp, group)
        return opposite(found) if ins.guard.negated else found

    # Branches on data ---------------------------------------------------------------------------------

    def _branch(self, warp: Warp, group: Group) -> Then | None:
        """Both ways of a branch on data, each where its condition holds, up to where they meet."""
        flow, at = self._machine.flow, group.pc
        guard = flow.code.code[at].guard
        if guard is None or len(flow.code.successors[at]) < 2:
            return None
        value = reader(flow.code, at, guard.operand)(self._machine, warp, group)
        if lanes_where(value, group.lanes) is not None:
            return None
        there, here = flow.code.successors[at]
        condition, lanes, registers = self._guard(warp, group), group.lanes, dict(group.registers)

        def then() -> None:
            if self._traps(at, lanes, condition):
                return
            self._both(warp, at, Group(at, lanes, registers), {there: condition, here: opposite(condition)})

        return then

    def _traps(self, at: int, lanes: int, condition: Words) -> bool:
        """Whether a way of a branch only leads to a trap. The first one is taken where `condition` holds."""
        flow = self._machine.flow
        there, here = flow.code.successors[at]
        for way, where in ((there, condition), (here, opposite(condition))):
            if way in flow.lost:
                self.contents.trap(where, np.fromiter(bits(lanes), np.intp), at)
        return there in flow.lost or here in flow.lost

    def _both(self, warp: Warp, branch: int, group: Group, paths: dict[int, Words]) -> None:
        flow = self._machine.flow
        meet = flow.meets[branch]
        inside = flow.between(branch, meet)
        if meet < branch or any(t <= at for at in inside for t in flow.code.successors[at] if t in inside):
            raise NotUnderstood("a loop behind a branch on data", branch)
        for at in sorted(inside):
            path = paths.get(at)
            if path is None:
                continue
            group.pc, self.contents.path = at, path
            self._one(warp, group, path, paths)
        self.contents.path = None

    def _one(self, warp: Warp, group: Group, path: Words, paths: dict[int, Words]) -> None:
        """An instruction on a way that is taken where `path` holds; what follows is reached there as well."""
        flow, at = self._machine.flow, group.pc
        after = [t for t in flow.code.successors[at] if t not in flow.lost]
        ends = dict.fromkeys(after, path)
        if flow.code.code[at].parts[0] == "bra":
            if len(flow.code.successors[at]) == 2 and len(after) < 2:
                self._traps(at, group.lanes, self._guard(warp, group))
            if len(after) == 2:
                condition = self._guard(warp, group)
                ways = [of_predicates("and", path, way) for way in (condition, opposite(condition))]
                for way, other in (ways, ways[::-1]):
                    if not bool((way == path).all()):
                        self.contents.ways[way.tobytes()] = Way(path, other)
                ends = dict(zip(flow.code.successors[at], ways, strict=True))
        else:
            means, taken = self._means(at), self._taken(warp, group, path)
            then = means(self.contents, warp, group, taken) if means is not None and taken is not None else None
            if then is None and taken is not None and flow.writes[at] & flow.live[at + 1]:
                raise NotUnderstood(f"{flow.code.code[at].opcode} behind a branch on data", at)
            group.registers.update(dict.fromkeys(flow.writes[at]))
            if then is not None:
                then()
        for target, condition in ends.items():
            known = paths.get(target)
            paths[target] = condition if known is None else self._either(known, condition)

    def _either(self, one: Words, other: Words) -> Words:
        """What holds where two ways meet."""
        way = self.contents.ways.get(one.tobytes())
        if way is not None and bool((way.other == other).all()):
            return way.around
        return of_predicates("or", one, other)


_SLOTS = ("warpid", "nwarpid")
"""Where a warp is on its multiprocessor: nobody knows that beforehand, and it may change (PTX ISA 10.4)."""


def _made(step: Step) -> Means | None:
    if any(isinstance(operand, ast.SpecialReg) and operand.name in _SLOTS for operand in step.ins.operands):
        return refused(step, "an operand")
    return (meaning.own(step.ins) or meaning.computing)(step)


def refused(step: Step, what: str) -> Means:
    """What is not followed, which is told where it is executed."""

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then | None:
        raise step.not_understood(what)

    return means


def require_together(step: Step, taken: Taken) -> None:
    """Raises NotUnderstood: data decide which lanes of a warp come, and lanes have other data."""
    if taken.where is not None:
        lanes = taken.where[taken.index()]
        if bool((lanes != lanes[0]).any()):
            raise step.not_understood("lanes that come apart by data, which is not followed,")


def of_numbers(step: Step, what: str) -> Means | None:
    """What is followed only where all that it writes, and somebody reads, are numbers."""
    live = step.flow.live
    written = sorted(step.flow.writes[step.at] & (live[step.at + 1] if step.at + 1 < len(live) else frozenset()))

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        def then() -> None:
            if taken.where is not None or not all(is_known(group.registers.get(n), taken.mask) for n in written):
                raise step.not_understood(what)

        return then

    return means if written else None


def width(kind: str) -> int:
    """Bytes of a type; of a predicate one."""
    return 1 if kind == "pred" else FORMAT_BYTES.get(kind) or type_bytes(kind)


# Operands ---------------------------------------------------------------------------------------------


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
    return _of_number(step, number_of, size, operand)


def _bits(immediate: ast.Imm, size: int) -> int:
    if immediate.bits is not None and size >= 4:
        return immediate.bits
    return int.from_bytes(struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], immediate.value), "little")


def _together(pieces: list[Read]) -> Read:
    return lambda contents, warp, group: np.concatenate([p(contents, warp, group) for p in pieces], axis=1)


_TIMERS = ("clock", "globaltimer")


def _of_number(step: Step, number_of: Reader, size: int, operand: ast.Operand) -> Read:
    name = operand.name if isinstance(operand, ast.SpecialReg) else ""
    # the address of a variable that is not in shared memory stands for itself
    address = word(f"{operand.name} {operand.offset}") if isinstance(operand, ast.Sym) else None
    itself = spread(np.broadcast_to(address, (WARP,)), size) if address is not None else None

    def found(contents: Contents, warp: Warp, group: Group) -> Words:
        value = number_of(contents.machine, warp, group)
        if not is_known(value, group.lanes):
            if name.startswith(_TIMERS):
                return fitted(contents.reading(warp, name), size)
            data = itself if itself is not None else contents.index_of_grid(warp, name)
            if data is None:
                raise step.not_understood("an operand")
            return fitted(data, size)
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


Places = Callable[[Contents, Warp, Group, int], dict[int, int]]
"""Gives the address by lane of some lanes; one of global memory that follows symbols as a number of its own."""


def places(step: Step, name: str) -> Places:
    """Of a memory operand. What it gives raises NotUnderstood: an address is data."""
    operand, number_of = step.ins[name], step.value(name)
    base, offset = (operand.base, operand.offset) if isinstance(operand, ast.Mem) else (operand, 0)
    data_of = read(step, base, 8) if isinstance(base, ast.Reg) else None

    def found(contents: Contents, warp: Warp, group: Group, lanes: int) -> dict[int, int]:
        value = number_of(contents.machine, warp, group)
        if is_known(value, lanes) or contents.forms is None or data_of is None:
            return lane_addresses(step, value, lanes)
        data = data_of(contents, warp, group)
        by_lane = contents.forms.addresses(data, offset, lanes)
        if by_lane is None:
            raise step.not_understood("an address, which is data,")
        return by_lane

    return found
