# SPDX-License-Identifier: Apache-2.0
"""Source places of a module's instructions, kept or dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from porter.ptx import ast


def keep_places(module: ast.Module, keep: Callable[[ast.SourceLoc], bool]) -> ast.Module:
    """The module with only those source places that `keep` says yes to."""

    def body(statements: tuple[ast.Statement, ...]) -> tuple[ast.Statement, ...]:
        return tuple(map(kept, statements))

    def kept(statement: ast.Statement) -> ast.Statement:
        if isinstance(statement, ast.Instruction):
            known = statement.loc is None or keep(statement.loc)
            return statement if known else replace(statement, loc=None)
        return ast.Block(body(statement.body)) if isinstance(statement, ast.Block) else statement

    functions = tuple(f if f.body is None else replace(f, body=body(f.body)) for f in module.functions)
    return replace(module, functions=functions)
