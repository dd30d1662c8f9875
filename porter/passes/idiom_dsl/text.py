# SPDX-License-Identifier: Apache-2.0
"""A Python file as libcst has it, with byte spans and qualified names, and the edits that rules make of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TypeVar, cast

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    ByteSpanPositionProvider,
    MetadataWrapper,
    ParentNodeProvider,
    QualifiedNameProvider,
)

from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups

Node = TypeVar("Node", bound=cst.CSTNode)
Statement = cst.BaseStatement
_STEP = "    "


class Left(Exception):
    """Why a file keeps the support module: `what`, at a `node` if there is one, and which `rule` it is missing for."""

    def __init__(self, what: str, node: cst.CSTNode | None = None) -> None:
        super().__init__(what)
        self.what, self.node, self.rule = what, node, ""


@contextmanager
def of_rule(rule: str) -> Iterator[None]:
    """What is missing there is missing for this rule, if no other is named."""
    try:
        yield
    except Left as left:
        left.rule = left.rule or rule
        raise


def one(found: Sequence[Node], what: str) -> Node:
    """The only one of what has to be there once.

    Raises:
        Left: there are none or several.
    """
    if len(found) != 1:
        raise Left(f"{what}: {len(found) or 'none'} found, one is needed", found[1] if found else None)
    return found[0]


class Text:
    """One file. Spans are in bytes."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._starts = [0, *(found.end() for found in re.finditer(rb"\n", source))]

    def span(self, node: cst.CSTNode) -> Span:
        """With the parentheses around an expression."""
        found = self._spans[node]
        first, last = getattr(node, "lpar", ()), getattr(node, "rpar", ())
        if first and last:
            behind = self._spans[last[-1]]
            return Span(self._spans[first[0]].start, behind.start + behind.length)
        return Span(found.start, found.start + found.length)

    def code(self, node: cst.CSTNode) -> str:
        span = self.span(node)
        return self.source[span.start : span.end].decode()

    def dedented(self, statement: cst.CSTNode) -> str:
        """A statement's lines as they are in the outermost block."""
        return textwrap.dedent(self.margin(statement) + self.code(statement))

    def line(self, node: cst.CSTNode) -> int:
        return self.source.count(b"\n", 0, self.span(node).start) + 1

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def line_start(self, offset: int) -> int:
        return self.source.rfind(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Behind the line break."""
        found = self.source.find(b"\n", offset)
        return len(self.source) if found < 0 else found + 1

    def names(self, node: cst.CSTNode) -> set[str]:
        """What a chain of names may stand for, in full."""
        found = self._names.get(node, set())
        return {q.name for q in (found() if callable(found) else found)}

    def is_a(self, node: cst.CSTNode, *names: str) -> bool:
        return not self.names(node).isdisjoint(names)

    def only_argument(self, value: cst.CSTNode, name: str) -> str:
        """What the function of that name is called with, where it gets one argument; empty for what is no such call."""
        if isinstance(value, cst.Call) and len(value.args) == 1 and self.is_a(value.func, name):
            return self.code(value.args[0].value)
        return ""

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._parents[node]

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a node stands in, the nearest first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: cst.CSTNode) -> cst.FunctionDef:
        found = next((n for n in self.above(node) if isinstance(n, cst.FunctionDef)), None)
        if found is None:
            raise Left("it stands in no function", node)
        return found

    def statement(self, node: cst.CSTNode) -> Statement:
        """The whole statement that a node stands in, or is."""
        for found in (node, *self.above(node)):
            if isinstance(found, cst.BaseStatement):
                return found
        raise Left("it stands in no statement", node)

    def in_block(self, node: cst.CSTNode, block: cst.BaseSuite) -> Statement | None:
        """The statement of a block that a node stands in."""
        before = node
        for found in self.above(node):
            if found is block:
                return before if isinstance(before, cst.BaseStatement) else None
            before = found
        return None

    def block(self, statement: cst.CSTNode) -> cst.IndentedBlock:
        """The block whose statement this is."""
        found = self.parent(statement)
        if not isinstance(found, cst.IndentedBlock):
            raise Left("a statement on the line of another", statement)
        return found

    def margin(self, statement: cst.CSTNode) -> str:
        start = self.span(statement).start
        before = self.source[self.line_start(start) : start].decode()
        if before.strip():
            raise Left("a statement on the line of another", statement)
        return before

    def calls(self, inside: cst.CSTNode, *names: str) -> list[cst.Call]:
        """Calls of functions by their full names."""
        return [c for c in found_in(inside, cst.Call) if self.is_a(c.func, *names)]


def found_in(inside: cst.CSTNode, kind: type[Node]) -> list[Node]:
    """All nodes of a kind, in the order of the text."""
    kinds = _kinds(kind)
    return [cast("Node", node) for node in _below(inside) if type(node) in kinds]


@cache
def _kinds(kind: type[cst.CSTNode]) -> frozenset[type[cst.CSTNode]]:
    """A class of nodes and those that are made of it: asking an abstract class takes longer than all else here."""
    return frozenset({kind}.union(*map(_kinds, kind.__subclasses__())))


_PLACES: dict[cst.CSTNode, tuple[list[cst.CSTNode], int, int]] = {}
"""Where a node stands in a list of nodes in the order of the text, and where what it is made of ends there."""
_MOST = 1 << 18


class _Order(cst.CSTVisitor):
    """Notes the places of all nodes that are visited: libcst makes the children of a node anew each time that they are
    asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[cst.CSTNode] = []
        self.open: list[int] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.open.append(len(self.nodes))
        self.nodes.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        _PLACES[original_node] = self.nodes, self.open.pop(), len(self.nodes)


def _below(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """A node and all that it is made of."""
    if node not in _PLACES:
        if len(_PLACES) > _MOST:
            _PLACES.clear()
        node.visit(_Order())
    nodes, start, end = _PLACES[node]
    return nodes[start:end]


@lru_cache(maxsize=4)
def read(path: str, source: bytes) -> Text:
    """Raises cst.ParserSyntaxError."""
    return Text(path, source)


def method(call: cst.Call, *names: str) -> str:
    """The name of the object whose method a call is of, if that is one of these."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in names:
        return cst.Module([]).code_for_node(call.func.value)
    return ""


def operand(code: str) -> str:
    """An expression as an operand of another."""
    return (
        code
        if m.matches(cst.parse_expression(code), m.Name() | m.Attribute() | m.Call() | m.Subscript() | m.Integer())
        else f"({code})"
    )


def argument(call: cst.Call, index: int | None, keyword: str = "") -> cst.Arg | None:
    """An argument by its place or its keyword."""
    plain = [a for a in call.args if a.keyword is None]
    if index is not None and index < len(plain) and not any(a.star for a in plain[: index + 1]):
        return plain[index]
    return next((a for a in call.args if a.keyword is not None and a.keyword.value == keyword), None)


def assigned(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Name and value of a statement that assigns to one name and does nothing else."""
    shape = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name() | m.Attribute())]) | m.AnnAssign(m.Name())])
    if not m.matches(statement, shape):
        return None
    line = cst.ensure_type(statement, cst.SimpleStatementLine).body[0]
    if isinstance(line, cst.AnnAssign):
        return (cst.ensure_type(line.target, cst.Name).value, line.value) if line.value is not None else None
    line = cst.ensure_type(line, cst.Assign)
    return cst.Module([]).code_for_node(line.targets[0].target), line.value


@dataclass(frozen=True)
class _Moved:
    """Lines that stand elsewhere, with a margin of their own and new lines around."""

    rule: str
    span: Span
    at: int
    margin: str
    before: str
    behind: str
    last: str = ""
    """What was put in right behind them."""


@dataclass
class Draft:
    """Edits of one file, each with the rule that it is of."""

    text: Text
    edits: list[tuple[str, Edit]] = field(default_factory=list)
    gone: list[Span] = field(default_factory=list)
    """Of what is removed or replaced, so that names in it are used no more."""
    _indented: list[tuple[str, Span]] = field(default_factory=list)
    _moved: list[_Moved] = field(default_factory=list)

    def replace(self, rule: str, node: cst.CSTNode, new: str, keeps: Sequence[cst.CSTNode] = ()) -> None:
        """`keeps` are parts whose names the new text has too. What two kernels ask of one place is one edit."""
        if (rule, Edit(self.text.path, self.text.span(node), new.encode())) in self.edits:
            return
        self._add(rule, self.text.span(node), new)
        self._without(self.text.span(node), keeps)

    def _without(self, span: Span, keeps: Sequence[cst.CSTNode]) -> None:
        at = span.start
        for kept in sorted(map(self.text.span, keeps)):
            self.gone.append(Span(at, kept.start))
            at = kept.end
        self.gone.append(Span(at, span.end))

    def around(self, rule: str, node: cst.CSTNode, before: str, behind: str) -> None:
        """New text in front of a node and behind it."""
        span = self.text.span(node)
        for at, new in ((span.start, before), (span.end, behind)):
            self._add(rule, Span(at, at), new)

    def remove(self, rule: str, statement: cst.CSTNode) -> None:
        """A statement with its lines and the comments right above it."""
        span = self.lines(statement)
        before = self.text.source[self.text.line_start(max(span.start - 1, 0)) : span.start]
        if not before.strip() and not self.text.source[span.end : self.text.line_end(span.end)].strip():
            span = Span(span.start, self.text.line_end(span.end))
        if not self.is_gone(self.text.span(statement)):
            self.edits = [one for one in self.edits if not (len(one[1].span) and span.contains(one[1].span))]
            self._add(rule, span, "")
            self.gone.append(span)

    def lines(self, statement: cst.CSTNode, banner: bool = False) -> Span:
        """The lines of a statement with the comments right above; those of a section's head with a `banner` alone."""
        span = self.text.span(statement)
        self.text.margin(statement)
        first = start = self.text.line_start(span.start)
        while start:
            before = self.text.line_start(start - 1)
            line = self.text.source[before:start].strip()
            if not line.startswith(b"#"):
                break
            if not banner and re.fullmatch(rb"#\W*", line):
                start = first
                break
            start = before
        return Span(start, self.text.line_end(span.end))

    def above(self, rule: str, statement: cst.CSTNode, new: str, deeper: int = 0, over_comments: bool = True) -> None:
        """Lines in front of a statement, over the comments that stand above it, or under them."""
        margin = self.text.margin(statement) + _STEP * deeper
        start = self.text.span(statement).start
        at = self.lines(statement, banner=True).start if over_comments else self.text.line_start(start)
        self._add(rule, Span(at, at), _laid_out(new, margin))

    def below(self, rule: str, statement: cst.CSTNode, new: str, deeper: int = 0) -> None:
        """Lines behind a statement."""
        margin = self.text.margin(statement) + _STEP * deeper
        at = self.text.line_end(self.text.span(statement).end)
        self._add(rule, Span(at, at), _laid_out(new, margin))

    def instead(self, rule: str, statement: cst.CSTNode, new: str, deeper: int = 0) -> None:
        """Lines in the place of a statement; comments above it stay."""
        span = self.text.span(statement)
        margin = self.text.margin(statement) + _STEP * deeper
        whole = Span(self.text.line_start(span.start), self.text.line_end(span.end))
        self._add(rule, whole, _laid_out(new, margin))
        self.gone.append(whole)

    def indent(self, rule: str, first: cst.CSTNode, last: cst.CSTNode) -> None:
        """The lines from one statement to another stand a step deeper."""
        span = Span(self.lines(first, banner=True).start, self.lines(last).end)
        self._require_lines(span)
        self._indented.append((rule, span))

    def _require_lines(self, span: Span) -> None:
        """Raises Left: a text has several lines there, which may not stand deeper."""
        for node in (*found_in(self.text.module, cst.SimpleString), *found_in(self.text.module, cst.FormattedString)):
            if span.contains(self.text.span(node)) and "\n" in self.text.code(node):
                raise Left("a text of several lines in a main loop that moves", node)

    def move(
        self, rule: str, these: tuple[cst.CSTNode, cst.CSTNode], to: cst.CSTNode, deeper: int, before: str, behind: str
    ) -> None:
        """The lines from the first of two statements to the last, with all edits in them, stand in front of another
        statement, so many steps deeper, between new lines. What was put in behind them until then stays there."""
        margin, rest = self.text.margin(to), list[tuple[str, Edit]]()
        span = Span(self.lines(these[0], banner=True).start, self.lines(these[1]).end)
        self._require_lines(span)
        last = ""
        for one in self.edits:
            if one[1].span == Span(span.end, span.end):
                last += one[1].replacement.decode()
            else:
                rest.append(one)
        self.edits = rest
        at, around = self.lines(to, banner=True).start, (_laid_out(before, margin), _laid_out(behind, margin))
        self._moved.append(_Moved(rule, span, at, margin + _STEP * deeper, *around, last))

    def cut(self, rule: str, first: cst.CSTNode, stays: cst.CSTNode) -> None:
        """What stands from the begin of one node up to another."""
        span = Span(self.text.span(first).start, self.text.span(stays).start)
        self._add(rule, span, "")
        self.gone.append(span)

    def drop(self, whole: cst.CSTNode) -> None:
        """Edits inside a node, all of which goes."""
        span = self.lines(whole)
        self.edits = [one for one in self.edits if not span.contains(one[1].span)]
        self.gone = [gone for gone in self.gone if not span.contains(gone)]

    def is_gone(self, span: Span) -> bool:
        return any(g.contains(span) for g in self.gone)

    def _add(self, rule: str, span: Span, new: str) -> None:
        self.edits.append((rule, Edit(self.text.path, span, new.encode())))

    def finished(self) -> list[tuple[str, Edit]]:
        """All edits, those of lines that stand deeper with them. What is put in at one place is one edit, in the order
        in which it was asked for."""
        for moved in self._moved:
            self._carry_out(moved)
        removed = [e.span for _, e in self.edits if len(e.span)]
        return _together([*self.edits, *self._steps(removed, self._indented)])

    def _carry_out(self, moved: _Moved) -> None:
        """Edits in lines that move are made in these."""
        ends = (moved.span.start, moved.span.end)
        inside = [
            (r, e) for r, e in self.edits if moved.span.contains(e.span) and (len(e.span) or e.span.start not in ends)
        ]
        self.edits = [one for one in self.edits if one not in inside]
        # new lines in them are laid out for a main loop that stands a step deeper
        removed = [e.span for _, e in inside if len(e.span)]
        edits = tuple(e for _, e in _together([*inside, *self._steps(removed, [(moved.rule, moved.span)])]))
        whole = apply_groups({self.text.path: self.text.source}, [EditGroup(moved.rule, "", Safety.REVIEW, edits)])
        longer = sum(len(e.replacement) - len(e.span) for e in edits)
        text = whole[self.text.path][moved.span.start : moved.span.end + longer].decode() + moved.last
        self._add(moved.rule, moved.span, "")
        lines = _laid_out(textwrap.dedent(text), moved.margin)
        self._add(moved.rule, Span(moved.at, moved.at), moved.before + lines + moved.behind)

    def _steps(self, removed: Sequence[Span], deeper: Sequence[tuple[str, Span]]) -> Iterator[tuple[str, Edit]]:
        for rule, span in deeper:
            at = span.start
            while at < span.end:
                end = self.text.line_end(at)
                if self.text.source[at:end].strip() and not any(r.start <= at < r.end for r in removed):
                    yield rule, Edit(self.text.path, Span(at, at), _STEP.encode())
                at = end


def _together(edits: Sequence[tuple[str, Edit]]) -> list[tuple[str, Edit]]:
    """What is put in at one place as one edit."""
    at_point: dict[int, tuple[str, Edit]] = {}
    for rule, edit in edits:
        if not len(edit.span):
            first, before = at_point.get(edit.span.start, (rule, replace(edit, replacement=b"")))
            at_point[edit.span.start] = first, replace(edit, replacement=before.replacement + edit.replacement)
    return [*(one for one in edits if len(one[1].span)), *at_point.values()]


def deeper(text: str) -> str:
    """Lines a step deeper."""
    return "\n".join(_STEP + line for line in text.splitlines())


def _laid_out(new: str, margin: str) -> str:
    return "".join(f"{margin}{line}\n" if line else "\n" for line in new.splitlines())
