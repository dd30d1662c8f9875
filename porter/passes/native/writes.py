# SPDX-License-Identifier: Apache-2.0
"""Where a variable gets another value than that which it is declared with."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.program import Program
from porter.model.scopes import Variable
from porter.model.settings import settings_of


class Writes:
    """Asks about one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[tuple[int, int, str], list[Node]] = {}

    def of(self, variable: Variable) -> list[Node]:
        """Expressions that give it another value, or may. What a reference refers to is looked at by itself."""
        if variable.key not in self._known:
            first = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
            found = [s.node for s in settings_of(self.program, variable) if first is None or s.node.id != first.id]
            if variable.is_reference:
                targets = [(n, n.child_by_field_name("left") or n.child_by_field_name("argument")) for n in found]
                found = [n for n, t in targets if t is not None and variable.function.text(t) == variable.name]
            self._known[variable.key] = found
        return self._known[variable.key]
