# SPDX-License-Identifier: Apache-2.0
"""Front end for CuTe DSL: a Python file as a lossless tree with byte spans and qualified names.

Names are resolved through the file's imports and their aliases, wherever in the file they stand:
`sm90_utils.make_smem_layout_a` is `cutlass.utils.hopper_helpers.make_smem_layout_a`. Positions and parents
are computed once and kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from porter.diagnostics import Code, Location, PorterError
from porter.lang.text import LineIndex, Span

PACKAGE = "cutlass"
KERNEL = "cutlass.cute.kernel"
JIT = "cutlass.cute.jit"

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(eq=False)
class DslFile:
    """One parsed file. `imports` maps local names to what they stand for."""

    path: str
    source: bytes
    module: cst.Module
    imports: dict[str, str]
    _positions: dict[cst.CSTNode, Span] = field(repr=False)
    _parents: dict[cst.CSTNode, cst.CSTNode] = field(repr=False)

    def span(self, node: cst.CSTNode) -> Span:
        """The bytes of a node without surrounding white space and comments."""
        return self._positions[node]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def text(self, node: cst.CSTNode) -> str:
        span = self.span(node)
        return self.source[span.start : span.end].decode("utf-8")

    def location(self, span: Span) -> Location:
        line, column = self.lines.line_column(span.start)
        return Location(self.path, line, column, span.start, span.end)

    @functools.cached_property
    def lines(self) -> LineIndex:
        return LineIndex(self.source)

    def line_start(self, offset: int) -> int:
        return self.source.rfind(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """The offset behind the line break of the line that holds `offset`."""
        end = self.source.find(b"\n", offset)
        return len(self.source) if end < 0 else end + 1

    def indent(self, node: cst.CSTNode) -> str:
        """The white space that a statement's first line begins with."""
        start = self.span(node).start
        return self.source[self.line_start(start) : start].decode("utf-8")

    def whole_lines(self, node: cst.CSTNode) -> Span:
        """A statement's lines with their breaks, without the comments above it."""
        span = self.span(node)
        # A compound statement's span may end behind the line break of its last line.
        last = max(span.end - 1, span.start)
        while last > span.start and self.source[last : last + 1] in (b"\n", b"\r", b" ", b"\t"):
            last -= 1
        return Span(self.line_start(span.start), self.line_end(last))

    def comments_above(self, node: cst.CSTNode) -> Span:
        """The comment lines that touch a statement from above; empty at its first line if there are none."""
        start = self.line_start(self.span(node).start)
        first = start
        while first > 0:
            before = self.line_start(first - 1)
            if not self.source[before:first].strip().startswith(b"#"):
                break
            first = before
        return Span(first, start)

    def qualified(self, node: cst.CSTNode) -> str | None:
        """The full name of a name or an attribute chain that begins with an imported name."""
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.insert(0, node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name) or node.value not in self.imports:
            return None
        return ".".join([self.imports[node.value], *parts])

    def call_name(self, node: cst.CSTNode) -> str | None:
        """The full name of what a call calls."""
        return self.qualified(node.func) if isinstance(node, cst.Call) else None

    def functions(self) -> Iterator[cst.FunctionDef]:
        return (n for n in walk(self.module) if isinstance(n, cst.FunctionDef))

    def decorated(self, mark: str) -> list[cst.FunctionDef]:
        """Functions with a decorator of this qualified name, called or not."""
        found = []
        for function in self.functions():
            for decorator in function.decorators:
                target = decorator.decorator
                target = target.func if isinstance(target, cst.Call) else target
                if self.qualified(target) == mark:
                    found.append(function)
        return found

    @functools.cached_property
    def kernels(self) -> list[cst.FunctionDef]:
        return self.decorated(KERNEL)

    def enclosing_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        current = self.parent(node)
        while current is not None and not isinstance(current, cst.ClassDef):
            current = self.parent(current)
        return current

    def references(self) -> Iterator[tuple[cst.BaseExpression, str]]:
        """Every use of a name from the cutlass package: the longest attribute chain and its full name."""
        for node in walk(self.module):
            if not isinstance(node, (cst.Name, cst.Attribute)):
                continue
            parent = self.parent(node)
            if isinstance(parent, cst.Attribute):
                continue
            if isinstance(parent, (cst.Import, cst.ImportFrom, cst.ImportAlias, cst.AsName, cst.Arg)) and not (
                isinstance(parent, cst.Arg) and parent.value is node
            ):
                continue
            name = self.qualified(node)
            if name is not None and name.partition(".")[0] == PACKAGE:
                yield node, name


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and everything below it, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(_children(current))


@functools.lru_cache(maxsize=1 << 18)
def _children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The children, last one first. libcst finds them by a visit, which is slow; nodes never change."""
    return tuple(reversed(node.children))


def body_of(node: cst.CSTNode) -> list[Statement]:
    """The statements of a block, module or compound statement."""
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        body = body.body
    return [s for s in body or () if isinstance(s, (cst.SimpleStatementLine, cst.BaseCompoundStatement))]


def only(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The small statement of a line that holds just one."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return statement.body[0]
    return None


def called(statement: cst.CSTNode) -> cst.Call | None:
    """The call that a line consists of."""
    small = only(statement)
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        return small.value
    return None


def assigned(statement: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Target and value of `target = value`."""
    small = only(statement)
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        return small.targets[0].target, small.value
    if isinstance(small, cst.AnnAssign) and small.value is not None:
        return small.target, small.value
    return None


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """The value of a keyword argument, or of the positional one in its place."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    plain = [a for a in call.args if a.keyword is None and not a.star]
    if position is not None and position < len(plain):
        return plain[position].value
    return None


def parse_dsl(path: str, source: bytes) -> DslFile:
    """Parse a Python file.

    Raises:
        PorterError: NOT_TEXT, DSL_UNREADABLE with the place of the syntax error.
    """
    try:
        source.decode("utf-8")
    except UnicodeDecodeError:
        raise PorterError(Code.NOT_TEXT, Location(path), path=path) from None
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        where = Location(path, error.raw_line, error.raw_column + 1)
        raise PorterError(Code.DSL_UNREADABLE, where, path=path, problem=error.message) from None
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    raw = wrapper.resolve(ByteSpanPositionProvider)
    # A byte order mark is no part of the tree.
    shift = 3 if source.startswith(b"\xef\xbb\xbf") else 0
    positions = {n: Span(p.start + shift, p.start + p.length + shift) for n, p in raw.items()}
    parents = {child: node for node in walk(module) for child in _children(node)}
    return DslFile(path, source, module, _imports(module), positions, parents)


def read_dsl(path: Path) -> DslFile:
    """Raises what `parse_dsl` raises, and FILE_NOT_FOUND."""
    try:
        source = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise PorterError(Code.FILE_NOT_FOUND, path=path) from None
    return parse_dsl(str(path), source)


def _dotted(node: cst.BaseExpression | None) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _local_name(alias: cst.ImportAlias) -> str:
    name = alias.asname.name if alias.asname is not None else alias.name
    return _dotted(name) if isinstance(name, (cst.Name, cst.Attribute)) else ""


def _imports(module: cst.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in walk(module):
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = _dotted(alias.name)
                if alias.asname is not None:
                    found[_local_name(alias)] = name
                else:
                    first = name.partition(".")[0]
                    found[first] = first
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            base = "." * len(node.relative) + _dotted(node.module)
            for alias in node.names:
                found[_local_name(alias)] = f"{base}.{_dotted(alias.name)}"
    return found
