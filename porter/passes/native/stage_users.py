# SPDX-License-Identifier: Apache-2.0
"""Whether only MMAs use a stage that goes back: the commit that tells of it knows nothing of threads. What these read
or write is over where they meet ahead of the next MMAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.pipeline.operations import Operation
from porter.model.scopes import LOOPS
from porter.model.tensor_core import Step
from porter.passes.native.mainloop import Pipelined, inside
from porter.passes.native.sites import Left
from porter.passes.native.touching import Touching

WHAT = "that threads use no shared memory between MMAs and where a stage goes back"


def check_users(kernel: Pipelined, arrivals: Sequence[Operation]) -> None:
    """
    Raises:
        Left: a thread may read or write shared memory when the commit of MMAs gives a stage back.
    """
    function = kernel.function
    if not all(_nodes(function, o) for o in arrivals):
        function = kernel.kernel.function
    known = frozenset(s.node.id for o in kernel.walk.operations for s in o.sites)
    meetings = [
        path[0].node
        for path, statement in kernel.statements
        if path[0].function is function and any(s.kind is Step.FENCE for s in statement.steps)
    ] or [n for o in kernel.multiplies for n in _nodes(function, o)]
    given = [n for o in arrivals for n in _nodes(function, o)]
    for part in Touching(kernel.program, known).statements(function, function.body):
        if _meets_none(function, part, meetings, given):
            raise Left(function, function.span(part), WHAT)


def _nodes(function: Function, operation: Operation) -> list[Node]:
    return [s.node for s in operation.sites if s.frame.function is function][:1]


def _meets_none(function: Function, part: Node, meetings: Sequence[Node], given: Sequence[Node]) -> bool:
    """Whether a way leads from a statement to an arrival without a meeting."""
    return any(_arrives(between, meetings, given) for between in _ways(function, part, meetings))


def _ways(function: Function, part: Node, meetings: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """What may come behind a statement: the text behind it, and that ahead of it in a loop, if no meeting is left."""
    yield part.end_byte, function.body.end_byte
    node = part.parent
    while node is not None and node.id != function.body.id:
        left = any(part.end_byte <= m.start_byte < node.end_byte for m in meetings)
        if node.type in LOOPS and not left and not any(inside(m, part) for m in meetings):
            yield node.start_byte, part.start_byte
        node = node.parent


def _arrives(between: tuple[int, int], meetings: Sequence[Node], given: Sequence[Node]) -> bool:
    """Whether an arrival comes first in a part of the text."""
    first, last = between
    there = [(n.start_byte, n in given) for n in (*meetings, *given) if first <= n.start_byte < last]
    return bool(there) and min(there)[1]
