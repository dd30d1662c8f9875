# SPDX-License-Identifier: Apache-2.0
"""Which targets and PTX versions a feature needs.

Source: PTX ISA 9.0, section 11.1.2 (`.target`): code for `sm_90` runs on that and later chips, for `sm_90a`
only on exactly that chip, for `sm_100f` on later chips of the same family (the same tens of the number).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TARGET = re.compile(r"sm_(\d+)([af]?)")


@dataclass(frozen=True)
class TargetName:
    """`sm_100a` is number 100, kind `a`; a plain `sm_90` has an empty kind."""

    number: int
    kind: str = ""

    @classmethod
    def parse(cls, text: str) -> TargetName:
        """Raises ValueError if `text` is not `sm_` with a number and at most one of `a`, `f`."""
        match = _TARGET.fullmatch(text)
        if match is None:
            raise ValueError(f"not a PTX target: {text!r}")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"sm_{self.number}{self.kind}"

    def offers(self, needed: TargetName) -> bool:
        """True if a module for this target may use what `needed` introduced."""
        if needed.kind == "a":
            return self == needed
        if needed.kind == "f":
            same_family = self.number // 10 == needed.number // 10
            return self.kind != "" and same_family and self.number >= needed.number
        return self.number >= needed.number


@dataclass(frozen=True)
class Requirement:
    """Alternatives, each a target with the first PTX version that has the feature there."""

    alternatives: tuple[tuple[TargetName, tuple[int, int]], ...]

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """`sm_100a@8.6 sm_100f@8.8`; without a version any will do."""
        found = []
        for word in text.split():
            name, _, version = word.partition("@")
            major, _, minor = (version or "1.0").partition(".")
            found.append((TargetName.parse(name), (int(major), int(minor))))
        return cls(tuple(found))

    def targets(self) -> str:
        """For messages: `sm_100a or sm_100f`."""
        names = [str(target) for target, _ in self.alternatives]
        return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]

    def unmet(self, target: TargetName, version: tuple[int, int]) -> str | None:
        """What is missing, or None if one alternative is met."""
        offered = [v for needed, v in self.alternatives if target.offers(needed)]
        if not offered:
            return f"needs {self.targets()}, not {target}"
        first = min(offered)
        if version < first:
            return f"needs PTX {first[0]}.{first[1]} on {target}, not {version[0]}.{version[1]}"
        return None
