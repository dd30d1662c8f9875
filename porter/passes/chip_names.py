# SPDX-License-Identifier: Apache-2.0
"""Names of a source set that hold a compute capability, and names of constants."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.sources import SourceSet
from porter.model.spellings import Spellings
from porter.ptx.arch import SM100A, PortTarget

_LITERAL = re.compile(r"(0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?)(?:[fF]|[uUlLzZ]+)?")
_FIRST = frozenset({"first", "x"})
_DEFINED = re.compile(r"defined\s*\(\s*(\w+)\s*\)")
_OF_A_CHIP = re.compile(r"_SM(1\d\d)A?_")


def literal_value(text: str) -> float | None:
    """The number that a literal is, or None."""
    match = _LITERAL.fullmatch(text.replace("'", ""))
    if match is None:
        return None
    return int(match[1], 16) if match[1][:2].lower() == "0x" else float(match[1])


class Names:
    """What names mean, by what they are set from; a name of a function's own means that only there."""

    def __init__(self, sources: SourceSet, spellings: Spellings, target: PortTarget = SM100A) -> None:
        self._files = sources.files
        self.target = target
        self.spellings = spellings
        self._kinds: dict[tuple[int, str], str] = {}
        self._mixed: set[tuple[int, str]] = set()
        self._names: set[str] = set()
        self._set: dict[tuple[int, str], set[float]] = defaultdict(set)
        self._constants: dict[str, set[float]] = defaultdict(set)
        self._calls: dict[str, list[list[float | None]]] | None = None
        self.functions: dict[str, list[tuple[int, list[str]]]] = defaultdict(list)
        files = [f for f in sources.files.values() if spellings.stand_in("capability_asked", f.lexed.source_text)]
        for file in files:
            self._read_constants(file)
            self._read_functions(file)
        self.files = files

    def mentions(self, text: bytes) -> bool:
        """Whether a capability may be in a text."""
        said = text.decode("utf-8", "replace")
        if self.spellings.stand_in("capability_asked", said):
            return True
        return any(name in self._names for name in re.findall(r"[A-Za-z_]\w*", said))

    def defined(self, text: str) -> tuple[bool, bool] | None:
        """Whether a macro that a condition asks for is there for Hopper, and for the port's chip."""
        match = _DEFINED.fullmatch(text)
        macro, are = match[1] if match is not None else text, self.spellings.are
        if are("common_macro", macro):
            return True, True
        hopper = match is not None and are("hopper_macro", macro)
        if hopper:
            return True, False
        if match is None or not are("blackwell_macro", macro):
            return None
        number = _OF_A_CHIP.search(macro)
        return False, number is None or int(number[1]) == self.target.sm

    def kind(self, node: Node, text: Callable[[Node], str], depth: int = 0) -> str | None:
        """`major`, `minor` or `number`, if that is what an expression holds."""
        if depth > 20:
            return None
        inner: Node | None = None
        if node.type in ("identifier", "field_identifier", "type_identifier"):
            return self._named(node, text(node))
        if node.type == "field_expression":
            field, inner = node.child_by_field_name("field"), node.child_by_field_name("argument")
            found = self.kind(field, text, depth + 1) if field is not None else None
            if found is not None or field is None or inner is None or text(field) not in _FIRST:
                return found
            return "major" if self.kind(inner, text, depth + 1) is not None else None
        if node.type == "call_expression":
            return self._called(node, text, depth)
        if node.type == "initializer_list":
            return self._paired(node.named_children, text, depth)
        elif node.type == "subscript_expression":
            inner = node.child_by_field_name("argument")
            where = text(node)[len(text(inner)) :] if inner is not None else ""
            if inner is not None and self.kind(inner, text, depth + 1) is not None:
                return "minor" if "1" in where else "major"
            return None
        elif node.type in ("qualified_identifier", "template_function", "dependent_name"):
            inner = node.child_by_field_name("name")
        elif node.type in ("parenthesized_expression", "pointer_expression") and node.named_children:
            inner = node.named_children[-1]
        elif node.type in ("cast_expression", "compound_literal_expression"):
            inner = node.child_by_field_name("value")
        elif node.type == "conditional_expression":
            inner = node.child_by_field_name("consequence")
            if inner is None or self.kind(inner, text, depth + 1) is None:
                inner = node.child_by_field_name("alternative")
        return self.kind(inner, text, depth + 1) if inner is not None else None

    def _called(self, node: Node, text: Callable[[Node], str], depth: int) -> str | None:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return None
        name, given = last_word(text(function)), arguments.named_children
        if name == "get" and function.type in ("template_function", "qualified_identifier") and len(given) == 1:
            held = self.kind(given[0], text, depth + 1) is not None
            return ("minor" if "<1>" in text(function).replace(" ", "") else "major") if held else None
        if self.spellings.are("pairing", name):
            return self._paired(given, text, depth)
        made = self.spellings.are("conversion", name) and len(given) == 1
        return self.kind(given[0] if made else function, text, depth + 1)

    def _paired(self, parts: Sequence[Node], text: Callable[[Node], str], depth: int) -> str | None:
        """A pair of both numbers is compared as one number is, in tens."""
        kinds = [self.kind(p, text, depth + 1) for p in parts]
        return "number" if kinds == ["major", "minor"] else kinds[0] if len(kinds) == 1 else None

    def _named(self, node: Node, name: str) -> str | None:
        for scope in (scope_of(node), 0):
            if (scope, name) in self._mixed:
                return None
            if (scope, name) in self._kinds:
                return self._kinds[scope, name]
        return self.by_word(name)

    def by_word(self, name: str) -> str | None:
        """What a name is said to hold where nothing tells."""
        are = self.spellings.are
        if are("capability_major", name):
            return "major"
        if are("capability_minor", name):
            return "minor"
        return "number" if are("capability", name) else None

    def constant(self, node: Node, text: Callable[[Node], str]) -> float | None:
        """The number that a name stands for wherever it is used, or None."""
        if node.type == "qualified_identifier":
            node = node.child_by_field_name("name") or node
        if node.type not in ("identifier", "field_identifier"):
            return None
        values = self._constants.get(text(node), set())
        return next(iter(values)) if len(values) == 1 else None

    def is_constant(self, file: CudaFile, node: Node) -> bool:
        """Whether a name is a template's parameter or a constant: no value of it comes from a device."""
        name = file.text(node)
        if self.is_fixed(name):
            return True
        outer = enclosing(node, "template_declaration")
        while outer is not None:
            parameters = outer.child_by_field_name("parameters")
            for parameter in parameters.named_children if parameters is not None else ():
                if any(file.text(n) == name for n in find(parameter, "identifier", "type_identifier")):
                    return True
            outer = enclosing(outer, "template_declaration")
        return False

    def is_given(self, file: CudaFile, node: Node) -> bool:
        """Whether a variable is set to a version that is written down, or is a parameter that is given one."""
        name = file.text(node)
        if self._set.get((scope_of(node), name)) or self._set.get((0, name)):
            return True
        function = enclosing(node, "function_definition")
        declarator = next(find(function, "function_declarator"), None) if function is not None else None
        parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
        called = declarator.child_by_field_name("declarator") if declarator is not None else None
        if parameters is None or called is None:
            return False
        declared = [c for c in parameters.named_children if c.type.endswith("parameter_declaration")]
        at = next((i for i, p in enumerate(declared) if any(file.text(n) == name for n in find(p, "identifier"))), None)
        if at is None:
            return False
        if any(_is_version(literal_value(file.text(n))) for n in find(declared[at], "number_literal")):
            return True
        given = self._arguments().get(file.text(called).rsplit("::", 1)[-1], [])
        return any(at < len(values) and _is_version(values[at]) for values in given)

    def _arguments(self) -> dict[str, list[list[float | None]]]:
        """The numbers that functions are called with."""
        if self._calls is None:
            self._calls = defaultdict(list)
            for file in self._files.values():
                for call in find(file.root, "call_expression"):
                    function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
                    if function is not None and arguments is not None and b"90" in (arguments.text or b""):
                        values = [literal_value(file.text(a)) for a in arguments.named_children if a.type != "comment"]
                        self._calls[last_word(file.text(function))].append(values)
        return self._calls

    def _read_functions(self, file: CudaFile) -> None:
        for node in find(file.root, "function_definition"):
            declarator = next(find(node, "function_declarator"), None)
            called = declarator.child_by_field_name("declarator") if declarator is not None else None
            parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
            if called is None or parameters is None:
                continue
            declared = [c for c in parameters.named_children if c.type.endswith("parameter_declaration")]
            names = [next((file.text(n) for n in find(p, "identifier")), "") for p in declared]
            self.functions[last_word(file.text(called))].append((node.id, names))

    def _read_constants(self, file: CudaFile) -> None:
        for macro in file.lexed.macros():
            number = literal_value(macro.joined.decode("utf-8", "replace").strip("() "))
            if number is not None and macro.params is None:
                self._constants[macro.name].add(number)
        for node in find(file.root, "enumerator"):
            self._state(file, node.child_by_field_name("name"), node.child_by_field_name("value"), True)
        for node in find(file.root, "init_declarator", "assignment_expression", "field_declaration"):
            stated = enclosing(node, "declaration") if node.type == "init_declarator" else node
            head = file.source[stated.start_byte : node.end_byte] if stated is not None else b""
            fixed = node.type != "assignment_expression" and re.search(rb"\bconst(?:expr)?\b", head) is not None
            name = node.child_by_field_name("declarator") or node.child_by_field_name("left")
            value = node.child_by_field_name("value") or node.child_by_field_name("right")
            self._state(file, name, value or node.child_by_field_name("default_value"), fixed)

    def _state(self, file: CudaFile, name: Node | None, value: Node | None, fixed: bool) -> None:
        number = literal_value(file.text(value)) if value is not None else None
        if name is None or number is None:
            return
        if name.type == "field_expression":
            name = name.child_by_field_name("field") or name
        if fixed:
            self._constants[file.text(name)].add(number)
        elif _is_version(number):
            self._set[0 if name.type == "field_identifier" else scope_of(name), file.text(name)].add(number)

    def take(self, scope: int, name: str, kind: str) -> None:
        """A name holds `major`, `minor` or `number`; nobody knows which where it is set to several."""
        if name not in self._constants:
            if self._kinds.setdefault((scope, name), kind) != kind:
                self._mixed.add((scope, name))
            self._names.add(name)

    @property
    def count(self) -> int:
        """How much is known of what names hold."""
        return len(self._kinds) + len(self._mixed)

    def holding(self) -> Iterable[tuple[int, str]]:
        return self._kinds.keys()

    def holds(self, scope: int, name: str) -> bool:
        return (scope, name) in self._kinds or (0, name) in self._kinds

    def held_by(self, scope: int, name: str) -> str | None:
        return self._kinds.get((scope, name))

    def is_fixed(self, name: str) -> bool:
        """Whether a name is a constant."""
        return name in self._constants

    def held(self, file: CudaFile, value: Node) -> str | None:
        """What a variable holds that is set to an expression."""
        found = self.kind(value, file.text)
        if found is not None or value.type != "binary_expression":
            return found
        sign = value.child_by_field_name("operator")
        if sign is None or sign.text not in (b"+", b"*", b"/", b"<<", b"|"):
            return None
        text = re.findall(r"[A-Za-z_]\w*", file.text(value))
        kinds = {self._named(value, name) for name in text}
        if "major" in kinds or "number" in kinds:
            return "major" if sign.text == b"/" else "number"
        return None


def last_word(callee: str) -> str:
    return re.split(r"::|\.|->", callee.split("<")[0])[-1].strip()


def _is_version(value: float | None) -> bool:
    return value in (9, 90, 900)


def scope_of(node: Node | None) -> int:
    """The function that a place is in; 0 outside of any."""
    function = enclosing(node, "function_definition") if node is not None else None
    return function.id if function is not None else 0
