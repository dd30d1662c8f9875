# SPDX-License-Identifier: Apache-2.0
"""What a launch needs to know of a kernel beforehand, read off its PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from porter.ptx import ast
from porter.ptx.launch_bounds import extents

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class KernelFacts:
    """`static_shared` in bytes; `max_threads` a block may have, `block` and `cluster` that it must have, None if not
    stated."""

    static_shared: int
    max_threads: int | None
    cluster: Dim | None
    block: Dim | None = None


def kernel_facts(module: ast.Module, function: ast.Function) -> KernelFacts:
    bodies = [function.body, *(f.body for f in module.functions if not f.is_entry)]
    statements = [s for body in bodies for s in _flattened(body or ())]
    named: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Instruction):
            for operand in statement.operands:
                named.update(_symbols(operand))
    declared = [*module.variables, *(s for s in statements if isinstance(s, ast.VarDecl))]
    threads = extents(function.directives, "reqntid") or extents(function.directives, "maxntid")
    return KernelFacts(
        static_shared=_laid_out(v for v in declared if v.space == "shared" and v.name in named),
        max_threads=threads[0] * threads[1] * threads[2] if threads else None,
        cluster=extents(function.directives, "reqnctapercluster"),
        block=extents(function.directives, "reqntid"),
    )


def runs_on(target: str, chip: int) -> bool:
    """Whether a chip takes PTX for `target`: with `a` for that chip alone, with `f` for later ones of its
    family, without a letter for all later ones (PTX ISA 9.0, .target)."""
    stated = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if stated is None:
        return False
    number, suffix = int(stated[1]), stated[2]
    if suffix == "a":
        return number == chip
    return number <= chip and (not suffix or number // 10 == chip // 10)


def _laid_out(variables: Iterator[ast.VarDecl]) -> int:
    total = 0
    for variable in variables:
        if not variable.extern:
            total = -(-total // variable.align) * variable.align + variable.size
    return total


def _flattened(body: tuple[ast.Statement, ...]) -> Iterator[ast.Statement]:
    for statement in body:
        if isinstance(statement, ast.Block):
            yield from _flattened(statement.body)
        else:
            yield statement


def _symbols(operand: ast.Operand) -> Iterator[str]:
    if isinstance(operand, ast.Sym):
        yield operand.name
    elif isinstance(operand, ast.Mem):
        yield from _symbols(operand.base)
    elif isinstance(operand, ast.Vec):
        for item in operand.items:
            yield from _symbols(item)
