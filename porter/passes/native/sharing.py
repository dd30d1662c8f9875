# SPDX-License-Identifier: Apache-2.0
"""Stages that the CTAs of a cluster fill for each other: all of them give each stage back to all."""

from __future__ import annotations

from collections import Counter

from porter.model.pipeline.facts import Number
from porter.model.pipeline.frames import Wording
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.read import pipeline_of
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left, path_of
from porter.ptx.arch import WARP
from porter.ptx.ast import Placeholder
from porter.ptx.table import find as decode
from porter.ptx.wgmma import THREADS as WARPGROUP

_MOST_CTAS = 16
_MOST_STAGES = 16
"""As far as what a thread gives back is counted in both directions from the first."""


def ctas_of(kernel: Pipelined, name: str, mine: list[Operation], count: int | None) -> int:
    """How many CTAs a cluster has, of which each arrives on the mbarriers of a name in all: those of ranks 0 and up,
    with as many threads in each, and `count` in all.

    Raises:
        Left: they are others, or not known.
    """
    at = path_of(mine[0])[0]
    if any(not o.remote for o in mine) or all(kernel.is_ahead(o) for o in mine):
        raise at.left(f"that consumers arrive at {name} of all CTAs alone")
    each = [_arrivals(kernel, name, o, kernel.runs(o)) for o in mine]
    arrivals = each[0]
    ctas = len(arrivals)
    if set(arrivals) != set(range(ctas)) or len(set(arrivals.values())) != 1 or not 1 < ctas <= _MOST_CTAS:
        raise at.left(f"that as many arrive at {name} of each CTA of the cluster")
    for operation, found in zip(mine, each, strict=True):
        if found != arrivals:
            raise path_of(operation)[0].left(f"that as many arrive at {name} wherever consumers do")
    if count != arrivals[0] * ctas:
        raise at.left(f"that all {ctas} CTAs arrive at {name}: it counts {count}, and {arrivals[0]} of each arrive")
    is_ring(kernel, name)
    return ctas


def once(kernel: Pipelined, name: str, operation: Operation) -> int:
    """A warp whose threads arrive once on the mbarriers of each CTA that consumers arrive at.

    Raises:
        Left: the first warp of consumers does not.
    """
    warp = kernel.kernel.roles.first * WARPGROUP // WARP
    mine = kernel.runs(operation) & set(range(warp * WARP, (warp + 1) * WARP))
    if set(_arrivals(kernel, name, operation, frozenset(mine)).values()) != {1} or len(mine) != len(
        _arrivals(kernel, name, operation, kernel.runs(operation))
    ):
        raise path_of(operation)[0].left(f"one arrival at {name} of each CTA by a warp of consumers")
    return warp


def _arrivals(kernel: Pipelined, name: str, operation: Operation, threads: frozenset[int]) -> Counter[int]:
    """By the rank of a CTA, how many of these threads arrive there."""
    found: Counter[int] = Counter()
    number = kernel.constants.evaluate(operation.count or "1")
    ranks = _ranks(kernel, operation)
    for thread in threads:
        rank = ranks[thread]
        if rank is None or number is None:
            raise path_of(operation)[0].left(f"at {name} of which CTAs of the cluster each thread arrives")
        found[rank] += number
    return found


def _ranks(kernel: Pipelined, operation: Operation) -> tuple[int | None, ...]:
    """The rank of the CTA at whose mbarrier each thread arrives."""
    site = operation.sites[-1]
    for statement in site.frame.function.asm:
        if statement.node.id != site.node.id or statement.ptx is None:
            continue
        mapped = [i for i in statement.ptx.instructions() if i.parts[0] == "mapa"]
        found = decode(mapped[0]) if len(mapped) == 1 and mapped[0].guard is None else None
        rank = found.get("b") if found is not None else None
        if isinstance(rank, Placeholder):
            node = statement.operand(rank.index).expr_node
            frame = site.frame
            while node is not None and node.type == "identifier" and frame.outer is not None:
                name = frame.function.text(node)
                if name not in frame.bound or Wording(kernel.program).changes(frame.function, name):
                    break
                frame, node = frame.outer, frame.bound[name]
            values = kernel.who.values(frame, node) if node is not None else None
            if values is not None:
                return values
    raise path_of(operation)[0].left("the rank of the CTA that it arrives at, as an operand")


def is_ring(kernel: Pipelined, name: str) -> str:
    """How many mbarriers follow each other, in an array that is short enough to count in, in the kernel's words."""
    facts = pipeline_of(kernel.program, kernel.kernel.function, given={n: str(v) for n, v in kernel.template.items()})
    extent: Number | None = next((b.extent for b in facts.barriers if b.name == name), None)
    if not name.endswith("[]") or extent is None or extent.value is None or extent.value > _MOST_STAGES:
        function = kernel.kernel.function
        raise Left(function, function.span(function.body), f"how many mbarriers {name} follow each other")
    # the number may become another one where it has a name
    return extent.text if kernel.constants.evaluate(extent.text) == extent.value else str(extent.value)
