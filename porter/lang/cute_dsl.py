# SPDX-License-Identifier: Apache-2.0
"""Front end for CuTe DSL: a Python file as a syntax tree with byte spans and qualified names.

Names are resolved through imports and simple aliases with Python's scopes: `sm90_utils.make_smem_layout_a` is
`cutlass.utils.hopper_helpers.make_smem_layout_a` unless a parameter or a local of the same name is nearer.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import Assignment, ImportAssignment, Scope

from porter.diagnostics import PorterError
from porter.diagnostics.python_text import check_python
from porter.diagnostics.reading import read_file
from porter.lang.folding import Folded, folded
from porter.lang.python import (
    CONSTANTS,
    ImportStatement,
    PythonFile,
    Statement,
    Tree,
    dotted,
    is_documentation,
    parts,
    pieces,
    read_tree,
    statements,
    walk,
)
from porter.lang.text import MARK, Span

SUPPORT = "porter_dsl"
"""The module that stands beside a port and has the warpgroup MMAs of Hopper on sm_100a."""

Function = cst.FunctionDef

_CHAIN = re.compile(rb"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_BREAK = re.compile(rb"\r\n|\r|\n")


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or stands below it."""
    return name == prefix or name.startswith(prefix + ".")


@dataclass(frozen=True)
class Dialect:
    """What is known of names before a file is read. `packages`: those whose names are looked for. `closed`: packages
    that are not read, with those. `through`: methods that, called without arguments, names go on behind:
    `Language.instance().target`. `steps`: names that rules are for have one of them, in full; a file without any has
    nothing to edit but imports, and names that it imports from one that has."""

    packages: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    steps: tuple[bytes, ...] = ()


NO_DIALECT = Dialect()


@dataclass(frozen=True, eq=False)
class Binding:
    """A local name that stands for something imported: by an import (`alias` of `statement`), or by an assignment of a
    `value` that is itself a chain of names."""

    local: str
    target: str
    statement: Statement
    alias: cst.ImportAlias | None = None
    value: Chain | None = None


@dataclass(frozen=True, eq=False)
class Chain:
    """A use of a name with the attributes behind it: `cute.nvgpu.warpgroup.fence`."""

    node: cst.BaseExpression
    base: cst.Name
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
class DslFile(PythonFile):
    """One parsed file."""

    package: str = ""
    """What a relative import starts from."""
    dialect: Dialect = NO_DIALECT
    excerpt: bool = False
    """Whether long stretches of generated lines without the dialect's steps may be left out of the tree."""
    stretches: tuple[Span, ...] = ()
    """Those that are."""

    def _made(self) -> Tree:
        found = folded(self.source, self.dialect.steps) if self.excerpt else None
        if found is not None:
            check_python(self.source.decode("utf-8-sig"))
            part = DslFile(self.path, found.text, self.package, self.dialect)
            if part._stands_for(found):
                self.stretches = found.stretches
                return part._tree
        return read_tree(self.source)

    def _stands_for(self, found: Folded) -> bool:
        """Whether nothing that is asked for is in the stretches, of which this is the rest."""
        try:
            around = {self.span(n).start: list(self.above(n)) for n in self.nodes(cst.Ellipsis)}
        except PorterError:
            return False
        for above in (around.get(s.start, []) for s in found.stretches):
            kinds = [type(n) for n in above]
            if kinds[:2] != [cst.Expr, cst.SimpleStatementLine] or cst.FunctionDef not in kinds:
                return False
        for full, local in self.imported():
            bound = local.partition(".")[0]
            worded = any(step.decode() in full for step in self.dialect.steps)
            asked = worded or bound != local or full.partition(".")[0] not in self.dialect.packages
            if bound in (found.names if asked else found.set_names):
                return False
        aliases = (self._alias(s) for s in statements(self.module) if isinstance(s, cst.Assign))
        others = {a[0] for a in aliases if a is not None and a[1].value in self._wanted}
        return not self.stars and not others & found.names

    @functools.cached_property
    def _starts(self) -> list[int]:
        first = len(MARK) if self.source.startswith(MARK) else 0
        return [first, *(m.end() for m in _BREAK.finditer(self.source))]

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
        literals = [(n, self.span(n)) for n in self.nodes(cst.SimpleString, cst.FormattedString)]
        strings: list[Span] = []
        comments = [self.span(n) for n in self.nodes(cst.Comment)]
        code, at = [], 0
        for span, node in sorted([*((s, n) for n, s in literals), *((s, None) for s in comments)], key=lambda f: f[0]):
            if span.start < at:
                # inside of a format string
                continue
            code.append(Span(at, span.start))
            at = span.end
            if node is not None:
                strings.append(Span(span.start + len(node.prefix) + len(node.quote), span.end - len(node.quote)))
        code.append(Span(at, len(self.source)))
        return strings, comments, code

    @functools.cached_property
    def import_statements(self) -> list[ImportStatement]:
        return [s for s in statements(self.module) if isinstance(s, (cst.Import, cst.ImportFrom))]

    def origin(self, statement: cst.ImportFrom) -> str:
        """The module that a `from` import names, in full."""
        module, level = dotted(statement.module), len(statement.relative)
        if not level:
            return module
        parts = self.package.split(".") if self.package else []
        kept = parts[: len(parts) - level + 1] if level <= len(parts) else []
        return ".".join([*(kept or ["." * level]), *([module] if module else [])])

    def imported(self) -> Iterator[tuple[str, str]]:
        """Full and local name of everything that import statements list; `a.b` is both for `import a.b`."""
        for statement in self.import_statements:
            origin = f"{self.origin(statement)}." if isinstance(statement, cst.ImportFrom) else ""
            yield from ((origin + name, local or name) for name, local in listed(statement))

    def words_in(self, node: cst.CSTNode) -> Iterator[str]:
        """The names and attributes that a part of the file mentions."""
        for one in walk(node):
            if isinstance(one, (cst.Name, cst.Attribute)):
                yield one.value if isinstance(one, cst.Name) else one.attr.value
        for span in self.stretches:
            if self.span(node).contains(span):
                yield from re.findall(r"[A-Za-z_]\w*", self.source[span.start : span.end].decode())

    @property
    def strings(self) -> Iterator[tuple[cst.CSTNode, str]]:
        """Texts that are values, not documentation, each with the literal that it stands in."""
        stack: list[cst.CSTNode] = [self.module]
        while stack:
            node = stack.pop()
            if isinstance(node, cst.BaseString):
                found = list(pieces(node))
                joined = itertools.groupby(found, lambda p: isinstance(p, str))
                yield from ((node, "".join(map(str, texts))) for is_text, texts in joined if is_text)
                stack += [p for p in reversed(found) if not isinstance(p, str)]
            elif not (isinstance(node, cst.Expr) and is_documentation(node)):
                stack += reversed(list(parts(node)))

    @functools.cached_property
    def stars(self) -> list[str]:
        """Modules of `from … import *`."""
        found = [s for s in self.import_statements if isinstance(s, cst.ImportFrom)]
        return [self.origin(s) for s in found if isinstance(s.names, cst.ImportStar)]

    # names

    @functools.cached_property
    def _wanted(self) -> dict[str, None]:
        """Names that some import or alias binds, in order."""
        locals_ = (local or name.partition(".")[0] for s in self.import_statements for name, local in listed(s))
        names = dict.fromkeys(n for n in locals_ if n != "*")
        if self.stars:
            used = (n.value for n in walk(self.module) if isinstance(n, cst.Name))
            names |= dict.fromkeys(n for n in used if n not in CONSTANTS)
        pairs = [(s, self._alias(s)) for s in statements(self.module) if isinstance(s, cst.Assign)]
        grown = True
        while grown:
            new = {n[0]: None for _, n in pairs if n is not None and n[1].value in names and n[0] not in names}
            names |= new
            grown = bool(new)
        return names

    def _alias(self, statement: cst.Assign) -> tuple[str, cst.Name, tuple[str, ...]] | None:
        """The name that `nv = cute.nvgpu` sets, and the chain that it is another name for."""
        target, found = statement.targets[0].target, _unwound(statement.value, self.dialect.through)
        return (target.value, *found) if isinstance(target, cst.Name) and found is not None else None

    @functools.cached_property
    def _bound(self) -> dict[tuple[Scope, str], list[Binding | None]]:
        return {}

    def bound(self, name: str, scope: Scope | None = None) -> list[Binding | None]:
        """What a name is bound to that is used in a scope, of the module if none is given: None by anything else than
        an import or an alias. Empty if it is bound nowhere in the file."""
        scope = scope if scope is not None else self.scope_of(self.module)
        found = [a for a in scope[name] if isinstance(a, Assignment)] if name in self._wanted else []
        if not found:
            return []
        at_home = (found[0].scope, name)
        if at_home not in self._bound:
            found.sort(key=lambda a: self.span(a.node).start)
            self._bound[at_home] = [self._binding(a) for a in found]
        return self._bound[at_home]

    def _binding(self, assignment: Assignment) -> Binding | None:
        node, local = assignment.node, assignment.name
        if isinstance(assignment, ImportAssignment) and isinstance(node, ImportStatement):
            own = assignment.as_name
            alias = next(a for a in aliases(node) if own is (a.asname.name if a.asname is not None else a.name))
            name = dotted(alias.name)
            if isinstance(node, cst.ImportFrom):
                return Binding(local, f"{self.origin(node)}.{name}", node, alias)
            return Binding(local, name if alias.asname is not None else local, node, alias)
        statement = next(itertools.islice(self.above(node), 1, None), None)
        found = self._alias(statement) if isinstance(statement, cst.Assign) and len(statement.targets) == 1 else None
        if found is None or found[0] != local or found[1].value not in self._wanted or found[1].value == local:
            return None
        assert isinstance(statement, cst.Assign)
        return Binding(local, "", statement, None, Chain(statement.value, found[1], found[2], self.scope_of(found[1])))

    @property
    def bindings(self) -> Iterator[Binding]:
        """What names of the module itself are bound to."""
        return (b for name in self._wanted for b in self.bound(name) if b is not None)

    def targets(self, chain: Chain, depth: int = 8) -> list[tuple[str, Binding | None]]:
        """What a chain may stand for, with the binding that its first name has."""
        bound = self.bound(chain.base.value, chain.scope)
        found: list[tuple[str, Binding | None]] = []
        for binding in bound:
            if binding is not None and binding.value is None:
                found.append((binding.target, binding))
        if not found and len(bound) == 1 and bound[0] is not None and bound[0].value is not None and depth:
            found = [(name, bound[0]) for name, _ in self.targets(bound[0].value, depth - 1)]
        if not bound:
            found = [(f"{star}.{chain.base.value}", None) for star in self.stars]
        return [(".".join([name, *chain.attributes]), binding) for name, binding in found]

    def _chains(self) -> Iterator[Chain]:
        """The longest chains that begin with a wanted name."""
        stack: list[cst.CSTNode] = [self.module] if self._wanted else []
        while stack:
            node = stack.pop()
            found = _unwound(node, self.dialect.through) if isinstance(node, (cst.Name, cst.Attribute)) else None
            if found is None or not isinstance(node, cst.BaseExpression):
                stack += parts(node)
            elif found[0].value in self._wanted and not (found[0] is node and self.is_set(node)):
                yield Chain(node, *found, self.scope_of(found[0]))

    @functools.cached_property
    def all_references(self) -> list[Reference]:
        """Every chain from an imported name, in source order."""
        found = [Reference(c, name, binding) for c in self._chains() for name, binding in self.targets(c)]
        return sorted(found, key=lambda r: self.span(r.chain.node).start)

    @functools.cached_property
    def _by_node(self) -> dict[cst.CSTNode, str]:
        return {r.chain.node: r.name for r in self.all_references}

    def references(self) -> Iterator[tuple[cst.BaseExpression, str]]:
        """Every use of a name from the dialect's packages: the longest attribute chain and its full name."""
        for reference in self.all_references:
            if reference.name.partition(".")[0] in self.dialect.packages and reference.binding is not None:
                yield reference.chain.node, reference.name.partition("()")[0]

    def named_places(self) -> list[tuple[Span, str]]:
        """Where `references` are, those in stretches too, in source order."""
        found = [(self.span(node), name) for node, name in self.references()]
        stretches = {s.start: s for s in self.stretches}
        for node in self.nodes(cst.Ellipsis) if stretches else ():
            span = stretches.get(self.span(node).start, Span(0, 0))
            scope = self.scope_of(node)
            for match in _CHAIN.finditer(self.source, span.start, span.end):
                base, *attributes = match.group().decode().split(".")
                targets = self.targets(Chain(node, cst.Name(base), tuple(attributes), scope))
                found += ((Span(*match.span()), name) for name, _ in targets)
        return sorted(found, key=lambda f: f[0].start)

    def qualified(self, node: cst.BaseExpression) -> str | None:
        """The full name of a chain that begins with an imported name."""
        return self._by_node.get(node)

    @functools.cached_property
    def calls(self) -> dict[cst.BaseExpression, cst.Call]:
        """Every call by what it calls."""
        return {n.func: n for n in walk(self.module) if isinstance(n, cst.Call)}

    def functions(self) -> Iterator[Function]:
        return (s for s in statements(self.module) if isinstance(s, cst.FunctionDef))

    def decorated(self, is_mark: Callable[[str], bool]) -> list[Function]:
        """Functions with a decorator, called or not, whose qualified name is a mark."""
        found = []
        for function in self.functions():
            for decorator in (d.decorator for d in function.decorators):
                name = self.qualified(decorator.func if isinstance(decorator, cst.Call) else decorator)
                if name is not None and is_mark(name):
                    found.append(function)
        return found


def aliases(statement: ImportStatement) -> Sequence[cst.ImportAlias]:
    """What an import lists; nothing for `*`."""
    return () if isinstance(statement.names, cst.ImportStar) else statement.names


def listed(statement: ImportStatement) -> list[tuple[str, str]]:
    """What an import lists, `*` too, each with the name that it gets here; that is empty where none is written."""
    if isinstance(statement.names, cst.ImportStar):
        return [("*", "")]
    return [(dotted(a.name), a.evaluated_alias or "") for a in statement.names]


def _unwound(node: cst.CSTNode, through: frozenset[str]) -> tuple[cst.Name, tuple[str, ...]] | None:
    """The name that a chain begins with and the attributes behind it."""
    steps: list[str] = []
    while True:
        if isinstance(node, cst.Attribute):
            steps.append(node.attr.value)
            node = node.value
        elif (
            isinstance(node, cst.Call)
            and not node.args
            and isinstance(node.func, cst.Attribute)
            and node.func.attr.value in through
        ):
            steps.append(node.func.attr.value + "()")
            node = node.func.value
        elif isinstance(node, cst.Name):
            return node, tuple(reversed(steps))
        else:
            return None


def parse_dsl(
    path: str, source: bytes, package: str = "", dialect: Dialect = NO_DIALECT, excerpt: bool = False
) -> DslFile:
    """Parse a Python file, or an excerpt; the last ones are kept, as one command asks for the same file several times.

    Raises:
        PorterError: NOT_TEXT, DSL_UNREADABLE with the place of the syntax error.
    """
    return _parsed(path, source, package, dialect, excerpt)


@functools.lru_cache(maxsize=2)
def _parsed(path: str, source: bytes, package: str, dialect: Dialect, excerpt: bool) -> DslFile:
    file = DslFile(path, source, package, dialect, excerpt)
    assert file.module is not None
    return file


def read_dsl(path: Path, package: str = "", dialect: Dialect = NO_DIALECT) -> DslFile:
    """An excerpt. Raises what `parse_dsl` and `read_file` raise."""
    return parse_dsl(str(path), read_file(path), package, dialect, excerpt=True)
