# SPDX-License-Identifier: Apache-2.0
"""The function that is being walked when a flow is built, and how the walk came to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.accumulators import Accumulator
from porter.model.constants import Constants
from porter.model.functions import Call, Function


@dataclass(frozen=True, eq=False)
class Frame:
    """One function being walked: accumulators bound to its parameters, and the call node in the outermost
    function that led here."""

    function: Function
    bound: dict[str, Accumulator]
    at: Node | None
    depth: int
    values: dict[str, str] = field(default_factory=dict)
    outer: dict[tuple[int, int, str], Accumulator] = field(default_factory=dict)
    call: Call | None = None

    def into(
        self,
        function: Function,
        bound: dict[str, Accumulator],
        values: dict[str, str] | None,
        at: Node,
        call: Call | None = None,
        lexical: bool = False,
    ) -> Frame:
        """A callee's frame. Template arguments that are the caller's own are replaced by what those are. A lambda
        that stands in the outermost function and sees all its variables is a part of that function."""
        if lexical and self.at is None and function.captures_all and function.parent is self.function:
            at_or_own = None
        else:
            at_or_own = self.at or at
        resolved = {k: self.values.get(v, v) for k, v in (values or {}).items()}
        outer = dict(self.outer)
        for name, accumulator in self.bound.items():
            outer[(self.function.node.id, -1, name)] = accumulator
        return Frame(function, bound, at_or_own, self.depth + 1, resolved, outer, call)

    def constants(self, known: Constants) -> Constants:
        return known.extended(self.values) if self.values else known
