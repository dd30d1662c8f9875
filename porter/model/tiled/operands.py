# SPDX-License-Identifier: Apache-2.0
"""Where the first operand of an MMA is, as far as the name of its atom says it."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import Function
from porter.model.names.lookup import Site
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Multiply, Tiled

_WORDS = ("identifier", "type_identifier", "namespace_identifier")
_DEEPEST = 12


def in_shared_memory(tiled: Tiled, multiply: Multiply) -> bool:
    """Whether A of an MMA is known to be in shared memory: its type, with all names of the sources written out, has
    such an atom and no other. False where only the compiler follows a name."""
    places = tiled.handed_in(multiply.call.caller, multiply.mma)
    return bool(places) and all(_Atoms(tiled).are_shared(f, n) for f, n in places)


def may_be_in_registers(tiled: Tiled) -> bool:
    """Whether a word in the sources may be the name of an MMA with A from registers, or none says where A is."""
    spellings = tiled.program.vocabulary.spellings
    texts = [file.lexed.code.decode("latin-1") for file in tiled.program.sources.files.values()]
    return not any(spellings.stand_in("a_in_shared", text) for text in texts) or any(
        spellings.stand_in("a_in_registers", text) for text in texts
    )


def may_leave_registers(tiled: Tiled, multiply: Multiply) -> bool:
    """Whether the first operand may have to be stored in front of an MMA."""
    return may_be_in_registers(tiled) and not in_shared_memory(tiled, multiply)


class _Atoms:
    """The atoms that the type of one expression names."""

    def __init__(self, tiled: Tiled) -> None:
        self.lookup = tiled.program.names.lookup
        self.spellings = tiled.program.vocabulary.spellings
        self.shared = False
        self._seen: set[int] = set()

    def are_shared(self, function: Function, node: Node) -> bool:
        return self._expression(function, node, 0) and self.shared

    def _expression(self, function: Function, node: Node, depth: int) -> bool:
        """Follow the names in a function's expression or type; whether that says all."""
        if depth > _DEEPEST:
            return False
        return all(self._name(function, n, depth) for n in walk(node) if n.type in _WORDS)

    def _name(self, function: Function, node: Node, depth: int) -> bool:
        text = function.text(node)
        variable = resolve(function, node, text) if node.type == "identifier" else None
        if variable is None:
            return self._word(text, self.lookup.site(function, node), depth)
        declarator, declaration = variable.declarator, variable.declaration
        if declaration is None or declarator is None:
            return False
        if declaration.id in self._seen:
            return True
        self._seen.add(declaration.id)
        parts = [declaration.child_by_field_name("type"), declarator.child_by_field_name("value")]
        return all(self._expression(variable.function, p, depth + 1) for p in parts if p is not None)

    def _word(self, text: str, site: Site, depth: int) -> bool:
        """What a name that is no variable says."""
        if self.spellings.are("a_in_registers", text) or depth > _DEEPEST:
            return False
        if self.spellings.are("a_in_shared", text):
            self.shared = True
            return True
        if text in self.lookup.macros or text in self.lookup.template_names(site):
            return False
        found = self.lookup.unqualified(site, text)
        if found.functions or found.classes:
            return False
        for alias in found.aliases:
            if id(alias) not in self._seen:
                self._seen.add(id(alias))
                inside = self.lookup.alias_site(alias)
                words = [n for n in walk(alias.type_node) if n.type in _WORDS]
                if alias.params or not all(self._word(alias.file.text(n), inside, depth + 1) for n in words):
                    return False
        return True
