# SPDX-License-Identifier: Apache-2.0
"""Parser of whole PTX modules, as nvcc and the CuTe DSL emit them.

Source: PTX ISA 9.0, sections 4 (syntax), 7 (functions) and 11 (directives). DWARF sections are passed over;
`.loc` becomes the source position of the instructions behind it.
"""

from __future__ import annotations

from math import prod

from porter.ptx.ast import Function, Module, Param, Statement, VarDecl
from porter.ptx.lexer import PtxSyntaxError, Tokens
from porter.ptx.special import TYPE_BYTES
from porter.ptx.statements import VARIABLE_SPACES, Body

__all__ = ["PtxSyntaxError", "parse_module"]

_LINKAGE = (".visible", ".extern", ".weak", ".common")


def parse_module(text: str) -> Module:
    """The syntax tree of a PTX module.

    Raises:
        PtxSyntaxError: the text is not PTX. Unknown instructions are no error: see `porter.ptx.table`.
    """
    return _ModuleParser(Tokens(text)).module()


class _ModuleParser(Body):
    def module(self) -> Module:
        version: tuple[int, int] | None = None
        target, address_size = "", 32
        self._read_files()
        variables: list[Statement] = []
        functions: list[Function] = []
        texts = self.texts
        while texts[self.at]:
            token = texts[self.at]
            if token == ".version":
                self.at += 1
                version = self._version()
            elif token == ".target":
                self.at += 1
                target = self.word("a target")
                while self.accept(","):
                    self.word("a target option")
            elif token == ".address_size":
                self.at += 1
                address_size = self.integer("32 or 64")
            elif token == ".file":
                self.file()
            elif token == ".alias":
                self.at += 1
                self.word("a function")
                self.take(",")
                self.word("a function")
                self.take(";")
            elif token == ".pragma" or token == ".loc":
                self.statement([])
            else:
                self._declaration(variables, functions)
        if version is None or not target:
            raise self.fail("not a PTX module: .version or .target is missing", 0)
        return Module(
            version,
            target,
            address_size,
            tuple(v for v in variables if isinstance(v, VarDecl)),
            tuple(functions),
            self.files,
        )

    def _read_files(self) -> None:
        """nvcc names the files at the end of the module, behind the positions that need them."""
        for at, token in enumerate(self.texts):
            if token == ".file":
                self.at = at
                self.file()
        self.at = 0

    def _version(self) -> tuple[int, int]:
        major, dot, minor = self.texts[self.at].partition(".")
        if not (major.isdigit() and dot and minor.isdigit()):
            raise self.expected("a version")
        self.at += 1
        return int(major), int(minor)

    def _declaration(self, variables: list[Statement], functions: list[Function]) -> None:
        start = self.at
        linkage = ""
        if self.texts[self.at] in _LINKAGE:
            linkage = self.texts[self.at][1:]
            self.at += 1
        token = self.texts[self.at]
        if token in (".entry", ".func"):
            self.at += 1
            functions.append(self._function(token == ".entry", linkage, start))
        elif token in VARIABLE_SPACES:
            self.variables(variables, linkage)
        else:
            raise self.expected("a declaration")

    # Functions ----------------------------------------------------------------------------------------

    def _function(self, is_entry: bool, linkage: str, start: int) -> Function:
        self.begin_function()
        self.scopes.append(set())
        directives: dict[str, tuple[int, ...]] = {}
        if self.texts[self.at] == ".attribute":
            self.at += 1
            self._attribute()
        returns = self._params() if self.texts[self.at] == "(" else ()
        name = self.word("a function name")
        params = self._params() if self.texts[self.at] == "(" else ()
        while self.texts[self.at][:1] == ".":
            self._performance(directives)
        body = None
        if not self.accept(";"):
            body = self.block()
        self.scopes.pop()
        line = self.tokens.line(self.tokens.starts[start])
        return Function(name, is_entry, params, returns, body, directives, linkage, line)

    def _performance(self, directives: dict[str, tuple[int, ...]]) -> None:
        """`.maxntid 384, 1, 1` and the like; the numbers are kept, strings (`.pragma`) are not."""
        name = self.texts[self.at][1:]
        self.at += 1
        if name == "pragma":
            self.string("a string")
            while self.accept(","):
                self.string("a string")
            self.accept(";")
            return
        if name == "attribute":
            self._attribute()
            return
        numbers: list[int] = []
        if self.texts[self.at].isdigit():
            numbers.append(self.integer("a number"))
            while self.accept(","):
                numbers.append(self.integer("a number"))
        directives[name] = tuple(numbers)

    def _params(self) -> tuple[Param, ...]:
        self.take("(")
        found: list[Param] = []
        while not self.accept(")"):
            found.append(self._param())
            if self.texts[self.at] != ")":
                self.take(",")
        return tuple(found)

    def _param(self) -> Param:
        if self.texts[self.at] not in (".param", ".reg"):
            raise self.expected("'.param'")
        space = self.texts[self.at][1:]
        self.at += 1
        align, type_, vector = 0, "", 1
        is_pointer, pointer_space, pointer_align = False, "", 0
        while self.texts[self.at][:1] == ".":
            word = self.texts[self.at][1:]
            self.at += 1
            if word == "align":
                value = self.integer("an alignment")
                if is_pointer:
                    pointer_align = value
                else:
                    align = value
            elif word == "ptr":
                is_pointer = True
            elif is_pointer and word in ("global", "shared", "const", "local"):
                pointer_space = word
            elif word in ("v2", "v4"):
                vector = int(word[1])
            elif word in TYPE_BYTES or word == "pred":
                type_ = word
            else:
                raise self.fail(f"unknown parameter attribute .{word}", self.at - 1)
        if not type_:
            raise self.expected("a type")
        name = self.word("a parameter name")
        if space == "reg":
            self.declare(name)
        element = TYPE_BYTES.get(type_, 1) * vector
        size = element * prod(self.dimensions())
        return Param(name, type_, size, align or element, is_pointer, space, pointer_space, pointer_align)
