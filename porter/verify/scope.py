# SPDX-License-Identifier: Apache-2.0
"""The expressions of a case, evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from porter.diagnostics import Code, PorterError
from porter.verify.case import Case, Expr, place
from porter.verify.expr import ExpressionError, Number, evaluate


class Scope:
    """Evaluates the case's expressions and turns failures into diagnostics that name the field."""

    def __init__(self, case: Case, names: dict[str, Number]) -> None:
        self.case, self.names = case, names

    def error(self, field: str, problem: str) -> PorterError:
        return PorterError(Code.CASE_DOES_NOT_FIT, place(self.case, field), field=field, problem=problem)

    def number(self, field: str, expression: Expr) -> Number:
        try:
            return evaluate(expression, self.names)
        except ExpressionError as error:
            raise PorterError(
                Code.CASE_EXPRESSION,
                place(self.case, field),
                field=field,
                expression=expression,
                problem=error,
            ) from None

    def integer(self, field: str, expression: Expr, least: int = 0) -> int:
        value = self.number(field, expression)
        if isinstance(value, float) and not value.is_integer():
            raise self.error(field, f"`{expression}` is {value}, not an integer")
        if value < least:
            raise self.error(field, f"`{expression}` is {int(value)}, but must be at least {least}")
        return int(value)

    def integers(self, field: str, expressions: Sequence[Expr], least: int = 0) -> tuple[int, ...]:
        return tuple(self.integer(f"{field}[{i}]", e, least) for i, e in enumerate(expressions))
