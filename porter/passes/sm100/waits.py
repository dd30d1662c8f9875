# SPDX-License-Identifier: Apache-2.0
"""Loads of Tensor Memory whose registers are used before a wait, as far as the text of one function shows it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.asm import AsmStatement
from porter.lang.cuda import CudaFile, enclosing, find, location, span
from porter.lang.text import Span
from porter.passes.sm100.instructions import access_of
from porter.passes.sm100.signs import Sign
from porter.ptx.ast import Placeholder

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(eq=False)
class Own:
    """Functions of all files that were read: those that have a body, those that wait, and those that only load, with
    the positions of the parameters that are loaded to."""

    defined: frozenset[str] = frozenset()
    waits: set[str] = field(default_factory=set)
    loads: dict[str, frozenset[int]] = field(default_factory=dict)
    issuers: dict[str, str] = field(default_factory=dict)
    """Functions whose callers all issue an MMA, with what issues."""
    of_tcgen05: set[str] = field(default_factory=set)
    """Functions made of tcgen05 that no condition on architectures is around."""
    registers: dict[str, str] = field(default_factory=dict)
    """Functions that ask for as many registers as their first template argument says, with the instruction."""

    def learn(self, file: CudaFile, statements: Iterable[AsmStatement], waits: Iterable[Sign]) -> None:
        for sign in waits:
            self.waits.add(sign.given.get("name", sign.match.text))
        for statement in statements:
            name, parameters = named(file, function_at(file, statement.span))
            if not name:
                continue
            if (asks := _asks(statement)) is not None:
                self.registers[name] = asks
            if _waits(statement):
                self.waits.add(name)
            elif _loads(statement):
                loaded = {_base(o.expr) for o in statement.outputs}
                places = frozenset(i for i, p in enumerate(parameters) if p in loaded)
                self.loads[name] = self.loads.get(name, frozenset()) | places
        for name in self.waits:
            self.loads.pop(name, None)


@dataclass(frozen=True)
class _Event:
    """A load, with what it is called and the variables that it loads, or a wait, which loads none."""

    where: Span
    name: str = ""
    loaded: frozenset[str] = frozenset()


def calls_of(file: CudaFile, names: Collection[str], where: Span | None = None) -> Iterator[tuple[Span, str]]:
    """Where functions of these names are called in a part of a file, with template arguments or not: up to the
    parenthesis."""
    if not names:
        return
    call = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\s*(?:<[^<>;()]*>\s*)?\(")
    text = file.lexed.plain_text
    for match in call.finditer(text, *((where.start, where.end) if where is not None else (0, len(text)))):
        yield Span(match.start(), match.end()), match[1]


def unwaited(
    file: CudaFile, statements: Sequence[AsmStatement], copies: Sequence[Sign], uses: Sequence[Sign], own: Own
) -> Iterator[Diagnostic]:
    """T2R_UNWAITED for each load whose registers are used before the next wait, once for a function and name."""
    names = {s.given["name"] for s in copies if s.given.get("name")}
    said: set[tuple[int, str]] = set()
    for function in find(file.root, "function_definition"):
        body = function.child_by_field_name("body")
        if body is None or function_at(file, span(body)) not in (None, function):
            continue
        events = sorted(_events(file, span(body), statements, uses, names, own), key=lambda e: e.where)
        for event in events:
            key = (function.start_byte, event.name)
            if event.loaded and key not in said and (use := _used(file, event, events, body.end_byte)) is not None:
                said.add(key)
                yield Diagnostic(Code.T2R_UNWAITED, location(file, use), {"name": event.name})


def _events(
    file: CudaFile,
    body: Span,
    statements: Sequence[AsmStatement],
    uses: Sequence[Sign],
    copies: set[str],
    own: Own,
) -> Iterator[_Event]:
    for statement in statements:
        if body.contains(statement.span):
            if _waits(statement):
                yield _Event(statement.span)
            elif _loads(statement):
                yield _Event(statement.span, "tcgen05.ld", frozenset(_base(o.expr) for o in statement.outputs))
    for use in uses:
        if body.contains(use.match.span) and use.given["copy"] in copies:
            yield _Event(use.match.span, use.given["copy"], frozenset({use.given["to"]}))
    for called, name in calls_of(file, own.waits | own.loads.keys(), body):
        end, arguments = _arguments(file.lexed.plain_text, called.end - 1, body.end)
        if name in own.waits:
            yield _Event(Span(called.start, end))
        else:
            loaded = frozenset(_base(a) for i, a in enumerate(arguments) if i in own.loads[name])
            yield _Event(Span(called.start, end), name, loaded - {""})


def _used(file: CudaFile, load: _Event, events: Sequence[_Event], end: int) -> Span | None:
    """Where a variable of a load is named before the wait behind it."""
    stop = next((e.where.start for e in events if not e.loaded and e.where.start >= load.where.end), end)
    others = [e.where for e in events if e.loaded]
    pattern = re.compile(rf"(?<![.\w])({'|'.join(map(re.escape, sorted(load.loaded)))})\b")
    for match in pattern.finditer(file.lexed.plain_text, load.where.end, stop):
        where = Span(match.start(), match.end())
        if not any(o.contains(where) for o in others):
            return where
    return None


def _waits(statement: AsmStatement) -> bool:
    return statement.ptx is not None and any(
        i.parts[:2] == ("tcgen05", "wait::ld") for i in statement.ptx.instructions()
    )


def _asks(statement: AsmStatement) -> str | None:
    """The setmaxnreg of a statement whose number is one of its operands."""
    assert statement.ptx is not None
    found = [i for i in statement.ptx.instructions() if i.parts[0] == "setmaxnreg"]
    named_ones = [i for i in found if i.operands and isinstance(i.operands[0], Placeholder)]
    return ".".join(named_ones[0].parts[:2]) if named_ones else None


def _loads(statement: AsmStatement) -> bool:
    return statement.ptx is not None and any(access_of(i) is not None for i in statement.ptx.instructions())


def function_at(file: CudaFile, where: Span) -> Node | None:
    node = file.root.descendant_for_byte_range(where.start, where.start)
    return enclosing(node, "function_definition") if node is not None else None


def named(file: CudaFile, function: Node | None) -> tuple[str, list[str]]:
    """The name of a function, and those of its parameters."""
    declarator = next(find(function, "function_declarator"), None) if function is not None else None
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
    if name is None or parameters is None:
        return "", []
    texts = [file.text(p) for p in parameters.named_children if "parameter" in p.type]
    # the last name before a bound or a default value
    words = [_WORD.findall(re.split(r"[=\[]|\)\s*\[", t)[0]) for t in texts]
    return file.text(name).rpartition("::")[2], [w[-1] if w else "" for w in words]


def _arguments(text: str, opening: int, limit: int) -> tuple[int, list[str]]:
    """The end of a call, and its arguments."""
    depth, start = 0, opening + 1
    found: list[str] = []
    for at in range(opening, limit):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1, [*found, text[start:at]]
        elif text[at] == "," and depth == 1:
            found.append(text[start:at])
            start = at + 1
    return limit, found


def _base(text: str) -> str:
    """The variable that an expression names first."""
    found = _WORD.search(text)
    return found[0] if found else ""
