# SPDX-License-Identifier: Apache-2.0
"""What a value is made of that only a launch tells, and where the distance of two values follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import ARRAY_DECLARATORS, Function, Style, outermost
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.scopes import Variable
from porter.passes.full_rate.leading import Key, first, is_callee, named
from porter.ptx.smem_desc import START_MASK

Same = Callable[[Function, Node], bool]
"""Whether an expression has one value in both of what is compared: two consumers, or two tiles."""

_OF_LAUNCH = ("gridDim", "blockIdx")
_SCALES = ("*", "/", "<<", ">>")
_CHOOSES = ("%", "^", "&")
_ASKS = ("==", "!=", "<", ">", "<=", ">=", "&&", "||")
_MOST = 12
PARTS = ("binary_expression", "conditional_expression", "call_expression", "subscript_expression")
"""Expressions that `mixes` is asked of."""


@dataclass(eq=False)
class LaunchValues:
    """Asks about a program."""

    program: Program
    _written: dict[int, set[Key]] = field(default_factory=dict)

    def mixes(self, function: Function, part: Node, same: Same, known: Callable[[Function, Node], bool]) -> bool:
        """Whether how far apart an expression is in both follows from what only a launch tells; `known`: whether the
        value of an expression is known in each thread."""
        if part.type == "conditional_expression":
            return self._chosen(function, part, same)
        if part.type == "call_expression":
            return self._called(function, part, same)
        if part.type == "subscript_expression":
            return self._element(function, part, same)
        left, right = part.child_by_field_name("left"), part.child_by_field_name("right")
        sign = function.text(part.children[1])
        if left is None or right is None or sign not in (*_SCALES, *_CHOOSES, *_ASKS):
            return False
        if (same(function, left) and same(function, right)) or known(function, part):
            return False
        if sign in _SCALES:
            other = right if same(function, right) else left
            return same(function, other) and self.varies(function, other, same)
        mask = self.program.value(function, function.text(right))
        # a mask of no fewer bits than a descriptor's address leaves the address as it is
        return not (sign == "&" and (mask or 0) >= START_MASK) and self.varies(function, part, same)

    def _chosen(self, function: Function, part: Node, same: Same) -> bool:
        condition, *arms = [part.child_by_field_name(n) for n in ("condition", "consequence", "alternative")]
        if condition is None or any(a is None for a in arms):
            return False
        values = [a for a in arms if a is not None]
        if same(function, condition):
            return any(not same(function, a) for a in values) and self.varies(function, condition, same)
        first, second = (self.told(function, a, same) for a in values)
        return self.varies(function, condition, same) or first != second

    def _called(self, function: Function, part: Node, same: Same) -> bool:
        """A call that nothing is known of but what it is handed: the less of two, say."""
        arguments = part.child_by_field_name("arguments")
        if arguments is None or any(self.program.targets(c) for c in self.program.calls_by_node.get(part.id, ())):
            return False
        handed = [a for a in arguments.named_children if a.type != "comment"]
        others = [a for a in handed if same(function, a)]
        return 0 < len(others) < len(handed) and any(self.varies(function, a, same) for a in others)

    def _element(self, function: Function, part: Node, same: Same) -> bool:
        """An element that is another one in both: of an array that is made of what a launch tells, or of memory that
        the kernel is handed."""
        held, indices = part.child_by_field_name("argument"), part.child_by_field_name("indices")
        address = part.parent is not None and function.text(part.parent).startswith("&")
        if held is None or indices is None or address or same(function, indices):
            return False
        variable = named(function, held) if held.type == "identifier" else None
        declarator = variable.declarator if variable is not None else None
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if variable is not None and value is not None and value.type == "initializer_list":
            return len({self.told(variable.function, v, same) for v in value.named_children}) > 1
        # what begins at no declaration is a parameter
        return any(at < 0 for _, at, _ in self.told(function, held, same))

    def answers(self, function: Function, same: Same) -> Iterator[Node]:
        """Conditions by which a function returns values that are apart by what a launch tells."""
        for branch in find(function.body, "if_statement"):
            condition = branch.child_by_field_name("condition")
            inside = [n for n in function.own_nodes("return_statement") if _holds(branch, n)]
            if condition is None or not inside:
                continue
            values = list(function.own_nodes("return_statement"))
            apart = len({self.told(function, v, same) for v in values}) > 1
            own = not same(function, condition)
            if self.varies(function, condition, same):
                own = own or any(not same(function, v) for v in values)
            elif not apart:
                continue
            if own:
                yield condition

    def chosen(self, function: Function, key: Key, writes: Sequence[Node], same: Same) -> Iterator[Node]:
        """Statements behind a condition that change a variable, by what a launch tells, in one of both otherwise than
        in the other."""
        assigned = [n for n in writes if n.type in ("assignment_expression", "update_expression")]
        first = [n for n in writes if n.parent is not None and n.parent.type == "init_declarator"]
        parted: list[Node] = []
        for node in assigned:
            for condition in _conditions(function, node, key):
                own, varies = not same(function, condition), self.varies(function, condition, same)
                right = node.child_by_field_name("right")
                if varies and (own or (right is not None and not same(function, right))):
                    yield node
                elif own:
                    parted.append(node)
        alone = [n for n in parted if function.text(n.children[1]) == "=" and not _names_itself(function, n, key)]
        yield from (n for n in parted if n not in alone and self.varies(function, n, same))
        others = alone if len(alone) > 1 else [*alone, *first]
        if alone and len({self.told(function, n, same) for n in others}) > 1:
            yield alone[0]

    def varies(self, function: Function, node: Node, same: Same) -> bool:
        """Whether a part of an expression that both have alike is no constant."""
        return bool(self.told(function, node, same))

    def told(self, function: Function, node: Node, same: Same, depth: int = 0) -> frozenset[Key]:
        """What no constants are of the variables that both have alike and that an expression is made of."""
        found: set[Key] = set()
        for name in walk(node):
            if name.type != "identifier" or is_callee(name) or not same(function, name):
                continue
            text = function.text(name)
            if self.program.value(function, text) is not None or text in outermost(function).template_params:
                continue
            variable = named(function, name)
            if variable is None:
                found |= {(0, 0, text)} if text in _OF_LAUNCH else set()
            elif depth > _MOST:
                found.add(variable.key)
            elif variable.param is not None:
                found |= self._handed(variable, same, depth)
            else:
                found |= self._held(variable, same, depth)
        return frozenset(found)

    def _handed(self, variable: Variable, same: Same, depth: int) -> frozenset[Key]:
        """The same of a parameter."""
        owner, param = variable.function, variable.param
        calls = self.program.callers(owner) if owner.style is not Style.KERNEL else []
        if param is None or not calls or any(param.index >= len(c.args) for c in calls):
            return frozenset({variable.key})
        handed = [self.told(c.caller, c.args[param.index], same, depth + 1) for c in calls]
        return frozenset().union(*handed)

    def _held(self, variable: Variable, same: Same, depth: int) -> frozenset[Key]:
        """The same of a variable of a function."""
        declarator, declaration, owner = variable.declarator, variable.declaration, variable.function
        if declaration is None or declarator is None or variable.ambiguous:
            return frozenset({variable.key})
        written = owner.text(declaration)
        value = declarator.child_by_field_name("value")
        if value is None:
            place = any(n.type in ARRAY_DECLARATORS for n in walk(declarator)) or SHARED in written
            # where it is in memory, no launch changes
            return frozenset() if place else frozenset({variable.key})
        if "const" not in written.split("=")[0] and variable.key in self._changed(owner):
            return frozenset({variable.key})
        return self.told(owner, value, same, depth + 1)

    def _changed(self, function: Function) -> set[Key]:
        """Variables that something else than their declaration changes, or may change by their address."""
        known = self._written.get(id(function))
        if known is not None:
            return known
        found: set[Key] = set()
        for node in find(function.body, "assignment_expression", "update_expression", "pointer_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if node.type == "pointer_expression" and not function.text(node).startswith("&"):
                continue
            variable = named(function, target) if target is not None and target.type == "identifier" else None
            if variable is not None:
                found.add(variable.key)
        for operand in (o for s in function.asm for o in s.operands if o.is_output and o.expr_node is not None):
            variable = first(function, operand.expr_node) if operand.expr_node is not None else None
            if variable is not None:
                found.add(variable.key)
        for node in find(function.body, "argument_list"):
            for name in node.named_children:
                variable = named(function, name) if name.type == "identifier" else None
                if variable is not None and self._may_write(function, node, name):
                    found.add(variable.key)
        self._written[id(function)] = found
        return found

    def _may_write(self, function: Function, arguments: Node, name: Node) -> bool:
        """Whether a call may change what it is handed by its name: a reference of a function of the sources."""
        call = arguments.parent
        for found in self.program.calls_by_node.get(call.id, ()) if call is not None else ():
            index = next((i for i, a in enumerate(found.args) if a.id == name.id), None)
            for target in self.program.targets(found):
                if index is not None and index < len(target.params):
                    kind = self.program.names.type_of_param(target, target.params[index])
                    if kind.reference and not kind.const:
                        return True
        return False


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _names_itself(function: Function, node: Node, key: Key) -> bool:
    right = node.child_by_field_name("right")
    return right is not None and any(function.text(n) == key[2] for n in find(right, "identifier"))


def _conditions(function: Function, node: Node, key: Key) -> Iterator[Node]:
    """What is asked ahead of a place, behind the declaration of a variable."""
    inner, current = node, node.parent
    while current is not None and inner.id != function.body.id:
        condition = current.child_by_field_name("condition") if current.type == "if_statement" else None
        declared = current.start_byte <= key[1] < current.end_byte
        if condition is not None and condition.id != inner.id and not declared:
            yield condition
        inner, current = current, current.parent
