# SPDX-License-Identifier: Apache-2.0
"""Where the registers of an accumulator are brought up to date: in front of statements that touch them. A load whose
registers are up to date does nothing, so that one too many is no mistake; it is done by a warp together, so that none
stands where single threads may not come by."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.model.coherence import STATEMENT_LISTS
from porter.model.functions import Function, Style
from porter.model.scopes import Variable, resolve
from porter.model.tiled.accumulators import Handle, Origin
from porter.model.tiled.activity import may_leave
from porter.model.tiled.tensors import Key, names_in
from porter.passes.tiled.context import NAMESPACE, TiledContext
from porter.passes.tiled.sync import is_visible

RULE = "PTR612"


def insert_loads(context: TiledContext) -> None:
    """Load every accumulator in front of what touches its registers."""
    placed: dict[tuple[int, str], tuple[Node, Handle]] = {}
    names = _Names(context)
    for function, node, key in names.mentions():
        handle = context.tiled.handles[key]
        statement = _anchor(context, function, node, handle)
        if statement is None:
            what = f"registers of `{handle.name}` are used in a statement that also issues MMAs or waits for them"
            context.tiled.refuse(function, node, what)
            continue
        is_local = handle.function is function and handle.origin is Origin.FRAGMENT
        if is_local and not context.activity.may_follow(function, statement):
            continue
        placed.setdefault((statement.id, handle.name), (statement, handle))
        names.owner[statement.id] = function
    kept: list[tuple[Node, str]] = []
    for (_, name), (statement, handle) in sorted(placed.items(), key=lambda p: p[1][0].start_byte):
        function = names.owner[statement.id]
        if any(n == name and _covers(context, function, s, statement) for s, n in kept):
            continue
        kept.append((statement, name))
        context.loads.append((function, statement, handle))
        at, text = context.port.statement_before(function, statement, f"{NAMESPACE}::load({name});")
        context.port.edit(RULE, function, at, text)


class _Names:
    """Variables through which the registers of an accumulator are reached, and where they are mentioned."""

    def __init__(self, context: TiledContext) -> None:
        self.context = context
        self.owner: dict[int, Function] = {}
        self._through: dict[Key, set[Key]] = {k: {k} for k in context.tiled.handles}
        while self._more():
            pass

    def _more(self) -> bool:
        """Variables that are made of others: views, references, and lambdas that touch registers."""
        found = False
        for function in self._functions():
            for declaration in function.own_nodes("declaration"):
                for declarator in declaration.children_by_field_name("declarator"):
                    found = self._declared(function, declaration, declarator) or found
        return found

    def _declared(self, function: Function, declaration: Node, declarator: Node) -> bool:
        value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
        kind = declaration.child_by_field_name("type")
        declared = declarator.child_by_field_name("declarator")
        if value is None or kind is None or declared is None:
            return False
        if kind.type in ("primitive_type", "sized_type_specifier") and declared.type == "identifier":
            # a copy of a number
            return False
        name = next((n for n in _first_names(declarator)), None)
        if name is None or self.context.tiled.tensors.makes_registers(function, value):
            return False
        if value.type == "call_expression" and declared.type == "identifier" and self._is_element(function, value):
            return False
        variable = Variable(function, function.text(name), declaration=declaration, declarator=declarator)
        if variable.key in self._through:
            return False
        if value.type == "lambda_expression" and self.context.activity.within(function, value):
            return False
        keys = {k for n in self._evaluated(function, value) for k in self._reached(function, n)}
        if not keys:
            return False
        self._through[variable.key] = keys
        return True

    def _is_element(self, function: Function, value: Node) -> bool:
        """Whether a value is one register of a tensor, copied."""
        callee = value.child_by_field_name("function")
        handle = self.context.tiled.handle_of(function, callee) if callee is not None else None
        return handle is not None and self.context.tiled.tensors.root(function, value) is None

    def _functions(self) -> Iterator[Function]:
        for function in self.context.tiled.program.functions:
            if id(function) in self.context.reached and function.style is not Style.MACRO:
                yield function

    def _evaluated(self, function: Function, node: Node) -> Iterator[Node]:
        """Names in an expression, but for those in calls that do not touch registers."""
        for name in names_in(function, node):
            if not self.context.tiled.only_asked(function, name):
                yield name

    def _reached(self, function: Function, name: Node) -> set[Key]:
        variable = resolve(function, name, function.text(name))
        return self._through.get(variable.key, set()) if variable is not None else set()

    def mentions(self) -> Iterator[tuple[Function, Node, Key]]:
        """Places that touch registers of an accumulator: function, name, and the accumulator."""
        for function in self._functions():
            if function.style is Style.LAMBDA and id(function) not in self.context.tiled.active:
                # it is run where it is called
                continue
            for name in self._evaluated(function, function.body):
                if self._inside_other(function, name) or self._is_operand(function, name):
                    continue
                for key in sorted(self._reached(function, name)):
                    if is_visible(self.context, self.context.tiled.handles[key], function, name):
                        yield function, name, key

    def _inside_other(self, function: Function, name: Node) -> bool:
        """Whether a name stands in a lambda that is looked at on its own, or only declares a variable."""
        current = name.parent
        while current is not None and current.id != function.body.id:
            inner = self.context.activity.lambdas.get(current.id)
            if inner is not None and (id(inner) in self.context.tiled.active or (inner.name and inner.captures_all)):
                return True
            if current.type == "init_declarator" and self._is_view(function, current, name):
                return True
            current = current.parent
        return False

    def _is_view(self, function: Function, declarator: Node, name: Node) -> bool:
        """Whether a declaration only names registers: the declared name itself, and a view without a use."""
        declared = declarator.child_by_field_name("declarator")
        if declared is not None and declared.start_byte <= name.start_byte < declared.end_byte:
            return True
        value = declarator.child_by_field_name("value")
        return value is not None and self.context.tiled.tensors.root(function, value) is not None

    def _is_operand(self, function: Function, name: Node) -> bool:
        """Whether a name is what MMAs add to, or is handed to a function that is looked at on its own."""
        node = name
        while node.parent is not None and node.parent.type != "argument_list":
            node = node.parent
            if node.type.endswith("statement"):
                return False
        call_node = node.parent.parent if node.parent is not None else None
        if call_node is None:
            return False
        call = self.context.tiled.tensors.call(function, call_node)
        if call is None:
            # the argument of a view
            return self._is_operand(function, call_node) if call_node.type == "call_expression" else False
        for multiply in self.context.tiled.multiplies:
            if multiply.call is call:
                return multiply.d.start_byte <= name.start_byte < multiply.d.end_byte
        if self.context.tiled.tensors.root(function, call_node) is not None:
            return self._is_operand(function, call_node)
        targets = self.context.tiled.program.targets(call)
        return bool(targets) and all(id(t) in self.context.tiled.active for t in targets)


def _first_names(declarator: Node) -> Iterator[Node]:
    declared = declarator.child_by_field_name("declarator")
    stack = [declared] if declared is not None else []
    while stack:
        node = stack.pop()
        if node.type == "identifier":
            yield node
        stack.extend(reversed(node.children))


def _anchor(context: TiledContext, function: Function, node: Node, handle: Handle) -> Node | None:
    """The statement that a load stands in front of: outside of all branches and loops without MMAs and waits, which
    single threads may not take, and in front of what lets threads leave."""
    statement = _statement(node)
    if statement is None:
        return None
    declared = handle.variable.declaration if handle.function is function else None
    while True:
        block = statement.parent
        assert block is not None
        around = block if block.type in STATEMENT_LISTS and block.type != "compound_statement" else block.parent
        if declared is not None and declared.parent is not None and declared.parent.id == block.id:
            break
        if block.id == function.body.id or around is None:
            break
        above = _statement(block)
        if above is None or context.activity.within(function, above):
            break
        statement = above
    if context.activity.within(function, statement):
        return statement if _reads_first(context, function, statement, node) else None
    return _before_leaving(context, function, statement, declared)


def _reads_first(context: TiledContext, function: Function, statement: Node, node: Node) -> bool:
    """Whether a statement that is active touches registers in front of all that it issues: its condition does."""
    condition = statement.child_by_field_name("condition")
    if condition is None or statement.type != "if_statement":
        return False
    inside = condition.start_byte <= node.start_byte < condition.end_byte
    return inside and not context.activity.within(function, condition)


def _before_leaving(context: TiledContext, function: Function, statement: Node, declared: Node | None) -> Node:
    """The statement, or one in front of it that lets threads leave, behind whatever is active."""
    first = statement
    previous = statement.prev_named_sibling
    while previous is not None and not context.activity.within(function, previous):
        if declared is not None and previous.id == declared.id:
            break
        if may_leave(previous):
            first = previous
        previous = previous.prev_named_sibling
    return first


def _statement(node: Node) -> Node | None:
    """The statement of a list of statements that a node stands in."""
    current = node
    while current.parent is not None:
        if current.parent.type in STATEMENT_LISTS and current.is_named:
            return current
        current = current.parent
    return None


def _covers(context: TiledContext, function: Function, first: Node, second: Node) -> bool:
    """Whether a load in front of one statement is still good in front of another of the same list."""
    if first.parent is None or second.parent is None or first.parent.id != second.parent.id:
        return False
    current: Node | None = first
    while current is not None and current.id != second.id:
        if context.activity.within(function, current):
            return False
        current = current.next_named_sibling
    return current is not None
