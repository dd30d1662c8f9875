# SPDX-License-Identifier: Apache-2.0
"""What host code uses a number for: the grid of a launch, its shared memory, a tensor map, or a question to sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import Span
from porter.model.block_size import launches_in
from porter.model.dynamic_shared import amounts, configures
from porter.model.functions import Function, declared_name
from porter.model.program import Program
from porter.passes.native.counting import Counting, Mention, Word

_CONFIGURED = re.compile(r"[\w.>-]+(?:\.|->)gridDim(?:\.[xyz])?")
_ASKING = ("==", "!=", "||", "&&")
_DEEPEST = 4


class HostPlaces:
    """Asks about the host code around one kernel; `counting` tells device code from it."""

    def __init__(self, program: Program, kernel: Function, counting: Counting) -> None:
        self.program, self.kernel, self.counting = program, kernel, counting

    @cached_property
    def launches(self) -> int:
        """How many places launch the kernel."""
        return len(list(launches_in(self.program, self.kernel)))

    def is_grid(self, file: CudaFile, node: Node) -> bool:
        """Whether a number is for a grid alone: in a launch, a `dim3`, or a variable that is."""
        above: Node | None = node.parent
        while above is not None and not above.type.endswith("statement") and above.type != "declaration":
            text = file.text(above)
            if above.type == "kernel_call_syntax" or (above.type == "call_expression" and text.startswith("dim3")):
                return True
            left = above.child_by_field_name("left") if above.type == "assignment_expression" else None
            if left is not None and _CONFIGURED.fullmatch("".join(file.text(left).split())):
                return True
            above = above.parent
        if above is None or above.type != "declaration":
            return False
        kind = above.child_by_field_name("type")
        if kind is not None and file.text(kind) == "dim3":
            return True
        return self._uses(file, above, node, self.is_grid)

    def is_amount(self, file: CudaFile, node: Node) -> bool:
        """Whether a number is for the dynamic shared memory of a launch alone."""
        span = Span(node.start_byte, node.end_byte)
        asked = any(c.file is file and c.span(n).contains(span) for c, n in amounts(self.program, self.kernel))
        if asked or configures(file, node):
            return True
        declaration = enclosing(node, "declaration")
        return declaration is not None and self._uses(file, declaration, node, self.is_amount)

    def _uses(self, file: CudaFile, declaration: Node, node: Node, are: Callable[[CudaFile, Node], bool]) -> bool:
        """Whether all uses of the variable that a number is the first value of are such places."""
        declarator = enclosing(node, "init_declarator")
        named = declared_name(declarator) if declarator is not None else None
        if named is None:
            return False
        around, name = enclosing(declaration, "compound_statement") or file.root, file.text(named)
        found = (n for n in find(around, "identifier") if file.text(n) == name and n.start_byte >= node.end_byte)
        uses = [n for n in found if not self.counting.is_of_device(Mention(file, n, Word(name)))]
        return bool(uses) and all(are(file, n) for n in uses)

    def is_encoded(self, file: CudaFile, node: Node) -> bool:
        """Whether a number is an argument of what encodes a tensor map, or of a template that does."""
        call = enclosing(node, "call_expression")
        called = call.child_by_field_name("function") if call is not None else None
        if call is None or called is None or any(True for _ in find(call, "kernel_call_syntax")):
            return False
        name = re.sub(r"<.*", "", file.text(called), flags=re.DOTALL).rpartition("::")[2].strip()
        return "ncode" in name or any(self._encodes(f, 0) for f in self.program.functions if f.name == name)

    def _encodes(self, function: Function, depth: int) -> bool:
        called = (c.child_by_field_name("function") for c in find(function.body, "call_expression"))
        if any("ncode" in function.text(n)[:200] for n in called if n is not None):
            return True
        named = {call.name for call in function.calls}
        inner = [f for f in self.program.functions if f.name in named and f is not function]
        return depth < _DEEPEST and any(self._encodes(f, depth + 1) for f in inner)

    @staticmethod
    def is_asked(file: CudaFile, node: Node) -> bool:
        """Whether a remainder is only asked whether it is zero."""
        above = node.parent
        while above is not None and above.type in ("parenthesized_expression", "unary_expression"):
            node, above = above, above.parent
        if above is not None and above.type == "binary_expression" and file.text(above.children[1]) in _ASKING:
            return enclosing(above, "condition_clause", "argument_list", "static_assert_declaration") is not None
        return above is not None and above.type in ("condition_clause", "argument_list", "if_statement")
