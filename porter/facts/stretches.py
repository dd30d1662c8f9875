# SPDX-License-Identifier: Apache-2.0
"""Instructions in a row that compute and do nothing else, and the branch behind them, as one function of Python.

What decides nothing is left out. Where lanes differ a function does what `porter.facts.values` says of each
instruction; where all have one number, as nearly everywhere, it computes with that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from porter.facts.deciding import deciding
from porter.facts.events import NotUnderstood
from porter.facts.flow import Flow
from porter.facts.instructions.integer import compared, is_data
from porter.facts.instructions.registry import compiled, computes
from porter.facts.integers import expression
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value, apply, is_known
from porter.ptx import ast
from porter.ptx.bits import unsigned

_MOST = 400
"""Instructions of a stretch."""


class Stretch(NamedTuple):
    """`run` executes the instructions from one to `last` for a group, which it moves on; the last one is at `end` if it
    is a branch, which a group comes to where its lanes part there."""

    run: Callable[[Machine, Warp, Group], None]
    end: int
    last: int
    named: frozenset[str]


Steps = Callable[[Machine, Warp, Group], object]


class Stretches:
    """The stretches of an entry by the instruction that they begin with, made when they are come to. `reads_global`:
    whether what is loaded from global memory may decide something. `step` executes one instruction of a machine whose
    data are followed; None where they are not. `notes`: whether numbers are told of then. They end ahead of `marks`."""

    def __init__(
        self, flow: Flow, reads_global: bool, step: Steps | None, notes: bool, marks: frozenset[int]
    ) -> None:  # fmt: skip
        self._flow, self._step, self._notes, self._ends = flow, step, notes, marks | flow.heads.keys()
        self._deciding = [*deciding(flow, reads_global), frozenset[str]()]
        self._known: tuple[dict[int, Stretch | None], ...] = ({}, {}, {}, {})
        """By whether registers are in flight, and whether those of wgmma are fenced."""

    def at(self, place: int, warp: Warp) -> Stretch | None:
        """The stretch that a warp comes to; it ends where registers of asynchronous operations have to be looked at."""
        flight = warp.flight
        in_flight, fenced = bool(warp.loaded or flight.registers), flight.touched is not None
        known = self._known[2 * in_flight + fenced]
        try:
            return known[place]
        except KeyError:
            found = known[place] = self._made(place, in_flight, fenced)
            return found

    def _made(self, start: int, in_flight: bool, fenced: bool) -> Stretch | None:
        flow, at = self._flow, start
        text = _Text(flow, self._deciding) if self._step is None else _FollowedText(flow, self._step, self._notes)
        while at < min(len(flow.decoded), start + _MOST) and (at == start or at not in self._ends):
            ins = flow.decoded[at]
            if ins is None or not computes(ins):
                break
            if (in_flight and flow.touches_flight[at]) or (fenced and flow.wgmma_operands[at]):
                break
            try:
                text.add(at)
            except NotUnderstood:
                break
            at += 1
        branches = at < len(flow.decoded) and (at == start or at not in self._ends) and text.branch(at)
        if at == start and not branches:
            return None
        last = at if branches else at - 1
        return Stretch(text.function(at, start), at, last, frozenset().union(*flow.named[start : last + 1]))


def stretches(
    flow: Flow, reads_global: bool, step: Steps | None = None, notes: bool = False, marks: frozenset[int] = frozenset()
) -> Stretches:
    known: dict[object, Stretches] = flow.__dict__.setdefault("_stretches", {})
    key = reads_global, step, notes, marks
    if key not in known:
        known[key] = Stretches(flow, reads_global, step, notes, marks)
    return known[key]


class _Text:
    """The text of a function. Registers are variables of it, and are put back where something may ask for them."""

    def __init__(self, flow: Flow, deciding: list[frozenset[str]]) -> None:
        self._flow, self._deciding = flow, deciding
        self._lines: list[tuple[str, str | None]] = []
        """With the register that a line gives a value."""
        self._variables: dict[str, str] = {}
        self._asked: set[str] = set()
        """Registers that what is called asks for."""
        self._names: dict[str, Any] = {"apply": apply, "compared": compared}
        self._goes = ""

    def add(self, at: int) -> None:
        """Raises:
        NotUnderstood: nothing is known of the instruction.
        """
        flow, ins = self._flow, self._flow.decoded[at]
        assert ins is not None
        if not flow.writes[at] & self._deciding[at + 1]:
            return
        guard = None if ins.guard is None else flow.code.register(at, ins.guard.operand)
        given = self._given(at) if ins.guard is None or guard is not None else None
        if given is None:
            self._call(at, "")
        elif ins.guard is None or guard is None:
            self._compute(at, given, "")
        else:
            guard = self._variable(guard)
            for name in flow.writes[at]:
                self._variable(name)
            self._line(f"if {guard}.__class__ is int:")
            self._line(f" if {guard} & 1 == {int(not ins.guard.negated)}:")
            self._compute(at, given, "  ")
            self._line("else:")
            self._call(at, " ")

    def branch(self, at: int) -> bool:
        """Add a branch, if all lanes go the same way. Whether this is one."""
        flow, ins = self._flow, self._flow.code.code[at]
        after = flow.code.successors[at]
        if ins.parts[0] != "bra" or not after or flow.touches_flight[at]:
            return False
        if ins.guard is None or len(after) == 1:
            self._goes = f"group.pc = {after[0]}"
        elif isinstance(ins.guard.operand, ast.Reg):
            guard = self._variable(flow.code.renamed(at, ins.guard.operand.name))
            there, here = after if not ins.guard.negated else after[::-1]
            self._goes = f"group.pc = {at} if {guard}.__class__ is not int else {there} if {guard} & 1 else {here}"
        return bool(self._goes)

    def function(self, end: int, start: int) -> Callable[[Machine, Warp, Group], None]:
        kept = self._asked | self._deciding[end]
        text = ["def stretch(machine, warp, group):", " R = group.registers; get = R.get; told = machine.on_comparison"]
        for line, register in self._lines:
            text.append(" " + line)
            if register is not None and register in kept:
                indent = line[: len(line) - len(line.lstrip())]
                text.append(f" {indent}R[{register!r}] = {self._variables[register]}")
        text.append(" " + (self._goes or f"group.pc = {end}"))
        exec(compile("\n".join(text), f"<instructions {start} to {end}>", "exec"), self._names)
        found: Callable[[Machine, Warp, Group], None] = self._names["stretch"]
        return found

    # Lines --------------------------------------------------------------------------------------------

    def _line(self, text: str, register: str | None = None) -> None:
        self._lines.append((text, register))

    def _variable(self, register: str) -> str:
        known = self._variables.get(register)
        if known is None:
            known = self._variables[register] = f"v{len(self._variables)}"
            self._line(f"{known} = get({register!r})")
        return known

    def _target(self, register: str) -> str:
        return self._variables.setdefault(register, f"v{len(self._variables)}")

    def _call(self, at: int, indent: str) -> None:
        """Have an instruction done by what executes it alone."""
        flow = self._flow
        self._names[f"run{at}"] = compiled(flow, at)
        self._asked |= flow.uses[at] | flow.writes[at]
        self._line(f"{indent}run{at}(machine, warp, group)")
        for name in sorted(flow.writes[at]):
            self._line(f"{indent}{self._target(name)} = R[{name!r}]")

    def _given(self, at: int) -> list[str] | None:
        """The operands of an instruction that an expression, or data, stands for; None if there is no expression."""
        ins = self._flow.decoded[at]
        assert ins is not None
        if is_data(ins):
            return []
        targets = ins.operands[0]
        plain = isinstance(targets, ast.Reg) or (
            isinstance(targets, ast.Pair) and isinstance(targets.first, ast.Reg) and isinstance(targets.second, ast.Reg)
        )
        if not plain or expression(ins.parts) is None:
            return None
        given = []
        for operand in ins.operands[1:]:
            if isinstance(operand, ast.Reg):
                given.append(self._variable(self._flow.code.renamed(at, operand.name)))
            elif isinstance(operand, ast.Imm) and not operand.is_float:
                given.append(str(unsigned(int(operand.value), 64)))
            else:
                return None
        return given

    def _compute(self, at: int, given: list[str], indent: str) -> None:
        ins = self._flow.decoded[at]
        assert ins is not None
        if not given:
            for name in sorted(self._flow.writes[at]):
                self._line(f"{indent}{self._target(name)} = None", name)
            return
        text = expression(ins.parts)
        assert text is not None
        names = _written(self._flow, at)
        shown = text.format(**dict(zip("abc", given, strict=False)))
        variables = [v for v in given if not v.isdigit()]
        if not variables and ins.parts[0] != "setp":
            self._line(f"{indent}{self._target(names[0])} = {shown}", names[0])
            return
        different = list(dict.fromkeys(variables))
        are_numbers = " and ".join(f"{v}.__class__ is int" for v in different) or "True"
        self._names[f"parts{at}"] = ins.parts
        other = f"(parts{at}, ({', '.join(given)},), group.lanes)"
        if ins.parts[0] == "setp":
            other = f"compared(machine, warp, {at}, *{other})"
            self._line(f"{indent}if told is not None and {are_numbers}:")
            self._line(f"{indent} told(warp, {at}, (({given[0]}, {given[1]}),))")
        elif ins.parts[0] == "selp" or ins.parts[-1] == "pred":
            other = f"apply{other}"
        else:
            other = f"None if {' or '.join(f'{v} is None' for v in different)} else apply{other}"
        target = self._target(names[0])
        self._line(f"{indent}{target} = {shown} if {are_numbers} else {other}", names[0])
        for name in names[1:]:
            # with a further predicate it is not the opposite of the result
            opposite = f"apply(('not', 'pred'), ({target},), group.lanes)" if len(given) == 2 else "None"
            self._line(f"{indent}{self._target(name)} = {opposite}", name)


class _FollowedText(_Text):
    """The same where data are followed: what takes and gives numbers alone has no part in them, and everything else is
    done by itself. Registers are put back at once."""

    def __init__(self, flow: Flow, step: Steps, notes: bool) -> None:
        super().__init__(flow, [])
        self._names |= {"step": step, "in_lanes": _in_lanes(step)}
        self._notes = notes
        self._of_numbers: list[int] = []
        self._row: list[int] = []
        self._line("others = ()")
        if notes:
            self._line("note, lanes = machine.on_numbers(warp, group), group.lanes")

    def add(self, at: int) -> None:
        flow, ins = self._flow, self._flow.decoded[at]
        assert ins is not None
        if _makes_data_alone(flow, at):
            self._row.append(at)
            return
        self._end_row()
        given = self._given(at) if ins.guard is None else None
        written = _written(flow, at)
        # what leaves a carry, or another predicate, leaves more than numbers say
        if not given or (len(written) > 1 and len(given) > 2) or "cc" in ins.parts:
            self._alone(at)
            return
        self._of_numbers.append(at)
        self._note(at)
        variables = dict.fromkeys(v for v in given if not v.isdigit())
        targets, text = [self._target(name) for name in written], expression(ins.parts)
        assert text is not None
        self._line(f"if {' and '.join(f'{v}.__class__ is int' for v in variables) or 'True'}:")
        if ins.parts[0] == "setp":
            self._line(f" if told is not None: told(warp, {at}, (({given[0]}, {given[1]}),))")
        self._line(f" R[{written[0]!r}] = {targets[0]} = {text.format(**dict(zip('abc', given, strict=False)))}")
        for name, target in zip(written[1:], targets[1:], strict=True):
            self._line(f" R[{name!r}] = {target} = {targets[0]} & 1 ^ 1")
        if variables:
            self._names[f"parts{at}"], self._names[f"written{at}"] = ins.parts, written
            self._line("else:")
            arguments = f"{at}, parts{at}, ({', '.join(given)},), written{at}"
            self._line(f" others += in_lanes(machine, warp, group, {arguments})")
            for name, target in zip(written, targets, strict=True):
                self._line(f" {target} = get({name!r})")

    def _alone(self, at: int, indent: str = "") -> None:
        self._line(f"{indent}group.pc = {at}; step(machine, warp, group)")
        for name in sorted(self._flow.writes[at]):
            self._line(f"{indent}{self._target(name)} = get({name!r})")

    def _end_row(self) -> None:
        """What makes data, as far as it stands in a row, is done at once where that can be."""
        row, self._row = tuple(self._row), []
        if len(row) < 2:
            for at in row:
                self._alone(at)
            return
        written = sorted(frozenset().union(*(self._flow.writes[at] for at in row)))
        self._names |= {f"row{row[0]}": row, f"none{row[0]}": dict.fromkeys(written)}
        self._line(f"if machine.follow_row(warp, group, row{row[0]}): R.update(none{row[0]})")
        self._line("else:")
        self._line(f" for group.pc in row{row[0]}: step(machine, warp, group)")
        for name in written:
            self._line(f"{self._target(name)} = None")

    def branch(self, at: int) -> bool:
        self._end_row()
        if not super().branch(at):
            return False
        self._of_numbers.append(at)
        for guard in (self._variable(name) for name in self._flow.uses[at]):
            self._line(f"if {guard}.__class__ is not int: others += ({at},)")
            self._note(at, f"if {guard}.__class__ is int: ")
        if not self._flow.uses[at]:
            self._note(at)
        return True

    def _note(self, at: int, indent: str = "") -> None:
        if self._notes:
            used = "".join(f"{self._variable(name)}, " for name in sorted(self._flow.uses[at]))
            self._line(f"{indent}note((({at}, lanes, lanes), ({used})))")

    def function(self, end: int, start: int) -> Callable[[Machine, Warp, Group], None]:
        self._end_row()
        self._names["places"] = frozenset(self._of_numbers)
        self._line("machine.of_numbers.add(places.difference(others) if others else places)")
        self._deciding = [frozenset()] * (end + 1)
        return super().function(end, start)


def _makes_data_alone(flow: Flow, at: int) -> bool:
    """Whether an instruction makes data of one register of registers and numbers, whatever they hold."""
    ins = flow.decoded[at]
    assert ins is not None
    if ins.guard is not None or not is_data(ins) or not _LEAVES_MORE.isdisjoint(ins.parts):
        return False
    target, *given = ins.operands
    return isinstance(target, ast.Reg) and all(isinstance(operand, ast.Reg | ast.Imm) for operand in given)


_LEAVES_MORE = frozenset(("cc", "addc", "subc", "madc"))
"""Parts of opcodes of what takes or leaves a carry."""


def _written(flow: Flow, at: int) -> list[str]:
    """The registers that an instruction writes, in order."""
    targets = flow.code.code[at].operands[0]
    pair = (targets.first, targets.second) if isinstance(targets, ast.Pair) else (targets,)
    return [flow.code.renamed(at, o.name) for o in pair if isinstance(o, ast.Reg)]


def _in_lanes(step: Steps) -> Callable[..., tuple[int, ...]]:
    """What computes where lanes have other numbers, or data; gives the instruction if it has to do with data."""

    def in_lanes(
        machine: Machine, warp: Warp, group: Group, at: int, parts: tuple[str, ...], given: tuple[Value, ...],
        written: list[str],
    ) -> tuple[int, ...]:  # fmt: skip
        lanes = group.lanes
        if all(v.__class__ is int or is_known(v, lanes) for v in given):
            compares = parts[0] == "setp"
            found = compared(machine, warp, at, parts, given, lanes) if compares else apply(parts, given, lanes)
            if is_known(found, lanes):
                group.registers[written[0]] = found
                for name in written[1:]:
                    group.registers[name] = apply(("not", "pred"), (found,), lanes)
                return ()
            assert not compares
        group.pc = at
        step(machine, warp, group)
        return (at,)

    return in_lanes
