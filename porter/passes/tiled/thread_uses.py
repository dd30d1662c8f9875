# SPDX-License-Identifier: Apache-2.0
"""What a thread's index tells in kernels whose warps have other rows than their indices say: what takes no part in
rows, such as a slice of a tiled MMA or copy, who a role is for, or which words of memory a thread brings. Any other use
of an index is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.facts import Index
from porter.model.functions import Function, Style
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.scopes import LOOPS, Variable, resolve
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.renaming import places, reached
from porter.passes.full_rate.step import title
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.derived import base_of, derived_names
from porter.passes.tiled.names import Names

_DEEPEST = 8
_CASTS = ("cast_expression", "parenthesized_expression", "condition_clause", "argument_list")
_NUMBERS = ("primitive_type", "sized_type_specifier", "type_identifier", "placeholder_type_specifier")
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", ">>")
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
_BRANCHES = ("if_statement", *LOOPS)
_STATEMENTS = ("expression_statement", "for_statement")
_LEAVING = ("return_statement", "break_statement", "continue_statement", "goto_statement")


@dataclass(eq=False)
class ThreadUses:
    """Asks about the functions of `mine`, by their ids, which kernels come to."""

    context: TiledContext
    kernel: Function
    mine: set[int]
    names: Names
    library: LibraryCalls
    _followed: set[tuple[int, int]] = field(default_factory=set)

    @cached_property
    def _foreign(self) -> set[int]:
        program = self.context.tiled.program
        return reached(program, [k for k in program.kernels if id(k) not in self.mine])

    @cached_property
    def _touched(self) -> list[tuple[Function, Node]]:
        """Places that touch registers of accumulators."""
        return [(f, n) for f, n, _ in self.names.mentions()]

    @cached_property
    def _derived(self) -> frozenset[str]:
        return derived_names(self.context, list(self.functions()), self._touched)

    def functions(self) -> Iterator[Function]:
        """Those that are followed."""
        return (f for f in self.context.tiled.program.functions if id(f) in self.mine and f.style is not Style.MACRO)

    def missing(self) -> Iterator[Missing]:
        """Uses of which it is not known what they mean."""
        for place in places(self.context.tiled.program):
            owner = place.function
            if owner is None:
                what = "`threadIdx` is read outside of functions that are followed"
                yield Missing(self.kernel, title(self.kernel), what)
            elif id(owner) in self.mine:
                node = _node(owner, place.span)
                yield from self._index(owner, node, 0) if place.whole else [self._at(owner, node)]
            elif id(owner) not in self._foreign:
                # such as a constructor, which no call names
                yield self._at(owner, _node(owner, place.span))
        for function in self.functions():
            for call in function.calls:
                if isinstance(self.context.tiled.program.facts.of_call(call), Index):
                    yield from self._index(function, call.node, 0)

    def _at(self, function: Function, node: Node, what: str = "") -> Missing:
        if node.type == "subscript_argument_list" and node.parent is not None:
            node = node.parent
        text = " ".join(function.text(node).split())
        asked = f"`{text}` tells a thread's index, and which rows that means of two tiles is not known"
        return Missing(function, function.span(node), what or asked)

    def _index(self, function: Function, node: Node, depth: int) -> Iterator[Missing]:
        """Follow a value that a thread's index gives to where it is used."""
        above = node.parent
        if depth > _DEEPEST or above is None or (id(function), node.id) in self._followed:
            if depth > _DEEPEST:
                yield self._at(function, node)
            return
        self._followed.add((id(function), node.id))
        call = above.parent if above.type == "argument_list" else None
        if call is not None and call.type == "call_expression":
            yield from self._handed(function, call, node, depth)
        elif above.type in _CASTS:
            yield from self._index(function, above, depth)
        elif above.type == "init_declarator" and above.parent is not None:
            yield from self._declared(function, above, depth)
        elif above.type == "binary_expression":
            yield from self._combined(function, above, node, depth)
        elif above.type == "unary_expression" or _is_condition(above, node):
            yield from self._chosen(function, node, depth)
        else:
            yield from self._apart(function, above)

    def _handed(self, function: Function, call: Node, node: Node, depth: int) -> Iterator[Missing]:
        callee = call.child_by_field_name("function")
        if callee is not None and callee.type == "primitive_type":
            yield from self._index(function, call, depth)
            return
        named = self.library.named(function, call)
        spellings = self.context.tiled.program.vocabulary.spellings
        if named is not None and named[1] and spellings.are("slicing_method", named[0]):
            return
        calls = self.context.tiled.program.calls_by_node.get(call.id, ())
        targets = [
            (c, t) for c in calls if c.caller.file is function.file for t in self.context.tiled.program.targets(c)
        ]
        if not targets:
            yield from self._apart(function, call)
        for one, target in targets:
            index = next((i for i, a in enumerate(one.args) if a.id == node.id), len(target.params))
            param = target.params[index] if index < len(target.params) else None
            if param is None or target.style is Style.MACRO:
                yield self._at(function, call)
                continue
            for name in find(target.body, "identifier"):
                variable = resolve(target, name, param.name) if target.text(name) == param.name else None
                if variable is not None and variable.param is param:
                    yield from self._index(target, name, depth + 1)

    def _declared(self, function: Function, declarator: Node, depth: int) -> Iterator[Missing]:
        """A number that a variable begins with: all uses of the variable."""
        declaration, named = declarator.parent, declarator.child_by_field_name("declarator")
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        plain = named is not None and named.type == "identifier" and kind is not None and kind.type in _NUMBERS
        if declaration is None or not plain or named is None:
            yield self._at(function, declarator)
            return
        if declaration.parent is not None and declaration.parent.type == "for_statement":
            yield from self._apart(function, declaration.parent)
            return
        text = function.text(named)
        for other in self.functions():
            if other is not function and not _stands_in(other, function):
                continue
            for name in find(other.body, "identifier"):
                if other.text(name) != text or name.id == named.id:
                    continue
                inner = next((f for f in self.functions() if f is not other and _stands_in(f, other)
                              and f.body.start_byte <= name.start_byte < f.body.end_byte), None)  # fmt: skip
                variable = resolve(other, name, text)
                if inner is None and variable is not None and _is_declaration(variable.declaration, declaration):
                    yield from self._index(other, name, depth + 1)

    def _combined(self, function: Function, whole: Node, node: Node, depth: int) -> Iterator[Missing]:
        """An operation with a constant gives an index, a comparison with one chooses threads."""
        left, right = whole.child_by_field_name("left"), whole.child_by_field_name("right")
        sign = function.text(whole.children[1])
        other = right if left is not None and left.id == node.id else left
        value = self.context.tiled.program.value(function, function.text(other)) if other is not None else None
        if _is_logical(function, whole):
            yield from self._chosen(function, whole, depth)
        elif value is None and sign in _COMPARISONS:
            yield from self._apart(function, whole)
        elif value is not None and sign in _COMPARISONS:
            yield from self._chosen(function, whole, depth)
        elif value is not None and sign in _ARITHMETIC:
            yield from self._index(function, whole, depth)
        else:
            yield from self._apart(function, whole)

    def _apart(self, function: Function, node: Node) -> Iterator[Missing]:
        """The statement around a node has to do the same with whichever rows: it has no part in registers of an
        accumulator, nor in what follows from them, and writes nothing but memory that threads share."""
        statement = node
        while statement.type not in _STATEMENTS and statement.parent is not None:
            statement = statement.parent
        inside = {function.text(n) for n in find(statement, "identifier")}
        are = self.context.tiled.program.vocabulary.spellings.are
        asks = any(are("rows_by_object", function.text(n)) for n in find(statement, "field_identifier"))
        is_known = statement.type in _STATEMENTS and not self.context.activity.within(function, statement)
        if not is_known or asks or inside & self._derived or not self._writes_shared(function, statement):
            yield self._at(function, node)

    def _writes_shared(self, function: Function, statement: Node) -> bool:
        if next(find(statement, "gnu_asm_expression", "lambda_expression", *_LEAVING), None) is not None:
            return False
        for call in find(statement, "call_expression"):
            if not self.library.computes(function, call) and self.library.element_of(function, call) is None:
                return False
        for change in find(statement, "assignment_expression", "update_expression"):
            left = change.child_by_field_name("left") or change.child_by_field_name("argument")
            base = base_of(left) if left is not None else None
            variable = resolve(function, base, function.text(base)) if base is not None else None
            if left is None or variable is None or variable.ambiguous:
                return False
            at = variable.declaration
            own = at is not None and statement.start_byte <= at.start_byte and at.end_byte <= statement.end_byte
            if not own and (left.type == "identifier" or not _is_shared(self.context.tiled.program, variable)):
                return False
        return True

    def _chosen(self, function: Function, condition: Node, depth: int) -> Iterator[Missing]:
        """What chosen threads do touches no registers of an accumulator."""
        above = condition.parent
        while above is not None and above.type in _CASTS:
            condition, above = above, above.parent
        if above is None or depth > _DEEPEST:
            yield self._at(function, condition)
        elif above.type == "init_declarator":
            yield from self._declared(function, above, depth)
        elif above.type in ("unary_expression", "conditional_expression") or _is_logical(function, above):
            yield from self._chosen(function, above, depth)
        elif above.type == "assignment_expression":
            left = above.child_by_field_name("left")
            if left is None or left.type != "field_expression":
                yield self._at(function, above)
        elif not _is_condition(above, condition):
            yield self._at(function, above)
        elif self._touches(function, above) or self._hands_on(function, above):
            yield self._at(function, condition, "some warps do something else with registers of an accumulator")

    def _touches(self, function: Function, branch: Node) -> bool:
        """Whether registers of an accumulator are touched in a branch, which is not that of a role with MMAs."""
        if self.context.activity.within(function, branch):
            return False
        return any(
            f.file is function.file and branch.start_byte <= n.start_byte < branch.end_byte for f, n in self._touched
        )

    def _hands_on(self, function: Function, branch: Node) -> bool:
        """Whether a branch without MMAs changes a variable that what touches registers of an accumulator names."""
        if self.context.activity.within(function, branch):
            return False
        changes = find(branch, "assignment_expression", "update_expression")
        changed = [c.child_by_field_name("left") or c.child_by_field_name("argument") for c in changes]
        names = {function.text(n) for n in changed if n is not None and n.type == "identifier"}
        for other, node in self._touched if names else ():
            while node.type not in _STATEMENTS and node.parent is not None:
                node = node.parent
            if names & {other.text(n) for n in find(node, "identifier")}:
                return True
        return False


def _is_shared(program: Program, variable: Variable) -> bool:
    """Whether a variable is a pointer that a kernel is handed, an array in shared memory, or a tensor of memory."""
    if variable.param is not None:
        return variable.function.style is Style.KERNEL
    if variable.declaration is None or variable.declarator is None:
        return False
    text = variable.function.text(variable.declaration)
    value = variable.declarator.child_by_field_name("value")
    return SHARED in text or (value is not None and _is_of_memory(program, variable.function, value))


def _is_of_memory(program: Program, function: Function, value: Node) -> bool:
    """Whether a tensor is made of a pointer of which its making says that it leads to shared or global memory."""
    arguments = value.child_by_field_name("arguments")
    given = arguments.named_children if arguments is not None else []
    made = bool(given) and _is_named(program, function, value, "tensor_of_memory")
    return made and _is_named(program, function, given[0], "pointer_to_memory")


def _is_named(program: Program, function: Function, call: Node, spelling: str) -> bool:
    callee = call.child_by_field_name("function")
    while callee is not None and callee.type in ("qualified_identifier", "template_function"):
        callee = callee.child_by_field_name("name")
    return callee is not None and program.vocabulary.spellings.are(spelling, function.text(callee))


def _node(function: Function, span: Span) -> Node:
    """`threadIdx.x` at a place of a function."""
    node = function.file.root.descendant_for_byte_range(span.start - function.shift, span.end - function.shift)
    assert node is not None
    while node.parent is not None and node.parent.type == "field_expression":
        node = node.parent
    return node


def _stands_in(inner: Function, outer: Function) -> bool:
    """Whether one is a lambda of another, at any depth."""
    current = inner.parent if inner.style is Style.LAMBDA else None
    while current is not None and current is not outer:
        current = current.parent if current.style is Style.LAMBDA else None
    return current is outer


def _is_logical(function: Function, node: Node) -> bool:
    return node.type == "binary_expression" and function.text(node.children[1]) in ("&&", "||")


def _is_condition(branch: Node, node: Node) -> bool:
    condition = branch.child_by_field_name("condition") if branch.type in _BRANCHES else None
    return condition is not None and condition.start_byte <= node.start_byte < condition.end_byte


def _is_declaration(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id
