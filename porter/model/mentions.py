# SPDX-License-Identifier: Apache-2.0
"""Every place that names an accumulator's registers, directly or through macros, and whether what happens there is
understood. Places are found in the text, so that none is lost to a wrong tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import enclosing, find, parse_tree
from porter.lang.expansion import TooLong
from porter.lang.macros import Macros
from porter.lang.text import as_bytes
from porter.model.accumulators import Accumulator, AccumulatorMap, AccumulatorParam
from porter.model.empty_calls import is_register_fence_call
from porter.model.functions import Call, Function
from porter.model.handed_on import HandedOn
from porter.model.program import Program
from porter.model.pure import is_toolkit_text
from porter.model.scopes import resolve
from porter.model.uses import Reading, Use, joined, use_of
from porter.model.zeroing import Zeroing

_WHOLE_STATEMENTS = ("expression_statement", "declaration", "return_statement", "condition_clause")


@dataclass(frozen=True, eq=False)
class Mention:
    """A place in the file of `function` that names registers: the byte `offset`, and what is done there. `macro` is
    the macro that does."""

    function: Function = field(repr=False)
    offset: int
    text: str
    use: Use
    macro: str = ""


@dataclass(frozen=True, eq=False)
class _Named:
    """Registers as expressions of a function name them."""

    function: Function
    names: frozenset[str]
    rank: int
    path: str

    @staticmethod
    def of(accumulator: Accumulator) -> _Named:
        home = accumulator.home
        return _Named(home.function, frozenset(home.names), home.rank, home.path)


class Mentions:
    """Asks about the accumulators of one program."""

    def __init__(self, program: Program, accumulators: AccumulatorMap) -> None:
        self.program = program
        self.accumulators = accumulators
        self.handed_on = HandedOn(program)
        self.macros = Macros.of(m for file in program.sources.files.values() for m in file.lexed.macros())
        self._statements = {s.statement.node.id for s in program.statements}
        self._asm = {s.node.id: s for f in program.functions for s in f.asm}
        self._calls: dict[int, Call] = {c.node.id: c for f in program.functions for c in reversed(f.calls)}

    def of(self, accumulator: Accumulator, skipped: list[Zeroing]) -> list[Mention]:
        """All mentions in the function that declares the registers, its lambdas included, in the order of the text.
        Left out: the declaration, operands of MMAs, arguments that are handed on as tiles, calls that only pin
        registers, and what stands in `skipped` statements. Of registers that methods use: mentions of the field in the
        methods, and of the object in the function that declares it; calls of methods, and of functions that are handed
        the object, are followed into them and left out here."""
        if accumulator.home.field_name:
            return self._in_methods(accumulator, skipped) + self._of_object(accumulator)
        function, names = accumulator.function, set(accumulator.home.names)
        found = [
            mention
            for offset, name in self._words(function, names)
            if (mention := self._direct(accumulator, function, offset, name, skipped)) is not None
        ]
        reaching = {m for m in self.macros.by_name if self._may_name(m, names)}
        for offset, macro in self._words(function, reaching - names):
            use = self.through_macro(function, offset, _Named.of(accumulator))
            if use is not Use.NOTHING:
                found.append(Mention(function, offset, macro, use, macro))
        return sorted(found, key=lambda m: m.offset)

    def of_param(self, param: AccumulatorParam) -> list[Mention]:
        """Mentions of a parameter that carries an accumulator, in its function, where it is more than handed on or
        multiplied."""
        function = param.function
        names = {n for n in param.names if n}
        wanted = _Named(function, frozenset(names), param.rank, param.path)
        found = []
        for offset, name in self._words(function, names):
            node = function.file.root.descendant_for_byte_range(offset, offset + len(name))
            if node is None or node.type == "field_identifier":
                continue
            variable = resolve(self._innermost(function, node), node, name)
            if variable is None or variable.param is None or self._is_neutral(node, []):
                continue
            use = use_of(node, wanted.rank, wanted.path, self.handed_on.reading(function))
            if use is not Use.NOTHING:
                found.append(Mention(function, offset, name, use))
        reaching = {m for m in self.macros.by_name if self._may_name(m, names)}
        for offset, macro in self._words(function, reaching - names):
            use = self.through_macro(function, offset, wanted)
            if use is not Use.NOTHING:
                found.append(Mention(function, offset, macro, use, macro))
        return found

    def _in_methods(self, accumulator: Accumulator, skipped: list[Zeroing]) -> list[Mention]:
        home = accumulator.home
        rank = home.rank - len(home.object_extents)
        found = []
        for method in self.program.functions:
            if not any(home.has_method(f) for f in (method, *_around(method))):
                continue
            if not self._is_called(method):
                continue
            for offset, name in self._words(method, {home.field_name}):
                node = method.file.root.descendant_for_byte_range(offset, offset + len(name))
                if node is None or (enclosing(node, "lambda_expression") is not None) != (method.parent is not None):
                    continue
                holder = node.parent
                through_this = holder is not None and method.text(holder).startswith("this->")
                if node.type == "field_identifier" and not through_this:
                    continue
                if node.type == "identifier" and resolve(method, node, name) is not None:
                    continue
                if self._is_neutral(node, [z for z in skipped if z.function.file is method.file]):
                    continue
                start = holder if node.type == "field_identifier" and holder is not None else node
                use = use_of(start, rank, "", self.handed_on.reading(method))
                if use is not Use.NOTHING:
                    found.append(Mention(method, offset, name, use))
        return found

    def _of_object(self, accumulator: Accumulator) -> list[Mention]:
        function, home = accumulator.function, accumulator.home
        path = f".{home.field_name}"
        found = []
        for offset, name in self._words(function, {accumulator.name}):
            node = function.file.root.descendant_for_byte_range(offset, offset + len(name))
            if node is None or node.type == "field_identifier":
                continue
            inner = self._innermost(function, node)
            variable = resolve(inner, node, name)
            if self.accumulators.held_by(variable) is not accumulator or self._declares(accumulator, node):
                continue
            if self._is_followed(node) or self._is_neutral(node, []):
                continue
            reading = self.handed_on.reading(inner)
            if self._runs_over(node, home.rank - len(home.object_extents), path, reading):
                use = Use.UPDATE
            else:
                use = use_of(node, home.rank, path, reading) if node.type == "identifier" else Use.UNKNOWN
            if use is not Use.NOTHING:
                found.append(Mention(function, offset, name, use))
        return found

    def _runs_over(self, node: Node, rank: int, path: str, reading: Reading) -> bool:
        """Whether a loop runs over an array of objects, and does nothing but call methods of each or use its
        registers."""
        loop = node.parent
        if loop is None or loop.type != "for_range_loop":
            return False
        declarator, body = loop.child_by_field_name("declarator"), loop.child_by_field_name("body")
        named = next((n for n in find(declarator, "identifier")), None) if declarator is not None else None
        if named is None or body is None or declarator is None or declarator.type != "reference_declarator":
            return False
        name = reading.text(named)
        return all(
            self._is_followed(n) or use_of(n, rank, path, reading) is not Use.UNKNOWN
            for n in find(body, "identifier")
            if reading.text(n) == name
        )

    def _is_followed(self, node: Node) -> bool:
        """Whether an object's name is that of one whose method is called, or of an argument of a known function."""
        current = node
        while current.parent is not None and current.parent.type in ("subscript_expression", "field_expression"):
            inner = current.parent.child_by_field_name("argument")
            if inner is None or inner.id != current.id:
                return False
            current = current.parent
        call = current.parent
        if call is not None and call.type == "argument_list":
            call = call.parent
        known = self._calls.get(call.id) if call is not None and call.type == "call_expression" else None
        return known is not None and bool(self.program.targets(known))

    def _is_called(self, function: Function) -> bool:
        return bool(self.program.callers(function)) or function.parent is not None

    def _may_name(self, macro: str, names: set[str]) -> bool:
        return bool(self.macros.words(macro) & names) or self.macros.pastes(macro)

    def _words(self, function: Function, words: set[str]) -> Iterator[tuple[int, str]]:
        if not words:
            return
        code = function.file.lexed.plain
        pattern = re.compile(rb"(?<!\w)(?:" + b"|".join(re.escape(as_bytes(w)) for w in sorted(words)) + rb")(?!\w)")
        start, end = function.body.start_byte + function.shift, function.body.end_byte + function.shift
        for match in pattern.finditer(code, start, end):
            yield match.start(), match.group().decode()

    def _direct(
        self, accumulator: Accumulator, function: Function, offset: int, name: str, skipped: list[Zeroing]
    ) -> Mention | None:
        node = function.file.root.descendant_for_byte_range(offset, offset + len(name))
        if node is None:
            return Mention(function, offset, name, Use.UNKNOWN)
        if node.type == "field_identifier":
            return None
        home = self._innermost(function, node)
        variable = resolve(home, node, name)
        if variable is not None and self.accumulators.held_by(variable) is not accumulator:
            return None
        if _is_declared(node) or self._declares(accumulator, node) or self._is_neutral(node, skipped):
            return None
        if node.type != "identifier" or variable is None:
            return Mention(function, offset, name, Use.UNKNOWN)
        use = use_of(node, accumulator.home.rank, accumulator.home.path, self.handed_on.reading(home))
        if use is Use.UNKNOWN and self._in_macro(home, node):
            use = self.through_macro(function, offset, _Named.of(accumulator))
        return None if use is Use.NOTHING else Mention(function, offset, name, use)

    def _in_macro(self, function: Function, node: Node) -> bool:
        """Whether a name stands in what a macro is handed."""
        current = node.parent
        while current is not None and current.type != "compound_statement":
            callee = current.child_by_field_name("function") if current.type == "call_expression" else None
            if callee is not None and function.text(callee) in self.macros.by_name:
                return True
            current = current.parent
        return False

    def _innermost(self, function: Function, node: Node) -> Function:
        lambda_node = enclosing(node, "lambda_expression")
        while lambda_node is not None and lambda_node.start_byte >= function.body.start_byte:
            found = next((f for f in self.program.functions if f.node.id == lambda_node.id), None)
            if found is not None:
                # a name in the head of a lambda is one of the function around it
                return found if found.body.start_byte <= node.start_byte else (found.parent or function)
            lambda_node = enclosing(lambda_node, "lambda_expression") if lambda_node.parent is not None else None
        return function

    def _declares(self, accumulator: Accumulator, node: Node) -> bool:
        declaration = accumulator.variable.declaration
        current: Node | None = node
        while current is not None and current.type not in ("declaration", "compound_statement"):
            parent = current.parent
            if parent is not None and parent.type == "init_declarator":
                value = parent.child_by_field_name("value")
                if value is not None and value.id == current.id:
                    return False
            current = parent
        if current is None or current.type != "declaration":
            return False
        return accumulator.home.is_separate or (declaration is not None and current.id == declaration.id)

    def _is_neutral(self, node: Node, skipped: list[Zeroing]) -> bool:
        if any(z.node.start_byte <= node.start_byte < z.node.end_byte for z in skipped):
            return True
        current = node.parent
        while current is not None and current.type != "compound_statement":
            if current.id in self._statements:
                return True
            known = self._asm.get(current.id)
            if known is not None and not known.template.strip():
                return True
            if current.type == "call_expression" and self._hands_tile_on(current, node):
                return True
            current = current.parent
        return False

    def _hands_tile_on(self, node: Node, named: Node) -> bool:
        call = self._calls.get(node.id)
        if call is None:
            return False
        if is_register_fence_call(self.program, call):
            return True
        for argument in self.accumulators.arguments_of(call):
            given = call.args[argument.args.start : argument.args.stop]
            if any(a.start_byte <= named.start_byte < a.end_byte for a in given):
                return True
        return False

    def through_macro(self, function: Function, offset: int, wanted: _Named) -> Use:
        """What the macro at an offset, expanded with the statement around it, does to the registers."""
        names = set(wanted.names)
        node = function.file.root.descendant_for_byte_range(offset, offset + 1)
        while node is not None and node.type not in _WHOLE_STATEMENTS and node.type != "compound_statement":
            node = node.parent
        if node is None or node.type == "compound_statement":
            line = function.file.source[offset : function.file.source.find(b"\n", offset)].decode("utf-8", "replace")
            return self._in_unread(line, names)
        text = function.text(node)
        condition = node.type == "condition_clause"
        try:
            expansions = self.macros.expand(text)
        except TooLong:
            return Use.UNKNOWN
        found = Use.NOTHING
        for expansion in expansions:
            if not names & set(re.findall(r"[A-Za-z_]\w*", expansion)):
                continue
            source = f"void f() {{ {f'if {expansion} ;' if condition else expansion} }}"
            found = joined(found, self._in_text(source, wanted, node))
        return found

    def _in_unread(self, line: str, names: set[str]) -> Use:
        try:
            expansions = self.macros.expand(line)
        except TooLong:
            return Use.UNKNOWN
        named = any(names & set(re.findall(r"[A-Za-z_]\w*", e)) for e in expansions)
        return Use.UNKNOWN if named else Use.NOTHING

    def _in_text(self, source: str, wanted: _Named, at: Node) -> Use:
        data = as_bytes(source)
        root = parse_tree(data).root_node
        if root.has_error:
            return Use.UNKNOWN

        def text(node: Node) -> str:
            return data[node.start_byte : node.end_byte].decode("utf-8", "replace")

        def takes(call: Node, index: int, full: bool) -> Use:
            callee = call.child_by_field_name("function")
            name = text(callee) if callee is not None else ""
            targets = [f for f in self.program.functions if f.name == name.rsplit("::", 1)[-1].split("<")[0]]
            if not targets:
                if not is_toolkit_text(self.program, name):
                    return Use.UNKNOWN
                return self.handed_on.of_library(name.rsplit("::", 1)[-1].strip(), index, full)
            found = Use.NOTHING
            for target in targets:
                found = joined(found, self.handed_on.of_param(target, index, full))
            return found

        def converted(node: Node, is_type: bool) -> Use | None:
            is_type = is_type or data[: node.start_byte].rstrip().endswith(b"typename")
            return self.handed_on.casts.of(wanted.function, at, text(node), is_type)

        reading = replace(self.handed_on.reading(wanted.function), text=text, takes=takes, converted=converted)
        found = Use.NOTHING
        for node in find(root, "identifier", "type_identifier"):
            if text(node) in wanted.names and not _in_wgmma(node, text):
                use = use_of(node, wanted.rank, wanted.path, reading) if node.type == "identifier" else Use.UNKNOWN
                found = joined(found, use)
        return found


def _around(function: Function) -> Iterator[Function]:
    """The functions that a lambda stands in."""
    outer = function.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def _is_declared(node: Node) -> bool:
    """Whether an identifier is the name that a declaration declares."""
    current = node
    while (parent := current.parent) is not None and parent.type.endswith("_declarator"):
        named = parent.child_by_field_name("declarator")
        if named is not None and named.id != current.id:
            return False
        current = parent
    return node.type == "identifier" and current.parent is not None and current.parent.type == "declaration"


def _in_wgmma(node: Node, text: Callable[[Node], str]) -> bool:
    """Whether a register is an operand of an MMA."""
    asm = enclosing(node, "gnu_asm_expression")
    return asm is not None and "wgmma" in text(asm)
