# SPDX-License-Identifier: Apache-2.0
"""What steps to M=128 MMAs propose for all kernels of a source set, or the facts that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node

from porter.lang.text import Edit, Span
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.facts import KernelBoxes
from porter.model.program import Program
from porter.model.tensor_core import MmaStep
from porter.model.thread_values import several_dimensions
from porter.passes.context import PortContext
from porter.passes.native.sites import Left
from porter.passes.needs import NOTHING, Common
from porter.ptx.tmem import LANES
from porter.ptx.umma import N_STEPS

Boxes = Callable[[Path, Sequence[Path]], Sequence[KernelBoxes]]
"""What the host code of a file and its headers says of the tensor maps that it launches kernels with."""


@dataclass(frozen=True)
class HostSide:
    """What stands beside kernels: the `boxes` of tensor maps that host code makes, None where nobody reads it; whether
    the port is for `both_chips`, with one host code."""

    boxes: Boxes | None = None
    both_chips: bool = False


@dataclass
class Proposal:
    """The edits with which one MMA does the work of two tiles; what is not known of the MMAs (`missing`), and of the
    rows that other warps then have (`rows`); the edits of these, which are not needed where rows of A change places, by
    the edits `permuted`."""

    stacked: bool
    edits: list[Edit] = field(default_factory=list)
    row_edits: list[Edit] = field(default_factory=list)
    missing: list[Left] = field(default_factory=list)
    rows: list[Left] = field(default_factory=list)
    permuted: tuple[Edit, ...] = ()


def written_over(context: PortContext, edits: Sequence[Edit]) -> Span | None:
    """The first of some edits where another step of the port writes."""
    written = [e for of_rule in context.edits.values() for e in of_rule]
    for edit in edits:
        for other in (e for e in written if e.path == edit.path):
            if other.span.overlaps(edit.span) or edit.span.start < other.span.start < edit.span.end:
                return edit.span
    return None


def of_mmas(program: Program) -> Iterator[tuple[Function, Span, MmaStep, dict[str, Node]]]:
    """Each MMA of the sources with its place, and the expressions of its operands by their texts."""
    for statement in program.statements:
        operands = statement.statement.operands
        nodes = {" ".join(o.expr.split()): o.expr_node for o in operands if o.expr_node is not None}
        for step in (s for s in statement.steps if isinstance(s, MmaStep)):
            yield statement.function, statement.statement.span, step, nodes


def narrow(function: Function, span: Span, step: MmaStep) -> Iterator[Left]:
    """That an MMA has columns of which M=128 takes no such number."""
    if step.op.n % N_STEPS[LANES]:
        yield Left(function, span, f"N is {step.op.n}, and an M={LANES} MMA takes multiples of {N_STEPS[LANES]}")


def of_sources(context: PortContext, common: Common, kernel: Kernel) -> str:
    """What keeps a kernel at M=64 whichever tiles could become one."""
    if common != NOTHING:
        return "its helpers stand in a header that kernels of other files share"
    if kernel.function.template_params and kernel.function.file.path != context.program.sources.root:
        return "it is a template in a header, which other files may instantiate"
    if not kernel.roles.exact:
        return "its block size is not known"
    return "its blocks have more than one dimension" if several_dimensions(context.program) else ""
