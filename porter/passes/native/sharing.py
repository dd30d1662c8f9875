# SPDX-License-Identifier: Apache-2.0
"""Stages that the CTAs of a cluster fill for each other: at how many of them consumers arrive, and how many mbarriers
follow each other."""

from __future__ import annotations

from porter.model.pipeline.facts import Number
from porter.model.pipeline.frames import Wording
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.read import pipeline_of
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left, path_of

_MOST_STAGES = 16
"""As far as what a thread gives back is counted in both directions from the first."""


def ctas_of(kernel: Pipelined, operation: Operation) -> int:
    """At how many CTAs of a cluster consumers arrive.

    Raises:
        Left: the text does not say at which.
    """
    site = operation.sites[-1]
    mapped = site.only("mapa")
    node = site.expression(mapped.get("b")) if mapped is not None else None
    if node is not None:
        values = kernel.who.values(*Wording(kernel.program).handed(site.frame, node))
        ranks = {values[t] for t in kernel.runs(operation)} if values is not None else {None}
        if None not in ranks:
            return len(ranks)
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
