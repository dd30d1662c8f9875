# SPDX-License-Identifier: Apache-2.0
"""Names of Hopper that become Blackwell's, and what the file has to import for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from porter.lang.text import Edit, Span
from porter.passes.idiom_dsl.names import BECOMES, KNOWN, METHODS, MODULES, SHORT, SISTERS
from porter.passes.idiom_dsl.text import Draft, Left, Text, found_in

RULE = "PTR580"
_WIDEST = 110


class Imports:
    """What modules and names are called in a file. Those that it lacks are imported, ahead of its first function."""

    def __init__(self, text: Text, draft: Draft) -> None:
        self.text, self.draft = text, draft
        self._known: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._last: cst.CSTNode | None = None
        self._taken = {n.value for n in found_in(text.module, cst.Name)}
        for statement in text.module.body:
            line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            if isinstance(line, (cst.Import, cst.ImportFrom)):
                self._last = statement
                self._read(line)

    def _read(self, line: cst.Import | cst.ImportFrom) -> None:
        if isinstance(line.names, cst.ImportStar):
            return
        origin = ""
        if isinstance(line, cst.ImportFrom):
            if line.relative or line.module is None:
                return
            origin = cst.Module([]).code_for_node(line.module) + "."
        for alias in line.names:
            full = origin + cst.Module([]).code_for_node(alias.name)
            local = alias.evaluated_alias or (alias.evaluated_name if origin else full.partition(".")[0])
            self._known[full if alias.asname or origin else local] = local

    def of(self, name: str) -> str:
        """What a module, or a name of one, is called in the file. A module whose sister for Hopper is imported by its
        own name is, too."""
        if name in self._known:
            return self._known[name]
        for known, local in sorted(self._known.items(), key=lambda one: -len(one[0])):
            if SISTERS.get(name) not in self._known and name.startswith(known + ".") and _is_there(name):
                return local + name.removeprefix(known)
        if name not in self._new:
            local = SHORT.get(name, name.rpartition(".")[2])
            if local in self._taken:
                raise Left(f"`{local}` would have to be imported and is a name of the file's own")
            self._new[name] = local
        return self._new[name]

    def rename(self, read_by_threads: Sequence[cst.FunctionDef] = ()) -> None:
        """Every use of a name that only Hopper has, and of a pipeline that threads read no buffers of."""
        for node in [*found_in(self.text.module, cst.Attribute), *found_in(self.text.module, cst.Name)]:
            if isinstance(node, cst.Attribute) and node.attr.value in METHODS:
                self.draft.replace(RULE, node.attr, METHODS[node.attr.value])
            for name in self.text.names(node) & set(BECOMES) if self._is_use(node) else ():
                if name == KNOWN["thread_pipeline"] and any(f in read_by_threads for f in self.text.above(node)):
                    continue
                module, new = BECOMES[name]
                self.draft.replace(RULE, node, f"{self.of(module)}.{new}")

    def _is_use(self, node: cst.CSTNode) -> bool:
        """Whether a node is a name that is used, not imported, and is not edited as a part of more."""
        if self.draft.is_gone(self.text.span(node)):
            return False
        return not any(isinstance(n, (cst.Import, cst.ImportFrom)) for n in self.text.above(node))

    def finish(self) -> None:
        """The import statements: what nothing uses any more goes."""
        assert self._last is not None
        for statement in self.text.module.body:
            line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            if isinstance(line, (cst.Import, cst.ImportFrom)) and not isinstance(line.names, cst.ImportStar):
                self._without_unused(statement, line)
        if lines := _import_lines(self._new):
            at = self.text.line_end(self.text.span(self._last).end)
            self.draft.edits.append((RULE, Edit(self.text.path, Span(at, at), lines.encode())))

    def _without_unused(
        self, statement: cst.BaseStatement | cst.SimpleStatementLine, line: cst.Import | cst.ImportFrom
    ) -> None:
        assert not isinstance(line.names, cst.ImportStar)
        unused = [a for a in line.names if self._lost(a)]
        if not unused:
            return
        if len(unused) == len(line.names):
            self.draft.remove(RULE, statement)
            return
        kept = [self.text.code(a).rstrip(", ") for a in line.names if a not in unused]
        if isinstance(line, cst.ImportFrom) and line.module is not None:
            module = cst.Module([]).code_for_node(line.module)
            for name in [n for n in self._new if n.rpartition(".")[0] == module]:
                kept.append(self._new.pop(name))
        first, last = self.text.span(line.names[0]).start, self.text.span(line.names[-1]).end
        new = ", ".join(sorted(kept, key=str.lower))
        self.draft.edits.append((RULE, Edit(self.text.path, Span(first, last), new.encode())))

    def _lost(self, alias: cst.ImportAlias) -> bool:
        """Whether an imported name had uses and has none any more."""
        local = alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
        uses = [n for n in found_in(self.text.module, cst.Name) if n.value == local and self._is_name(n)]
        left = [n for n in uses if not self.draft.is_gone(self.text.span(n))]
        again = any(f"{local}." in edit.replacement.decode() for _, edit in self.draft.edits)
        return bool(uses) and not left and not again

    def _is_name(self, node: cst.Name) -> bool:
        parent = self.text.parent(node)
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            return False
        return not any(isinstance(n, (cst.Import, cst.ImportFrom)) for n in self.text.above(node))


def _is_there(name: str) -> bool:
    """Whether a name is an attribute of what the package's own modules import."""
    return name in MODULES or name.rpartition(".")[0] in MODULES


def _import_lines(names: Mapping[str, str]) -> str:
    beside: dict[str, list[str]] = {}
    lines = []
    for name, local in sorted(names.items()):
        module, _, last = name.rpartition(".")
        if local == last:
            beside.setdefault(module, []).append(local)
        else:
            lines.append(f"import {name} as {local}\n")
    return "".join([*lines, *(_from(module, found) for module, found in beside.items())])


def _from(module: str, names: list[str]) -> str:
    """The names on a line of their own where the whole would be long."""
    line, listed = f"from {module} import ", ", ".join(names)
    return f"{line}{listed}\n" if len(line + listed) <= _WIDEST else f"{line}(\n    {listed},\n)\n"
