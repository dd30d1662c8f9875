# SPDX-License-Identifier: Apache-2.0
"""Mutants of a kernel's PTX: one synchronizing instruction left out or weakened at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from porter.ptx import ast
from porter.verify.mutations import DROP, Level, Statements, mutations

Path = tuple[int, ...]


@dataclass(frozen=True)
class Mutant:
    """`how` is what was done (`drop`, `pass at once`, `flip parity of`, ...) to `instruction`, the `nth` that has
    this opcode, from 1. `statements` stand at `path` of the body of function number `function` instead."""

    how: str
    level: Level
    instruction: ast.Instruction
    nth: int
    function: int
    path: Path
    statements: Statements

    @property
    def name(self) -> str:
        return f"{self.how} {self.instruction.opcode}"

    @property
    def place(self) -> tuple[int, Path]:
        """Equal for mutants of one instruction."""
        return self.function, self.path

    @property
    def drops(self) -> bool:
        """Whether nothing of the instruction's synchronization is left."""
        return self.how in (DROP, "pass at once")


def mutants(module: ast.Module, entry: str) -> list[Mutant]:
    """All mutants of a kernel and of the device functions in its module, in program order."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for index, function in enumerate(module.functions):
        if function.body is None or (function.is_entry and function.name != entry):
            continue
        for path, instruction in _instructions(function.body, ()):
            seen[instruction.opcode] += 1
            for how, level, statements in mutations(instruction):
                found.append(Mutant(how, level, instruction, seen[instruction.opcode], index, path, statements))
    return found


def mutated(module: ast.Module, chosen: Iterable[Mutant]) -> ast.Module:
    """The module with some of its mutants' changes, at most one for each instruction."""
    changes: dict[int, dict[Path, Statements]] = {}
    for mutant in chosen:
        there = changes.setdefault(mutant.function, {})
        if mutant.path in there:
            raise ValueError(f"two mutants of one instruction: {mutant.name}")
        there[mutant.path] = mutant.statements
    functions = list(module.functions)
    for index, by_path in changes.items():
        body = functions[index].body
        assert body is not None
        functions[index] = replace(functions[index], body=_changed(body, (), by_path))
    return replace(module, functions=tuple(functions))


def _instructions(body: tuple[ast.Statement, ...], path: Path) -> Iterator[tuple[Path, ast.Instruction]]:
    for i, statement in enumerate(body):
        if isinstance(statement, ast.Instruction):
            yield (*path, i), statement
        elif isinstance(statement, ast.Block):
            yield from _instructions(statement.body, (*path, i))


def _changed(body: tuple[ast.Statement, ...], path: Path, changes: Mapping[Path, Statements]) -> Statements:
    new: list[ast.Statement] = []
    for i, statement in enumerate(body):
        here = (*path, i)
        if here in changes:
            new += changes[here]
        elif isinstance(statement, ast.Block) and any(p[: len(here)] == here for p in changes):
            new.append(ast.Block(_changed(statement.body, here, changes)))
        else:
            new.append(statement)
    return tuple(new)
