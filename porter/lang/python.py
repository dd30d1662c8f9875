# SPDX-License-Identifier: Apache-2.0
"""Python as libcst reads it: trees with places in bytes, what expressions are written as, and what they come to.

libcst holds all that CPython does, and white space besides. It visits by recursion and makes each node anew, so nodes
are walked here by their fields; its providers are asked for places and scopes alone, once a file.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import (
    ByteSpanPositionProvider,
    CodeSpan,
    ComprehensionScope,
    MetadataWrapper,
    Scope,
    ScopeProvider,
)

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.python_text import at_work, check_python, parse_expression, parse_python
from porter.lang.text import MARK, LineIndex, Span

_LAYOUT = frozenset({
    "lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "semicolon", "dot", "equal", "colon", "header",
    "footer", "leading_lines", "lines_after_decorators", "lines_after_module_docstring", "trailing_whitespace",
    "asynchronous", "first_colon", "second_colon", "operator", "relative", "attr", "keyword", "posonly_ind",
    "separator",
})  # fmt: skip
"""Fields that hold no expressions and statements."""
_NAMED: dict[type[cst.CSTNode], frozenset[str]] = {
    **dict.fromkeys((cst.FunctionDef, cst.ClassDef, cst.Param, cst.NameItem), frozenset({"name"})),
    **dict.fromkeys((cst.MatchAs, cst.MatchStar, cst.ExceptHandler, cst.ExceptStarHandler), frozenset({"name"})),
    **dict.fromkeys((cst.TypeVar, cst.TypeVarTuple, cst.ParamSpec), frozenset({"name"})),
    cst.ImportAlias: frozenset({"name", "asname"}),
    cst.ImportFrom: frozenset({"module"}),
    cst.MatchMapping: frozenset({"rest"}),
    cst.MatchKeywordElement: frozenset({"key"}),
}
"""Fields with names that are no expressions."""

CONSTANTS = {"True": True, "False": False, "None": None}
_Node = TypeVar("_Node", bound=cst.CSTNode)
Statement = cst.BaseSmallStatement | cst.BaseCompoundStatement
ImportStatement = cst.Import | cst.ImportFrom
Body = cst.BaseSuite | cst.Module


@functools.cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    skipped = _LAYOUT | _NAMED.get(kind, frozenset())
    names = [f.name for f in dataclasses.fields(kind)]
    return tuple(n for n in names if n not in skipped and not n.startswith("whitespace"))


def parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The expressions, patterns and statements that a node is made of. A `Name` among them is a variable, or one of
    `CONSTANTS`."""
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (v for v in value if isinstance(v, cst.CSTNode))


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all in it; what is around comes first."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(parts(node))))


def statements(body: Body, nested: bool = True) -> Iterator[Statement]:
    """All statements of a block and of the blocks in it, in source order. Not `nested`: without those of functions and
    classes that it defines."""
    for line in body.body:
        if isinstance(line, cst.SimpleStatementLine):
            yield from line.body
        elif isinstance(line, cst.BaseSmallStatement):
            yield line
        elif isinstance(line, cst.BaseCompoundStatement):
            yield from _compound(line, nested)


def own_statements(body: Body) -> list[Statement]:
    """The statements of a block alone."""
    lines: Sequence[Any] = body.body
    return [s for line in lines for s in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])]


def _compound(statement: cst.BaseCompoundStatement, nested: bool) -> Iterator[Statement]:
    pending: list[cst.CSTNode | None] = [statement]
    while pending:
        one = pending.pop()
        if isinstance(one, cst.BaseCompoundStatement):
            yield one
        if one is None or (not nested and isinstance(one, (cst.FunctionDef, cst.ClassDef))):
            continue
        if isinstance(body := getattr(one, "body", None), cst.BaseSuite):
            yield from statements(body, nested)
        behind = [*getattr(one, "cases", ()), *getattr(one, "handlers", ())]
        pending += reversed([*behind, getattr(one, "orelse", None), getattr(one, "finalbody", None)])


def is_documentation(statement: Statement) -> bool:
    """Whether a statement is a text alone: at the top of a body, its documentation."""
    return isinstance(statement, cst.Expr) and isinstance(value_of(statement.value), str)


@dataclass(eq=False)
class PythonFile:
    """A Python file with its tree.

    Raises:
        PorterError: NOT_TEXT, DSL_UNREADABLE with the place of the syntax error, where the tree is asked for.
    """

    path: str
    source: bytes

    @functools.cached_property
    def _tree(self) -> Tree:
        with self._named():
            return self._made()

    def _made(self) -> Tree:
        return read_tree(self.source)

    @functools.cached_property
    def _places(self) -> _Places:
        with self._named():
            return self._tree.places

    @functools.cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, Scope]:
        with self._named():
            return self._tree.scopes

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Problems get the file's name."""
        try:
            yield
        except UnicodeDecodeError:
            raise PorterError(Code.NOT_TEXT, Location(self.path), path=self.path) from None
        except SyntaxError as error:
            where = Location(self.path, error.lineno or 1, error.offset or 1)
            raise PorterError(Code.DSL_UNREADABLE, where, path=self.path, problem=error.msg) from None
        except (ValueError, RecursionError, MemoryError, NotImplementedError) as error:
            raise PorterError(Code.DSL_UNREADABLE, Location(self.path), path=self.path, problem=str(error)) from None

    @property
    def module(self) -> cst.Module:
        return self._tree.module

    def __getstate__(self) -> dict[str, Any]:
        """Another process makes its own tree: what is deep cannot be handed over."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def forget(self) -> None:
        """Drop the tree, which is large; it is made again when it is asked for."""
        for part in ("_tree", "_places", "_scopes"):
            self.__dict__.pop(part, None)

    def span(self, node: cst.CSTNode) -> Span:
        """The bytes of a node, without decorators, and without parentheses around it unless they make it a tuple or a
        generator."""
        return self._places.span(node)

    def text(self, node: cst.CSTNode) -> str:
        span = self.span(node)
        return self.source[span.start : span.end].decode("utf-8", "replace")

    def nodes(self, *kinds: type[_Node]) -> list[_Node]:
        """All nodes of some kinds, comments and white space among them, in no order."""
        return [n for n in self._places.spans if isinstance(n, kinds)]

    def line(self, node: cst.CSTNode) -> int:
        """The line, from 1, on which a node begins."""
        return self.lines.line_column(self.span(node).start)[0]

    def location(self, span: Span) -> Location:
        return self.lines.location(self.path, span)

    @functools.cached_property
    def lines(self) -> LineIndex:
        return LineIndex(self.source)

    @property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """What each node is a part of."""
        return self._tree.parents

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a node is a part of, the nearest first."""
        while (found := self.parents.get(node)) is not None:
            yield (node := found)

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """The scope that names in a node are looked for in first."""
        scopes = self._scopes
        return next(found for n in (node, *self.above(node)) if (found := scopes.get(n)) is not None)

    def is_set(self, name: cst.CSTNode) -> bool:
        """Whether a variable is given a value here, or is deleted."""
        child = name
        for node in self.above(name):
            if not isinstance(node, (cst.Tuple, cst.List, cst.Element, cst.StarredElement)):
                return getattr(node, "target", None) is child or isinstance(node, cst.AsName)
            child = node
        return False


@dataclass(eq=False)
class _Places:
    """Where nodes stand. `dropped`: offsets of what the tree does not have, form feeds in front of statements."""

    spans: Mapping[cst.CSTNode, CodeSpan]
    first: int
    dropped: list[int]

    def span(self, node: cst.CSTNode) -> Span:
        found = self.spans[node]
        start, end = found.start, found.start + found.length
        if isinstance(node, (cst.Tuple, cst.GeneratorExp)) and node.lpar:
            last = self.spans[node.rpar[0]]
            start, end = self.spans[node.lpar[-1]].start, last.start + last.length
        start = self._offset(start, False)
        return Span(start, max(start, self._offset(end, True)))

    def _offset(self, at: int, is_end: bool) -> int:
        passed = 0
        while passed < len(self.dropped) and self.dropped[passed] < at + passed + (not is_end):
            passed += 1
        return self.first + at + passed


@dataclass(eq=False)
class Tree:
    """The tree of a text, with what is known of it."""

    source: bytes
    module: cst.Module
    wrapper: MetadataWrapper

    @functools.cached_property
    def places(self) -> _Places:
        first = len(MARK) if self.source.startswith(MARK) else 0
        given = self.source[first:]
        with at_work():
            spans = self.wrapper.resolve(ByteSpanPositionProvider)
        dropped = _dropped(given, self.module) if spans[self.module].length != len(given) else []
        return _Places(spans, first, dropped)

    @functools.cached_property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        return {child: node for node in walk(self.module) for child in parts(node)}

    @functools.cached_property
    def scopes(self) -> Mapping[cst.CSTNode, Scope]:
        with at_work():
            resolved = self.wrapper.resolve(ScopeProvider)
        found = {node: scope for node, scope in resolved.items() if isinstance(scope, Scope)}
        for node in walk(self.module):
            # what ScopeProvider takes for uses, and a walrus that it leaves in its comprehension
            for name in _set_by(node):
                scope = found[node]
                while isinstance(scope, ComprehensionScope):
                    scope = scope.parent
                scope.record_assignment(name.value, node)
        return found


def _set_by(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Names that a pattern, a walrus or `del` sets."""
    found: list[Any] = []
    if isinstance(node, (cst.MatchAs, cst.MatchStar)):
        found = [node.name]
    elif isinstance(node, cst.MatchMapping):
        found = [node.rest]
    elif isinstance(node, cst.NamedExpr):
        found = [node.target]
    elif isinstance(node, cst.Del):
        found = [
            n.value if isinstance(n, cst.BaseElement) else n for n in getattr(node.target, "elements", [node.target])
        ]
    yield from (n for n in found if isinstance(n, cst.Name))


@functools.lru_cache(maxsize=4)
def read_tree(source: bytes) -> Tree:
    """The tree of a text; the last ones are kept, as one command asks for the same file several times. Raises
    UnicodeDecodeError, and what `parse_python` raises."""
    wrapper = MetadataWrapper(parse_python(source.decode("utf-8-sig")), unsafe_skip_copy=True)
    return Tree(source, wrapper.module, wrapper)


def problem_of(source: bytes) -> str:
    """What is wrong with a text that is no Python; empty for one that is."""
    try:
        check_python(source.decode("utf-8-sig"))
    except SyntaxError as error:
        return error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return ""


def _dropped(given: bytes, module: cst.Module) -> list[int]:
    with at_work():
        kept = module.code.encode()
    found, at = [], 0
    for offset in range(len(given)):
        if at < len(kept) and given[offset] == kept[at]:
            at += 1
        else:
            found.append(offset)
    if at < len(kept):
        raise ValueError("libcst does not give back what it read")
    return found


def python_module(source: bytes) -> PythonFile | None:
    """A text with its tree; None if it is no Python."""
    file = PythonFile("", source)
    try:
        assert file.module is not None
    except PorterError:
        return None
    return file


# expressions

_WRITTEN = frozenset({"attr", "keyword", "operator", "posonly_ind", "asynchronous"})
_CLOSED = (
    cst.Name,
    cst.Attribute,
    cst.Call,
    cst.Subscript,
    cst.List,
    cst.Dict,
    cst.Set,
    cst.BaseNumber,
    cst.BaseString,
)
"""Expressions that need no parentheses anywhere."""
_NO_SPACE = cst.SimpleWhitespace("")


def is_closed(node: cst.CSTNode) -> bool:
    """Whether no operator can bind to a part of an expression."""
    return isinstance(node, _CLOSED)


def spelled(node: cst.CSTNode) -> str:
    """An expression on one line, with single quotes and the usual white space and numbers."""
    made = _usual(node)
    if isinstance(made, cst.BaseExpression) and not isinstance(made, (cst.Tuple, cst.GeneratorExp)):
        made = made.with_changes(lpar=(), rpar=())
    with at_work():
        return cst.Module([]).code_for_node(made).strip()


def _usual(node: Any) -> Any:
    """A node with the white space and quotes that are the usual ones."""
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString, cst.BaseNumber)):
        value = value_of(node)
        made: Any = type(node) if isinstance(node, cst.BaseNumber) else cst.SimpleString
        return made(repr(value)) if value is not None else node
    if isinstance(node, cst.BaseString):
        return node.with_changes(lpar=(), rpar=())
    given: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "equal" and isinstance(value, cst.AssignEqual):
            given["equal"] = cst.AssignEqual(_NO_SPACE, _NO_SPACE)
        elif field.name == "slice" and isinstance(node, cst.Subscript) and len(value) == 1:
            given["slice"] = [_usual(value[0]).with_changes(comma=value[0].comma)]
        elif field.name in ("lpar", "rpar"):
            if not isinstance(node, (cst.Tuple, cst.GeneratorExp)):
                given[field.name] = [type(p)() for p in value[:1] if not is_closed(node)]
        elif field.name in _WRITTEN or not (field.name in _LAYOUT or field.name.startswith("whitespace")):
            if isinstance(value, (list, tuple)):
                given[field.name] = [_usual(v) for v in value]
            else:
                given[field.name] = _usual(value) if isinstance(value, cst.CSTNode) else value
    return type(node)(**given)


def value_of(node: cst.CSTNode, otherwise: Any = None) -> Any:
    """What a literal stands for, made of others or not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _value(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, AttributeError):
        return otherwise


def _value(node: Any) -> Any:
    match node:
        case cst.Integer() | cst.Float() | cst.Imaginary() | cst.SimpleString() | cst.ConcatenatedString():
            value = node.evaluated_value
            if value is None:
                raise ValueError("a format string")
            return value
        case cst.Name(value="True" | "False" | "None" as word):
            return CONSTANTS[word]
        case cst.UnaryOperation(operator=cst.Minus(), expression=cst.BaseNumber() as number):
            return -_value(number)
        case cst.Tuple() | cst.List() | cst.Set():
            values = element_values(node)
            kind = {cst.Tuple: tuple, cst.List: list, cst.Set: set}[type(node)]
            if values is not None:
                return kind([_value(v) for v in values])
        case cst.Dict(elements=elements):
            pairs = [(e.key, e.value) for e in elements if isinstance(e, cst.DictElement)]
            if len(pairs) == len(elements):
                return {_value(k): _value(v) for k, v in pairs}
    raise ValueError("no literal")


def pieces(node: cst.CSTNode) -> Iterator[str | cst.CSTNode]:
    """The texts of a literal, and the expressions between them."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, cst.ConcatenatedString):
            pending += [one.right, one.left]
        elif isinstance(one, cst.FormattedString):
            raw = "r" if "r" in one.prefix.lower() else ""
            for part in one.parts:
                if isinstance(part, cst.FormattedStringText):
                    text = part.value.replace("{{", "{").replace("}}", "}")
                    yield str(value_of(cst.SimpleString(f"{raw}{one.quote}{text}{one.quote}"), ""))
                else:
                    yield part
        elif isinstance(value := value_of(one), str):
            yield value


def element_values(node: cst.CSTNode) -> list[cst.BaseExpression] | None:
    """What a list, tuple or set is made of; None for all else, and for one with parts of others."""
    if not isinstance(node, (cst.Tuple, cst.List, cst.Set)):
        return None
    found = [e.value for e in node.elements if isinstance(e, cst.Element)]
    return found if len(found) == len(node.elements) else None


def number_of(text: str) -> int | None:
    """What a text stands for, if that is an integer."""
    try:
        value = value_of(parse_expression(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def called(call: cst.Call) -> str:
    """The last step of the name of what is called; empty if it has none."""
    func = call.func
    return func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""


def dotted(node: cst.CSTNode | None) -> str:
    """A chain of names, as imports write it: `a.b.c`."""
    if isinstance(node, cst.Attribute):
        return f"{dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""
