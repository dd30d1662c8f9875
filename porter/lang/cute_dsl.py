# SPDX-License-Identifier: Apache-2.0
"""Front end for CuTe DSL: a Python file as a syntax tree with byte spans and qualified names.

Names are resolved through imports and simple aliases with Python's scopes: `sm90_utils.make_smem_layout_a` is
`cutlass.utils.hopper_helpers.make_smem_layout_a` unless a parameter or a local of the same name is nearer. The bytes
of the file are kept beside the tree, which knows nothing of comments and white space.
"""

from __future__ import annotations

import ast
import bisect
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.text import LineIndex, Span

SUPPORT = "porter_dsl"
"""The module that stands beside a port and has the warpgroup MMAs of Hopper on sm_100a."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
ImportStatement = ast.Import | ast.ImportFrom
Placed = ast.expr | ast.stmt | ast.alias | ast.arg | ast.keyword | ast.excepthandler
"""Nodes that have a place in the source."""

_BREAK = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_TOKENS = re.compile(
    rb"""\#[^\r\n]*|(?P<quotes>'''|\"\"\")(?:[^\\]|\\.)*?(?P=quotes)"""
    rb"""|(?P<single>['"])(?:[^\\\r\n]|\\\r\n|\\.)*?(?P=single)""",
    re.DOTALL,
)
"""Comments and strings without their prefixes."""


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or stands below it."""
    return name == prefix or name.startswith(prefix + ".")


@dataclass(frozen=True)
class Dialect:
    """What is known of names before a file is read. `packages`: those whose names are looked for. `closed`: packages
    that are not read, with those. `through`: methods that, called without arguments, names go on behind:
    `Language.instance().target`. `words`: a file without any has nothing to edit but imports."""

    packages: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    words: tuple[bytes, ...] = ()


NO_DIALECT = Dialect()


@dataclass(frozen=True, eq=False)
class Binding:
    """A local name that stands for something imported: by an import (`alias` of `statement`), or by an assignment of a
    `value` that is itself a chain of names."""

    local: str
    target: str
    statement: ast.stmt
    alias: ast.alias | None = None
    value: Chain | None = None


@dataclass(eq=False)
class Scope:
    """A module, function, class, lambda or comprehension. A name bound to anything else than an import has None."""

    parent: Scope | None
    is_class: bool = False
    is_comprehension: bool = False
    names: dict[str, list[Binding | None]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    """Names of `global` and `nonlocal` statements."""

    def bind(self, name: str, binding: Binding | None) -> None:
        scope = self
        while scope.parent is not None and (name in scope.elsewhere or (scope.is_comprehension and binding is None)):
            if scope.is_comprehension and binding is None and name in scope.names:
                break
            scope = scope.parent
        scope.names.setdefault(name, []).append(binding)

    def find(self, name: str) -> list[Binding | None]:
        """What a name that is used here is bound to; empty if it is bound nowhere in the file."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                return scope.names[name]
            scope = scope.parent
        return []


@dataclass(frozen=True, eq=False)
class Chain:
    """A use of a name with the attributes behind it: `cute.nvgpu.warpgroup.fence`."""

    node: ast.expr
    base: ast.Name
    attributes: tuple[str, ...]
    scope: Scope


@dataclass(frozen=True, eq=False)
class Reference:
    """A chain that begins with an imported name. `binding` is None where the name comes from a star import."""

    chain: Chain
    name: str
    binding: Binding | None

    @property
    def base(self) -> str:
        """What the first name of the chain stands for."""
        return self.name.removesuffix("".join(f".{a}" for a in self.chain.attributes))


@dataclass(eq=False)
class DslFile:
    """One parsed file."""

    path: str
    source: bytes
    package: str = ""
    """What a relative import starts from."""
    dialect: Dialect = NO_DIALECT

    @functools.cached_property
    def module(self) -> ast.Module:
        return _tree(self.path, self.source)

    def forget(self) -> None:
        """Drop the tree, which is large; it is made again when it is asked for."""
        self.__dict__.pop("module", None)

    @functools.cached_property
    def _starts(self) -> list[int]:
        first = len(_BOM) if self.source.startswith(_BOM) else 0
        return [first, *(m.end() for m in _BREAK.finditer(self.source))]

    def span(self, node: Placed) -> Span:
        """The bytes of a node, without decorators."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return Span(start, max(start, self._starts[node.end_lineno - 1] + node.end_col_offset))

    def text(self, node: Placed) -> str:
        span = self.span(node)
        return self.source[span.start : span.end].decode("utf-8", "replace")

    def exact(self, chain: Chain) -> bool:
        """Whether the bytes at a chain's place are the chain: inside f-strings Python may say another place."""
        words = re.sub(r"#[^\r\n]*|[\s\\()]+", "", self.text(chain.node))
        return words == ".".join([chain.base.id, *chain.attributes]).replace("()", "")

    def location(self, span: Span) -> Location:
        return self.lines.location(self.path, span)

    @functools.cached_property
    def lines(self) -> LineIndex:
        return LineIndex(self.source)

    def line_start(self, offset: int) -> int:
        """The offset of the first byte of the line that holds `offset`."""
        return self._starts[max(bisect.bisect_right(self._starts, offset) - 1, 0)]

    def line_end(self, offset: int) -> int:
        """The offset of the line break that ends the line, or of the end of the file."""
        found = _BREAK.search(self.source, offset)
        return found.start() if found is not None else len(self.source)

    def line_break(self, offset: int) -> bytes:
        """The line break that lines around `offset` end with."""
        found = _BREAK.search(self.source, offset) or _BREAK.search(self.source)
        return found.group() if found is not None else b"\n"

    @functools.cached_property
    def regions(self) -> tuple[list[Span], list[Span], list[Span]]:
        """Contents of strings, comments, and the code between strings and comments."""
        strings: list[Span] = []
        comments: list[Span] = []
        code, at = [], 0
        for token in _TOKENS.finditer(self.source):
            code.append(Span(at, token.start()))
            at = token.end()
            quotes = len(token["quotes"] or token["single"] or b"")
            (strings if quotes else comments).append(Span(token.start() + quotes, token.end() - quotes))
        code.append(Span(at, len(self.source)))
        return strings, comments, code

    @functools.cached_property
    def import_statements(self) -> list[ImportStatement]:
        return [s for s in statements(self.module.body) if isinstance(s, (ast.Import, ast.ImportFrom))]

    def origin(self, statement: ast.ImportFrom) -> str:
        """The module that a `from` import names, in full."""
        if not statement.level:
            return statement.module or ""
        parts = self.package.split(".") if self.package else []
        kept = parts[: len(parts) - statement.level + 1] if statement.level <= len(parts) else []
        return ".".join([*(kept or ["." * statement.level]), *([statement.module] if statement.module else [])])

    def imported(self) -> Iterator[tuple[str, str]]:
        """Full and local name of everything that import statements list; `a.b` is both for `import a.b`."""
        for statement in self.import_statements:
            origin = f"{self.origin(statement)}." if isinstance(statement, ast.ImportFrom) else ""
            yield from ((origin + alias.name, alias.asname or alias.name) for alias in statement.names)

    @functools.cached_property
    def _read(self) -> _Reader:
        return _Reader(self)

    @property
    def scope(self) -> Scope:
        return self._read.top

    @property
    def strings(self) -> list[ast.Constant]:
        """Texts that are values, not documentation."""
        return self._read.strings

    @functools.cached_property
    def stars(self) -> list[str]:
        """Modules of `from … import *`."""
        found = [s for s in self.import_statements if isinstance(s, ast.ImportFrom)]
        return [self.origin(s) for s in found if s.names[0].name == "*"]

    def targets(self, chain: Chain, depth: int = 8) -> list[tuple[str, Binding | None]]:
        """What a chain may stand for, with the binding that its first name has."""
        bound = chain.scope.find(chain.base.id)
        found: list[tuple[str, Binding | None]] = []
        for binding in bound:
            if binding is not None and binding.value is None:
                found.append((binding.target, binding))
        if not found and len(bound) == 1 and bound[0] is not None and bound[0].value is not None and depth:
            found = [(name, bound[0]) for name, _ in self.targets(bound[0].value, depth - 1)]
        if not bound:
            found = [(f"{star}.{chain.base.id}", None) for star in self.stars]
        return [(".".join([name, *chain.attributes]), binding) for name, binding in found]

    @functools.cached_property
    def all_references(self) -> list[Reference]:
        """Every chain from an imported name, in source order."""
        found = [Reference(c, name, binding) for c in self._read.chains for name, binding in self.targets(c)]
        return sorted(found, key=lambda r: (r.chain.node.lineno, r.chain.node.col_offset))

    @functools.cached_property
    def _by_node(self) -> dict[ast.expr, str]:
        return {r.chain.node: r.name for r in self.all_references}

    def references(self) -> Iterator[tuple[ast.expr, str]]:
        """Every use of a name from the dialect's packages: the longest attribute chain and its full name."""
        for reference in self.all_references:
            if reference.name.partition(".")[0] in self.dialect.packages and reference.binding is not None:
                yield reference.chain.node, reference.name.partition("()")[0]

    def qualified(self, node: ast.expr) -> str | None:
        """The full name of a chain that begins with an imported name."""
        return self._by_node.get(node)

    @functools.cached_property
    def calls(self) -> dict[ast.expr, ast.Call]:
        """Every call by what it calls."""
        return {n.func: n for n in ast.walk(self.module) if isinstance(n, ast.Call)}

    def functions(self) -> Iterator[Function]:
        return (s for s in statements(self.module.body) if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)))

    def decorated(self, is_mark: Callable[[str], bool]) -> list[Function]:
        """Functions with a decorator, called or not, whose qualified name is a mark."""
        found = []
        for function in self.functions():
            for decorator in function.decorator_list:
                name = self.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
                if name is not None and is_mark(name):
                    found.append(function)
        return found


def is_documentation(statement: ast.stmt) -> bool:
    """Whether a statement is a text alone: at the top of a body, its documentation."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def statements(body: list[ast.stmt], nested: bool = True) -> Iterator[ast.stmt]:
    """All statements of a block and of the blocks in it, in source order. Not `nested`: without those of functions and
    classes that it defines."""
    stack = list(reversed(body))
    while stack:
        statement = stack.pop()
        yield statement
        if not nested and isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner: list[ast.stmt] = list(getattr(statement, "body", ()))
        inner += [s for handler in getattr(statement, "handlers", ()) for s in handler.body]
        inner += [s for case in getattr(statement, "cases", ()) for s in case.body]
        inner += [*getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())]
        stack.extend(reversed(inner))


class _Reader:
    """Scopes and chains of a file. Only names that some import or alias binds are looked at."""

    def __init__(self, file: DslFile) -> None:
        self.file = file
        self.top = Scope(None)
        self.chains: list[Chain] = []
        self.strings: list[ast.Constant] = []
        self.wanted = self._wanted()
        stack: list[tuple[ast.AST, Scope]] = [(s, self.top) for s in reversed(file.module.body)]
        while stack:
            node, scope = stack.pop()
            self._visit(node, scope, stack)

    def _wanted(self) -> set[str]:
        names: set[str] = set()
        for statement in self.file.import_statements:
            names |= {a.asname or a.name.partition(".")[0] for a in statement.names}
        if "*" in names:
            names |= {n.id for n in ast.walk(self.file.module) if isinstance(n, ast.Name)}
        found = [s for s in statements(self.file.module.body) if isinstance(s, ast.Assign)]
        through = self.file.dialect.through
        pairs = [(s.targets[0].id, s.value) for s in found if isinstance(s.targets[0], ast.Name)]
        aliases = [(name, got[0].id) for name, value in pairs if (got := _unwound(value, through)) is not None]
        grown = True
        while grown:
            new = {name for name, base in aliases if base in names} - names
            names |= new
            grown = bool(new)
        return names

    def _visit(self, node: ast.AST, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> None:
        special = _SPECIAL.get(type(node))
        if special is not None and special(self, node, scope, stack):
            return
        for part in _parts(node._fields):
            value = getattr(node, part, None)
            if isinstance(value, list):
                stack.extend((v, scope) for v in reversed(value) if isinstance(v, ast.AST))
            elif isinstance(value, ast.AST):
                stack.append((value, scope))

    def _name(self, node: ast.Name, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        if node.id in self.wanted:
            if isinstance(node.ctx, ast.Load):
                self.chains.append(Chain(node, node, (), scope))
            else:
                scope.bind(node.id, None)
        return True

    def _attribute(self, node: ast.Attribute, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        found = _unwound(node, self.file.dialect.through)
        if found is not None and found[0].id in self.wanted:
            self.chains.append(Chain(node, found[0], found[1], scope))
        return found is not None

    def _constant(self, node: ast.Constant, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        if isinstance(node.value, str):
            self.strings.append(node)
        return True

    def _expression(self, node: ast.Expr, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        return isinstance(node.value, ast.Constant)

    def _class(self, node: ast.ClassDef, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        self._ordinary(node.name, scope)
        inner = Scope(scope, is_class=True)
        stack.extend((s, inner) for s in reversed(node.body))
        stack.extend((s, scope) for s in (*node.bases, *node.keywords, *node.decorator_list))
        return True

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
        scope: Scope,
        stack: list[tuple[ast.AST, Scope]],
    ) -> bool:
        inner = Scope(scope, is_comprehension=True)
        for i, generator in enumerate(node.generators):
            for name in ast.walk(generator.target):
                if isinstance(name, ast.Name) and name.id in self.wanted:
                    inner.names.setdefault(name.id, []).append(None)
            stack.extend((s, inner) for s in generator.ifs)
            stack.append((generator.iter, inner if i else scope))
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        stack.extend((s, inner) for s in parts)
        return True

    def _elsewhere(self, node: ast.Global | ast.Nonlocal, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        scope.elsewhere.update(node.names)
        return True

    def _caught(
        self,
        node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping,
        scope: Scope,
        stack: list[tuple[ast.AST, Scope]],
    ) -> bool:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name:
            self._ordinary(name, scope)
        return False

    def _ordinary(self, name: str, scope: Scope) -> None:
        if name in self.wanted:
            scope.bind(name, None)

    def _function(self, node: Function | ast.Lambda, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        inner = Scope(scope)
        arguments = node.args
        everything = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        everything += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        for argument in everything:
            if argument.arg in self.wanted:
                inner.names.setdefault(argument.arg, []).append(None)
            if argument.annotation is not None:
                stack.append((argument.annotation, scope))
        stack.extend((d, scope) for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None)
        if isinstance(node, ast.Lambda):
            stack.append((node.body, inner))
            return True
        self._ordinary(node.name, scope)
        stack.extend((d, scope) for d in node.decorator_list)
        if node.returns is not None:
            stack.append((node.returns, scope))
        stack.extend((s, inner) for s in reversed(node.body))
        return True

    def _import(self, node: ImportStatement, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        for alias in node.names:
            if alias.name == "*":
                continue
            if isinstance(node, ast.ImportFrom):
                local, target = alias.asname or alias.name, f"{self.file.origin(node)}.{alias.name}"
            else:
                local = alias.asname or alias.name.partition(".")[0]
                target = alias.name if alias.asname else local
            scope.bind(local, Binding(local, target, node, alias))
        return True

    def _alias(self, node: ast.Assign, scope: Scope, stack: list[tuple[ast.AST, Scope]]) -> bool:
        """`nv = cute.nvgpu`: another name for something imported."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Name) or target.id not in self.wanted:
            return False
        found = _unwound(node.value, self.file.dialect.through)
        if found is None or found[0].id not in self.wanted or found[0].id == target.id:
            return False
        chain = Chain(node.value, found[0], found[1], scope)
        scope.bind(target.id, Binding(target.id, "", node, None, chain))
        stack.append((node.value, scope))
        return True


_SPECIAL: dict[type[ast.AST], Callable[..., bool]] = {
    ast.Name: _Reader._name,
    ast.Attribute: _Reader._attribute,
    ast.Constant: _Reader._constant,
    ast.Expr: _Reader._expression,
    ast.Assign: _Reader._alias,
    ast.ClassDef: _Reader._class,
    ast.Import: _Reader._import,
    ast.ImportFrom: _Reader._import,
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), _Reader._function),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), _Reader._comprehension),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _Reader._elsewhere),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Reader._caught),
}
"""What reads a node; where it says no, the node's parts are read."""


@functools.cache
def _parts(fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that hold expressions and statements, last one first."""
    return tuple(n for n in reversed(fields) if n not in ("ctx", "op", "ops", "attr", "arg", "type_comment"))


def _unwound(node: ast.expr, through: frozenset[str]) -> tuple[ast.Name, tuple[str, ...]] | None:
    """The name that a chain begins with and the attributes behind it."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and not node.args
            and not node.keywords
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in through
        ):
            parts.append(node.func.attr + "()")
            node = node.func.value
        elif isinstance(node, ast.Name):
            return node, tuple(reversed(parts))
        else:
            return None


def parse_dsl(path: str, source: bytes, package: str = "", dialect: Dialect = NO_DIALECT) -> DslFile:
    """Parse a Python file; the last ones are kept, as one command asks for the same file several times.

    Raises:
        PorterError: NOT_TEXT, DSL_UNREADABLE with the place of the syntax error.
    """
    return _parsed(path, source, package, dialect)


@functools.lru_cache(maxsize=2)
def _parsed(path: str, source: bytes, package: str, dialect: Dialect) -> DslFile:
    file = DslFile(path, source, package, dialect)
    assert file.module is not None
    return file


def _tree(path: str, source: bytes) -> ast.Module:
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PorterError(Code.NOT_TEXT, Location(path), path=path) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        where = Location(path, error.lineno or 1, error.offset or 1)
        raise PorterError(Code.DSL_UNREADABLE, where, path=path, problem=error.msg) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PorterError(Code.DSL_UNREADABLE, Location(path), path=path, problem=str(error)) from None


def read_dsl(path: Path, package: str = "", dialect: Dialect = NO_DIALECT) -> DslFile:
    """Raises what `parse_dsl` and `read_file` raise."""
    return parse_dsl(str(path), read_file(path), package, dialect)
