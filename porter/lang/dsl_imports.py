# SPDX-License-Identifier: Apache-2.0
"""Import statements of a port: names that come from other modules now, local names that stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from porter.lang.cute_dsl import DslFile, aliases
from porter.lang.dsl_insertion import behind
from porter.lang.python import ImportStatement, dotted, is_documentation, statements
from porter.lang.text import Edit, Span

Move = Callable[[str], str | None]
"""The new full name of what an import names, None if it stays."""


@dataclass(frozen=True)
class _Import:
    """One name as it will be imported: `from module import name as local`, or `import module as local`."""

    module: str
    name: str
    local: str

    def statement(self) -> str:
        if not self.name:
            return f"import {self.module}" + (f" as {self.local}" if self.local != self.module else "")
        return f"from {self.module} import {self.name}" + (f" as {self.local}" if self.local != self.name else "")


def import_edits(file: DslFile, statement: ImportStatement, move: Move) -> list[Edit]:
    """Edits that make an import take what moved from its new place."""
    if isinstance(statement, cst.Import):
        return [e for alias in statement.names for e in _plain(file, alias, move)]
    origin = file.origin(statement)
    if isinstance(statement.names, cst.ImportStar):
        module = move(origin)
        return [_module_edit(file, statement, module)] if module is not None and module != _written(statement) else []
    moved: list[_Import | None] = []
    for alias in statement.names:
        listed = dotted(alias.name)
        new, local = move(f"{origin}.{listed}"), alias.evaluated_alias or listed
        module, _, name = (new or "").rpartition(".")
        moved.append(None if new is None else _Import(module, name, local) if module else _Import(name, "", local))
    if not any(moved):
        return []
    modules = {m.module if m is not None and m.name else None for m in moved}
    same = all(m is not None and m.name == dotted(a.name) for m, a in zip(moved, statement.names, strict=True))
    if same and len(modules) == 1:
        module = modules.pop()
        return [_module_edit(file, statement, module)] if module is not None and module != _written(statement) else []
    return _split(file, statement, moved)


def chain_edits(file: DslFile, move: Move) -> Iterator[Edit]:
    """Edits of the chains that begin with what `import a.b` binds: they name the module again."""
    done = set()
    for reference in file.all_references:
        node, alias = reference.chain.node, reference.binding.alias if reference.binding is not None else None
        if alias is None or alias.asname is not None or "." not in dotted(alias.name) or node in done:
            continue
        new = move(reference.name)
        if new is not None:
            done.add(node)
            yield Edit(file.path, file.span(node), new.encode())


def _written(statement: cst.ImportFrom) -> str:
    return "." * len(statement.relative) + dotted(statement.module)


def _plain(file: DslFile, alias: cst.ImportAlias, move: Move) -> list[Edit]:
    old, given = dotted(alias.name), alias.evaluated_alias
    new = move(old)
    if new is None or new == old:
        return []
    top = old.partition(".")[0]
    if given is not None or top == old:
        text = f"{new} as {given or top}"
    elif "." not in new:
        # `import a.b.c` binds `a`, which stays; the chains behind it are edited one by one
        text = old.rpartition(".")[0]
    else:
        chains = [r for r in file.all_references if r.binding is not None and r.binding.local == top]
        text = new + f", {top}" * any(move(r.name) is None for r in chains)
    return [Edit(file.path, file.span(alias), text.encode())]


def _module_edit(file: DslFile, statement: cst.ImportFrom, module: str) -> Edit:
    spans = [file.span(node) for node in (*statement.relative, statement.module) if node is not None]
    before = file.source[spans[0].start - 1 : spans[0].start]
    gap = b" " if before.isalpha() else b""
    return Edit(file.path, Span(spans[0].start, spans[-1].end), gap + module.encode())


def _split(file: DslFile, statement: cst.ImportFrom, moved: list[_Import | None]) -> list[Edit]:
    """The names that move get statements of their own, behind the one that they leave."""
    texts: dict[tuple[str, bool], list[_Import]] = {}
    for one in moved:
        if one is not None:
            texts.setdefault((one.module + one.local * (not one.name), bool(one.name)), []).append(one)
    lines = [_joined(group) for group in texts.values()]
    span = file.span(statement)
    kept = [i for i, one in enumerate(moved) if one is None]
    start, end = file.line_start(span.start), file.line_end(span.end)
    indent = file.source[start : span.start]
    alone = not indent.strip() and not file.source[span.end : end].split(b"#")[0].strip()
    between = file.line_break(span.end) + indent if alone else b"; "
    new = between.join(line.encode() for line in lines)
    if not kept:
        return [Edit(file.path, span, new)]
    at = end if alone else span.end
    return [*_without(file, statement, kept), Edit(file.path, Span(at, at), between + new)]


def _joined(group: list[_Import]) -> str:
    if len(group) == 1:
        return group[0].statement()
    names = [one.statement().partition(" import ")[2] for one in group]
    return f"from {group[0].module} import {', '.join(names)}"


def _without(file: DslFile, statement: cst.ImportFrom, kept: list[int]) -> list[Edit]:
    """Edits that take all other names out of a list of names, with their commas."""
    spans = [file.span(alias) for alias in aliases(statement)]
    edits, i = [], 0
    while i < len(spans):
        if i in kept:
            i += 1
            continue
        first = i
        while i < len(spans) and i not in kept:
            i += 1
        if i < len(spans):
            edits.append(Edit(file.path, Span(spans[first].start, spans[i].start), b""))
        else:
            edits.append(Edit(file.path, Span(spans[first - 1].end, spans[-1].end), b""))
    return edits


def fresh_name(file: DslFile, wanted: str) -> str:
    """A name that nothing in the file has: the one that is wanted, or that with a number behind it."""
    taken = set(re.findall(rb"\w+", file.source))
    number, name = 1, wanted
    while name.encode() in taken:
        number += 1
        name = f"{wanted}{number}"
    return name


def support_import(file: DslFile, name: str, local: str, before: int) -> Edit:
    """`import name as local` at the top of a module: behind its first import of a package of the dialect, in any case
    above the offset `before`."""
    line = f"import {name}" + (f" as {local}" if local != name else "")
    last = None
    top = [s for line in file.module.body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    first = next(statements(file.module), None)
    for statement in top:
        future = isinstance(statement, cst.ImportFrom) and dotted(statement.module) == "__future__"
        if future or (statement is first and is_documentation(statement)):
            last = statement
    for statement in top:
        if isinstance(statement, (cst.Import, cst.ImportFrom)) and file.span(statement).end < before:
            origin = dotted(statement.names[0].name if isinstance(statement, cst.Import) else statement.module)
            if origin.partition(".")[0] in file.dialect.packages:
                last = statement
                break
    if last is None:
        start = file.line_start(0)
        end = _comments_end(file, start)
        return Edit(file.path, Span(end, end), line.encode() + file.line_break(end))
    end = file.span(last).end
    rest = file.source[end : file.line_end(end)]
    return behind(file, last, [line], None if rest.split(b"#")[0].strip() else b"")


def _comments_end(file: DslFile, at: int) -> int:
    """The offset behind the comment lines that a file begins with."""
    while file.source[at : at + 1] == b"#":
        end = file.line_end(at)
        if end == len(file.source):
            return at
        at = end + len(file.line_break(end))
    return at
