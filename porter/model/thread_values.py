# SPDX-License-Identifier: Apache-2.0
"""What expressions are in each thread of a block, where only its index and constants decide.

Nothing is read off a name: an index is an `Index` fact of a rule, or what expressions and functions of the sources make
of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find, walk
from porter.model.facts import Broadcast, Constant, Index
from porter.model.functions import Call, Function, Path, Style
from porter.model.names.lookup import Known
from porter.model.names.paths import path_of
from porter.model.names.types import INTEGERS
from porter.model.program import Program
from porter.model.reaching import reaching
from porter.model.scopes import Variable, resolve
from porter.ptx.arch import WARP

Values = tuple["int | None", ...]
"""A value for each thread, None where it is not known. Negative values count as not known: whether they wrap depends on
types that are not followed."""

_MOST_CALLS = 8
_LARGEST = 2**31 - 1
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if b else -1,
    "%": lambda a, b: a % b if b else -1,
    "<<": lambda a, b: a << b if b < 31 else -1,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
}
_NAMES = ("identifier", "qualified_identifier", "field_expression")
_AROUND = ("parenthesized_expression", "condition_clause")
_CHOOSING = ("conditional_expression", "comma_expression")
_WITHOUT_EFFECT = ("declaration", "static_assert_declaration", "using_declaration", "alias_declaration", "comment")
_CASTS = ("static_cast",)


class ThreadValues:
    """Asks about one program; blocks of `threads` threads of one dimension."""

    def __init__(self, program: Program, threads: int) -> None:
        self.program = program
        self.threads = threads
        self._variables: dict[tuple[int, int, str], Values | None] = {}
        self._changed: dict[tuple[int, int, str], list[Node] | None] = {}
        self._written: dict[str, str] = {}
        self._calls: dict[int, dict[int, Call]] = {}
        self._as_types: dict[int, frozenset[str]] = {}
        self._indices: dict[Index, Values] = {}
        self._several_dimensions = several_dimensions(program)
        self._depth = 0

    def of(self, function: Function, node: Node, given: Mapping[str, Values | None] | None = None) -> Values | None:
        """The values of an expression; `given` are those of the function's parameters and of its template's. None if
        nothing is known."""
        while node.type in _AROUND:
            inner = [c for c in node.named_children if c.type != "comment"]
            if len(inner) != 1:
                return None
            node = inner[0]
        if node.type in ("number_literal", "true", "false"):
            return self._constant(function, node)
        if node.type in _NAMES:
            return self._named(function, node, given or {})
        if node.type == "call_expression":
            return self._called(function, node, given or {})
        return self._composed(function, node, given or {})

    def by_warp(self, function: Function, node: Node) -> list[int | None]:
        """The value that all threads of a warp have, for each warp; None where they differ or are not known."""
        values = self.of(function, node)
        if values is None:
            return [None] * (self.threads // WARP)
        warps = [values[i : i + WARP] for i in range(0, self.threads, WARP)]
        return [w[0] if all(v == w[0] for v in w) else None for w in warps]

    def _all(self, value: int | None) -> Values | None:
        return (value,) * self.threads if value is not None and value >= 0 else None

    def _constant(self, function: Function, node: Node) -> Values | None:
        return self._all(self.program.constants_in(function).evaluate(function.text(node)))

    # --- names

    def _named(self, function: Function, node: Node, given: Mapping[str, Values | None]) -> Values | None:
        if node.type == "identifier":
            name = function.text(node)
            variable = resolve(function, node, name)
            if variable is not None:
                known = self._constant(function, node) if variable.param is None else None
                return known or self._variable(function, variable, given, node)
            if name in given and name in function.template_params:
                return given[name]
        known = self._constant(function, node) if self._is_of_sources(function, node) else None
        if known is not None:
            return known
        fact = self.program.facts.of_name(function, node)
        if isinstance(fact, Constant):
            return self._all(fact.value)
        return self._index(fact) if isinstance(fact, Index) else None

    def _is_of_sources(self, function: Function, node: Node) -> bool:
        """Whether a name may be a constant of the sources: constants are found by their last names."""
        if node.type != "qualified_identifier":
            return node.type == "identifier"
        path, lookup = path_of(node, function.text), self.program.names.lookup
        prefix = Path(path.steps[:-1], path.rooted or len(path.steps) == 1, path.opaque)
        return lookup.scopes(prefix, lookup.site(function, node))[1] is not Known.OUTSIDE

    def _index(self, fact: Index) -> Values | None:
        """By what the rule says of it."""
        if self._several_dimensions:
            return None
        if fact not in self._indices:
            self._indices[fact] = self._of_index(fact)
        return self._indices[fact]

    def _of_index(self, fact: Index) -> Values:
        found = []
        for thread in range(self.threads):
            thread = thread // WARP * WARP if fact.uniform else thread
            value = thread // fact.step
            found.append((value % fact.modulo if fact.modulo else value) + fact.offset)
        return tuple(found)

    def _variable(
        self, function: Function, variable: Variable, given: Mapping[str, Values | None], place: Node
    ) -> Values | None:
        changes = None if variable.ambiguous else self._changes(variable)
        if changes is None:
            return None
        if changes:
            passed = reaching(function, changes, place) if variable.function is function else None
            return self._after(variable, passed, given) if passed is not None else None
        return self._first(function, variable, given)

    def _first(self, function: Function, variable: Variable, given: Mapping[str, Values | None]) -> Values | None:
        """What a variable begins with."""
        if variable.param is not None:
            return given.get(variable.name) if variable.function is function else None
        declarator = variable.declarator
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if declarator is None or value is None or variable.function is not function:
            # a lambda's variables outside of it are those of another call
            return None if value is None else self._initialized(variable, declarator, value, {})
        if given:
            return self._initialized(variable, declarator, value, given)
        if variable.key not in self._variables:
            self._variables[variable.key] = None
            self._variables[variable.key] = self._initialized(variable, declarator, value, {})
        return self._variables[variable.key]

    def _after(self, variable: Variable, changes: Sequence[Node], given: Mapping[str, Values | None]) -> Values | None:
        """What a variable is behind changes of it."""
        function = variable.function
        kind = self._kind(variable)
        values = self._first(function, variable, given)
        for change in changes:
            operator = change.child_by_field_name("operator")
            sign = function.text(operator) if operator is not None else ""
            right = change.child_by_field_name("right")
            if change.type == "update_expression":
                handed = self._all(1)
            else:
                handed = self.of(function, right, given) if right is not None else None
            values = handed if sign == "=" else _combined(sign[:1] if len(sign) == 2 else sign[:2], values, handed)
            values = self._converted(function, kind, values) if kind is not None else None
        return values

    @staticmethod
    def _kind(variable: Variable) -> Node | None:
        """The type of a variable that is neither a pointer nor a reference."""
        node = variable.param.node if variable.param is not None else variable.declarator
        inner = node.child_by_field_name("declarator") if node is not None and node.type != "identifier" else node
        declaration = variable.param.node if variable.param is not None else variable.declaration
        if inner is None or inner.type != "identifier" or declaration is None:
            return None
        kind = declaration.child_by_field_name("type")
        return None if kind is not None and variable.function.text(kind) == "auto" else kind

    def _initialized(
        self, variable: Variable, declarator: Node | None, value: Node, given: Mapping[str, Values | None]
    ) -> Values | None:
        function, declaration = variable.function, variable.declaration
        if declarator is None or declarator.type != "init_declarator" or declaration is None:
            return None
        named = declarator.child_by_field_name("declarator")
        if named is None or named.type != "identifier":
            return None
        if value.type in ("initializer_list", "argument_list"):
            # `int x{…}` and `int x(…)`
            inner = [c for c in value.named_children if c.type != "comment"]
            if len(inner) != 1:
                return None
            value = inner[0]
        kind = declaration.child_by_field_name("type")
        return self._converted(function, kind, self.of(function, value, given)) if kind is not None else None

    def _converted(self, function: Function, kind: Node, values: Values | None) -> Values | None:
        """Values as another type has them."""
        if values is None or kind.type == "placeholder_type_specifier" or function.text(kind) == "auto":
            return values
        wanted = self.program.names.declared.from_text(
            function.text(kind), self.program.names.lookup.site(function, kind)
        )
        if not wanted.is_plain or wanted.kind != "arithmetic":
            return None
        if wanted.name == "bool":
            return tuple(None if v is None else int(v != 0) for v in values)
        size = INTEGERS.get(wanted.name)
        if size is None:
            return None
        largest = {1: 127, 2: 2**15 - 1}.get(size, _LARGEST)
        return tuple(v if v is not None and v <= largest else None for v in values)

    def _changes(self, variable: Variable) -> list[Node] | None:
        """The statements that change a variable, each as an assignment or `++`; None if it may change otherwise."""
        key = variable.key
        if key not in self._changed:
            self._changed[key] = [] if is_const(variable) else self._found_changes(variable)
        return self._changed[key]

    def _found_changes(self, variable: Variable) -> list[Node] | None:
        function, name = variable.function, variable.name
        found = []
        for node in function.named(name):
            meant = resolve(function, node, name)
            if node.parent is None or (meant is not None and meant.key != variable.key):
                continue
            inner, outer = node, node.parent
            while outer.type in (*_AROUND, *_CHOOSING) and outer.parent is not None:
                inner, outer = outer, outer.parent
            if outer.type == "assignment_expression":
                left = outer.child_by_field_name("left")
                if left is not None and left.id == inner.id:
                    if inner.id != node.id or not self._is_statement(function, variable, node, outer):
                        return None
                    found.append(outer)
            elif outer.type == "update_expression":
                if inner.id != node.id or not self._is_statement(function, variable, node, outer):
                    return None
                found.append(outer)
            elif outer.type in ("pointer_expression", "lambda_capture_initializer"):
                return None
            elif outer.type == "init_declarator":
                declarator = outer.child_by_field_name("declarator")
                if declarator is not None and declarator.type != "identifier" and declarator.id != inner.id:
                    return None
            elif (
                outer.type == "initializer_list"
                or outer.type.startswith("gnu_asm")
                or (outer.type == "argument_list" and not self._copied(function, outer, inner))
            ):
                return None
        if name in self._macro_words or name in self._outputs(function.file) or name in self._read_as_types(function):
            return None
        return found

    def _read_as_types(self, function: Function) -> frozenset[str]:
        """Names in what reads as the declaration of a function: `int& q(n);` and `Made m(n);` may change `n`."""
        known = self._as_types.get(id(function))
        if known is None:
            declared = (d for d in find(function.body, "function_declarator") if _may_refer(d))
            found = (n for d in declared for n in find(d, "type_identifier"))
            known = self._as_types[id(function)] = frozenset(function.text(n) for n in found)
        return known

    @staticmethod
    def _is_statement(function: Function, variable: Variable, node: Node, change: Node) -> bool:
        """Whether a change of this variable, none of its name, is a statement of its function."""
        above, found = change.parent, resolve(function, node, variable.name)
        if above is None or above.type != "expression_statement" or found is None or found.key != variable.key:
            return False
        return any(n.id == change.id for n in function.own_nodes(change.type))

    def _outputs(self, file: CudaFile) -> str:
        """What the asm statements of a file write to."""
        if file.path not in self._written:
            owners = (f for f in self.program.functions if f.file is file)
            operands = (o for f in owners for statement in f.asm for o in statement.operands if o.is_output)
            self._written[file.path] = "\n".join(o.expr for o in operands)
        return self._written[file.path]

    @cached_property
    def _macro_words(self) -> frozenset[str]:
        """Words of macros, which may assign to what they name."""
        macros = (m for found in self.program.macros.by_name.values() for m in found)
        return frozenset(w for m in macros for w in re.findall(r"[A-Za-z_]\w*", m.joined.decode("utf-8", "replace")))

    def _copied(self, function: Function, arguments: Node, argument: Node) -> bool:
        """Whether a call takes an argument by value, as far as its function is known."""
        node = arguments.parent
        call = self._call(function, node) if node is not None else None
        if node is None or call is None:
            # `int x(wg)`, `Type(wg)`
            return node is not None and (node.type == "init_declarator" or self._cast_to(function, node) is not None)
        if self._cast_to(function, node) is not None or self.program.facts.of_call(call) is not None:
            return True
        targets = self.program.targets(call)
        index = next((i for i, a in enumerate(call.args) if a.id == argument.id), None)
        if not targets or index is None:
            return False
        for target in targets:
            if index >= len(target.params):
                return False
            kind = self.program.names.type_of_param(target, target.params[index])
            if kind.kind == "unknown" or (kind.reference and not kind.const) or target.style is Style.MACRO:
                return False
        return True

    # --- calls

    def _call(self, function: Function, node: Node) -> Call | None:
        owner: Function | None = function
        while owner is not None:
            calls = self._calls.get(id(owner))
            if calls is None:
                calls = self._calls[id(owner)] = {c.node.id: c for c in owner.calls}
            if node.id in calls:
                return calls[node.id]
            owner = owner.parent
        for inner in self.program.functions:
            if inner.parent is function:
                found = next((c for c in inner.calls if c.node.id == node.id), None)
                if found is not None:
                    return found
        return None

    def _called(self, function: Function, node: Node, given: Mapping[str, Values | None]) -> Values | None:
        target = self._cast_to(function, node)
        arguments = node.child_by_field_name("arguments")
        listed = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
        if target is not None:
            return self._converted(function, target, self.of(function, listed[0], given))
        call = self._call(function, node)
        if call is None:
            return None
        fact = self.program.facts.of_call(call)
        if isinstance(fact, Index):
            return self._index(fact)
        if isinstance(fact, Broadcast):
            return self._broadcast(function, call, fact, given)
        found = self.program.names.resolve(call)
        if len(found.targets) != 1 or not found.sure or self._depth >= _MOST_CALLS:
            return self._constant(function, node) if not found.targets else None
        (callee,) = found.targets
        params = callee.params
        if callee.style not in (Style.DEVICE, Style.HOST) or len(params) != len(call.args) or callee.variadic:
            return None
        self._depth += 1
        handed = {p.name: self.of(function, a, given) for p, a in zip(params, call.args, strict=True)}
        values = self._returned(callee, callee.body.named_children, handed)
        self._depth -= 1
        return values

    def _broadcast(
        self, function: Function, call: Call, fact: Broadcast, given: Mapping[str, Values | None]
    ) -> Values | None:
        source = next((a for a in call.args if function.text(a).strip() == fact.of), None)
        lane = self.program.constants_in(function).evaluate(fact.lane) if fact.lane else None
        values = self.of(function, source, given) if source is not None else None
        if values is None or lane is None or not 0 <= lane < WARP:
            return None
        return tuple(values[i // WARP * WARP + lane] for i in range(self.threads))

    def _returned(
        self, function: Function, statements: Sequence[Node], given: Mapping[str, Values | None]
    ) -> Values | None:
        """What a function returns whose statements only choose among expressions."""
        for i, node in enumerate(statements):
            if node.type in _WITHOUT_EFFECT:
                continue
            if node.type == "compound_statement":
                return self._returned(function, [*node.named_children, *statements[i + 1 :]], given)
            if node.type == "return_statement":
                inner = [c for c in node.named_children if c.type != "comment"]
                return self.of(function, inner[0], given) if len(inner) == 1 else None
            condition, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
            if node.type != "if_statement" or condition is None or then is None:
                return None
            other = node.child_by_field_name("alternative")
            rest = statements[i + 1 :]
            otherwise = [*(other.named_children if other is not None else ()), *rest]
            return _chosen(
                self.of(function, condition, given),
                self._returned(function, [then, *rest], given),
                self._returned(function, otherwise, given),
            )
        return None

    # --- the rest

    def _cast_to(self, function: Function, node: Node) -> Node | None:
        """The type of `int(x)` and `static_cast<int>(x)`."""
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if node.type != "call_expression" or callee is None or arguments is None:
            return None
        if len([c for c in arguments.named_children if c.type != "comment"]) != 1:
            return None
        if callee.type == "template_function":
            name, listed = callee.child_by_field_name("name"), callee.child_by_field_name("arguments")
            types = [c for c in listed.named_children if c.type != "comment"] if listed is not None else []
            return types[0] if name is not None and function.text(name) in _CASTS and len(types) == 1 else None
        if callee.type == "primitive_type":
            return callee
        if callee.type not in ("identifier", "qualified_identifier"):
            return None
        site = self.program.names.lookup.site(function, callee)
        kind = self.program.names.declared.from_text(function.text(callee), site)
        return callee if kind.kind == "arithmetic" else None

    def _composed(self, function: Function, node: Node, given: Mapping[str, Values | None]) -> Values | None:
        if node.type == "cast_expression":
            kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
            if kind is None or value is None:
                return None
            return self._converted(function, kind, self.of(function, value, given))
        if node.type == "conditional_expression":
            parts = [node.child_by_field_name(n) for n in ("condition", "consequence", "alternative")]
            found = [self.of(function, p, given) if p is not None else None for p in parts]
            return _chosen(found[0], found[1], found[2])
        operator = node.child_by_field_name("operator")
        sign = function.text(operator) if operator is not None else ""
        if node.type == "unary_expression":
            inner = node.child_by_field_name("argument")
            values = self.of(function, inner, given) if inner is not None else None
            if values is None or sign not in ("!", "not", "+"):
                return None
            return values if sign == "+" else tuple(None if v is None else int(v == 0) for v in values)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type != "binary_expression" or left is None or right is None:
            return None
        return _combined(sign, self.of(function, left, given), self.of(function, right, given))


def _may_refer(declarator: Node) -> bool:
    """Whether what reads as the declaration of a function may be one of a reference, or of an object of a class."""
    declaration = enclosing(declarator, "declaration")
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    is_number = kind is not None and kind.type in ("primitive_type", "sized_type_specifier")
    return not is_number or (declarator.parent is not None and declarator.parent.type == "reference_declarator")


def several_dimensions(program: Program) -> bool:
    """Whether a block may have more than one dimension: then threads share an index along the first."""
    return any(re.search(rb"threadIdx\s*\.\s*[yz]", f.source) for f in program.sources.files.values())


def _combined(sign: str, left: Values | None, right: Values | None) -> Values | None:
    if sign in ("&&", "||", "and", "or"):
        decisive = int(sign in ("||", "or"))
        found = [_truth(side) for side in (left, right) if side is not None]
        if not found:
            return None
        if len(found) == 1:
            return tuple(decisive if v == decisive else None for v in found[0])
        pairs = zip(*found, strict=True)
        return tuple(decisive if decisive in p else None if None in p else 1 - decisive for p in pairs)
    operation = _OPERATORS.get(sign)
    if operation is None or left is None or right is None:
        return None
    both = list(zip(left, right, strict=True))
    # most threads have the values of others: each pair is worked out once
    results = {pair: _within(operation, *pair) for pair in set(both)}
    return tuple(map(results.__getitem__, both))


def _within(operation: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    value = operation(left, right)
    return value if 0 <= value <= _LARGEST else None


def _truth(values: Values) -> Values:
    return tuple(None if v is None else int(v != 0) for v in values)


def _chosen(condition: Values | None, then: Values | None, other: Values | None) -> Values | None:
    if condition is None or (then is None and other is None):
        return None
    first, second = then or (None,) * len(condition), other or (None,) * len(condition)
    return tuple(None if c is None else a if c else b for c, a, b in zip(condition, first, second, strict=True))


def is_const(variable: Variable) -> bool:
    """Whether a variable is declared to keep its first value."""
    node = variable.param.node if variable.param is not None else variable.declaration
    if node is None:
        return False
    words = {variable.function.text(c) for c in node.children if c.type in ("type_qualifier", "constexpr")}
    return bool(words & {"const", "constexpr"}) and not any(n.type.endswith("pointer_declarator") for n in walk(node))
