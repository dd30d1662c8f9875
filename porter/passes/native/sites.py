# SPDX-License-Identifier: Apache-2.0
"""Where a kernel's operations are written: the statement of the sources that stands for one, through helpers that do
nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.lang.text import Edit, Span, as_bytes
from porter.model.functions import Function, Style
from porter.model.kernels import statements_in
from porter.model.pipeline.frames import Frame
from porter.model.pipeline.operations import Operation, Site
from porter.model.pipeline.who import Who
from porter.model.program import Program, TensorCoreStatement
from porter.passes.context import PortContext
from porter.passes.mentions import definition_of
from porter.passes.partial import with_lines

OWN_LINES = "statements on lines of their own"
_IDLE = ("declaration", "static_assert_declaration", "alias_declaration", "using_declaration", "type_definition")
"""Statements beside the one that a helper is about."""


class Left(Exception):
    """A fact that is not known, and where; the step is left out."""

    def __init__(self, function: Function, span: Span, what: str) -> None:
        super().__init__(what)
        self.function, self.span, self.what = function, span, what


class OfFunction:
    """What looks at one function, and says what is missing there."""

    function: Function

    def left(self, node: Node, what: str) -> Left:
        return Left(self.function, self.function.span(node), what)

    def lacks(self, what: str) -> Left:
        """What is missing in all of it."""
        return self.left(self.function.body, what)


@dataclass(frozen=True)
class Place:
    """A node of a function."""

    function: Function
    node: Node

    @property
    def span(self) -> Span:
        return self.function.span(self.node)

    def left(self, what: str) -> Left:
        return Left(self.function, self.span, what)


Path = tuple[Place, ...]
"""A node, and the calls on the way to it, the outermost first."""


def steps_below(
    program: Program, function: Function, spans: Sequence[Span], above: Path = ()
) -> Iterator[tuple[Path, TensorCoreStatement]]:
    """Tensor-core statements that a part of a function comes to."""
    uses = program.uses_tensor_core()

    def comes_to(node: Node) -> bool:
        return any(s.contains(function.span(node)) for s in spans)

    for statement in program.steps_in(function):
        if comes_to(statement.statement.node):
            yield (*above, Place(function, statement.statement.node)), statement
    for call in function.calls:
        if not comes_to(call.node) or call.node.id in program.leaf_calls:
            continue
        for target in program.targets(call):
            if id(target) in uses and not any(p.function is target for p in above):
                whole = [target.span(target.body)]
                yield from steps_below(program, target, whole, (*above, Place(function, call.node)))


def written(path: Path) -> Place:
    """The place of a path that is its own statement: a helper that does nothing else stands for what it does."""
    at = len(path) - 1
    while at > 0 and is_all(path[at]):
        at -= 1
    return path[at]


def is_all(place: Place) -> bool:
    """Whether a function does nothing but what stands at one place of it, every time."""
    function, node = place.function, place.node
    if function.style in (Style.KERNEL, Style.HOST):
        return False
    while node.parent is not None and node.parent.id != function.body.id:
        if node.id == function.body.id or node.parent.type not in _AROUND:
            return node.id == function.body.id
        node = node.parent
    return all(_is_idle(n) for n in statements_in(function.body) if n.id != node.id)


_AROUND = ("expression_statement", "return_statement", "compound_statement", "parenthesized_expression",
           "cast_expression", "translation_unit")  # fmt: skip


def _is_idle(node: Node) -> bool:
    return node.type in _IDLE and not any(True for _ in find(node, "gnu_asm_expression", "assignment_expression"))


def path_of(operation: Operation) -> Path:
    return tuple(Place(s.frame.function, s.node) for s in operation.sites)


def threads_at(who: Who, sites: tuple[Site, ...]) -> frozenset[int]:
    """The threads that come to the last of some sites by way of the others.

    Raises:
        Left: nobody knows.
    """
    found = who.runs(sites)
    if found.threads is None:
        raise Place(sites[0].frame.function, sites[0].node).left(f"which threads `{found.unknown}` lets through")
    return found.threads


def is_in(operation: Operation, function: Function, nodes: Iterable[Node]) -> bool:
    """Whether a function comes to an operation in one of its nodes."""
    mine = [s.node for s in operation.sites if s.frame.function is function]
    return any(inside(node, one) for node in nodes for one in mine)


def statement_of(place: Place) -> Node:
    """The statement that is what stands at a place and nothing else.

    Raises:
        Left: it is a part of another one, or its value is used.
    """
    function, node = place.function, place.node
    above = node.parent
    while above is not None and above.type in ("parenthesized_expression", "cast_expression"):
        node, above = above, above.parent
    if above is not None and above.type == "expression_statement":
        return above
    if above is not None and above.type == "init_declarator" and above.parent is not None:
        name = above.child_by_field_name("declarator")
        block = above.parent.parent
        if name is not None and name.type == "identifier" and block is not None and not _used(function, above, block):
            return above.parent
    raise place.left("it is a part of another expression, or its value is used")


def _used(function: Function, declarator: Node, block: Node) -> bool:
    """Whether the variable of a declarator is read, or others are declared with it."""
    declared, whole = declarator.child_by_field_name("declarator"), declarator.parent
    assert declared is not None
    assert whole is not None
    if len(whole.children_by_field_name("declarator")) > 1:
        return True
    name = function.text(declared)
    return any(n.start_byte >= whole.end_byte and function.text(n) == name for n in find(block, "identifier"))


def prefix(operation: Operation, function: Function, node: Node) -> tuple[Site, ...]:
    """The sites of an operation down to a function, with `node` as the last."""
    for index, site in enumerate(operation.sites):
        if site.frame.function is function:
            return (*operation.sites[:index], Site(site.frame, node))
    raise ValueError(f"the operation does not come by {function.name}")


def frame_in(operation: Operation, function: Function) -> Frame:
    return next(s.frame for s in operation.sites if s.frame.function is function)


def only_from(program: Program, function: Function, outer: Function, spans: Sequence[Span]) -> bool:
    """Whether a function is called from these parts of another one alone, by way of whichever others."""
    seen: set[int] = set()

    def comes(inner: Function) -> bool:
        if id(inner) in seen:
            return True
        seen.add(id(inner))
        calls = program.callers(inner)
        return bool(calls) and all(
            any(s.contains(outer.span(c.node)) for s in spans) if c.caller is outer else
            c.caller.style is not Style.KERNEL and comes(c.caller)
            for c in calls
        )  # fmt: skip

    return function is outer or comes(function)


class Changes:
    """Edits of one step, which are made together or not at all. What other passes wrote into a statement that goes,
    goes with it."""

    def __init__(self, context: PortContext, rule: str) -> None:
        self.context, self.rule = context, rule
        self._edits: dict[tuple[str, Span], Edit] = {}
        self._gone: set[tuple[str, Span]] = set()
        self._dropped: list[Edit] = []
        self._without: set[tuple[str, str, Span]] = set()

    def replace(self, function: Function, span: Span, text: str) -> None:
        encoded = as_bytes(text.replace("\n", function.file.newline))
        edit = Edit(function.file.path, span, encoded)
        before = self._edits.setdefault((edit.path, span), edit)
        if before != edit:
            raise Left(function, span, "it would become two texts")

    def without(self, rule: str, function: Function, span: Span) -> None:
        """Take out what a pass wrote to a place under its rule."""
        self._without.add((rule, function.file.path, span))

    def statement(self, place: Place, text: str) -> None:
        """Another statement in place of one."""
        _no_macro(place.function, place.span)
        self.whole(place.function, place.span, text)

    def drop(self, place: Place) -> None:
        """Take a statement away, with its line if it has that to itself."""
        function, node = place.function, place.node
        _no_macro(function, place.span)
        alone = node.parent is not None and node.parent.type == "compound_statement"
        span = whole_line(function, place.span) if alone else place.span
        self.whole(function, span, "" if alone else ";")

    def cut(self, function: Function, span: Span, rule: str) -> None:
        """Take a statement and its lines away, with what a rule wrote there.

        Raises:
            Left: another rule wrote there.
        """
        _no_macro(function, span)
        for writer, edits in self.context.edits.items():
            for edit in (e for e in edits if e.path == function.file.path):
                if writer == rule and span.contains(edit.span) and edit.span.start < span.end:
                    self._dropped.append(edit)
                elif edit.span.overlaps(span):
                    raise Left(function, span, f"a statement that {writer} leaves as it is")
        self.replace(function, whole_line(function, span), "")

    def behind(self, place: Place, lines: Iterable[str]) -> None:
        pad = "\n" + self.context.indent(place.function, place.span)
        end = place.span.end
        self.replace(place.function, Span(end, end), "".join(pad + line for line in lines))

    def before(self, place: Place, text: str) -> None:
        span, whole = self.context.statement_before(place.function, place.node, text)
        self.replace(place.function, span, whole)

    def make(self) -> None:
        """Add the edits to the port.

        Raises:
            Left: another pass wrote where a statement only partly goes.
        """
        for rule, edits in self.context.edits.items():
            for edit in edits:
                for path, span in self._gone:
                    if edit.path == path and edit.span.overlaps(span) and not span.contains(edit.span):
                        function = self.context.kernels[0].function
                        raise Left(function, function.span(function.body), f"{rule} writes to a part of a statement")
        for rule, edits in self.context.edits.items():
            self.context.edits[rule] = [
                e for e in edits if not self._goes(e) and (rule, e.path, e.span) not in self._without
            ]
        self.context.edits.setdefault(self.rule, []).extend(self._edits.values())

    def undefine(self, function: Function) -> None:
        """Take a function away that nobody calls any more. What is named elsewhere, or is no plain function, loses its
        body."""
        program, source = self.context.program, function.file.source
        calls = program.callers(function)
        words = re.compile(rf"\b{re.escape(function.name)}\b".encode())
        named = sum(len(words.findall(f.lexed.code)) for f in program.sources.files.values())
        if function.style is Style.DEVICE and named == len(calls) + 1:
            span = with_lines(source, definition_of(function))
        elif function.style is Style.MACRO or function.body.type != "compound_statement":
            raise Left(function, function.span(function.body), f"that `{function.name}` has no other use")
        else:
            body = function.span(function.body)
            span = Span(body.start + 1, body.end - 1)
        self.whole(function, span, "")

    def unmake(self) -> None:
        """Take these edits out of the port, which has them from a step before."""
        for rule, edits in self.context.edits.items():
            self.context.edits[rule] = [e for e in edits if e not in self._edits.values()]

    def whole(self, function: Function, span: Span, text: str) -> None:
        """Another text for a part of a file, with what other passes wrote there in it."""
        self.replace(function, span, text)
        self._gone.add((function.file.path, span))

    def instead(self, function: Function, span: Span, text: str) -> None:
        """A statement in place of whole lines, indented like the first."""
        first = function.file.source[span.start : span.end]
        pad = first[: len(first) - len(first.lstrip())].decode()
        self.whole(function, span, pad + text)

    def _goes(self, edit: Edit) -> bool:
        return any(edit is d for d in self._dropped) or any(
            path == edit.path and (span.contains(edit.span) if len(edit.span) else span.overlaps(edit.span))
            for path, span in self._gone
        )


def _no_macro(function: Function, span: Span) -> None:
    if function.style is Style.MACRO:
        raise Left(function, span, "it stands in a macro")


def own_lines(function: Function, span: Span, comment: bool = True) -> Span:
    """The lines of a part of a function, without the end of the last; `comment`: one may follow there.

    Raises:
        Left: something else stands there.
    """
    source = function.file.source
    start, end = source.rfind(b"\n", 0, span.start) + 1, source.find(b"\n", span.end)
    behind = source[span.end : max(end, 0)].strip()
    if end < 0 or source[start : span.start].strip() or (behind and not (comment and behind.startswith(b"//"))):
        raise Left(function, span, OWN_LINES)
    return Span(start, end)


def whole_line(function: Function, span: Span) -> Span:
    """A statement with the rest of its line, if it has that to itself."""
    source = function.file.source
    start = source.rfind(b"\n", 0, span.start) + 1
    end = source.find(b"\n", span.end) + 1
    alone = end > 0 and not source[start : span.start].strip() and not source[span.end : end].strip()
    return Span(start, end) if alone else span
