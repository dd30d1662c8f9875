# SPDX-License-Identifier: Apache-2.0
"""One summary for each kernel in CuTe C++: what it uses, how it is ported, what stops it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Severity
from porter.lang.cuda import CudaFile, find, function_specifiers
from porter.passes.features import Reach, features_in, listed
from porter.passes.plan import KernelPlan
from porter.passes.port import PortResult
from porter.rules.rule import Rule


@dataclass(frozen=True)
class KernelSummary:
    """`uses`: families of atoms with their sizes, then everything else. `port`: how it is ported, empty if it is not.
    `blocks`: what stops it, headers that were not found first."""

    kernel: str
    path: str
    line: int
    uses: tuple[str, ...]
    port: tuple[str, ...]
    blocks: tuple[str, ...]


def kernel_summaries(result: PortResult, rules: Sequence[Rule]) -> list[KernelSummary]:
    """Of every kernel of a source set that uses something of a library, in the order of the files."""
    files = list(result.sources.files.values())
    features = {file.path: uses for file in files if (uses := features_in(file, rules))}
    if not features:
        return []
    reach, plans = Reach(files), {plan.kernel: plan for plan in result.plans}
    left = {kernel.kernel: kernel.why for kernel in result.left}
    stops = tuple(f"{d.code.id} {d.message}" for d in includes_first(result.diagnostics) if _stops(d))
    found = []
    for file in files:
        for name, line in _kernels(file):
            used, plan = listed(reach.uses(name, features)), plans.get(name)
            if used:
                blocks = () if plan is not None else left.get(name, stops)
                found.append(KernelSummary(name, file.path, line, used, _port(plan), blocks))
    return found


def includes_first(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Headers that were not found in front of all that may follow from them."""
    return sorted(diagnostics, key=lambda d: d.code is not Code.UNRESOLVED_INCLUDE)


def _stops(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity is Severity.ERROR or diagnostic.code is Code.UNRESOLVED_INCLUDE


def _port(plan: KernelPlan | None) -> tuple[str, ...]:
    if plan is None:
        return ()
    names = ", ".join(a.name for a in plan.accumulators)
    several = plan.warpgroups != "1"
    count = f"{len(plan.accumulators)} accumulator{'s' * (len(plan.accumulators) != 1)}"
    batches = f"{plan.in_flight} batch{'es' * (plan.in_flight != 1)} of MMAs in flight"
    return (f"{count} in Tensor Memory ({names})", batches, f"{plan.warpgroups} warpgroup{'s' * several} with MMAs")


def _kernels(file: CudaFile) -> Iterable[tuple[str, int]]:
    for node in find(file.root, "function_definition"):
        declarator = next(find(node, "function_declarator"), None)
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        if name is not None and "__global__" in function_specifiers(file, node):
            yield file.text(name), file.lines.line_column(name.start_byte)[0]
