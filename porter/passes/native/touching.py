# SPDX-License-Identifier: Apache-2.0
"""Which statements read or write shared memory by themselves: elements of it, not its address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Function, Style
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS, Variable, resolve
from porter.passes.full_rate.leading import is_callee
from porter.ptx.shared_access import SHARED_ACCESS

_ELEMENTS = ("subscript_expression", "pointer_expression", "field_expression")
_PLAIN = ("expression_statement", "declaration", "return_statement")
_STATEMENTS = (*_PLAIN, "compound_statement", "if_statement", "switch_statement", *LOOPS)
_LEADING = ("pointer_declarator", "reference_declarator", "abstract_pointer_declarator")
_MOST = 8


@dataclass(eq=False)
class Touching:
    """Asks about one program; `known` are nodes of statements whose effect on shared memory is known, such as those of
    mbarriers."""

    program: Program
    known: frozenset[int]
    _seen: set[tuple[int, frozenset[str], bool]] = field(default_factory=set)

    def statements(self, function: Function, body: Node) -> Iterator[Node]:
        """The innermost statements of a part of a function that touch shared memory."""
        for node in self._parts(body):
            self._seen.clear()
            if self._touches(function, node, frozenset(), False, 0):
                yield node

    def _parts(self, node: Node) -> Iterator[Node]:
        """Statements, and conditions of others, that have none inside."""
        if node.type in _PLAIN or not any(n.id != node.id and n.type in _STATEMENTS for n in walk(node)):
            yield node
            return
        for child in node.named_children:
            yield from self._parts(child)

    def _touches(self, function: Function, node: Node, handed: frozenset[str], member: bool, depth: int) -> bool:
        """`handed`: parameters that lead to shared memory; `member`: whether those of its object lie there."""
        for statement in function.asm:
            inside = node.start_byte <= statement.node.start_byte < node.end_byte
            if inside and SHARED_ACCESS.search(statement.template):
                return True
        if not any(n.id in self.known for n in walk(node)):
            for element in find(node, *_ELEMENTS):
                if self._is_shared(function, element, handed, member) and not _is_address(
                    self.program, function, element, node
                ):
                    return True
        return any(self._called(function, n, handed, member, depth) for n in find(node, "call_expression"))

    def _called(self, function: Function, node: Node, handed: frozenset[str], member: bool, depth: int) -> bool:
        callee = node.child_by_field_name("function")
        holder = callee.child_by_field_name("argument") if callee is not None else None
        of_object = holder is not None and self._is_shared(function, holder, handed, member)
        for call in self.program.calls_by_node.get(node.id, ()):
            for target in self.program.targets(call) if depth < _MOST else ():
                given = frozenset(
                    p.name
                    for p, a in zip(target.params, call.args, strict=False)
                    if self._is_shared(function, a, handed, member)
                )
                key = (id(target), given, of_object)
                if key in self._seen:
                    continue
                self._seen.add(key)
                if self._touches(target, target.body, given, of_object, depth + 1):
                    return True
        return False

    def _is_shared(self, function: Function, node: Node, handed: frozenset[str], member: bool) -> bool:
        """Whether an expression begins with shared memory, or what leads to it."""
        if node.type == "call_expression":
            return False
        name = next((n for n in walk(node) if n.type == "identifier" and not is_callee(n)), None)
        if name is None:
            return member and any(n.type in ("this", "field_identifier") for n in walk(node))
        return self._leads(function, name, handed, member, set())

    def _leads(
        self, function: Function, name: Node, handed: frozenset[str], member: bool, seen: set[tuple[int, int, str]]
    ) -> bool:
        text = function.text(name)
        variable = resolve(function, name, text)
        if variable is None:
            return text in self._outside or (member and function.style is Style.METHOD)
        if variable.param is not None:
            return text in handed
        if variable.declaration is None or variable.key in seen:
            return False
        owner = variable.function
        if SHARED in owner.text(variable.declaration):
            return True
        seen.add(variable.key)
        if not _is_pointer(owner, variable):
            return False
        values = [variable.declarator, *_assigned(owner, variable)]
        return any(
            self._leads(owner, n, handed, member, seen)
            for v in values
            if v is not None
            for n in find(v, "identifier")
            if owner.text(n) != text and not is_callee(n)
        )

    @property
    def _outside(self) -> set[str]:
        """Shared memory that is declared outside of functions."""
        return {
            word
            for file in self.program.sources.files.values()
            for match in re.finditer(rb"__shared__[^;{]*;", file.lexed.code)
            for word in re.findall(r"[A-Za-z_]\w*", match[0].decode("utf-8", "replace").split("[")[0])[-1:]
        }


def _is_pointer(function: Function, variable: Variable) -> bool:
    """Whether a variable may lead to memory: a pointer, a reference, an array of pointers, an object without a name for
    its type."""
    declarator, declaration = variable.declarator, variable.declaration
    inner = declarator.child_by_field_name("declarator") if declarator is not None else None
    shape = (
        inner if inner is not None and declarator is not None and declarator.type == "init_declarator" else declarator
    )
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    auto = kind is not None and function.text(kind) in ("auto", "decltype(auto)")
    return auto or (shape is not None and any(n.type in _LEADING for n in walk(shape)))


def _assigned(function: Function, variable: Variable) -> Iterator[Node]:
    for node in find(function.body, "assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and function.text(left) == variable.name:
            yield right


def _is_address(program: Program, function: Function, node: Node, whole: Node) -> bool:
    """Whether it is only asked where an element lies, as far as what stands around it tells."""
    if node.type == "pointer_expression" and function.text(node).startswith("&"):
        return True
    if _is_method(node):
        return True
    while node.id != whole.id and node.parent is not None:
        above = node.parent
        if above.type in ("sizeof_expression", "decltype"):
            return True
        if above.type == "pointer_expression":
            return function.text(above).startswith("&")
        if above.type in _ELEMENTS:
            # what stands around it is the element, or the method of it
            return above.children[0].id == node.id
        if above.type == "cast_expression":
            kind = above.child_by_field_name("type")
            return kind is not None and any(n.type in _LEADING for n in walk(kind))
        if above.type == "init_declarator":
            inner = above.child_by_field_name("declarator")
            return inner is not None and any(n.type in _LEADING for n in walk(inner))
        if above.type == "argument_list" and above.parent is not None:
            return _takes_address(program, function, above.parent, node)
        if above.type not in ("parenthesized_expression", "binary_expression", "conditional_expression"):
            return False
        if above.type == "conditional_expression" and above.children[0].id == node.id:
            return False
        node = above
    return False


def _is_method(node: Node) -> bool:
    """Whether a member is what a call calls."""
    above = node.parent
    callee = above.child_by_field_name("function") if above is not None and above.type == "call_expression" else None
    return callee is not None and callee.id == node.id


def _takes_address(program: Program, function: Function, call: Node, argument: Node) -> bool:
    callee = call.child_by_field_name("function")
    if callee is None:
        return False
    name = function.text(callee)
    if name.split("<")[0].strip() in CASTS:
        return "*" in name or "&" in name
    if "cvta" in name:
        return True
    for found in program.calls_by_node.get(call.id, ()):
        index = next((i for i, a in enumerate(found.args) if a.id == argument.id), None)
        targets = program.targets(found)
        if index is None or not targets:
            return False
        params = [t.params[index] for t in targets if index < len(t.params)]
        return all(p.node is not None and any(n.type in _LEADING for n in walk(p.node)) for p in params)
    return False
