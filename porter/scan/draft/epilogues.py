# SPDX-License-Identifier: Apache-2.0
"""What a kernel does to its sums before it writes them, read from its text: which function of one number, and what it
is applied to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.scan.draft.scalars import NotUnderstood, Scalars, arguments, is_nonlinear, number, told

_EXPRESSIONS = ("call_expression", "binary_expression", "conditional_expression")
_LEAVES = frozenset({"identifier", "qualified_identifier", "subscript_expression", "field_expression"})
_CONSTANT = re.compile(
    r"\b(?:constexpr|const|static)\b[^;(){}]*?\b(?:float|double|auto)\s+(\w+)\s*(?:=|\{)\s*(-?[\d.][\w.+-]*)\s*\}?\s*;|"
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(-?[\d.][\w.+-]*)\)?[ \t]*$",
    re.MULTILINE,
)
_DEEPEST = 8
_MOST_TRIED = 40


@dataclass(frozen=True)
class Applied:
    """A function of one number in a device function: its expression in references with `{}` for the argument, where it
    stands, and the words that its argument is made of."""

    text: str
    function: Function
    node: Node
    words: frozenset[str]

    def is_of(self, name: str) -> bool | None:
        """Whether memory of this name goes into its argument; None where its function does not tell."""
        if name in self.words:
            return True
        for node in find(self.function.body, "assignment_expression"):
            target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            if target is None or value is None or name not in words_of(self.function, value):
                continue
            if self.function.text(target) in self.words and not _holds(node, self.node):
                return node.start_byte < self.node.start_byte
        return False if name in words_of(self.function, _statement(self.node)) else None

    def is_whole(self, name: str) -> bool:
        """Whether what is stored in memory of this name went through it, as far as its function tells."""
        stored = list(stores(self.function, name))
        return not stored or any(self._is_in(value) for value in stored)

    def _is_in(self, value: Node) -> bool:
        target = _target(self.node, self.function)
        return self.function.text(self.node) in self.function.text(value) or target in words_of(self.function, value)


def applied(functions: Sequence[Function], code: str) -> Applied | None:
    """The last function of one number that the sums of a kernel go through, of those in these functions: the kernel and
    what it calls. `code`: all of their files, for constants."""
    by_name = {f.name: f for f in functions[1:]}
    scalars = Scalars(by_name, _constants(code))
    # an activation that another function applies stands in that function
    own = {name for name, f in by_name.items() if len(f.params) == 1 and told(partial(scalars.call, name))}
    found = [one for f in functions if f.name not in own for one in _in_function(f, scalars, by_name)]
    return _of_rows(found[-1]) if found else None


def _of_rows(one: Applied) -> Applied:
    """An exponential of a difference to a row's largest is part of a softmax."""
    if one.text == "exp({})" and re.search(r"max|largest|\bm\b", " ".join(one.words)):
        return replace(one, text="softmax({})")
    return one


def words_of(function: Function, node: Node) -> frozenset[str]:
    """The names in an expression, and those that its variables are made of."""
    found: set[str] = set()
    left = [(node, _DEEPEST)]
    while left:
        at, depth = left.pop()
        names = {function.text(n) for n in _of_kind(at, ("identifier", "field_identifier"))}
        for name in names - found:
            value = _initial(function, name)
            if value is not None and depth:
                left.append((value, depth - 1))
        found |= names
    return frozenset(found)


def stores(function: Function, name: str) -> Iterator[Node]:
    """What is assigned to memory of this name."""
    for node in find(function.body, "assignment_expression"):
        target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        if target is None or value is None or target.type == "identifier":
            continue
        if name in {function.text(n) for n in _of_kind(target, ("identifier", "field_identifier"))}:
            yield value


def called_by(kernel: Function, functions: Sequence[Function]) -> list[Function]:
    """A kernel, and the functions whose names stand in it or in one of these."""
    by_name: dict[str, list[Function]] = {}
    for f in functions:
        if f is not kernel:
            by_name.setdefault(f.name, []).append(f)
    found, left = [kernel], [kernel]
    while left:
        one = left.pop(0)
        words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", one.text(one.body)))
        for word in words:
            more = by_name.pop(word, [])
            found += more
            left += more
    return found


def _constants(code: str) -> dict[str, float]:
    found = {}
    for match in _CONSTANT.finditer(code):
        name, text = (match[1], match[2]) if match[1] else (match[3], match[4])
        try:
            found[name] = number(text)
        except NotUnderstood:
            continue
    return found


def _in_function(function: Function, scalars: Scalars, by_name: dict[str, Function]) -> Iterator[Applied]:
    left: list[Node] = [function.body]
    while left:
        node = left.pop()
        one = _of_node(function, node, scalars, by_name) if node.type in _EXPRESSIONS else None
        if one is not None:
            yield one
        else:
            left += reversed(node.named_children)


def _of_node(function: Function, node: Node, scalars: Scalars, by_name: dict[str, Function]) -> Applied | None:
    called = [
        function.text(f) for n in _of_kind(node, ("call_expression",)) if (f := n.child_by_field_name("function"))
    ]
    is_choice = node.type == "conditional_expression"
    if not is_choice and not any(is_nonlinear(c) or c.rpartition("::")[2].partition("<")[0] in by_name for c in called):
        return None
    for inside in _arguments(function, node, scalars):
        expression = told(partial(_value, scalars, function, node, function.text(inside), []))
        if expression is not None:
            return Applied(expression, function, node, words_of(function, inside))
    leaf = _only_leaf(function, node, scalars)
    if leaf is None:
        return None
    name, names = leaf
    expression = told(partial(_value, scalars, function, node, name, names))
    return None if expression is None else Applied(expression, function, node, _words_of_text(function, node, name))


def _value(
    scalars: Scalars, function: Function, node: Node, text: str, names: Sequence[tuple[str, Node]], x: float
) -> float:
    """The value of an expression with a number for a text of it. Raises NotUnderstood."""
    known = {text: x}
    for other, initial in names:
        known[other] = scalars.run(function, initial, known)
    return scalars.run(function, node, known)


def _arguments(function: Function, node: Node, scalars: Scalars) -> Iterator[Node]:
    """Parts of an expression without which it has no variable, the widest first."""
    seen: set[str] = set()
    left = list(node.named_children)
    while left and len(seen) < _MOST_TRIED:
        part = left.pop(0)
        text = function.text(part)
        if text in seen or not _leaves(function, part, scalars):
            left += part.named_children if part.type == "argument_list" else []
            continue
        seen.add(text)
        if part.type not in ("argument_list", "parenthesized_expression") and not _leaves(
            function, node, scalars, text
        ):
            yield part
        left += part.named_children


def _words_of_text(function: Function, node: Node, text: str) -> frozenset[str]:
    at = next((n for n in _of_kind(node, tuple(_LEAVES)) if function.text(n) == text), None)
    return words_of(function, at) if at is not None else frozenset(re.findall(r"\w+", text))


def _only_leaf(function: Function, node: Node, scalars: Scalars) -> tuple[str, list[tuple[str, Node]]] | None:
    """The one variable that an expression is a function of, and variables that are functions of it, with the
    expressions that they are."""
    texts = _leaves(function, node, scalars)
    derived: list[tuple[str, Node]] = []
    for _ in range(_DEEPEST):
        if len(texts) == 1:
            return next(iter(texts)), derived[::-1]
        for text in sorted(texts):
            initial = _initial(function, text)
            if initial is not None and (made_of := _leaves(function, initial, scalars)) and made_of <= texts - {text}:
                texts = texts - {text}
                derived.append((text, initial))
                break
        else:
            return None
    return None


def _leaves(function: Function, node: Node, scalars: Scalars, without: str = "") -> set[str]:
    """The variables of an expression, those left out that stand in parts of this text."""
    text = function.text(node)
    if text == without:
        return set()
    if node.type in _LEAVES:
        return set() if scalars.is_constant(text.rpartition("::")[2]) else {text}
    inside = arguments(node) if node.type == "call_expression" else node.named_children
    found: set[str] = set()
    for child in inside:
        if not child.type.endswith(("type", "type_descriptor", "literal")):
            found |= _leaves(function, child, scalars, without)
    return found


def _initial(function: Function, name: str) -> Node | None:
    """The expression that a variable is, of one that is assigned nowhere else."""
    if not name.isidentifier():
        return None
    value = None
    for node in find(function.body, "init_declarator"):
        declared = node.child_by_field_name("declarator")
        if declared is not None and function.text(declared) == name:
            if value is not None:
                return None
            value = node.child_by_field_name("value")
    for node in find(function.body, "assignment_expression"):
        target = node.child_by_field_name("left")
        if target is not None and function.text(target) == name:
            return None
    return value


def _target(node: Node, function: Function) -> str:
    """The variable that an expression, and nothing else, is the value of; empty where there is none. What is handed to
    a function whose result nobody takes is handed by reference."""
    parent = node.parent
    if parent is not None and parent.type == "expression_statement" and (given := arguments(node)):
        return function.text(given[0])
    if parent is not None and parent.type in ("init_declarator", "assignment_expression"):
        name = parent.child_by_field_name("declarator") or parent.child_by_field_name("left")
        return function.text(name) if name is not None else ""
    return ""


def _statement(node: Node) -> Node:
    while node.parent is not None and not node.type.endswith("statement") and node.type != "declaration":
        node = node.parent
    return node


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _of_kind(node: Node, kinds: tuple[str, ...]) -> Iterator[Node]:
    if node.type in kinds:
        yield node
    for child in node.named_children:
        yield from _of_kind(child, kinds)
