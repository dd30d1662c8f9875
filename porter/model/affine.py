# SPDX-License-Identifier: Apache-2.0
"""Integers and addresses as sums of products: what all threads of a block have alike stays a name, what tells threads
apart is a number for each of them.

    size_t(tile * 64 + threadIdx.x % 32 / 4) * ld + col    ->    64 tile ld + (0, 0, 0, 0, 1, …) ld + col
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, parse_cuda
from porter.lang.expansion import TooLong
from porter.model.functions import Call, Function, Style
from porter.model.names.types import INTEGERS, Type
from porter.model.pipeline.frames import Wording, first_value
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS, Variable, resolve
from porter.model.settings import settings_of
from porter.model.thread_values import ThreadValues, is_const
from porter.model.threads import BRANCHES, TO_A_LOOP, Threads

Vector = tuple[int, ...]
Poly = dict[tuple[str, ...], Vector]
"""By product of names, what each thread multiplies it by; the product of nothing is 1."""

_TURN = "#"
"""What the name of a loop's turn, which counts from 0, begins with."""
_SIZES = {
    **dict.fromkeys(("char", "signed char", "unsigned char", "__nv_fp8_e4m3", "__nv_fp8_e5m2"), 1),
    **dict.fromkeys(("short", "unsigned short", "half", "__half", "__nv_bfloat16", "nv_bfloat16"), 2),
    **dict.fromkeys(("int", "unsigned int", "float", "half2", "__half2", "__nv_bfloat162", "nv_bfloat162"), 4),
    **dict.fromkeys(("double", "long", "unsigned long", "long long", "unsigned long long"), 8),
    **dict.fromkeys(("float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2", "longlong2", "ulonglong2"), 16),
}
"""Bytes of types that are the language's or the toolkit's."""
_NARROWEST = 4
"""Bytes of the integers that addresses are computed in: narrower ones may lose a part of them."""
_DEEPEST = 24
_IN_PARENTHESES = re.compile(r"(?<![\w>)\]])\(\s*([A-Za-z_]\w*)\s*\)")


@dataclass(frozen=True)
class Address:
    """`at` in bytes, of something of `size` bytes; 0 where nobody knows."""

    at: Poly
    size: int


@dataclass(eq=False)
class Scope:
    """Where expressions stand: in a function, or in what a call of it comes to. `turns`: what variables of loops are,
    by `Variable.key`."""

    function: Function
    turns: Mapping[tuple[int, int, str], Poly] = field(default_factory=dict)
    outer: Scope | None = None
    call: Node | None = None
    bound: Mapping[str, Node] = field(default_factory=dict)


class Affine:
    """Asks about one program, and those threads (`who`) of blocks of `threads`, of one dimension, that come to a
    place."""

    def __init__(self, program: Program, threads: int, who: Sequence[int]) -> None:
        self.program, self._who, self.threads = program, tuple(who), len(who)
        self._values, self._differ, self._wording = ThreadValues(program, threads), Threads(program), Wording(program)
        self._apart: dict[tuple[int, int, str], bool] = {}
        self._depth = 0

    # --- sums of products

    def number(self, value: int) -> Poly:
        return {(): (value,) * self.threads}

    def turn(self, name: str, first: int, step: int) -> Poly:
        """A loop's variable, from `first` on in steps: its turn counts from 0."""
        return self._tidy({(): (first,) * self.threads, (_TURN + name,): (step,) * self.threads})

    def add(self, left: Poly, right: Poly, times: int = 1) -> Poly:
        found = dict(left)
        for names, vector in right.items():
            before = found.get(names, (0,) * self.threads)
            found[names] = tuple(a + times * b for a, b in zip(before, vector, strict=True))
        return self._tidy(found)

    def times(self, left: Poly, right: Poly) -> Poly:
        found: Poly = {}
        for a, v in left.items():
            for b, w in right.items():
                found = self.add(found, {tuple(sorted((*a, *b))): tuple(x * y for x, y in zip(v, w, strict=True))})
        return found

    @staticmethod
    def _tidy(poly: Poly) -> Poly:
        return {names: vector for names, vector in poly.items() if any(vector)}

    def plain(self, poly: Poly) -> Vector | None:
        """The numbers that something is, where it is made of numbers alone."""
        return poly.get((), (0,) * self.threads) if set(poly) <= {()} else None

    # --- integers

    def value(self, scope: Scope, node: Node) -> Poly | None:
        """What an integer is; None where that is not known."""
        if self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            return self._value(scope, node)
        finally:
            self._depth -= 1

    def _value(self, scope: Scope, node: Node) -> Poly | None:
        function = scope.function
        known = self._known(scope, node)
        if known is not None:
            return known
        inner = [c for c in node.named_children if c.type != "comment"]
        if node.type == "parenthesized_expression":
            return self.value(scope, inner[0]) if len(inner) == 1 else None
        if node.type == "identifier":
            return self._named(scope, node)
        if node.type == "cast_expression":
            kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
            wide = kind is not None and self._is_wide(scope, kind, node)
            return self.value(scope, value) if wide and value is not None else None
        if node.type == "call_expression":
            return self._called(scope, node, self.value)
        operator = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type == "binary_expression" and operator is not None and left is not None and right is not None:
            a, b = self.value(scope, left), self.value(scope, right)
            return self._combined(function.text(operator), a, b) if a is not None and b is not None else None
        if node.type == "field_expression":
            return self._alike(scope, node)
        return None

    def _known(self, scope: Scope, node: Node) -> Poly | None:
        """What only the thread's index and constants decide."""
        if scope.outer is not None and node.type != "number_literal":
            return None
        values = self._values.of(scope.function, node)
        mine = [values[t] for t in self._who] if values is not None else [None]
        numbers = tuple(v for v in mine if v is not None)
        return self._tidy({(): numbers}) if len(numbers) == len(mine) else None

    def _named(self, scope: Scope, node: Node) -> Poly | None:
        function, name = scope.function, scope.function.text(node)
        if scope.outer is not None:
            if name in scope.bound:
                return self.value(scope.outer, scope.bound[name])
            within, at = _place(scope, node)
            return self._variable(within, resolve(within.function, at, name), name) if within is not scope else None
        return self._variable(scope, resolve(function, node, name), name)

    def _variable(self, scope: Scope, variable: Variable | None, name: str) -> Poly | None:
        if variable is None:
            # a constant of a template is no number here
            return self._one(name) if name in scope.function.template_params else None
        if variable.key in scope.turns:
            return scope.turns[variable.key]
        if variable.ambiguous:
            return None
        kind = self.program.names.expressions.variable(variable)
        if not kind.is_plain or kind.reference or not self._is_integer(kind):
            return None
        if variable.param is None and self._keeps(variable):
            value = first_value(variable)
            known = self._only_of(variable, value, scope)
            if known is not None:
                return known
        if name in self._differ.names(variable.function) or self._is_set_apart(variable):
            return None
        return self._one(f"{name}@{variable.key[1]}")

    def _is_set_apart(self, variable: Variable) -> bool:
        """Whether some threads may set a variable where others do not, or more often."""
        if variable.key not in self._apart:
            function = variable.function
            nodes = [s.node for s in settings_of(self.program, variable)]
            self._apart[variable.key] = any(
                self._splits(function, node) or self._leave_apart(function, node) for node in nodes
            )
        return self._apart[variable.key]

    def _splits(self, function: Function, node: Node) -> bool:
        """Whether a node stands in a branch or loop that some of the threads may enter without the others."""
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            condition = current.child_by_field_name("condition") if current.type in BRANCHES else None
            if condition is not None and self._differ.differ(function, condition):
                values = self._values.of(function, condition)
                mine = {None if v is None else bool(v) for v in (values[t] for t in self._who)} if values else {None}
                if len(mine) != 1 or None in mine:
                    return True
            inner, current = current, current.parent
        return False

    def _leave_apart(self, function: Function, node: Node) -> bool:
        """Whether some threads may leave a loop around a node, or one of its turns, by themselves."""
        above = node.parent
        while above is not None and above.id != function.body.id:
            if above.type in LOOPS and any(
                self._differ.may_part(function, leaving, above) for leaving in find(above, *TO_A_LOOP)
            ):
                return True
            above = above.parent
        return False

    def _keeps(self, variable: Variable) -> bool:
        return is_const(variable) or not self._wording.changes(variable.function, variable.name)

    def _only_of(self, variable: Variable, value: Node | None, scope: Scope) -> Poly | None:
        """What a variable of the kernel begins with."""
        outermost = scope
        while outermost.outer is not None:
            outermost = outermost.outer
        if value is None or outermost.function is not variable.function:
            return None
        return self.value(outermost, value)

    def _alike(self, scope: Scope, node: Node) -> Poly | None:
        """Something that all threads have alike, by its text; no memory is read for it."""
        if scope.outer is not None or any(True for _ in find(node, "pointer_expression", "subscript_expression")):
            return None
        text = scope.function.text(node)
        if "->" in text or self._differ.differ(scope.function, node):
            return None
        return self._one("".join(text.split()))

    def _one(self, name: str) -> Poly:
        return {(name,): (1,) * self.threads}

    @staticmethod
    def _is_integer(kind: Type) -> bool:
        return kind.kind == "arithmetic" and kind.name in INTEGERS and _SIZES.get(kind.name, 0) >= _NARROWEST

    def _is_wide(self, scope: Scope, kind: Node, at: Node) -> bool:
        """Whether a type is an integer that loses nothing."""
        within, at = _place(scope, at)
        site = self.program.names.lookup.site(within.function, at)
        found = self.program.names.declared.from_text(scope.function.text(kind), site)
        return found.is_plain and not found.reference and self._is_integer(found)

    def _combined(self, sign: str, left: Poly, right: Poly) -> Poly | None:
        if sign in ("+", "-"):
            return self.add(left, right, 1 if sign == "+" else -1)
        if sign == "*":
            return self.times(left, right)
        number = self.plain(right)
        if number is not None and len(set(number)) == 1 and (by := number[0]) >= 0:
            if sign == "<<" and by < 31:
                return self.times(left, self.number(1 << by))
            if sign == "/" and by:
                found = self._divided(left, by)
            elif sign == ">>" and by < 31:
                found = self._divided(left, 1 << by)
            elif sign == "%" and by:
                found = self._rest(left, by)
            elif sign == "&" and by & (by + 1) == 0:
                found = self._rest(left, by + 1)
            else:
                found = None
            if found is not None:
                return found
        if sign in ("/", ">>", "%", "&", "|", "^") and self._is_alike(left) and self._is_alike(right):
            return self._one(f"({_written(left)}{sign}{_written(right)})")
        return None

    @staticmethod
    def _is_alike(poly: Poly) -> bool:
        return all(len(set(vector)) == 1 for vector in poly.values())

    def _counts(self, poly: Poly) -> bool:
        """Whether something is never negative, by the turns of loops and the numbers that it is made of."""
        return all(
            all(v >= 0 for v in vector) and all(n.startswith(_TURN) for n in names) for names, vector in poly.items()
        )

    def _divided(self, poly: Poly, by: int) -> Poly | None:
        if not self._counts(poly) or any(v % by for names, vector in poly.items() if names for v in vector):
            return None
        return self._tidy({names: tuple(v // by for v in vector) for names, vector in poly.items()})

    def _rest(self, poly: Poly, by: int) -> Poly | None:
        if not self._counts(poly) or any(v % by for names, vector in poly.items() if names for v in vector):
            return None
        return self._tidy({(): tuple(v % by for v in poly.get((), (0,) * self.threads))})

    def _called(self, scope: Scope, node: Node, ask: Callable[[Scope, Node], Poly | None]) -> Poly | None:
        """What a cast, a macro, or a function that only returns an expression gives."""
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        listed = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
        if callee is None:
            return None
        kind = _cast(scope.function, callee)
        if kind is not None and len(listed) == 1:
            return self.value(scope, listed[0]) if self._is_wide(scope, kind, node) else None
        inner = self._inside(scope, node)
        return ask(*inner) if inner is not None else None

    def _inside(self, scope: Scope, node: Node) -> tuple[Scope, Node] | None:
        """The expression that a call of a macro or of a function comes to, and where that stands."""
        callee = node.child_by_field_name("function")
        name = scope.function.text(callee) if callee is not None and callee.type == "identifier" else ""
        if name in self.program.macros.by_name:
            return self._expanded(scope, node)
        call = self._call(node)
        targets = self.program.targets(call) if call is not None else []
        if call is None or len(targets) != 1 or targets[0].variadic or len(call.args) != len(targets[0].params):
            return None
        target = targets[0]
        value = _returned(target)
        if value is None or target.style is not Style.DEVICE:
            return None
        bound = {p.name: a for p, a in zip(target.params, call.args, strict=True) if p.name}
        return Scope(target, scope.turns, scope, node, bound), value

    def _expanded(self, scope: Scope, node: Node) -> tuple[Scope, Node] | None:
        """What a use of a macro is, as text of its own whose names mean what they do where it is used."""
        try:
            texts = self.program.macros.expand(scope.function.text(node))
        except TooLong:
            return None
        if len(texts) != 1:
            return None
        within, at = _place(scope, node)
        # `(x) + 1` reads like a cast of `+1`
        plain = _IN_PARENTHESES.sub(lambda m: m[1] if resolve(within.function, at, m[1]) else m[0], texts[0])
        file = parse_cuda("", f"void f() {{ ({plain}); }}".encode())
        found = list(find(file.root, "parenthesized_expression"))
        if file.unparsed or not found:
            return None
        text = Function(file, Style.MACRO, "", None, found[0], found[0])
        return Scope(text, scope.turns, scope, node), found[0]

    def _call(self, node: Node) -> Call | None:
        found = self.program.calls_by_node.get(node.id, ())
        return found[0] if len(found) == 1 else None

    # --- addresses

    def lvalue(self, scope: Scope, node: Node) -> Address | None:
        """Where `*p`, `p[i]`, or a macro that stands for one, is."""
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            return self.lvalue(scope, node.named_children[0])
        argument = node.child_by_field_name("argument")
        if node.type == "pointer_expression" and argument is not None:
            return self.address(scope, argument) if node.children[0].type == "*" else None
        if node.type == "call_expression":
            inner = self._inside(scope, node)
            return self.lvalue(*inner) if inner is not None and inner[0].function.style is Style.MACRO else None
        if node.type != "subscript_expression" or argument is None:
            return None
        held = node.child_by_field_name("indices")
        listed = [c for c in held.named_children if c.type != "comment"] if held is not None else []
        base = self.address(scope, argument)
        index = self.value(scope, listed[0]) if len(listed) == 1 else None
        if base is None or index is None or not base.size:
            return None
        return Address(self.add(base.at, index, base.size), base.size)

    def address(self, scope: Scope, node: Node) -> Address | None:
        """Where a pointer points to."""
        if self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            return self._address(scope, node)
        finally:
            self._depth -= 1

    def _address(self, scope: Scope, node: Node) -> Address | None:
        function = scope.function
        inner = [c for c in node.named_children if c.type != "comment"]
        argument = node.child_by_field_name("argument")
        if node.type == "parenthesized_expression":
            return self.address(scope, inner[0]) if len(inner) == 1 else None
        if node.type == "identifier":
            return self._pointer(scope, node)
        if node.type == "pointer_expression" and argument is not None and node.children[0].type == "&":
            return self.lvalue(scope, argument)
        if node.type == "cast_expression":
            kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
            return self._cast_pointer(scope, kind, value, node)
        if node.type == "call_expression":
            callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            listed = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
            kind = _cast(function, callee) if callee is not None else None
            if kind is not None:
                return self._cast_pointer(scope, kind, listed[0] if len(listed) == 1 else None, node)
            found = self._inside(scope, node)
            return self.address(*found) if found is not None and found[0].function.style is Style.MACRO else None
        operator = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type != "binary_expression" or operator is None or left is None or right is None:
            return None
        sign = function.text(operator)
        base, index = self.address(scope, left), None
        if base is not None:
            index = self.value(scope, right)
        elif sign == "+":
            base, index = self.address(scope, right), self.value(scope, left)
        if base is None or index is None or not base.size or sign not in ("+", "-"):
            return None
        return Address(self.add(base.at, index, base.size if sign == "+" else -base.size), base.size)

    def _cast_pointer(self, scope: Scope, kind: Node | None, value: Node | None, at: Node) -> Address | None:
        if kind is None or value is None:
            return None
        names, (within, at) = self.program.names, _place(scope, at)
        found = names.declared.descriptor(kind, names.lookup.site(within.function, at), scope.function.text)
        base = self.address(scope, value) if found.is_pointer and not found.reference else None
        return Address(base.at, size_of(found.pointed())) if base is not None else None

    def _pointer(self, scope: Scope, node: Node) -> Address | None:
        function, name, at = scope.function, scope.function.text(node), node
        if scope.outer is not None:
            if name in scope.bound:
                return self.address(scope.outer, scope.bound[name])
            within, at = _place(scope, node)
            if within is scope or within.outer is not None:
                return None
            scope, function = within, within.function
        variable = resolve(function, at, name)
        if variable is None or variable.ambiguous or not self._keeps(variable):
            return None
        kind = self.program.names.expressions.variable(variable)
        if not kind.is_pointer or kind.reference:
            return None
        if variable.param is not None:
            if function.style is not Style.KERNEL:
                return None
            return Address(self._one(f"&{name}"), size_of(kind.pointed()))
        value = first_value(variable)
        if value is None or variable.function is not function:
            return None
        base = self.address(scope, value)
        return Address(base.at, size_of(kind.pointed())) if base is not None else None


def _place(scope: Scope, node: Node) -> tuple[Scope, Node]:
    """The scope, and the place in it, where names of a macro's text mean something."""
    if scope.function.style is Style.MACRO and scope.outer is not None and scope.call is not None:
        return _place(scope.outer, scope.call)
    return scope, node


def size_of(kind: Type) -> int:
    """Bytes of a type; 0 where nobody knows."""
    plain = kind.is_plain and not kind.reference and kind.kind in ("arithmetic", "toolkit")
    return _SIZES.get(kind.name, 0) if plain else 0


def _cast(function: Function, callee: Node) -> Node | None:
    """The type of `T(x)` and `static_cast<T>(x)`."""
    if callee.type == "primitive_type":
        return callee
    if callee.type == "template_function":
        name, listed = callee.child_by_field_name("name"), callee.child_by_field_name("arguments")
        types = [c for c in listed.named_children if c.type != "comment"] if listed is not None else []
        return types[0] if name is not None and function.text(name) in CASTS and len(types) == 1 else None
    known = callee.type == "identifier" and function.text(callee) in _TYPES
    return callee if known else None


_TYPES = frozenset(
    ("size_t", "ptrdiff_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "intptr_t", "uintptr_t", "unsigned", "long")
)
"""Integers by other names than those that the parser knows."""


def _returned(function: Function) -> Node | None:
    """The expression that is all of a function's body."""
    statements = [c for c in function.body.named_children if c.type != "comment"]
    if len(statements) != 1 or statements[0].type != "return_statement":
        return None
    inner = [c for c in statements[0].named_children if c.type != "comment"]
    return inner[0] if len(inner) == 1 else None


def _written(poly: Poly) -> str:
    return "+".join(f"{vector[0]}*{'*'.join(names) or '1'}" for names, vector in sorted(poly.items())) or "0"
