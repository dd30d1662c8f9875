# SPDX-License-Identifier: Apache-2.0
"""What statements write to that is no variable of a thread's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Call, Function, Style
from porter.model.program import Program
from porter.model.scopes import Variable
from porter.passes.full_rate.leading import is_local, named, own_declarator, roots
from porter.passes.full_rate.sameness import Sameness

_CHANGES = ("assignment_expression", "update_expression")
_THROUGH = ("pointer_expression", "subscript_expression")
_CALLS = re.compile(r"atomic\w+|__nv_atomic_\w+|__st\w\w|printf|mem(?:cpy|set|move)|fetch_\w+|store|exchange")
_STORES = re.compile(r"\b(?:st|red|atom)\.|\bst(?:matrix)?\.")
_MACRO_WRITES = re.compile(r"(?:[\])]|\*\s*\w+)\s*(?:[-+*/|&^]|<<|>>)?=(?!=)")
_MOST = 8


@dataclass(eq=False)
class Effects:
    """Asks about one program."""

    program: Program
    sameness: Sameness

    def of(self, function: Function, body: Node) -> Iterator[Node]:
        """What a part of a function, and the functions that it calls, write to memory that threads may share: the
        assignments, calls and instructions."""
        yield from self._in(function, body, frozenset(), 0)

    def _in(self, function: Function, body: Node, own: frozenset[str], depth: int) -> Iterator[Node]:
        """`own`: pointers among the parameters that lead to variables of the thread's own."""
        for node in find(body, *_CHANGES):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is not None and not self._is_own(function, target, own):
                yield node
        for name in find(body, "identifier"):
            text = function.text(name)
            if text in self.program.macros.by_name and self._macro_writes(text):
                yield name
        for statement in function.asm:
            inside = body.start_byte <= statement.node.start_byte < body.end_byte
            if inside and _STORES.search(statement.template):
                yield statement.node
        for node in find(body, "call_expression"):
            for call in self.program.calls_by_node.get(node.id, ()):
                yield from self._called(function, call, own, depth)

    def _macro_writes(self, text: str) -> bool:
        """Whether a macro's text changes elements, or what a pointer leads to, or calls what does."""
        macros = self.program.macros
        called = any(_CALLS.fullmatch(word) for word in macros.words(text))
        return called or _MACRO_WRITES.search(macros.text(text)) is not None

    def _called(self, function: Function, call: Call, own: frozenset[str], depth: int) -> Iterator[Node]:
        targets = self.program.targets(call)
        if not targets and _CALLS.fullmatch(call.name):
            written = call.args[0] if call.args and call.name.startswith("mem") else None
            if written is None or not self._leads_to_own(function, written, own):
                yield call.node
        for target in targets:
            if target.style in (Style.MACRO, Style.LAMBDA) or depth >= _MOST:
                continue
            handed = zip(target.params, call.args, strict=False)
            inner = frozenset(p.name for p, argument in handed if self._leads_to_own(function, argument, own))
            if next(self._in(target, target.body, inner, depth + 1), None) is not None:
                yield call.node

    def _is_own(self, function: Function, target: Node, own: frozenset[str]) -> bool:
        """Whether what is assigned to is the thread's own."""
        through = any(find(target, *_THROUGH)) or "->" in function.text(target)
        for name in roots(function, target):
            variable = named(function, name)
            if function.text(name) in own:
                continue
            if variable is None:
                # a member of an object that its method is called of, or a variable of all threads
                if through or function.style is not Style.METHOD:
                    return False
            elif not through and _is_pointer(variable):
                continue
            elif variable.param is not None:
                if through or not variable.param.span or "*" in function.text(variable.param.node or name):
                    return False
            elif not is_local(variable) and not self.sameness.leads_to(function, name):
                return False
        return True

    def _leads_to_own(self, function: Function, argument: Node, own: frozenset[str]) -> bool:
        """Whether what a function is handed is, or leads to, a variable of the thread's own."""
        names = list(roots(function, argument))
        return bool(names) and all(
            function.text(n) in own
            or ((v := named(function, n)) is not None and is_local(v))
            or bool(self.sameness.leads_to(function, n))
            for n in names
        )


def _is_pointer(variable: Variable) -> bool:
    """Whether a variable is a pointer of the thread's own, which moves without a write to what it leads to."""
    if variable.param is not None:
        parts = [n for n in walk(variable.param.node) if "declarator" in n.type] if variable.param.node else []
    else:
        own = own_declarator(variable)
        declaration = variable.declaration
        static = declaration is not None and "static" in variable.function.text(declaration).split()
        parts = [] if own is None or static else [n for n in walk(own) if "declarator" in n.type]
    return bool(parts) and all(n.type in ("pointer_declarator", "init_declarator") for n in parts)
