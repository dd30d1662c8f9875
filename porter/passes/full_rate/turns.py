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
        operands = [_operand(statement, text) for text in (match[2], match[3])]
        handed = {*(p.name for p in function.params), *function.template_params}
        calls = program.callers(function) if function.style is not Style.KERNEL else []
        for call in calls if calls and any(name in handed for name, _ in operands) else [None]:
            where, node = (function, statement.node) if call is None else (call.caller, call.node)
            ids, threads = (_value(program, by_warp, function, name, inner, call) for name, inner in operands)
            known = threads[0] if len(set(threads)) == 1 else None
            yield _Use(where, node, match[1] == "sync", frozenset(ids), known)


def _operand(statement: AsmStatement, text: str) -> tuple[str, Node | None]:
    """What an operand of an instruction is in the sources: its text, and its expression."""
    if not text.startswith("%"):
        return text, None
    found = statement.operand(int(text[1:])) if text[1:].isdigit() else None
    return (found.expr.strip(), found.expr_node) if found is not None else ("", None)


def _value(
    program: Program, by_warp: _ByWarp, function: Function, name: str, node: Node | None, call: Call | None
) -> _Values:
    """What an operand is, in a call of the function where that is handed it."""
    param = function.param(name)
    if call is not None and param is not None:
        return by_warp(call.caller, call.args[param.index]) if param.index < len(call.args) else (None,)
    if call is not None and name in function.template_params:
        given = call.template_args[function.template_params.index(name) :][:1]
        return (program.value(call.caller, given[0]) if given else None,)
    return by_warp(function, node) if node is not None else (program.value(function, name),)


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
