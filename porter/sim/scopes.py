# SPDX-License-Identifier: Apache-2.0
"""The scopes of PTX: what a name means in a function's body and in the blocks within it (PTX ISA 5.4, 7.1)."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


class Scope:
    """Names and families of registers that a body declares, with the unique name of each, and its parent."""

    def __init__(self, parent: Scope | None, prefix: str) -> None:
        self.parent = parent
        self.prefix = prefix
        self.names: dict[str, str] = {}
        self.families: dict[str, tuple[str, int]] = {}
        self._found: dict[str, str | None] = {}

    def find(self, name: str) -> str | None:
        """What a name means here. A scope is asked once all that it and those around it declare is known."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            if scope.families:
                m = _NUMBERED.match(name)
                # `%r<12>` declares %r0 to %r11; the stem may itself end in a digit (`%f1<4>`).
                stem = m.group(1) if m else name
                rest = name[len(stem) :]
                while rest:
                    family = scope.families.get(stem)
                    if family is not None:
                        return family[0] + rest
                    stem, rest = stem + rest[0], rest[1:]
            scope = scope.parent
        return None
