# SPDX-License-Identifier: Apache-2.0
"""What single statements and calls of a main loop are, whatever kernel they stand in."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.text import Left, argument, found_in, method

CONSUMER = ("consumer_wait", "consumer_release", "consumer_try_wait")
_BINDS: tuple[type[cst.CSTNode], ...] = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.NamedExpr, cst.For)


def whole_call(statement: cst.CSTNode) -> cst.Call | None:
    """The call that a statement is, with nothing else."""
    if not m.matches(statement, m.SimpleStatementLine([m.Expr(m.Call())])):
        return None
    return cst.ensure_type(found_in(statement, cst.Expr)[0].value, cst.Call)


def advanced(statement: cst.CSTNode, *methods: str) -> str:
    """The state that a statement does nothing but advance (or what `methods` do); empty if it does not."""
    call = whole_call(statement)
    return "" if call is None else method(call, *(methods or ("advance",)))


def first_of(test: cst.BaseExpression) -> cst.BaseExpression:
    """The first condition of those that all have to hold."""
    while m.matches(test, m.BooleanOperation(operator=m.And())):
        test = cst.ensure_type(test, cst.BooleanOperation).left
    return test


def operand_of(call: cst.Call, index: int, keyword: str) -> cst.BaseExpression:
    found = argument(call, index, keyword)
    if found is None:
        raise Left("an MMA whose operands are not named one by one", call)
    return found.value


def binds(statement: cst.CSTNode, header: bool = False) -> Iterator[str]:
    """Names that a statement binds. `header`: on any way through it."""
    if header and isinstance(statement, cst.For):
        yield from targets_of(statement.target)
        return
    if header and not isinstance(statement, cst.SimpleStatementLine):
        return
    for kind in _BINDS:
        for node in found_in(statement, kind):
            yield from targets_of(getattr(node, "target"))  # noqa: B009


def targets_of(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, (cst.Tuple, cst.List)):
        for element in node.elements:
            yield from targets_of(element.value)
