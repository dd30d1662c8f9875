# SPDX-License-Identifier: Apache-2.0
"""Types of expressions, as far as they can be read off declarations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import ClassScope, Function, FunctionSymbol, Style
from porter.model.names.declared import Declared, adjusted
from porter.model.names.lookup import Lookup, Site
from porter.model.names.types import COMPONENTS, FLOATS, INTEGERS, UNKNOWN, Type, arithmetic
from porter.model.scopes import Variable, resolve

_DEPTH = 12
_BUILTIN_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=", "&&", "||")
_CASTS = ("static_cast", "const_cast", "reinterpret_cast", "dynamic_cast")

Return = Callable[[Function, Node], list[FunctionSymbol]]
"""The functions that a call node in a function may reach."""


class Expressions:
    """Types of expressions in functions. `called` resolves calls inside of them."""

    def __init__(self, lookup: Lookup, declared: Declared, called: Return) -> None:
        self.lookup = lookup
        self.declared = declared
        self.called = called
        self._busy: set[int] = set()
        self._types: dict[tuple[int, int], Type] = {}
        self._returns: dict[int, Type] = {}

    def type_of(self, function: Function, node: Node, depth: int = 0) -> Type:
        """The type of an expression; unknown where it takes more than declarations to tell."""
        if depth > _DEPTH or node.id in self._busy:
            return UNKNOWN
        key = (id(function), node.id)
        known = self._types.get(key)
        if known is not None:
            return known
        self._busy.add(node.id)
        try:
            found = self._type(function, node, depth + 1)
        finally:
            self._busy.discard(node.id)
        if not self._busy:
            # what is asked for on the way to another type may be cut short
            self._types[key] = found
        return found

    def _type(self, function: Function, node: Node, depth: int) -> Type:
        kind = node.type
        if kind == "identifier":
            return self._name(function, node, depth)
        if kind == "number_literal":
            return _number(function.text(node))
        if kind in ("true", "false"):
            return arithmetic("bool")
        if kind in ("null", "nullptr"):
            return Type("null", lvalue=False) if function.text(node) == "nullptr" else UNKNOWN
        if kind in ("string_literal", "concatenated_string", "raw_string_literal"):
            return Type("arithmetic", "char", const=True, pointers=1, lvalue=False)
        if kind == "char_literal":
            return arithmetic("char")
        if kind in ("sizeof_expression", "alignof_expression"):
            return arithmetic("unsigned long")
        if kind == "this":
            owner = self._owner(function)
            return Type("class", owner.qualified, (owner,), pointers=1, lvalue=False) if owner is not None else UNKNOWN
        inner = node.named_children[0] if node.named_children else None
        if kind == "parenthesized_expression":
            return self.type_of(function, inner, depth) if inner is not None else UNKNOWN
        if kind in ("cast_expression", "compound_literal_expression"):
            return self._written(function, node.child_by_field_name("type"), node)
        if kind == "new_expression":
            return self._written(function, node.child_by_field_name("type"), node).address()
        if kind == "call_expression":
            return self._call(function, node, depth)
        argument = node.child_by_field_name("argument")
        if kind == "subscript_expression" and argument is not None:
            return self.type_of(function, argument, depth).pointed()
        if kind == "field_expression":
            return self._field(function, node, depth)
        if kind == "pointer_expression" and argument is not None:
            of = self.type_of(function, argument, depth)
            return of.value.address() if function.text(node).lstrip().startswith("&") else of.pointed()
        if kind in ("assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or argument
            return self.type_of(function, target, depth) if target is not None else UNKNOWN
        if kind == "conditional_expression":
            arms = [node.child_by_field_name(n) for n in ("consequence", "alternative")]
            types = {replace(self.type_of(function, a, depth), lvalue=False) for a in arms if a is not None}
            return types.pop() if len(types) == 1 else UNKNOWN
        if kind in ("unary_expression", "binary_expression"):
            return self._operator(function, node, depth)
        if kind == "qualified_identifier":
            return UNKNOWN
        return UNKNOWN

    def _written(self, function: Function, kind: Node | None, node: Node) -> Type:
        if kind is None:
            return UNKNOWN
        found = self.declared.descriptor(kind, self.lookup.site(function, node), function.text)
        return replace(found, lvalue=found.reference == "&")

    def _owner(self, function: Function | None) -> ClassScope | None:
        while function is not None and function.style is Style.LAMBDA:
            function = function.parent
        home = self.lookup.home(function) if function is not None else None
        return home if isinstance(home, ClassScope) else None

    # --- names

    def _name(self, function: Function, node: Node, depth: int) -> Type:
        name = function.text(node)
        if name in _BUILTIN_INDICES:
            return Type("toolkit", "dim3" if "Dim" in name else "uint3")
        if function.style is Style.MACRO:
            return UNKNOWN
        variable = resolve(function, node, name)
        if variable is not None:
            return self.variable(variable, depth)
        owner = self._owner(function)
        if owner is not None:
            found = self.member(owner, name)
            if found is not None:
                return found
        return UNKNOWN

    def variable(self, variable: Variable, depth: int = 0) -> Type:
        """The declared type of a local variable or parameter; `auto` is that of the initializer."""
        function = variable.function
        if variable.ambiguous or function.style is Style.MACRO:
            return UNKNOWN
        if variable.param is not None:
            node = variable.param.node
            if node is None:
                return UNKNOWN
            declarator = node.child_by_field_name("declarator")
            if any(c.type == "variadic_declarator" for c in walk(node)):
                return UNKNOWN
            return adjusted(self._typed(function, node, declarator)).value
        holder, declarator = variable.declaration, variable.declarator
        if holder is None or declarator is None:
            return UNKNOWN
        kind = holder.child_by_field_name("type")
        if kind is not None and kind.type in ("placeholder_type_specifier", "auto"):
            value = declarator.child_by_field_name("value")
            inner = declarator.child_by_field_name("declarator")
            if value is None or inner is None:
                return UNKNOWN
            found = self.type_of(function, value, depth + 1)
            if inner.type == "reference_declarator":
                return replace(found.value, lvalue=True)
            # a copy is not const; a pointer keeps what it points to
            found = found.decayed()
            return replace(found, lvalue=True, const=found.const and not found.is_plain)
        found = self._typed(function, holder, declarator).value
        if declarator.type == "init_declarator" and found.extents and found.extents[0] == "":
            return replace(found, extents=("?", *found.extents[1:]))
        return found

    def _typed(self, function: Function, holder: Node, declarator: Node | None) -> Type:
        return self.declared.declaration(holder, declarator, self.lookup.site(function, holder), function.text)

    def member(self, owner: ClassScope, name: str, seen: frozenset[int] = frozenset()) -> Type | None:
        """The type of a data member; None if no class of the sources has it."""
        if id(owner) in seen or owner.node is None or owner.file is None:
            return None
        if name in owner.values:
            body = owner.node.child_by_field_name("body")
            for declaration in _fields(body):
                for declarator in declaration.children_by_field_name("declarator"):
                    names = (n for n in walk(declarator) if n.type in ("field_identifier", "identifier"))
                    declared = next(names, None)
                    if declared is not None and owner.file.text(declared) == name:
                        return self.declared.declaration(declaration, declarator, Site(owner), owner.file.text).value
            return UNKNOWN
        for base, _ in self.lookup.bases(owner):
            found = self.member(base, name, seen | {id(owner)})
            if found is not None:
                return found
        return None

    def _field(self, function: Function, node: Node, depth: int) -> Type:
        argument, field = node.child_by_field_name("argument"), node.child_by_field_name("field")
        if argument is None or field is None:
            return UNKNOWN
        of = self.type_of(function, argument, depth)
        name = function.text(field)
        if of.kind == "toolkit" and of.is_plain:
            return _component(of.name, name)
        if of.kind != "class" or of.is_array:
            return UNKNOWN
        types = {found for c in of.classes if (found := self.member(c, name)) is not None}
        if len(types) != 1:
            return UNKNOWN
        found = types.pop()
        if found.kind == "param":
            # what the class's parameter is depends on the object
            return UNKNOWN
        if of.const and found.is_plain:
            found = replace(found, const=True)
        return found if all(isinstance(e, int) for e in found.extents) or not of.args else _open(found)

    # --- operators and calls

    def _call(self, function: Function, node: Node, depth: int) -> Type:
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is None:
            return UNKNOWN
        if callee.type == "primitive_type":
            return self._written(function, callee, node)
        if callee.type == "template_function":
            name, listed = callee.child_by_field_name("name"), callee.child_by_field_name("arguments")
            if name is not None and function.text(name) in _CASTS and listed is not None and listed.named_children:
                return self._written(function, listed.named_children[0], node)
        targets = self.called(function, node)
        if targets and all(t.function.name == t.scope.name and t.scope.is_class for t in targets):
            return self._written_class(function, callee)
        if not targets:
            return self._written_class(function, callee) if arguments is not None else UNKNOWN
        types = {self._returned(t) for t in targets}
        return types.pop() if len(types) == 1 else UNKNOWN

    def _written_class(self, function: Function, callee: Node) -> Type:
        """The type of `Tile<64>(…)`; unknown if the name is no class."""
        if callee.type not in ("identifier", "template_function", "qualified_identifier"):
            return UNKNOWN
        found = self.declared.named(callee, self.lookup.site(function, callee), function.text)
        return replace(found, lvalue=False) if found.kind in ("class", "arithmetic", "toolkit") else UNKNOWN

    def _returned(self, symbol: FunctionSymbol) -> Type:
        """The declared return type, where it does not depend on template arguments."""
        known = self._returns.get(id(symbol))
        if known is None:
            known = self._returns[id(symbol)] = self._declared_return(symbol)
        return known

    def _declared_return(self, symbol: FunctionSymbol) -> Type:
        function = symbol.function
        if function.style in (Style.LAMBDA, Style.MACRO):
            return UNKNOWN
        node = function.node
        declarator = node.child_by_field_name("declarator")
        if declarator is None or any(n.type == "trailing_return_type" for n in declarator.named_children):
            return UNKNOWN
        pointers, reference = 0, ""
        while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
            if declarator.type == "pointer_declarator":
                pointers += 1
            else:
                reference = "&&" if function.text(declarator).startswith("&&") else "&"
            declarator = declarator.child_by_field_name("declarator") or next(iter(declarator.named_children), None)
        if declarator is None or declarator.type != "function_declarator":
            return UNKNOWN
        base = self.declared.declaration(node, None, self.lookup.site(function, node), function.text)
        if base.kind in ("param", "unknown") or (base.args and symbol.params):
            return UNKNOWN
        if base.args is not None and set(re.findall(r"\w+", " ".join(base.args))) & _own_names(symbol):
            return UNKNOWN
        for _ in range(pointers):
            base = base.address()
        return replace(base, lvalue=reference == "&")

    def _operator(self, function: Function, node: Node, depth: int) -> Type:
        operator = node.child_by_field_name("operator")
        sign = function.text(operator) if operator is not None else ""
        if sign in _COMPARISONS or sign == "!":
            sides = [node.child_by_field_name(n) for n in ("left", "right", "argument")]
            types = [self.type_of(function, s, depth) for s in sides if s is not None]
            return arithmetic("bool") if all(t.kind == "arithmetic" for t in types) else UNKNOWN
        if node.type == "unary_expression":
            argument = node.child_by_field_name("argument")
            found = self.type_of(function, argument, depth) if argument is not None else UNKNOWN
            return arithmetic(_promoted(found.name)) if found.kind == "arithmetic" and found.is_plain else UNKNOWN
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return UNKNOWN
        one, other = self.type_of(function, left, depth), self.type_of(function, right, depth)
        if one.kind == other.kind == "arithmetic" and one.is_plain and other.is_plain:
            if sign in ("<<", ">>"):
                return arithmetic(_promoted(one.name))
            return arithmetic(_common(one.name, other.name))
        if sign in ("+", "-"):
            for pointer, offset in ((one, other), (other, one)):
                if (pointer.is_pointer or pointer.is_array) and offset.kind == "arithmetic" and offset.is_plain:
                    return replace(pointer.decayed(), lvalue=False)
        return UNKNOWN


def _fields(body: Node | None) -> list[Node]:
    found = []
    for child in body.named_children if body is not None else ():
        if child.type == "field_declaration":
            found.append(child)
        elif child.type.startswith("preproc"):
            found += _fields(child)
    return found


def _open(found: Type) -> Type:
    """The type of a member of a class template: extents that its parameters give are not known."""
    return replace(found, extents=tuple(e if isinstance(e, int) else "?" for e in found.extents))


def _own_names(symbol: FunctionSymbol) -> set[str]:
    names = {p.name for p in symbol.params}
    for scope in symbol.scope.above():
        if isinstance(scope, ClassScope):
            names |= {p.name for p in scope.params}
    return names


def _component(kind: str, name: str) -> Type:
    if kind in ("dim3", "uint3"):
        return arithmetic("unsigned int", True)
    if name in ("x", "y", "z", "w") and (element := COMPONENTS.get(kind.rstrip("1234"))) is not None:
        return arithmetic(element, True)
    return UNKNOWN


def _number(text: str) -> Type:
    text = text.lower().replace("'", "")
    if not (text.startswith(("0x", "0b")) and "p" not in text) and not re.fullmatch(r"[\d]+[ul]*", text):
        return arithmetic("float" if text.endswith("f") else "double")
    digits = text.rstrip("ul")
    suffix = text[len(digits) :]
    value = int(digits, 0) if not re.fullmatch(r"0\d+", digits) else int(digits, 8)
    if suffix.count("l") > 1:
        return arithmetic("unsigned long long" if "u" in suffix else "long long")
    if "l" in suffix or value >= 1 << 32:
        return arithmetic("unsigned long" if "u" in suffix else "long")
    if value >= 1 << 31:
        return arithmetic("unsigned int" if "u" in suffix or text.startswith("0x") else "long")
    return replace(arithmetic("unsigned int" if "u" in suffix else "int"), args=("0",) if value == 0 else None)


def _promoted(name: str) -> str:
    return "int" if INTEGERS.get(name, 9) < INTEGERS["int"] else name


def _common(one: str, other: str) -> str:
    """The usual arithmetic conversions."""
    if one in FLOATS or other in FLOATS:
        return max((n for n in (one, other) if n in FLOATS), key=lambda n: FLOATS[n])
    one, other = _promoted(one), _promoted(other)
    ranked = sorted((one, other), key=lambda n: (INTEGERS[n], n.startswith("unsigned")))
    return ranked[-1]
