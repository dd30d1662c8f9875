# SPDX-License-Identifier: Apache-2.0
"""Calls in a flow: what becomes of accumulators that they are handed, and the bodies of those that multiply."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.accumulators import Accumulator
from porter.model.empty_calls import is_register_fence_call
from porter.model.events import Branch, Event, Inlined, Item, Kind, Loop
from porter.model.flow_names import FlowNames, place
from porter.model.frames import Frame
from porter.model.functions import Call, Function, Style
from porter.model.objects import is_const, returns_pointer
from porter.model.registers import CASTS, take_apart, without_casts

_REACHING = ("field_expression", "call_expression")


class FlowCalls(FlowNames, ABC):
    """What calls, casts and references do to accumulators."""

    @abstractmethod
    def _body(self, frame: Frame, node: Node) -> list[Item]:
        """The flow of a function's body."""

    @abstractmethod
    def _expression(self, frame: Frame, node: Node | None) -> list[Item]:
        """The flow of an expression."""

    def _call(self, frame: Frame, node: Node) -> list[Item]:
        if self._is_cast_call(frame, node):
            alias = self._alias(frame, node)
            if alias is not None:
                return alias
        call = self.call_at(frame.function, node)
        if call is None:
            return [i for child in node.named_children for i in self._expression(frame, child)]
        targets = self.program.targets(call)
        if is_register_fence_call(self.program, call):
            return []
        held = self._held(frame, call)
        objects = self._objects(frame, call)
        inlined = [
            t
            for t in targets
            if id(t) in self._uses or t.style is Style.LAMBDA or self._is_method_of(t, held) or objects
        ]
        carried = {i for argument in self.accumulators.arguments_of(call) for i in argument.args} | set(objects)
        items: list[Item] = []
        for index, argument in enumerate(call.args):
            if index in carried and inlined:
                continue
            items += self._argument(frame, index, argument, targets)
        if not targets:
            items += self._macros.named(frame, node, call.name)
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type in _REACHING and not (held and inlined):
            # the object that is called may be what a call gives
            reached = callee.child_by_field_name("argument") if callee.type == "field_expression" else callee
            items += self._expression(frame, reached)
            changed = self._object(frame, callee)
            if changed is not None and not (targets and all(is_const(t) for t in targets)):
                items.append(Event(Kind.WRITE, frame.at or node, changed))
        if inlined and not self.inliner.is_too_deep(frame, call):
            arms = [self._inline(frame, call, target, held) for target in inlined]
            items += arms[0] if len(arms) == 1 else [Branch(arms)]
        return items

    def _is_cast_call(self, frame: Frame, node: Node) -> bool:
        if node.type != "call_expression":
            return False
        callee = node.child_by_field_name("function")
        return callee is not None and frame.function.text(callee).split("<")[0].strip() in CASTS

    def _alias(self, frame: Frame, node: Node) -> list[Item] | None:
        """A pointer or reference to an accumulator that is kept: `T* p = d`, `T& x = d[i]`, a cast of `d`. None if
        the node makes none; the elements of the array by value are no alias."""
        if node.type == "init_declarator":
            declarator, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            if declarator is None or value is None:
                return None
            reference = declarator.type in ("reference_declarator", "pointer_declarator") or _has_auto(node)
            if not reference:
                return None
            constant = any(c.type == "type_qualifier" and "const" in frame.function.text(c) for c in _siblings(node))
        else:
            arguments = node.child_by_field_name("arguments")
            value = node.child_by_field_name("value")
            if value is None and arguments is not None and arguments.named_children:
                value = arguments.named_children[0]
            if value is None:
                return None
            constant = "const" in frame.function.text(node).split("(", 1)[0].split()
        element = take_apart(frame.function, without_casts(frame.function, value))
        accumulator = self._accumulator(frame, element.root) if element is not None else None
        if element is None or accumulator is None:
            held = self._object(frame, value) if node.type == "init_declarator" else None
            if held is None or (_declares_value(node) and not self._hands_out(frame, value)):
                return None
            return [Event(Kind.ALIAS, frame.at or node, held, changes=not constant)]
        full = accumulator.home.is_register(element.subscripts)
        by_value = node.type == "init_declarator" and _declares_value(node)
        if full and (node.type != "init_declarator" or by_value) and not _takes_address(value):
            return None
        return [Event(Kind.ALIAS, frame.at or node, accumulator, changes=not constant)]

    def _hands_out(self, frame: Frame, node: Node) -> bool:
        """Whether a call returns a pointer, or is of a function that the sources do not define."""
        call = self.call_at(frame.function, node)
        targets = self.program.targets(call) if call is not None else []
        return not targets or any(returns_pointer(t) for t in targets)

    def _argument(self, frame: Frame, index: int, node: Node, targets: list[Function]) -> list[Item]:
        if node.type in ("lambda_expression", "identifier", "parenthesized_expression"):
            inner = self.program.names.lambda_at(frame.function, node)
            if inner is not None and (node.type == "lambda_expression" or inner.parent is frame.function):
                body = self._body(frame.into(inner, {}, None, node, lexical=True), inner.body)
                return [Loop([Inlined(body)])]
        element = take_apart(frame.function, without_casts(frame.function, node))
        accumulator = self._accumulator(frame, element.root) if element is not None else None
        at = frame.at or node
        address_taken = node.type == "pointer_expression"
        if element is None or accumulator is None:
            items = self._expression(frame, node)
            held = self._object(frame, node)
            changes = any(_may_write(t, index) for t in targets) if targets else address_taken
            return [*items, Event(Kind.WRITE, at, held)] if held is not None and changes else items
        read = Event(Kind.READ, at, accumulator)
        whole = not accumulator.home.is_register(element.subscripts)
        changes = any(_may_write(t, index) for t in targets) if targets else whole or address_taken
        if changes:
            self._changed.add(place(frame, element.root))
        return [read, Event(Kind.WRITE, at, accumulator)] if changes else [read]

    def _held(self, frame: Frame, call: Call) -> dict[str, Accumulator]:
        """Member accumulators of the object that a method is called on, by the name of the field."""
        callee = call.node.child_by_field_name("function")
        root = callee
        if callee is not None and callee.type == "field_expression":
            root = callee.child_by_field_name("argument")
        while root is not None and root.type == "subscript_expression":
            # one of an array of objects
            root = root.child_by_field_name("argument")
        if root is None or root.type not in ("identifier", "this"):
            return {}
        accumulator = self._accumulator(frame, root)
        if accumulator is not None and accumulator.home.field_name:
            return {accumulator.home.field_name: accumulator}
        # a method that calls another of its own object
        return {n: a for n, a in frame.bound.items() if a.home.field_name == n}

    def _objects(self, frame: Frame, call: Call) -> dict[int, Accumulator]:
        """Objects with a member accumulator that a call hands on, by index of the argument."""
        found = {}
        for index, argument in enumerate(call.args):
            element = take_apart(frame.function, argument)
            accumulator = self._accumulator(frame, element.root) if element is not None and not element.path else None
            if accumulator is not None and accumulator.home.field_name:
                found[index] = accumulator
        return found

    def _is_method_of(self, target: Function, held: dict[str, Accumulator]) -> bool:
        return any(a.home.has_method(target) for a in held.values())

    def _inline(
        self, frame: Frame, call: Call, target: Function, held: dict[str, Accumulator] | None = None
    ) -> list[Item]:
        bound: dict[str, Accumulator] = dict(held or {}) if self._is_method_of(target, held or {}) else {}
        if target.style is Style.LAMBDA and target.parent is frame.function:
            own = {p.name for p in target.params}
            bound |= {name: a for name, a in frame.bound.items() if name not in own}
        for index, accumulator in self._objects(frame, call).items():
            if index < len(target.params):
                bound[target.params[index].name] = accumulator
        for argument in self.accumulators.arguments_of(call):
            if argument.param.function is not target:
                continue
            carried = self._accumulator(frame, argument.registers.root)
            if carried is not None:
                for param in argument.param.params:
                    bound[param.name] = carried
        values = self.inliner.template_values(call, target, self._constants(frame))
        inner = frame.into(target, bound, values, call.node, call, lexical=True)
        return [Inlined(self.inliner.body(inner, lambda: self._body(inner, target.body)))]


def _siblings(node: Node) -> list[Node]:
    return list(node.parent.children) if node.parent is not None else []


def _has_auto(node: Node) -> bool:
    """`auto p = d` keeps a pointer."""
    return any(c.type in ("placeholder_type_specifier", "auto") for c in _siblings(node))


def _declares_value(node: Node) -> bool:
    declarator = node.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "identifier"


def _takes_address(node: Node) -> bool:
    return any(n.type == "pointer_expression" and n.children and n.children[0].type == "&" for n in walk(node))


def _may_write(function: Function, index: int) -> bool:
    """Whether an argument passed to parameter `index` may be changed through it."""
    if index >= len(function.params) or function.params[index].node is None:
        return True
    text = function.file.text(function.params[index].span)
    if "const" in text.split():
        return False
    return "&" in text or "*" in text or "[" in text
