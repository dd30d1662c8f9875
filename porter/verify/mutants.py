# SPDX-License-Identifier: Apache-2.0
"""Mutants of a kernel's PTX: one synchronizing instruction left out or weakened at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from porter.ptx import ast

Path = tuple[int, ...]


@dataclass(frozen=True)
class Mutant:
    """`how` is what was done (`drop`, `pass at once`, `flip parity`, ...) to `instruction`."""

    how: str
    instruction: ast.Instruction
    module: ast.Module

    @property
    def name(self) -> str:
        return f"{self.how} {self.instruction.opcode}"


def mutants(module: ast.Module, entry: str) -> list[Mutant]:
    """All mutants of a kernel and of the device functions in its module, in program order."""
    found: list[Mutant] = []
    for index, function in enumerate(module.functions):
        if function.body is None or (function.is_entry and function.name != entry):
            continue
        for path, instruction in _instructions(function.body, ()):
            for how, statements in _mutations(instruction):
                body = _replaced(function.body, path, statements)
                functions = list(module.functions)
                functions[index] = replace(function, body=body)
                found.append(Mutant(how, instruction, replace(module, functions=tuple(functions))))
    return found


def _instructions(body: tuple[ast.Statement, ...], path: Path) -> Iterator[tuple[Path, ast.Instruction]]:
    for i, statement in enumerate(body):
        if isinstance(statement, ast.Instruction):
            yield (*path, i), statement
        elif isinstance(statement, ast.Block):
            yield from _instructions(statement.body, (*path, i))


def _replaced(
    body: tuple[ast.Statement, ...], path: Path, statements: tuple[ast.Statement, ...]
) -> tuple[ast.Statement, ...]:
    i = path[0]
    if len(path) == 1:
        return (*body[:i], *statements, *body[i + 1 :])
    inner = body[i]
    assert isinstance(inner, ast.Block)
    return (*body[:i], ast.Block(_replaced(inner.body, path[1:], statements)), *body[i + 1 :])


Mutations = list[tuple[str, tuple[ast.Statement, ...]]]


def _mutations(ins: ast.Instruction) -> Mutations:
    p = ins.parts
    if p[0] == "tcgen05":
        what = p[1]
        dropped = ("commit", "wait::ld", "wait::st", "fence::before_thread_sync", "fence::after_thread_sync",
                   "alloc", "dealloc", "relinquish_alloc_permit")  # fmt: skip
        return [("drop", ())] if what in dropped else []
    if p[0] == "wgmma":
        return [("drop", ())] if p[1] in ("commit_group", "wait_group") else []
    if p[0] == "fence":
        return [("drop", ())] if p[1] in ("proxy", "mbarrier_init") else []
    if p[0] in ("bar", "barrier"):
        return [] if "warp" in p or "red" in p else [("drop", ())]
    if p[0] == "cp" and ("commit_group" in p or "wait_group" in p or "wait_all" in p):
        return [("drop", ())]
    if p[0] == "mbarrier":
        return _MBARRIER.get(p[1], lambda _: [])(ins)
    return []


def _init(ins: ast.Instruction) -> Mutations:
    count = ins.operands[1]
    more: Mutations = []
    if isinstance(count, ast.Imm):
        greater = replace(ins, operands=(ins.operands[0], ast.Imm(int(count.value) + 1)), text="")
        more = [("one arrival more for", (greater,))]
    return [("drop", ()), *more]


def _arrive(ins: ast.Instruction) -> Mutations:
    if "expect_tx" not in ins.parts:
        return [("drop", ())]
    return [("drop", ()), ("no bytes for", (replace(ins, operands=(*ins.operands[:-1], ast.Imm(0)), text=""),))]


def _wait(ins: ast.Instruction) -> Mutations:
    result = ins.operands[0]
    always = ast.Instruction("setp.eq.u32", ("setp", "eq", "u32"), (result, ast.Imm(1), ast.Imm(1)), ins.guard,
                             ins.line, ins.loc)  # fmt: skip
    found: Mutations = [("pass at once", (always,))]
    if "parity" in ins.parts:
        other = ast.Reg("parity_flipped")
        flip = ast.Instruction("xor.b32", ("xor", "b32"), (other, ins.operands[2], ast.Imm(1)), None, ins.line, ins.loc)
        wait = replace(ins, operands=(*ins.operands[:2], other, *ins.operands[3:]), text="")
        found.append(("flip parity of", (ast.Block((ast.RegDecl("b32", other.name), flip, wait)),)))
    return found


_MBARRIER: dict[str, Callable[[ast.Instruction], Mutations]] = {
    "init": _init,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": lambda ins: [("drop", ())],
    "try_wait": _wait,
    "test_wait": _wait,
}
