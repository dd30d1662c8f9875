# SPDX-License-Identifier: Apache-2.0
"""Statements inside a function body or an inline-asm template: what modules and templates have in common.

Source: PTX ISA 9.0, sections 4.3 (statements), 5.4 (variables), 11.3 (debugging directives).
"""

from __future__ import annotations

from math import prod

from porter.ptx.ast import (
    Block,
    BranchTargets,
    Guard,
    Instruction,
    Label,
    Operand,
    RegDecl,
    SourceLoc,
    Statement,
    VarDecl,
)
from porter.ptx.lexer import Tokens
from porter.ptx.operands import Cursor
from porter.ptx.special import TYPE_BYTES

VARIABLE_SPACES = frozenset(
    (".reg", ".shared", ".local", ".global", ".const", ".param", ".tex", ".sreg", ".shared::cta")
)
_TABLES = (".branchtargets", ".calltargets", ".callprototype")
_MAX_SCOPES = 100


class Body(Cursor):
    """Parses statements. `files` maps the numbers of `.file` to names."""

    def __init__(self, tokens: Tokens, template: bool = False) -> None:
        super().__init__(tokens, template)
        self.files: dict[int, str] = {}
        self._loc: SourceLoc | None = None
        self._places: dict[tuple[int, int, int], SourceLoc] = {}

    def begin_function(self) -> None:
        """Source positions do not carry over from one function to the next."""
        self._loc = None
        self._places = {}

    def block(self) -> tuple[Statement, ...]:
        """`{ … }`; the names declared inside end with it."""
        self.take("{")
        if len(self.scopes) > _MAX_SCOPES:
            raise self.fail("nested too deeply")
        self.scopes.append(set())
        body: list[Statement] = []
        while not self.accept("}"):
            if not self.texts[self.at]:
                raise self.expected("'}'")
            self.statement(body)
        self.scopes.pop()
        return tuple(body)

    def statement(self, body: list[Statement]) -> None:
        """Append the next statement, or several for `.reg .b32 a, b;`, or none for `.loc`."""
        token = self.texts[self.at]
        if token == "{":
            body.append(Block(self.block()))
        elif token[0] == ".":
            self._directive(token, body)
        elif token == ";":
            self.at += 1
        elif token != "@" and self.texts[self.at + 1] == ":":
            self._label(body)
        else:
            body.append(self._instruction())

    # Instructions -------------------------------------------------------------------------------------

    def _instruction(self) -> Instruction:
        texts, start = self.texts, self.at
        guard = None
        if texts[start] == "@":
            self.at += 1
            negated = self.accept("!")
            guard = Guard(self._simple(), negated)
        opcode = texts[self.at]
        if not (opcode[:1].isalpha() or opcode[:1] == "_"):
            raise self.expected("an instruction")
        self.at += 1
        while texts[self.at][:1] == ".":  # parts set apart by white space
            opcode += texts[self.at]
            self.at += 1
        operands: list[Operand] = []
        if opcode.partition(".")[0] == "call":
            self._call(operands)
        elif texts[self.at] not in (";", ""):
            operands.append(self.operand())
            while texts[self.at] == ",":
                self.at += 1
                operands.append(self.operand())
        end = self.at
        self._end_of_instruction()
        tokens = self.tokens
        first = tokens.starts[start]
        last = tokens.starts[end - 1] + len(texts[end - 1])
        return Instruction(
            opcode,
            tuple(opcode.split(".")),
            tuple(operands),
            guard,
            tokens.line(first),
            self._loc,
            tokens.text[first:last],
        )

    def _end_of_instruction(self) -> None:
        if self.texts[self.at] == ";":
            self.at += 1
        elif not (self.template and self.texts[self.at] == ""):
            raise self.expected("';'")

    def _call(self, operands: list[Operand]) -> None:
        while True:
            if self.texts[self.at] == "(":
                operands.append(self.parenthesised())
            else:
                operands.append(self.operand())
            if not self.accept(","):
                return

    # Labels and the tables they name ------------------------------------------------------------------

    def _label(self, body: list[Statement]) -> None:
        line = self.tokens.line(self.tokens.starts[self.at])
        name = self.word("a label")
        self.take(":")
        kind = self.texts[self.at]
        if kind not in _TABLES:
            body.append(Label(name, line))
            return
        self.at += 1
        if kind == ".callprototype":
            items = self._prototype()
        else:
            names = [self.word("a label")]
            while self.accept(","):
                names.append(self.word("a label"))
            items = tuple(names)
        self.take(";")
        body.append(BranchTargets(kind[1:], name, items))

    def _prototype(self) -> tuple[str, ...]:
        items: list[str] = []
        while self.texts[self.at] not in (";", ""):
            if self.texts[self.at] == "(":
                words = []
                while not self.accept(")"):
                    if not self.texts[self.at]:
                        raise self.expected("')'")
                    words.append(self.texts[self.at])
                    self.at += 1
                items.append(" ".join(words) + " )")
            else:
                items.append(self.texts[self.at])
                self.at += 1
        return tuple(items)

    # Directives ---------------------------------------------------------------------------------------

    def _directive(self, token: str, body: list[Statement]) -> None:
        if token in VARIABLE_SPACES:
            self.variables(body)
        elif token == ".loc":
            self._location()
        elif token == ".file":
            self.file()
        elif token == ".pragma":
            self.at += 1
            self.string("a string")
            while self.accept(","):
                self.string("a string")
            self.take(";")
        else:
            raise self.fail(f"unknown directive {token!r}")

    def file(self) -> None:
        """`.file 1 "name", timestamp, size`."""
        self.at += 1
        index = self.integer("a file number")
        self.files[index] = self.string("a file name")
        while self.accept(","):
            self.integer("a number")

    def _location(self) -> None:
        self.at += 1
        place = self._place()
        outer: SourceLoc | None = None
        while self.accept(","):
            attribute = self.word("'function_name' or 'inlined_at'")
            if attribute == "function_name":
                self.word("a label")
                if self.accept("+"):
                    self.integer("an offset")
            elif attribute == "inlined_at":
                site = self._place()
                # An inlined call site that was itself inlined has a `.loc` of its own before this one.
                outer = self._places.get(site) or self._source_loc(site, None)
            else:
                raise self.fail(f"unknown attribute {attribute!r} of .loc", self.at - 1)
        self._loc = self._source_loc(place, outer)
        self._places[place] = self._loc

    def _place(self) -> tuple[int, int, int]:
        numbers: list[int] = []
        while len(numbers) < 3 and self.texts[self.at].isdigit():
            numbers.append(int(self.texts[self.at]))
            self.at += 1
        if len(numbers) < 2:
            raise self.expected("a file number and a line")
        return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0

    def _source_loc(self, place: tuple[int, int, int], outer: SourceLoc | None) -> SourceLoc:
        return SourceLoc(self.files.get(place[0], f"file {place[0]}"), place[1], place[2], outer)

    # Variables ----------------------------------------------------------------------------------------

    def variables(self, body: list[Statement], linkage: str = "") -> None:
        """`.space .align n .type name[…] = …, name;` appended as one declaration per name."""
        space = self.texts[self.at][1:].partition("::")[0]
        self.at += 1
        align, vector, type_ = 0, 1, ""
        while self.texts[self.at][:1] == ".":
            word = self.texts[self.at][1:]
            self.at += 1
            if word == "align":
                align = self.integer("an alignment")
            elif word in ("v2", "v4", "v8"):
                vector = int(word[1])
            elif word == "attribute":
                self._attribute()
            elif word in TYPE_BYTES or word == "pred":
                type_ = word
            else:
                raise self.fail(f"unknown type .{word}", self.at - 1)
        if not type_:
            raise self.expected("a type")
        while True:
            if space == "reg":
                body.append(self._register(type_, vector))
            else:
                body.append(self._variable(space, type_, align, vector, linkage))
            if not self.accept(","):
                break
        self.take(";")

    def _attribute(self) -> None:
        self.take("(")
        while not self.accept(")"):
            if not self.texts[self.at]:
                raise self.expected("')'")
            self.at += 1

    def declare(self, name: str) -> None:
        """Make `name` a register in the innermost scope."""
        if name[0] != "%":
            self.scopes[-1].add(name)

    def _register(self, type_: str, vector: int) -> RegDecl:
        name = self.word("a register name")
        count = None
        if self.accept("<"):
            digits = self.texts[self.at]
            if not digits.isdigit():
                raise self.expected("a count")
            count = int(digits)
            self.at += 1
            self.take(">")
            if count > 1 << 20:
                raise self.fail("bad register count", self.at - 2)
            if name[0] != "%":
                for i in range(count):
                    self.declare(f"{name}{i}")
        else:
            self.declare(name)
        return RegDecl(f"v{vector}.{type_}" if vector > 1 else type_, name, count)

    def dimensions(self) -> tuple[int, ...]:
        """`[4][8]`; 0 stands for `[]`."""
        found: list[int] = []
        while self.accept("["):
            found.append(0 if self.texts[self.at] == "]" else self.integer("a length"))
            self.take("]")
        if any(n < 0 for n in found):
            raise self.fail("negative array length", self.at - 1)
        return tuple(found)

    def _variable(self, space: str, type_: str, align: int, vector: int, linkage: str) -> VarDecl:
        if type_ == "pred":
            raise self.fail("predicates are registers only")
        name = self.word("a variable name")
        shape = self.dimensions()
        element = TYPE_BYTES[type_] * vector
        initial: tuple[int | float | str, ...] = ()
        if self.accept("="):
            inner = (*shape, vector) if vector > 1 else shape
            initial = tuple(self._initializer(inner))
            if shape and shape[0] == 0:
                shape = (-(-len(initial) // max(1, prod(inner[1:]))), *shape[1:])
        return VarDecl(
            space,
            name,
            type_,
            element * prod(shape),
            align or element,
            linkage == "extern",
            initial,
            vector,
            "" if linkage == "extern" else linkage,
        )

    def _initializer(self, shape: tuple[int, ...]) -> list[int | float | str]:
        """The elements row by row; a short inner row is filled up with zeros."""
        if not self.accept("{"):
            return [self._initial_value()]
        self._enter()
        items: list[int | float | str] = []
        inner = prod(shape[1:])
        while not self.accept("}"):
            part = self._initializer(shape[1:])
            if self.texts[self.at] not in (",", "}"):
                raise self.expected("',' or '}'")
            nested = self.texts[self.at - 1] == "}"
            items.extend(part + [0] * (inner - len(part)) if nested else part)
            self.accept(",")
        self._depth -= 1
        return items

    def _initial_value(self) -> int | float | str:
        token = self.texts[self.at]
        mask = ""
        if token[:1].isdigit() and self.texts[self.at + 1] == "(":  # a byte of an address: 0xFF00(name)
            mask = token
            self.at += 1
        elif token[:1].isdigit() or token in ("-", "+", "~", "!"):
            constant = self.constant()
            return constant.value if constant.bits is None else constant.bits
        elif token == "(":
            return self.constant().value
        text = f"{mask}({self._address()})" if mask and self.accept("(") else self._address()
        if mask:
            self.take(")")
        return text

    def _address(self) -> str:
        name = self.word("an address")
        if name == "generic" and self.accept("("):
            name = f"generic({self.word('a variable')})"
            self.take(")")
        offset = 0
        while self.texts[self.at] in ("+", "-"):
            sign = 1 if self.texts[self.at] == "+" else -1
            self.at += 1
            offset += sign * self.integer("an offset")
        return f"{name}+{offset}" if offset else name
