# SPDX-License-Identifier: Apache-2.0
"""Named barriers on which two consumers take turns. Consumers that meet for each batch have no turns left to take:
waiting for them, they would wait for good."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Call, Function, Style
from porter.model.kernels import Kernel
from porter.model.program import Program
from porter.model.thread_values import ThreadValues
from porter.passes.full_rate.renaming import reached
from porter.passes.native.sites import whole_line
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

_BARRIER = re.compile(r"\s*bar(?:rier)?(?:\.cta)?\.(sync|arrive)(?:\.aligned)?\s+(%?\w+)\s*,\s*(%?\w+)\s*;\s*")

_Values = tuple["int | None", ...]
"""What an expression is: one value, or one for each warp of the consumers."""
_ByWarp = Callable[[Function, Node], _Values]


@dataclass(frozen=True, eq=False)
class _Use:
    """One use of a named barrier: `ids` of the consumers' warps, and how many `threads` it is for; None where that is
    not known. `sync`: it waits."""

    function: Function
    node: Node
    sync: bool
    ids: frozenset[int | None]
    threads: int | None


def turns(program: Program, kernel: Kernel) -> list[tuple[Function, Span]]:
    """The statements by which the two consumers of a kernel take turns, as whole lines."""
    first = kernel.roles.first
    values = ThreadValues(program, (first + 2) * WARPGROUP)

    def by_warp(function: Function, node: Node) -> _Values:
        value = program.value(function, function.text(node))
        return (value,) if value is not None else tuple(values.by_warp(function, node)[first * WARPGROUP // WARP :])

    mine = reached(program, [kernel.function])
    uses = [u for f in program.functions if id(f) in mine for u in _uses(program, by_warp, f)]
    taken = {i for u in uses if u.sync and u.threads == 2 * WARPGROUP and len(u.ids) > 1 for i in u.ids - {None}}
    found = []
    for use in uses:
        whole = _statement(use) if use.ids & taken and use.function is kernel.function else None
        if whole is not None:
            found.append((use.function, whole_line(use.function, use.function.span(whole))))
    return found


def _uses(program: Program, by_warp: _ByWarp, function: Function) -> Iterator[_Use]:
    """The uses in the asm of a function: where it is handed what they name, those are its callers'."""
    for statement in function.asm:
        match = _BARRIER.fullmatch(statement.template)
        if match is None:
            continue
        sync, texts = match[1] == "sync", (match[2], match[3])
        calls = program.callers(function) if function.style is not Style.KERNEL else []
        if calls and any(_param(function, statement, t) is not None for t in texts):
            for call in calls:
                values = [_handed(program, by_warp, function, statement, t, call) for t in texts]
                yield _made(call.caller, call.node, sync, values)
        else:
            values = [_written(program, by_warp, function, statement, t) for t in texts]
            yield _made(function, statement.node, sync, values)


def _made(function: Function, node: Node, sync: bool, values: list[_Values]) -> _Use:
    ids, threads = values
    return _Use(function, node, sync, frozenset(ids), threads[0] if len(set(threads)) == 1 else None)


def _param(function: Function, statement: AsmStatement, text: str) -> int | None:
    """The parameter, function's or template's, that an operand names; template parameters count from -1 downwards."""
    name = statement.operand(int(text[1:])).expr.strip() if text.startswith("%") and text[1:].isdigit() else text
    param = function.param(name)
    if param is not None:
        return param.index
    return -1 - function.template_params.index(name) if name in function.template_params else None


def _handed(
    program: Program, by_warp: _ByWarp, function: Function, statement: AsmStatement, text: str, call: Call
) -> _Values:
    index = _param(function, statement, text)
    if index is None:
        return _written(program, by_warp, function, statement, text)
    if index < 0:
        known = len(call.template_args) > -1 - index
        return (program.value(call.caller, call.template_args[-1 - index]) if known else None,)
    if index >= len(call.args):
        return (None,)
    return by_warp(call.caller, call.args[index])


def _written(program: Program, by_warp: _ByWarp, function: Function, statement: AsmStatement, text: str) -> _Values:
    if not text.startswith("%"):
        return (program.value(function, text),)
    operand = statement.operand(int(text[1:])) if text[1:].isdigit() else None
    if operand is None or operand.expr_node is None:
        return (None,)
    return by_warp(function, operand.expr_node)


def _statement(use: _Use) -> Node | None:
    """The statement that is the use and nothing else, with an `if` around it."""
    node = use.node.parent
    if node is None or node.type != "expression_statement":
        return None
    above = node.parent
    if above is not None and above.type == "if_statement":
        condition = above.child_by_field_name("condition")
        pure = condition is not None and not any(True for _ in find(condition, "call_expression", "update_expression"))
        return above if pure and above.child_by_field_name("alternative") is None else None
    return node if above is not None and above.type == "compound_statement" else None
