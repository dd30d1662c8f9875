# SPDX-License-Identifier: Apache-2.0
"""Mistakes put into the PTX of programs of the corpus, and what a proof says of them then."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from corpus_kernels import CORPUS

from porter.cli.porting import plan_of_case
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.machine import Schedule
from porter.ptx.parser import parse_module
from porter.sync.checked import WORST_LAST, Checked, Verdict, check
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.problem import Problem
from porter.verify.proving import Prover, Sizes, clusters_looked_at

Edit = Callable[[str], str]
RIGHT = (Verdict.CLEAN, Verdict.REVIEW)
TURNS = (1, 2, 3, 4, 8, 9, 12, 13, 16)
"""At which a mistake is looked for that a proof has not come to."""
REGISTERS = ".reg .b32 %planted<4>;\n.reg .pred %plant;\n"
"""Of a program with a mistake: 0 counts, 3 stands for an operand."""


class NotThereError(Exception):
    """A program has nothing that an edit is about."""


@cache
def program(kernel: str, name: str) -> Program:
    case = load_case(CORPUS / kernel / "case.yaml")
    plan = plan_of_case(case, None)[0] if name == "port" else None
    return Program(case, ToolkitBuilder(), plan)


@dataclass(frozen=True)
class Said:
    """What is said of a program: a verdict that refuses it, or `proved`, or `up to` for so many turns. `at`: where, or
    for which sizes. `elsewhere`: what is wrong at sizes that were not looked at."""

    verdict: str
    kinds: tuple[str, ...] = ()
    at: str = ""
    elsewhere: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        return self.verdict in ("error", "strict", "unknown")


class Planted:
    """A program with a mistake in it.

    Raises:
        NotThereError: it has no place for it.
    """

    def __init__(self, kernel: str, name: str, edit: Edit) -> None:
        self._program, self._name, self._edit, self._kernel = program(kernel, name), name, edit, kernel
        self._known: dict[str, BuiltKernel] = {}
        self.at({})

    def at(self, sizes: Sizes) -> tuple[BuiltKernel, Problem]:
        built, problem = self._program.at(sizes)
        if built.ptx not in self._known:
            text = _declared(self._edit(built.ptx), built.entry)
            self._known[built.ptx] = replace(built, ptx=text, module=parse_module(text))
        return self._known[built.ptx], problem

    def checked(self, sizes: Sizes, schedule: Schedule | None = None) -> Checked:
        """The worst of its first and last cluster."""
        built, problem = self.at(sizes)
        assert built.function is not None
        flow = Flow(Code(built.module, built.function))
        found = [check(launched, schedule) for launched in clusters_looked_at(problem, flow)]
        return max(found, key=lambda checked: WORST_LAST.index(checked.verdict))

    def said(self, seconds: float, unit: int) -> Said:
        """At its default sizes, and if nothing is wrong there what `porter hazards --prove` says. `unit`: K of one
        turn."""
        one = self.checked({})
        if one.verdict not in RIGHT:
            return Said(one.verdict.value, _kinds(one), "default sizes")
        proof = Prover(self._name, self.at, Budget(seconds)).prove([{}, *self._program.case.other_sizes])
        if proof.status != "proved":
            return Said(proof.checked.verdict.value, _kinds(proof.checked), proof.at)
        counts = [c for c in proof.counts if c.step]
        at = ", ".join(f"{c.name} {c.step}, {'all' if c.is_all else f'to {c.upto}'}" for c in counts)
        others = [self.checked({"K": unit * turns}) for turns in TURNS]
        elsewhere = tuple(sorted({k for other in others if other.verdict not in RIGHT for k in _kinds(other)}))
        return Said("proved" if all(c.is_all for c in counts) else "up to", _kinds(proof.checked), at, elsewhere)

    def is_come_to(self, unit: int) -> bool:
        """Whether a thread comes to the place of the mistake: it would wait there for ever."""

        def stops(text: str) -> str:
            new = self._edit(text)
            differs = next(at for at, (one, other) in enumerate(zip(text, new, strict=False)) if one != other)
            start = max(text.rfind(end, 0, differs) for end in ";\n{") + 1
            return f"{text[:start]} bar.sync 9, 1024;{text[start:]}"

        stopped = Planted(self._kernel, self._name, stops)
        return any(stopped.checked({"K": unit * turns}).verdict not in RIGHT for turns in (1, 5, 9))


def _kinds(checked: Checked) -> tuple[str, ...]:
    if checked.verdict is Verdict.UNKNOWN:
        return (checked.unknown,)
    return tuple(sorted({f.kind for f in checked.findings if f.level == checked.verdict.value}))


def _declared(text: str, entry: str) -> str:
    """With registers for mistakes. What they count begins with the kernel."""
    at = text.index("{", text.index(entry, text.index(".entry"))) + 1
    return f"{text[:at]}\n{REGISTERS}mov.u32 %planted0, 0;\n{text[at:]}"


# Places -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """An instruction in a text, with its guard."""

    start: int
    end: int
    text: str

    @property
    def guard(self) -> str:
        found = re.match(r"@!?[%\w$]+\s+", self.text)
        return found[0] if found is not None else ""

    @property
    def operands(self) -> list[str]:
        """At the commas that stand in no brackets."""
        listed = self.text.removeprefix(self.guard).split(None, 1)[1].rstrip(";")
        return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", listed)]

    def with_operand(self, number: int, new: str) -> str:
        operands = self.operands
        operands[number] = new
        opcode = self.text.removeprefix(self.guard).split(None, 1)[0]
        return f"{self.guard}{opcode} {', '.join(operands)};"


def found(text: str, opcode: str, nth: int = 1) -> Found:
    """The nth instruction with such an opcode, from the end if nth is below 0."""
    every = list(re.finditer(rf"(?<![\w.%:])(?:@!?[%\w$]+\s+)?(?:{opcode})[^;]*;", text))
    if len(every) < abs(nth):
        raise NotThereError(opcode)
    one = every[nth - 1 if nth > 0 else nth]
    return Found(one.start(), one.end(), one[0])


def changed(opcode: str, change: Callable[[Found], str], nth: int = 1) -> Edit:
    def edit(text: str) -> str:
        one = found(text, opcode, nth)
        new = change(one)
        if new == one.text:
            raise NotThereError(opcode)
        return text[: one.start] + new + text[one.end :]

    return edit


def all_of(*edits: Edit) -> Edit:
    def edit(text: str) -> str:
        for one in edits:
            text = one(text)
        return text

    return edit


def dropped(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: "", nth)


def doubled(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: f"{one.text}\n{one.text}", nth)


def replaced(opcode: str, pattern: str, new: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: re.sub(pattern, new, one.text, count=1), nth)


def moved(opcode: str, before: str, nth: int = 1, nth_before: int = 1) -> Edit:
    """Directly ahead of another instruction."""

    def edit(text: str) -> str:
        one = found(text, opcode, nth)
        text = text[: one.start] + text[one.end :]
        other = found(text, before, nth_before)
        return f"{text[: other.start]}{one.text}\n{text[other.start :]}"

    return edit


def operand(opcode: str, number: int, instructions: str, nth: int = 1) -> Edit:
    """An operand put through instructions, which find it in %planted3 and leave it there."""

    def change(one: Found) -> str:
        given = f"mov.u32 %planted3, {one.operands[number]};\n{instructions}\n"
        return given + one.with_operand(number, "%planted3")

    return changed(opcode, change, nth)


def shifted(opcode: str, which: int, nbytes: int, nth: int = 1) -> Edit:
    """One of the addresses of an instruction, a number of bytes further."""

    def change(one: Found) -> str:
        places = list(re.finditer(r"\[([%\w$]+)(\+\d+)?\]", one.text))
        if len(places) < abs(which) + (which >= 0):
            raise NotThereError(opcode)
        at = places[which]
        return f"{one.text[: at.start()]}[{at[1]}+{int(at[2] or 0) + nbytes}]{one.text[at.end() :]}"

    return changed(opcode, change, nth)


def passed(opcode: str, nth: int = 1) -> Edit:
    """A wait that is taken as over."""
    return changed(opcode, lambda one: f"setp.eq.u32 {one.operands[0]}, 0, 0;", nth)


def _late(turns: int) -> str:
    return f"add.u32 %planted0, %planted0, 1;\nsetp.gt.u32 %plant, %planted0, {turns};\n"


def late_operand(turns: int, opcode: str, number: int, instruction: str, nth: int = 1) -> Edit:
    """An operand that is another one once the instruction has been come to so often."""
    return operand(opcode, number, f"{_late(turns)}@%plant {instruction}", nth)


def late_drop(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is left out once it has been come to so often."""

    def change(one: Found) -> str:
        if one.guard:
            raise NotThereError(opcode)
        return f"{_late(turns)}@!%plant {one.text}"

    return changed(opcode, change, nth)


def late_pass(turns: int, opcode: str, nth: int = 1) -> Edit:
    """A wait that is taken as over from a turn on."""
    return changed(opcode, lambda one: f"{_late(turns)}{one.text}\n@%plant setp.eq.u32 {one.operands[0]}, 0, 0;", nth)


def late_shift(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is about the next mbarrier from a turn on."""

    def change(one: Found) -> str:
        address = next(o for o in one.operands if o.startswith("["))
        register = address.strip("[]")
        if not re.fullmatch(r"[%\w$]+", register):
            raise NotThereError(opcode)
        given = f"mov.u32 %planted3, {register};\n{_late(turns)}@%plant add.u32 %planted3, %planted3, 8;\n"
        return given + one.with_operand(one.operands.index(address), "[%planted3]")

    return changed(opcode, change, nth)


def late_again(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is executed twice from a turn on."""

    def change(one: Found) -> str:
        if one.guard:
            raise NotThereError(opcode)
        return f"{_late(turns)}{one.text}\n@%plant {one.text}"

    return changed(opcode, change, nth)
