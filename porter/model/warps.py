# SPDX-License-Identifier: Apache-2.0
"""Which conditions lanes of one warp may answer differently. A value that only the index of the warp decides is the
same in all its lanes."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Function
from porter.model.program import Program
from porter.model.scopes import LOOPS, resolve
from porter.model.threads import THREAD_WORDS, Threads, ends_thread
from porter.ptx.arch import WARP

_BRANCHES = ("if_statement", "switch_statement", *LOOPS)
_WARP_INDEX = re.compile(r"\w*warp(?:_?group)?_?(?:idx|index|id)\w*", re.IGNORECASE)
_BROADCASTS = ("__shfl_sync", "__any_sync", "__all_sync", "__ballot_sync", "__reduce_max_sync", "__reduce_min_sync")
_MOST_STEPS = 16


class Warps:
    """Asks about one program."""

    def __init__(self, program: Program, threads: Threads) -> None:
        self.program = program
        self.threads = threads

    def returns_apart(self, function: Function, behind: int) -> list[Node]:
        """The returns of a function, behind a byte offset of its tree and outside of lambdas, that some lanes of a
        warp may take and others not."""
        leaving = [*function.own_nodes("return_statement"), *(s.node for s in function.asm if ends_thread(s))]
        return [node for node in leaving if node.start_byte >= behind and self._parted(function, node)]

    def _parted(self, function: Function, node: Node) -> bool:
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            condition = current.child_by_field_name("condition") if current.type in _BRANCHES else None
            if condition is not None and self.differs(function, condition):
                return True
            inner, current = current, current.parent
        return False

    def differs(self, function: Function, node: Node, steps: int = _MOST_STEPS) -> bool:
        """Whether lanes of one warp may find different values."""
        if steps == 0:
            return True
        if not self.threads.differ(function, node):
            return False
        if node.type == "binary_expression" and self._is_of_warp(function, node):
            return False
        if node.type == "call_expression":
            callee = node.child_by_field_name("function")
            name = function.text(callee).split("<")[0].rsplit("::", 1)[-1] if callee is not None else ""
            if name in _BROADCASTS or (_WARP_INDEX.fullmatch(name) and not self._defined(name)):
                return False
            if THREAD_WORDS.search(name) or self._defined(name):
                return True
        if node.type == "identifier":
            return self._variable_differs(function, node, steps)
        if node.type == "field_expression" and THREAD_WORDS.search(function.text(node)):
            return True
        return any(self.differs(function, child, steps) for child in node.named_children)

    def _defined(self, name: str) -> bool:
        return any(f.name == name for f in self.program.functions)

    def _is_of_warp(self, function: Function, node: Node) -> bool:
        """`threadIdx.x / 32`, `tid >> 7`, `threadIdx.x < 128`: one value a warp."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if left is None or right is None or operator is None or not self._is_thread(function, left):
            return False
        value = self.program.constants_in(function).evaluate(function.text(right))
        sign = function.text(operator)
        if value is None:
            return False
        if sign == ">>":
            return value >= WARP.bit_length() - 1
        return sign in ("/", "<", ">=") and value > 0 and value % WARP == 0

    def _is_thread(self, function: Function, node: Node) -> bool:
        """Whether an expression is the thread's index in a block of one dimension."""
        text = re.sub(r"\s|^\(int\)|^\(unsigned\)", "", function.text(node)).strip("()")
        if text == "threadIdx.x":
            return True
        value = self._only_value(function, node) if node.type == "identifier" else None
        return value is not None and re.sub(r"\s", "", function.text(value)) == "threadIdx.x"

    def _variable_differs(self, function: Function, node: Node, steps: int) -> bool:
        value = self._only_value(function, node)
        return value is None or self.differs(function, value, steps - 1)

    def _only_value(self, function: Function, node: Node) -> Node | None:
        """What a local variable is initialized with, if nothing else is ever assigned to it."""
        name = function.text(node)
        variable = resolve(function, node, name)
        if variable is None or variable.declarator is None or variable.declarator.type != "init_declarator":
            return None
        for other in find(variable.function.body, "assignment_expression", "update_expression"):
            target = other.child_by_field_name("left") or other.child_by_field_name("argument")
            if target is not None and any(variable.function.text(n) == name for n in walk(target)):
                return None
        return variable.declarator.child_by_field_name("value")
