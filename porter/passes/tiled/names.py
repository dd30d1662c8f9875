# SPDX-License-Identifier: Apache-2.0
"""Names through which the registers of an accumulator are reached: its own, views, references, lambdas."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import Fragment
from porter.model.functions import Alias, Function, Style, outermost
from porter.model.scopes import Variable, declared_names, resolve
from porter.model.tiled.accumulators import Handle, Origin
from porter.model.tiled.tensors import Key, holder, initializer, names_in
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.kept import Kept, is_address, is_number, kept_by
from porter.passes.tiled.sight import is_visible

_AROUND = ("parenthesized_expression", "argument_list", "initializer_list")
_DECLTYPE = re.compile(r"decltype\s*\((.*)\)", re.DOTALL)


class Names:
    """Variables through which the registers of an accumulator are reached, and where they are mentioned."""

    def __init__(self, context: TiledContext) -> None:
        self.context = context
        handles = context.tiled.handles.items()
        self._through: dict[Key, set[Key]] = {k: {k} for k, h in handles if not (h.array and h.origin is Origin.VIEW)}
        self._copies: set[Key] = set()
        """Variables that may have registers or numbers of their own, taken from those of an accumulator."""
        self._apart: set[Key] = set()
        """Those of them that are handed no address."""
        while self._more():
            pass

    def may_be_copied(self, function: Function, name: Node) -> bool:
        """Whether a name may be that of a copy of registers."""
        variable = resolve(holder(self.context.activity.lambdas, name, function), name, function.text(name))
        return variable is not None and variable.key in self._copies

    def _more(self) -> bool:
        """Variables that are made of others: views, references, and lambdas that touch registers."""
        found = False
        for function in self._functions():
            for declaration in function.own_nodes("declaration"):
                for declarator in declaration.children_by_field_name("declarator"):
                    found = self._declared(function, declaration, declarator) or found
            for kept in kept_by(function, self._mentions, self._points):
                found = self._keep(function, kept) or found
        return found

    def _mentions(self, function: Function, node: Node) -> bool:
        return any(self._reached(function, n) for n in self._evaluated(function, node))

    def _points(self, function: Function, name: Node) -> bool:
        """Whether a name is that of a pointer to registers."""
        variable = resolve(function, name, function.text(name))
        if variable is None or variable.key in self.context.tiled.handles or is_number(variable):
            return False
        return variable.key not in self._apart and bool(self._reached(function, name))

    def _keep(self, function: Function, kept: Kept) -> bool:
        """A variable that holds an address; whether that is news."""
        keys = {k for n in self._evaluated(function, kept.value) for k in self._reached(function, n)}
        if kept.holder is None:
            what = f"`{function.text(kept.place)}` keeps the address of registers where it is not followed"
            self.context.tiled.refuse(function, kept.place, what, Code.ACCUMULATOR_REFERENCE)
            return False
        known = self._through.get(kept.holder.key, set())
        if kept.holder.key in self.context.tiled.handles or keys <= known:
            return False
        self._through[kept.holder.key] = known | keys
        return True

    def _declared(self, function: Function, declaration: Node, declarator: Node) -> bool:
        value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
        kind = declaration.child_by_field_name("type")
        declared = declarator.child_by_field_name("declarator")
        if declarator.type == "function_declarator":
            self._refuse_in_parentheses(function, declarator)
        if value is None or kind is None or declared is None:
            return False
        if kind.type in ("primitive_type", "sized_type_specifier") and declared.type == "identifier":
            # a copy of a number
            return False
        names = declared_names(declarator)
        if not names or self.context.tiled.tensors.makes_registers(function, value):
            return False
        if declared.type == "identifier" and self._is_own_value(function, value):
            return False
        variables = [Variable(function, function.text(n), None, declaration, declarator) for n in names]
        variable = variables[0]
        copied = self._copied(function, declarator)
        if copied is not None:
            if copied.origin is not Origin.FRAGMENT:
                what = f"`{variable.name}` is a copy of accumulator `{copied.name}` or a view, as callers hand it in"
                self.context.tiled.refuse(function, value, what, Code.ACCUMULATOR_COPIED)
            return False
        if variable.key in self._through:
            return False
        if value.type == "lambda_expression" and self.context.activity.within(function, value):
            return False
        keys = {k for n in self._evaluated(function, value) for k in self._reached(function, n)}
        if not keys:
            return False
        self._through |= dict.fromkeys((v.key for v in variables), keys)
        if self._is_apart(function, declared, value):
            self._copies |= {v.key for v in variables}
            if not any(is_address(function, n, self._mentions, self._points) for n in walk(value)):
                self._apart |= {v.key for v in variables}
        return True

    def _is_apart(self, function: Function, declared: Node, value: Node) -> bool:
        """Whether what is declared is an object of its own, which may have copied what its value mentions."""
        if declared.type not in ("identifier", "structured_binding_declarator"):
            return False
        if value.type == "lambda_expression":
            inner = self.context.activity.lambdas.get(value.id)
            return inner is None or not inner.captures_all
        is_view = self.context.tiled.tensors.root(function, value) is not None
        return not is_view and not is_address(function, value, self._mentions, self._points)

    def _refuse_in_parentheses(self, function: Function, declarator: Node) -> None:
        """`auto saved(acc);`, which the grammar reads as a function's declaration."""
        for node in walk(declarator):
            name = function.text(node)
            variable = resolve(function, node, name) if node.type == "type_identifier" else None
            if variable is not None and variable.key in self.context.tiled.handles:
                what = f"`{function.text(declarator)}` copies accumulator `{name}`: write it with `=`"
                self.context.tiled.refuse(function, declarator, what, Code.ACCUMULATOR_COPIED)

    def _copied(self, function: Function, declarator: Node) -> Handle | None:
        """The accumulator whose registers a declaration copies as they are."""
        declared, value = (declarator.child_by_field_name(f) for f in ("declarator", "value"))
        if declared is None or declared.type != "identifier":
            return None
        while value is not None:
            while value.type in _AROUND and len(value.named_children) == 1:
                value = value.named_children[0]
            variable = resolve(function, value, function.text(value)) if value.type == "identifier" else None
            if variable is None:
                return None
            handle = self.context.tiled.handles.get(variable.key)
            if handle is not None and handle.origin is not Origin.VIEW:
                return handle if handle.array is None else None
            value, function = initializer(variable) if variable.is_reference else None, variable.function
        return None

    def _is_own_value(self, function: Function, value: Node) -> bool:
        """Whether a value is a number or registers of its own, whichever arm of a condition gives it."""
        if value.type == "parenthesized_expression" and value.named_children:
            return self._is_own_value(function, value.named_children[0])
        if value.type == "conditional_expression":
            arms = [value.child_by_field_name(f) for f in ("consequence", "alternative")]
            return all(a is not None and self._is_own_value(function, a) for a in arms)
        if value.type != "call_expression":
            return False
        return self._is_element(function, value) or self._gives_own(function, value)

    def _is_element(self, function: Function, value: Node) -> bool:
        """Whether a value is one register of a tensor, copied."""
        callee = value.child_by_field_name("function")
        handle = self.context.tiled.handle_of(function, callee) if callee is not None else None
        return handle is not None and self.context.tiled.tensors.root(function, value) is None

    def _gives_own(self, function: Function, value: Node) -> bool:
        """Whether a call hands back a number, or registers of its own: its functions say so by their types."""
        call = self.context.tiled.tensors.call(function, value)
        targets = self.context.tiled.program.targets(call) if call is not None else []
        return bool(targets) and all(self._returns_own(t) for t in targets)

    def _returns_own(self, target: Function) -> bool:
        kind, declarator = target.node.child_by_field_name("type"), target.node.child_by_field_name("declarator")
        if kind is None or declarator is None or declarator.type != "function_declarator":
            return False
        if kind.type in ("primitive_type", "sized_type_specifier"):
            return True
        text, scope = target.text(kind), target.owner_class
        aliases = scope.aliases.get(text, []) if scope is not None and text not in target.template_params else []
        return bool(aliases) and all(self._is_own(a) for a in aliases)

    def _is_own(self, alias: Alias) -> bool:
        """Whether a type is that of a number, or of new registers: `decltype(make_tensor<float>(...))`."""
        kinds = [n.type for n in alias.type_node.named_children]
        if kinds in (["primitive_type"], ["sized_type_specifier"]):
            return True
        match = _DECLTYPE.fullmatch(alias.file.text(Span(alias.type_node.start_byte, alias.type_node.end_byte)))
        return match is not None and isinstance(self.context.tiled.program.facts.in_text(match[1]), Fragment)

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
        # a lambda's parameter is nothing of the function around
        variable = resolve(holder(self.context.activity.lambdas, name, function), name, function.text(name))
        return self._through.get(variable.key, set()) if variable is not None else set()

    def of(self, handle: Handle) -> Iterator[tuple[Function, Node]]:
        """Every name through which registers of an accumulator are reached in the function around it and its lambdas,
        with the innermost of those that it stands in."""
        around = outermost(handle.function)
        for function in self._functions():
            if outermost(function) is not around:
                continue
            for name in names_in(function, function.body):
                is_own = holder(self.context.activity.lambdas, name, function) is function
                if is_own and not _is_declared(name) and handle.variable.key in self._reached(function, name):
                    yield function, name

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
        is_named = value is not None and self.context.tiled.tensors.root(function, value) is not None
        return is_named and self._copied(function, declarator) is None

    def _is_operand(self, function: Function, name: Node) -> bool:
        """Whether a name is what MMAs add to, or is handed to a function that is looked at on its own."""
        atoms = self.context.tiled.atoms
        if any(a.call.caller is function and a.d.start_byte <= name.start_byte < a.d.end_byte for a in atoms):
            # an argument, or what a macro there is handed
            return True
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
        if any(atom.call is call for atom in self.context.tiled.atoms):
            return True
        for multiply in self.context.tiled.multiplies:
            if multiply.call is call:
                return multiply.d.start_byte <= name.start_byte < multiply.d.end_byte
        if self.context.tiled.tensors.root(function, call_node) is not None:
            return self._is_operand(function, call_node)
        targets = self.context.tiled.program.targets(call)
        return bool(targets) and all(id(t) in self.context.tiled.active for t in targets)


def _is_declared(name: Node) -> bool:
    """Whether a name is what a declaration declares."""
    inner, current = name, name.parent
    while current is not None and current.type.endswith("declarator"):
        declared = current.child_by_field_name("declarator")
        if declared is not None and declared.id != inner.id:
            return False
        inner, current = current, current.parent
    return current is not None and current.type == "declaration" and inner.id != name.id
