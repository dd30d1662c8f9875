# SPDX-License-Identifier: Apache-2.0
"""Named barriers on which two consumers take turns. Consumers that meet for each batch have no turns left to take:
waiting for them, they would wait for good."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Call, Function, Style
from porter.model.kernels import Kernel
from porter.model.program import Program
from porter.passes.full_rate.joining import Missing
from porter.passes.full_rate.renaming import reached
from porter.passes.full_rate.sameness import WARPS, Sameness
from porter.ptx.wgmma import THREADS as WARPGROUP

_BARRIER = re.compile(r"\s*bar(?:rier)?(?:\.cta)?\.(sync|arrive)(?:\.aligned)?\s+(%?\w+)\s*,\s*(%?\w+)\s*;\s*")

_WAITS = re.compile(r"\bbar(?:rier)?(?:\.cta)?\.(?:sync|red)\b")
_OF_ALL = re.compile(r"\s*bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?\s+[^,;]+;\s*")

_Values = tuple["int | None", ...]
"""What an expression is: one value, or one for each warp of the consumers."""


@dataclass(frozen=True, eq=False)
class _Use:
    """One use of a named barrier: `ids` of the consumers' warps, and how many `threads` it is for; None where that is
    not known. `sync`: it waits."""

    function: Function
    node: Node
    sync: bool
    ids: frozenset[int | None]
    apart: bool
    """Whether warps of a warpgroup may name different ones."""
    threads: int | None


def turns(program: Program, sameness: Sameness, kernel: Kernel) -> tuple[list[tuple[Function, Span]], list[Missing]]:
    """The statements by which the consumers of a kernel take turns, as whole lines, and what is not known of them."""
    mine = reached(program, [kernel.function])
    uses = [u for f in program.functions if id(f) in mine for u in _uses(program, sameness, f)]
    uses = [u for u in uses if id(u.function) in mine]
    taken = frozenset(
        i for u in uses if u.sync and u.threads != WARPGROUP and len(u.ids) > 1 for i in u.ids if i is not None
    )
    unknown = [u for u in uses if u.sync and u.threads != WARPGROUP and None in u.ids]
    missing = [Missing(u.function, u.function.span(u.node), _WHICH) for u in unknown]
    found = []
    for use in uses if taken else ():
        if not use.ids & {*taken, None}:
            continue
        whole = _statement(use)
        if (
            whole is None
            or use.threads != 2 * WARPGROUP
            or use.function is not kernel.function
            or None in use.ids
            or not sameness.comes_to(use.function, use.node)
        ):
            missing.append(Missing(use.function, use.function.span(use.node), _TURN))
        else:
            found.append((use.function, _line(use.function, whole)))
    return found, missing


_WHICH = "it is not known on which named barrier the consumers wait"
_TURN = "the consumers take turns on this named barrier, and it may be for something else, too"


def barriers(
    program: Program, sameness: Sameness, function: Function
) -> Iterator[tuple[Function, Node, int | None, bool]]:
    """Where threads wait on named barriers in the asm of a function, how many, None where that is not known, and
    whether warps of a warpgroup may do so on different ones."""
    yield from ((u.function, u.node, u.threads, u.apart) for u in _uses(program, sameness, function) if u.sync)
    for statement in function.asm:
        waits = _WAITS.search(statement.template)
        if waits and not (_BARRIER.fullmatch(statement.template) or _OF_ALL.fullmatch(statement.template)):
            yield function, statement.node, None, True


def _uses(program: Program, sameness: Sameness, function: Function) -> Iterator[_Use]:
    """The uses in the asm of a function: where it is handed what they name, those are its callers'."""
    for statement in function.asm:
        match = _BARRIER.fullmatch(statement.template)
        if match is None:
            continue
        sync, texts = match[1] == "sync", (match[2], match[3])
        calls = program.callers(function) if function.style is not Style.KERNEL else []
        if calls and any(_param(function, statement, t) is not None for t in texts):
            for call in calls:
                values = [_handed(program, sameness, function, statement, t, call) for t in texts]
                yield _made(call.caller, call.node, sync, values)
        else:
            values = [_written(program, sameness, function, statement, t) for t in texts]
            yield _made(function, statement.node, sync, values)


def _made(function: Function, node: Node, sync: bool, values: list[_Values]) -> _Use:
    ids, threads = values
    apart = None in ids or any(len(set(ids[i : i + WARPS])) > 1 for i in range(0, len(ids), WARPS))
    return _Use(function, node, sync, frozenset(ids), apart, threads[0] if len(set(threads)) == 1 else None)


def _param(function: Function, statement: AsmStatement, text: str) -> int | None:
    """The parameter, function's or template's, that an operand names; template parameters count from -1 downwards."""
    name = statement.operand(int(text[1:])).expr.strip() if text.startswith("%") and text[1:].isdigit() else text
    param = function.param(name)
    if param is not None:
        return param.index
    return -1 - function.template_params.index(name) if name in function.template_params else None


def _handed(
    program: Program, sameness: Sameness, function: Function, statement: AsmStatement, text: str, call: Call
) -> _Values:
    index = _param(function, statement, text)
    if index is None:
        return _written(program, sameness, function, statement, text)
    if index < 0:
        known = len(call.template_args) > -1 - index
        return (program.value(call.caller, call.template_args[-1 - index]) if known else None,)
    if index >= len(call.args):
        return (None,)
    return _values(program, sameness, call.caller, call.args[index])


def _written(program: Program, sameness: Sameness, function: Function, statement: AsmStatement, text: str) -> _Values:
    if not text.startswith("%"):
        return (program.value(function, text),)
    operand = statement.operand(int(text[1:])) if text[1:].isdigit() else None
    if operand is None or operand.expr_node is None:
        return (None,)
    return _values(program, sameness, function, operand.expr_node)


def _values(program: Program, sameness: Sameness, function: Function, node: Node) -> _Values:
    value = program.value(function, function.text(node))
    return (value,) if value is not None else tuple(sameness.by_warp(function, node))


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


def _line(function: Function, node: Node) -> Span:
    """A statement with the rest of its line, if it has that to itself."""
    source, span = function.file.source, function.span(node)
    start = source.rfind(b"\n", 0, span.start) + 1
    end = source.find(b"\n", span.end) + 1
    alone = end > 0 and not source[start : span.start].strip() and not source[span.end : end].strip()
    return Span(start, end) if alone else span
