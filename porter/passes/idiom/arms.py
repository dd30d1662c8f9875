# SPDX-License-Identifier: Apache-2.0
"""Arms of conditions that the compiler knows, and functions: those of which it makes nothing stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import Function, outermost
from porter.model.tiled.activity import is_constant_branch
from porter.passes.idiom.places import Place
from porter.passes.idiom.types import Answers, Question


@dataclass(eq=False)
class Arms:
    """Those in which functions multiply, or open batches and wait for them."""

    places: list[Place]
    _blocks: dict[tuple[str, int], Question] = field(default_factory=dict)
    _dead: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for place in self.places:
            own = [s.call for s in place.site.tiled.synchronizations if outermost(s.call.caller) is place.function]
            for call in (*(m.call for m in place.multiplies), *own):
                block = next(iter(self._around(call.caller, call.node)), None)
                if block is not None:
                    key, at = self._key(call.caller, block), call.caller.span(block).start + 1
                    self._blocks[key] = Question(key[0], at, "question_of_number", {"number": "1"})

    @property
    def questions(self) -> list[Question]:
        return list(self._blocks.values())

    def take(self, found: Sequence[Answers]) -> None:
        self._dead = {key for key, answers in zip(self._blocks, found, strict=True) if not answers}

    def is_live(self, function: Function, node: Node) -> bool:
        """Whether the compiler makes something of a part of a function, or nothing else is known."""
        return not any(self._key(function, block) in self._dead for block in self._around(function, node))

    def _key(self, function: Function, block: Node) -> tuple[str, int]:
        return function.file.path, function.span(block).start

    def _around(self, function: Function, node: Node) -> list[Node]:
        """Blocks that may be made of nothing, innermost ones first."""
        outer, found, current = outermost(function), list[Node](), node.parent
        while current is not None and current.id != outer.body.id:
            above = current.parent
            branch = above.parent if above is not None and above.type == "else_clause" else above
            is_arm = is_constant_branch(branch) or (above is not None and above.type == "lambda_expression")
            if current.type == "compound_statement" and is_arm:
                found.append(current)
            current = above
        return found if any(p.is_kernel and p.function is outer for p in self.places) else [*found, outer.body]
