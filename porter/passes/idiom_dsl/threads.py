# SPDX-License-Identifier: Apache-2.0
"""What expressions of a kernel are for each thread of a block, where the thread's index and numbers alone say it."""

from __future__ import annotations

import operator
from collections.abc import Callable

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.shapes import binds
from porter.passes.idiom_dsl.text import assigned
from porter.ptx.arch import WARP

_LOOPS: tuple[type[cst.CSTNode], ...] = (cst.For, cst.While)
_DEEP = 12
"""How many names may stand for each other."""
_BINARY: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv, cst.Modulo: operator.mod
}  # fmt: skip
_COMPARED: dict[type[cst.BaseCompOp], Callable[[int, int], bool]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne, cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge
}  # fmt: skip


class Threads:
    """Of a block of `number` threads, all of its first dimension."""

    def __init__(self, kernel: Parts, number: int) -> None:
        self.kernel, self.number = kernel, number

    def _said(self, name: cst.Name) -> cst.CSTNode | None:
        """The statement that says what a name is where it is used; None where several may, or none does."""
        text = self.kernel.text
        node: cst.CSTNode = name
        for above in text.above(name):
            if isinstance(above, cst.IndentedBlock):
                body = list(above.body)
                ahead = body[: next(i for i, s in enumerate(body) if s is node)] if node in body else []
                for statement in reversed(ahead):
                    if name.value in set(binds(statement)):
                        return statement
            if above is self.kernel.function or (isinstance(above, _LOOPS) and name.value in set(binds(above))):
                return None
            node = above
        return None

    def _named(self, name: cst.Name, thread: int, deep: int) -> int | None:
        statement = self._said(name)
        if statement is None:
            known = name.value in set(binds(self.kernel.function.body))
            return None if known else self.kernel.number(name)
        one = assigned(statement)
        if one is not None:
            return self.value(one[1], thread, deep - 1)
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
            node = statement.body[0]
            target, value = node.targets[0].target, node.value
            asked = isinstance(value, cst.Call) and self.kernel.text.is_a(value.func, *OBSERVED["thread_index"])
            if asked and isinstance(target, cst.Tuple) and m.matches(target.elements[0].value, m.Name(name.value)):
                return thread
        return None

    def value(self, node: cst.BaseExpression, thread: int, deep: int = _DEEP) -> int | None:
        """None where something else says it."""
        if not deep:
            return None
        if isinstance(node, cst.Integer):
            return node.evaluated_value
        if isinstance(node, cst.Name):
            return self._named(node, thread, deep)
        if isinstance(node, cst.UnaryOperation):
            inner = self.value(node.expression, thread, deep)
            if inner is not None and isinstance(node.operator, (cst.Minus, cst.Not)):
                return -inner if isinstance(node.operator, cst.Minus) else int(not inner)
            return None
        if isinstance(node, cst.BinaryOperation) and type(node.operator) in _BINARY:
            left, right = self.value(node.left, thread, deep), self.value(node.right, thread, deep)
            divides = isinstance(node.operator, (cst.FloorDivide, cst.Modulo))
            if left is None or right is None or (divides and right <= 0):
                return None
            return _BINARY[type(node.operator)](left, right)
        if isinstance(node, (cst.Comparison, cst.BooleanOperation)):
            return self._truth(node, thread, deep)
        if isinstance(node, (cst.Call, cst.Subscript)):
            return self._asked(node, thread, deep)
        return self.kernel.number(node) if isinstance(node, cst.Attribute) else None

    def _truth(self, node: cst.Comparison | cst.BooleanOperation, thread: int, deep: int) -> int | None:
        if isinstance(node, cst.BooleanOperation):
            left, right = self.value(node.left, thread, deep), self.value(node.right, thread, deep)
            if left is None or right is None:
                return None
            return int(bool(left and right) if isinstance(node.operator, cst.And) else bool(left or right))
        left, how = self.value(node.left, thread, deep), type(node.comparisons[0].operator)
        right = self.value(node.comparisons[0].comparator, thread, deep)
        if len(node.comparisons) != 1 or how not in _COMPARED or left is None or right is None:
            return None
        return int(_COMPARED[how](left, right))

    def _asked(self, node: cst.Call | cst.Subscript, thread: int, deep: int) -> int | None:
        """The thread's index, or its warp's."""
        text = self.kernel.text
        if isinstance(node, cst.Subscript):
            first = m.Subscript(m.Call(), [m.SubscriptElement(m.Index(m.Integer("0")))])
            of = cst.ensure_type(node.value, cst.Call).func if m.matches(node, first) else node
            return thread if text.is_a(of, *OBSERVED["thread_index"]) else None
        if text.is_a(node.func, KNOWN["warp_index"]) and not node.args:
            return thread // WARP
        if text.is_a(node.func, KNOWN["warp_uniform"]) and len(node.args) == 1:
            value = self.value(node.args[0].value, thread, deep)
            # all threads of a warp get what its first one has
            of_first = self.value(node.args[0].value, thread - thread % WARP, deep)
            return value if value == of_first else None
        return None

    def where(self, node: cst.CSTNode) -> list[int] | None:
        """The threads that come to a place by the conditions around it; None where something else says it, loops and
        conditions of the DSL's constants apart."""
        found = list(range(self.number))
        before = node
        for above in self.kernel.text.above(node):
            if above is self.kernel.function:
                return found
            if isinstance(above, cst.If):
                inside = above.body is before
                values = {t: self.value(above.test, t) for t in found}
                if None in values.values():
                    return None
                found = [t for t in found if bool(values[t]) is inside]
            before = above
        return None
