# SPDX-License-Identifier: Apache-2.0
"""Where a compute capability goes that a program asks for: from a query, through variables, members, parameters and
results, to what is decided by it.

A value is followed upwards from where it stands. What only hands it on is a step; a comparison, a switch, a subscript
and a call of what is not in the sources are ends, where it decides something; output and messages are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.passes.chip_names import Names, last_word, scope_of

_ROUNDS = 8
_COMPARISONS = (b"==", b"!=", b"<", b"<=", b">", b">=", b"<=>")
_HANDS_ON = frozenset(
    {
        "parenthesized_expression", "cast_expression", "field_expression", "qualified_identifier", "template_function",
        "dependent_name", "compound_literal_expression", "comma_expression", "parameter_pack_expansion",
    }
)  # fmt: skip
_STATES = frozenset(
    {
        "function_declarator", "parameter_declaration", "declaration", "field_declaration", "pointer_declarator",
        "reference_declarator", "array_declarator", "structured_binding_declarator", "expression_statement",
        "throw_statement", "sizeof_expression", "decltype", "template_argument_list", "enumerator", "type_descriptor",
        "lambda_capture_specifier", "parameter_list", "using_declaration", "delete_expression", "update_expression",
        "function_definition", "field_designator", "template_parameter_list", "concatenated_string",
        "labeled_statement", "goto_statement", "alignas_qualifier", "init_statement", "compound_statement",
        "destructor_name", "attribute", "translation_unit", "namespace_definition", "namespace_identifier",
        "declaration_list", "field_declaration_list", "type_definition", "alias_declaration", "friend_declaration",
        "static_assert_declaration", "macro_type_specifier",
    }
)  # fmt: skip
_GRID = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_TRUTHS = frozenset({"condition_clause", "if_statement", "while_statement", "do_statement", "for_statement"})


@dataclass(frozen=True)
class End:
    """Where something is decided by a capability: `node` is the comparison, switch, subscript or call."""

    file: CudaFile
    node: Node


@dataclass
class _Value:
    """A value on its way from the node `own`: `strong` if it was asked for and not only is called like one; `text` once
    it is a string; `computed` once it was calculated with."""

    file: CudaFile
    own: Node
    strong: bool
    text: bool = False
    computed: bool = False


@dataclass(eq=False)
class Flow:
    """The ends of what is asked for in `files`; on the way `names` learn what they hold."""

    files: Sequence[CudaFile]
    names: Names
    ends: list[End] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._asked: set[tuple[int, str]] = set()
        self._texts: set[tuple[int, str]] = set()
        self._outputs: set[tuple[int, str]] = set()
        self._leaves: dict[str, list[tuple[CudaFile, Node, int]]] = defaultdict(list)
        self._structs: dict[str, list[str]] = {}
        self._local: set[tuple[int, str]] = set()
        for file in self.files:
            for node in find(file.root, "identifier", "field_identifier"):
                name, scope = file.text(node), scope_of(node)
                self._leaves[name].append((file, node, scope))
                if scope and _is_declared(node):
                    self._local.add((scope, name))
            for node in find(file.root, "struct_specifier", "class_specifier"):
                self._read_struct(file, node)
        self._calls = [(f, c) for f in self.files for c in find(f.root, "call_expression")]
        told = self.names.spellings
        self._weak = {n for n in self._leaves if self.names.by_word(n) is not None}
        self._members = {n for n in self._leaves if told.are("capability_member", n)} if self._has_structs() else set()
        self._members |= {n for n in self._leaves if told.are("capability_of_code", n)}
        for _ in range(_ROUNDS):
            before = len(self._asked), len(self._outputs), self.names.count
            self.ends.clear()
            self._round()
            if before == (len(self._asked), len(self._outputs), self.names.count):
                break

    def is_asked(self, file: CudaFile, node: Node) -> bool:
        """Whether something in an expression was asked for."""
        return any(self._is_strong(file, n, file.text(n), scope_of(n)) for n in find(node, *_IDENTIFIERS)) or any(
            self._query(file, c) is not None for c in find(node, "call_expression")
        )

    # where values begin

    def _has_structs(self) -> bool:
        return any(self.names.spellings.stand_in("capability_struct", f.lexed.source_text) for f in self.files)

    def _is_strong(self, file: CudaFile, node: Node, name: str, scope: int) -> bool:
        own = scope if node.type == "identifier" and (scope, name) in self._local else 0
        if (own, name) in self._asked:
            return node.parent is None or file.text(node.parent.child_by_field_name("argument") or node) not in _GRID
        if name not in self._members or node.type != "field_identifier":
            return False
        return node.parent is not None and node.parent.type == "field_expression"

    def _round(self) -> None:
        known = {name for _, name in self._asked} | {name for _, name in self.names.holding()}
        for name in sorted(self._weak | self._members | known):
            for file, node, scope in self._leaves.get(name, ()):
                strong = self._is_strong(file, node, name, scope)
                if strong or name in self._weak or self.names.holds(scope, name):
                    text = (scope, name) in self._texts or (0, name) in self._texts
                    self._follow(_Value(file, node, strong, text))
        for file, call in self._calls:
            if (kind := self._query(file, call)) is not None:
                self._take_outputs(file, call, kind)
                if not _writes(call):
                    self._follow(_Value(file, call, True))
            elif self._outputs:
                self._take_written(file, call)

    def _query(self, file: CudaFile, call: Node) -> str | None:
        """What a call asks the device for: `major`, `minor`, `both`, or None."""
        function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if function is None or arguments is None or self._hands_on_status(file, arguments):
            return None
        told, text, name = self.names.spellings, file.text(arguments), last_word(file.text(function))
        if told.stand_in("query_of_major", text):
            return "major"
        if told.stand_in("query_of_minor", text):
            return "minor"
        return "both" if told.are("query_of_both", name) and not self.names.functions.get(name) else None

    def _hands_on_status(self, file: CudaFile, arguments: Node) -> bool:
        """Whether an argument is a query that writes what it is asked for: its own value says how that went."""
        return any(
            argument.type == "call_expression" and _writes(argument) and self._query(file, argument) is not None
            for argument in arguments.named_children
        )

    def _take_outputs(self, file: CudaFile, call: Node, kind: str) -> None:
        """What a query writes to: its first argument and those whose address it gets."""
        given = _arguments(call)
        written = [a for a in given if a.type == "pointer_expression"]
        if kind != "both" and len(given) > 1 and given[0] not in written:
            written.insert(0, given[0])
        kinds = ("major", "minor") if kind == "both" and len(written) > 1 else (kind,) * len(written)
        for node, one in zip(written, kinds, strict=False):
            self._set(file, node, None if one == "both" else one, True)

    def _take_written(self, file: CudaFile, call: Node) -> None:
        """What a function of the sources writes through its parameters."""
        function = call.child_by_field_name("function")
        defined = self.names.functions.get(last_word(file.text(function)), ()) if function is not None else ()
        given = _arguments(call) if defined else []
        for scope, parameters in defined:
            for name, node in zip(parameters, given, strict=False):
                if (scope, name) in self._outputs:
                    self._set(file, node, self.names.held_by(scope, name), True)

    # where they go

    def _give(self, scope: int, name: str, kind: str | None, value: _Value) -> None:
        if kind is not None:
            self.names.take(scope, name, kind)
        if value.strong and not self.names.is_fixed(name):
            self._asked.add((scope, name))
            if value.text:
                self._texts.add((scope, name))

    def _set(self, file: CudaFile, target: Node, kind: str | None, strong: bool, text: bool = False) -> None:
        """An expression that stands for a place is set."""
        value = _Value(file, target, strong, text)
        if target.type == "structured_binding_declarator":
            for part, one in zip(target.named_children, ("major", "minor"), strict=False):
                self._give(scope_of(part), file.text(part), one if kind is not None else None, value)
            return
        if target.type == "call_expression":
            for part, one in zip(_arguments(target), ("major", "minor"), strict=False):
                self._set(file, part, one if kind is not None else None, strong, text)
            return
        pointed = target.type == "pointer_expression" and file.text(target).startswith("*")
        name = _place(target)
        if name is None:
            return
        scope = self._scope(name, file.text(name))
        self._give(scope, file.text(name), kind, value)
        if strong and scope and (pointed or self._is_reference(file, name, scope)):
            self._outputs.add((scope, file.text(name)))

    def _scope(self, node: Node, name: str) -> int:
        """The function whose variable a name is; 0 for members and for variables outside of functions."""
        scope = 0 if node.type == "field_identifier" else scope_of(node)
        return scope if (scope, name) in self._local else 0

    def _is_reference(self, file: CudaFile, name: Node, scope: int) -> bool:
        function = enclosing(name, "function_definition")
        declarator = next(find(function, "function_declarator"), None) if function is not None else None
        parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
        wanted = file.text(name)
        return parameters is not None and any(
            file.text(n) == wanted
            for p in find(parameters, "reference_declarator")
            for n in find(p, "identifier")
        )  # fmt: skip

    def _follow(self, value: _Value) -> None:
        child, node = value.own, value.own.parent
        while node is not None:
            above = self._step(value, child, node)
            if above is None:
                return
            child, node = above, above.parent

    def _step(self, value: _Value, child: Node, node: Node) -> Node | None:
        """The expression that has the value of `child`, or None where it ends."""
        kind = node.type
        if kind in _HANDS_ON:
            return node
        if kind in _STATES:
            return None
        step = getattr(self, f"_at_{kind}", None)
        if step is not None:
            found: Node | None = step(value, child, node)
            return found
        if kind in _TRUTHS:
            return self._as_truth(value, child)
        return self._end(value, node)

    def _end(self, value: _Value, node: Node) -> Node | None:
        if value.strong:
            self.ends.append(End(value.file, node))
        return None

    def _as_truth(self, value: _Value, child: Node) -> Node | None:
        """As a condition a capability is true for every chip; what was computed from it may not be."""
        return self._end(value, child) if value.computed else None

    def _at_unary_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        if node.children and node.children[0].type == "!":
            return self._as_truth(value, child)
        return node

    def _at_pointer_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        call = node.parent
        if not value.file.text(node).startswith("&") or call is None or call.type != "argument_list":
            return node
        # a variable's address is handed out to be written to
        return node if child.type == "field_expression" else None

    def _at_conditional_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        if node.child_by_field_name("condition") == child:
            return self._as_truth(value, child) if node.child_by_field_name("consequence") else node
        return node

    def _at_binary_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        sign, left = node.child_by_field_name("operator"), node.child_by_field_name("left")
        text = (sign.text or b"") if sign is not None else b""
        right = node.child_by_field_name("right")
        other = right if left == child else left
        if text in _COMPARISONS:
            if value.text and other is not None and other.type in ("string_literal", "concatenated_string"):
                return None
            return self._end(value, node)
        if text in (b"&&", b"||", b"and", b"or"):
            return self._as_truth(value, child)
        if text == b"<<" and child == right and left is not None and not self._is_number(value.file, left):
            return None
        if text == b"+" and other is not None and next(find(other, "string_literal", "raw_string_literal"), None):
            value.text = True
        value.computed = True
        return node

    def _is_number(self, file: CudaFile, node: Node) -> bool:
        return node.type == "number_literal" or self.names.kind(node, file.text) is not None

    def _at_subscript_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        return node if node.child_by_field_name("argument") == child else self._end(value, node)

    def _at_subscript_argument_list(self, value: _Value, child: Node, node: Node) -> Node | None:
        return self._end(value, node.parent or node)

    def _at_switch_statement(self, value: _Value, child: Node, node: Node) -> Node | None:
        return self._end(value, node)

    def _at_condition_clause(self, value: _Value, child: Node, node: Node) -> Node | None:
        if node.parent is not None and node.parent.type == "switch_statement":
            return self._end(value, node.parent)
        return self._as_truth(value, child)

    def _at_case_statement(self, value: _Value, child: Node, node: Node) -> Node | None:
        return self._end(value, node) if node.child_by_field_name("value") == child else None

    # places that are set

    def _at_init_declarator(self, value: _Value, child: Node, node: Node) -> Node | None:
        name = node.child_by_field_name("declarator")
        if name is not None and name != child:
            self._flows(value, name, child)
            self._as_bool(value, child, enclosing(node, "declaration"))
        return None

    def _as_bool(self, value: _Value, child: Node, stated: Node | None) -> None:
        kind = stated.child_by_field_name("type") if stated is not None else None
        if kind is not None and value.file.text(kind) == "bool" and value.computed:
            self._end(value, child)

    def _at_assignment_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        left = node.child_by_field_name("left")
        if left is None or left == child:
            return None
        self._flows(value, left, child)
        return node

    def _flows(self, value: _Value, target: Node, child: Node) -> None:
        self._set(value.file, target, self.names.held(value.file, child), value.strong, value.text)

    def _at_optional_parameter_declaration(self, value: _Value, child: Node, node: Node) -> Node | None:
        name = node.child_by_field_name("declarator")
        if name is not None and node.child_by_field_name("default_value") == child:
            self._flows(value, name, child)
        return None

    def _at_lambda_capture_initializer(self, value: _Value, child: Node, node: Node) -> Node | None:
        left = node.child_by_field_name("left")
        if left is not None and left != child:
            self._flows(value, left, child)
        return None

    def _at_for_range_loop(self, value: _Value, child: Node, node: Node) -> Node | None:
        name = node.child_by_field_name("declarator")
        if name is not None and node.child_by_field_name("right") == child:
            self._flows(value, name, child)
        return None

    def _at_initializer_pair(self, value: _Value, child: Node, node: Node) -> Node | None:
        field_name = next(find(node, "field_identifier"), None)
        if field_name is None or field_name.start_byte >= child.start_byte:
            return None
        self._give(0, value.file.text(field_name), self.names.held(value.file, child), value)
        return None

    def _at_initializer_list(self, value: _Value, child: Node, node: Node) -> Node | None:
        fields = self._structs.get(self._made(value.file, node))
        at = next((i for i, n in enumerate(_values(node)) if n == child), 0)
        if fields is not None and at < len(fields):
            self._give(0, fields[at], self.names.held(value.file, child), value)
            return None
        if node.parent is not None and node.parent.type == "field_initializer":
            return self._at_field_initializer(value, child, node.parent)
        return node

    def _made(self, file: CudaFile, node: Node) -> str:
        """The name of the type that a list in braces makes an object of."""
        holder = node.parent
        if holder is not None and holder.type == "compound_literal_expression":
            kind = holder.child_by_field_name("type")
            return last_word(file.text(kind)) if kind is not None else ""
        stated = enclosing(node, "declaration", "function_definition", "field_declaration", "lambda_expression")
        direct = holder is not None and holder.type in ("init_declarator", "return_statement", "field_declaration")
        kind = stated.child_by_field_name("type") if stated is not None and direct else None
        return last_word(file.text(kind)) if kind is not None else ""

    def _at_field_initializer(self, value: _Value, child: Node, node: Node) -> Node | None:
        name = next(iter(node.named_children), None)
        if name is not None and name != child:
            self._give(0, value.file.text(name), self.names.held(value.file, child), value)
        return None

    def _at_return_statement(self, value: _Value, child: Node, node: Node) -> Node | None:
        holder = enclosing(node, "function_definition", "lambda_expression")
        declarator = next(find(holder, "function_declarator"), None) if holder is not None else None
        name: Node | None = None
        scope = 0
        if holder is not None and holder.type == "lambda_expression":
            made = holder.parent
            if made is not None and made.type in ("call_expression", "argument_list", "parenthesized_expression"):
                return made if made.type == "call_expression" else self._end(value, node)
            name = made.child_by_field_name("declarator") if made is not None else None
            scope = scope_of(made)
        elif declarator is not None:
            name = declarator.child_by_field_name("declarator")
        if name is None:
            return self._end(value, node)
        self._as_bool(value, child, holder)
        self._give(scope, last_word(value.file.text(name)), self.names.held(value.file, child), value)
        return None

    # calls

    def _at_argument_list(self, value: _Value, child: Node, node: Node) -> Node | None:
        call = node.parent
        if call is None or call.type == "init_declarator":
            return call and self._at_init_declarator(value, child, call)
        if call.type == "field_initializer":
            return self._at_field_initializer(value, child, call)
        function = call.child_by_field_name("function") or call.child_by_field_name("type")
        name = last_word(value.file.text(function)) if function is not None else ""
        told = self.names.spellings
        if told.are("printing", name):
            return None
        if told.are("conversion", name) or told.are("pairing", name):
            return call
        if told.are("to_text", name):
            value.text = True
            return call
        defined = self.names.functions.get(name)
        if defined:
            at = next((i for i, n in enumerate(_values(node)) if n == child), 0)
            for scope, parameters in defined:
                if at < len(parameters):
                    self._give(scope, parameters[at], self.names.held(value.file, child), value)
            return None
        if self._query(value.file, call) is not None:
            return None
        if value.text and not told.are("comparison", name) and not told.are("lookup", name):
            return None
        return self._end(value, call)

    def _at_call_expression(self, value: _Value, child: Node, node: Node) -> Node | None:
        """What is called is a name of what gives the capability, or a method of what holds it."""
        given, told = _arguments(node), self.names.spellings
        name = last_word(value.file.text(child))
        if child.type == "field_expression" and value.own != child.child_by_field_name("field"):
            if told.are("lookup", name) and given:
                return self._end(value, node)
            return node if not told.are("printing", name) else None
        return node

    def _read_struct(self, file: CudaFile, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        declared = [d for d in body.named_children if d.type == "field_declaration"]
        names = [
            file.text(n)
            for d in declared
            for c in d.children_by_field_name("declarator")
            if c.type != "function_declarator"
            for n in find(c, "field_identifier")
        ]
        self._structs[file.text(name)] = names


_IDENTIFIERS = ("identifier", "field_identifier")


def _is_declared(node: Node) -> bool:
    """Whether a variable or parameter of a function is declared by this name."""
    child, above = node, node.parent
    while above is not None and above.type in _DECLARATORS:
        child, above = above, above.parent
    if above is None:
        return False
    if above.type in ("init_declarator", "lambda_capture_initializer"):
        return child in (above.child_by_field_name("declarator"), above.child_by_field_name("left"))
    return above.type.endswith("declaration") or (
        above.type == "for_range_loop" and above.child_by_field_name("declarator") == child
    )


_DECLARATORS = ("pointer_declarator", "reference_declarator", "array_declarator", "structured_binding_declarator",
                "variadic_declarator")  # fmt: skip


def _writes(call: Node) -> bool:
    """Whether a call is handed the address of something."""
    return any(a.type == "pointer_expression" and (a.text or b"").startswith(b"&") for a in _arguments(call))


def _arguments(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return _values(arguments) if arguments is not None else []


def _values(listed: Node) -> list[Node]:
    return [n for n in listed.named_children if n.type != "comment"]


def _place(target: Node) -> Node | None:
    """The name of the variable or member that an expression is a place in."""
    while target.type not in _IDENTIFIERS:
        inner = (
            target.child_by_field_name("field")
            or target.child_by_field_name("argument")
            or target.child_by_field_name("declarator")
            or next(iter(target.named_children), None)
        )
        if inner is None or inner == target:
            return None
        target = inner
    return target


# Tables -------------------------------------------------------------------------------------------------


def listed_versions(file: CudaFile, node: Node) -> Iterator[tuple[Node, set[int]]]:
    """Lists of numbers that stand in an expression, or that names in it are declared with: each with its numbers, of a
    table the keys."""
    wanted = {file.text(n) for n in find(node, "identifier", "field_identifier")}
    ranges = []
    for loop in find(file.root, "for_range_loop"):
        name, right = loop.child_by_field_name("declarator"), loop.child_by_field_name("right")
        if name is not None and right is not None and any(file.text(n) in wanted for n in find(name, "identifier")):
            ranges.append(right)
    wanted |= {file.text(n) for right in ranges for n in find(right, *_IDENTIFIERS)}
    found = [n for above in (node, *ranges) for n in find(above, "initializer_list")]
    lists = [n for n in found if n.parent is None or n.parent.type != "initializer_list"]
    for declared in find(file.root, "init_declarator", "field_declaration"):
        name = declared.child_by_field_name("declarator")
        value = declared.child_by_field_name("value") or declared.child_by_field_name("default_value")
        if name is not None and value is not None and value.type == "initializer_list":
            lists += [value] if any(file.text(n) in wanted for n in find(name, *_IDENTIFIERS)) else []
    indexed = node.type == "subscript_expression"
    for listed in lists:
        keyed = any(n.type == "initializer_list" for n in _values(listed))
        numbers = _numbers(file, listed) if keyed or not indexed else set()
        if numbers:
            yield listed, numbers


def _numbers(file: CudaFile, listed: Node) -> set[int]:
    """The numbers of a list, or the first of each list in it; none if something else is in it."""
    found = set()
    for node in _values(listed):
        first = next(iter(_values(node)), None) if node.type == "initializer_list" else node
        text = file.text(first) if first is not None else ""
        if not text.isdigit():
            return set()
        found.add(int(text))
    return found
