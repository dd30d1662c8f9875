# SPDX-License-Identifier: Apache-2.0
"""Mistakes put into the PTX of a program of the corpus, and what a proof says of it then."""

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
from porter.sync.checked import Checked, check
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.problem import Problem
from porter.verify.proved import Program
from porter.verify.proving import Proof, Prover, Sizes, clusters_looked_at

Edit = Callable[[str], str]
REGISTERS = ".reg .b32 %planted<4>; .reg .pred %plant, %plant2;\n"


class NotThereError(Exception):
    """A program has nothing that an edit is about."""


@cache
def program(kernel: str, name: str) -> Program:
    case = load_case(CORPUS / kernel / "case.yaml")
    plan = plan_of_case(case, None)[0] if name == "port" else None
    return Program(case, ToolkitBuilder(), plan)


def planted(kernel: str, name: str, edit: Edit) -> Callable[[Sizes], tuple[BuiltKernel, Problem]]:
    """What stands for a program with a mistake in it.

    Raises:
        NotThereError: it has no place for it.
    """
    known: dict[str, BuiltKernel] = {}

    def at(sizes: Sizes) -> tuple[BuiltKernel, Problem]:
        built, problem = program(kernel, name).at(sizes)
        if built.ptx not in known:
            text = declared(edit(built.ptx), built.entry)
            known[built.ptx] = replace(built, ptx=text, module=parse_module(text))
        return known[built.ptx], problem

    at({})
    return at


def proof(kernel: str, name: str, edit: Edit, seconds: float) -> Proof:
    return Prover(name, planted(kernel, name, edit), Budget(seconds)).prove([{}])


def checked(kernel: str, name: str, edit: Edit, sizes: Sizes, schedule: Schedule | None = None) -> list[Checked]:
    """One execution of its first cluster, and of its last."""
    built, problem = planted(kernel, name, edit)(sizes)
    assert built.function is not None
    flow = Flow(Code(built.module, built.function))
    return [check(launched, schedule) for launched in clusters_looked_at(problem, flow)]


def declared(text: str, entry: str) -> str:
    """With registers for plants. Their counters begin with the kernel."""
    at = text.index("{", text.index(entry, text.index(".entry")))
    zeros = "".join(f"mov.u32 %planted{i}, 0;\n" for i in range(4))
    body = text.index("\n", text.rindex(".reg", at, text.index("\n\n", at) if "\n\n" in text[at:] else None)) + 1
    return text[: at + 1] + "\n" + REGISTERS + text[at + 1 : body] + zeros + text[body:]


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
    def bare(self) -> str:
        return self.text[len(self.guard) :]


def found(text: str, opcode: str, nth: int = 1) -> Found:
    """The nth instruction that a pattern of opcodes fits, the last one for -1."""
    every = list(re.finditer(rf"(?<![\w.%])(?:@!?[%\w$]+\s+)?(?:{opcode})[^;]*;", text))
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


def dropped(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: "", nth)


def doubled(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: f"{one.text}\n{one.text}", nth)


def replaced(opcode: str, pattern: str, new: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: re.sub(pattern, new, one.text, count=1), nth)


def moved(opcode: str, before: str, nth: int = 1, nth_before: int = 1) -> Edit:
    """Directly ahead of another instruction."""

    def edit(text: str) -> str:
        one, other = found(text, opcode, nth), found(text, before, nth_before)
        if other.start > one.start:
            return text[: one.start] + text[one.end : other.start] + one.text + "\n" + text[other.start :]
        return text[: other.start] + one.text + "\n" + text[other.start : one.start] + text[one.end :]

    return edit


def last_operand(one: Found) -> str:
    return one.text[: one.text.rindex(";")].rpartition(",")[2].strip()


def with_last(one: Found, computed: str) -> str:
    """The last operand put through an instruction, which finds it as {0} and writes %planted3."""
    operand = last_operand(one)
    text = one.text[: one.text.rindex(",")]
    return f"{computed.format(operand)}\n{text}, %planted3;"


def computed(opcode: str, instruction: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: with_last(one, instruction), nth)


def late(turns: int, opcode: str, instruction: str, nth: int = 1) -> Edit:
    """The last operand of an instruction is another once it has been executed so often."""
    count = "add.u32 %planted0, %planted0, 1;\nsetp.gt.u32 %plant, %planted0, {turns};\n"
    head = count.format(turns=turns) + "mov.u32 %planted3, {0};\n@%plant "
    return computed(opcode, head + instruction.replace("{0}", "%planted3"), nth)


def late_guard(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is left out once it has been come to so often."""
    return changed(
        opcode,
        lambda one: (
            f"add.u32 %planted0, %planted0, 1;\nsetp.gt.u32 %plant, %planted0, {turns};\n@!%plant {one.bare}"
            if not one.guard
            else one.text
        ),
        nth,
    )


WAIT = r"mbarrier\.(?:try|test)_wait\.parity"
ARRIVE = r"mbarrier\.arrive\.(?!expect)"
EXPECT = r"mbarrier\.arrive\.expect_tx"
INIT = r"mbarrier\.init"
LOAD = r"cp\.async\.bulk\.tensor[\w.:]*\.shared::cluster\.global"
COMMIT = r"tcgen05\.commit"
MMA = r"tcgen05\.mma\.cta"


def passed(nth: int = 1) -> Edit:
    """A wait that is taken as over."""
    return changed(
        WAIT,
        lambda one: (
            "setp.eq.u32 "
            + re.findall(r"[%\w$]+", one.bare.partition(" ")[2].strip() or one.bare.split(None, 1)[1])[0]
            + ", 0, 0;"
        ),
        nth,
    )
