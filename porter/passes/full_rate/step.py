# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128: taken for all kernels of a source set, or left out with the fact that is missing."""

from __future__ import annotations

from collections.abc import Iterator

from porter.diagnostics import Code
from porter.lang.text import Edit
from porter.model.kernels import Kernel
from porter.model.thread_values import several_dimensions
from porter.passes.context import PortContext
from porter.passes.full_rate.joining import Consumers, Missing
from porter.passes.full_rate.renaming import rename
from porter.passes.full_rate.turns import turns
from porter.passes.needs import NOTHING, Common
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

RULE = "PTR180"


def take(context: PortContext, common: Common) -> bool:
    """Whether the kernels run M=128 MMAs; what a fact is missing for stays as it is, and is named."""
    found = list(_missing(context, common))
    edits: list[Edit] = []
    if context.kernels and not found:
        dropped, found = _without_turns(context)
        edits, more = rename(context, [k.function for k in context.kernels], dropped)
        found += more
    names = ", ".join(k.function.name for k in context.kernels)
    for one in {(m.function.file.path, m.span, m.what): m for m in found}.values():
        context.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=names, what=one.what)
    if found or not context.kernels:
        return False
    context.edits.setdefault(RULE, []).extend([*edits, *dropped])
    context.helpers.joined, context.helpers.issuer = True, context.kernels[0].roles.first * (WARPGROUP // WARP)
    return True


def _without_turns(context: PortContext) -> tuple[list[Edit], list[Missing]]:
    """The edits that drop the named barriers on which consumers take turns."""
    edits, missing = [], []
    for kernel in context.kernels:
        sameness = Consumers(context.program, context.flow.threads, kernel).sameness
        lines, more = turns(context.program, sameness, kernel)
        edits += [Edit(function.file.path, span, b"") for function, span in lines]
        missing += more
    written = [e for found in context.edits.values() for e in found]
    for edit in edits:
        if any(e.path == edit.path and (e.span.overlaps(edit.span) or edit.span.start < e.span.start < edit.span.end)
               for e in written):  # fmt: skip
            function = context.kernels[0].function
            missing.append(Missing(function, edit.span, "another step of the port writes where consumers take turns"))
    return edits, missing


def leave(context: PortContext, what: str) -> None:
    """Name what keeps every kernel at M=64."""
    for kernel in context.kernels:
        at = kernel.function.name_span or kernel.function.span(kernel.function.body)
        context.report(Code.FULL_RATE_LEFT, kernel.function, at, kernel=kernel.function.name, what=what)


def _missing(context: PortContext, common: Common) -> Iterator[Missing]:
    for kernel in context.kernels:
        function = kernel.function
        at = function.name_span or function.span(function.body)
        whole = _of_kernel(context, kernel)
        if common != NOTHING:
            whole = "its helpers stand in a header that kernels of other files share"
        elif kernel.roles.first != context.kernels[0].roles.first:
            whole = "another kernel of the file has its consumers in other warpgroups"
        if whole:
            yield Missing(function, at, whole)
        else:
            yield from Consumers(context.program, context.flow.threads, kernel).missing()


def _of_kernel(context: PortContext, kernel: Kernel) -> str:
    """What keeps a kernel as a whole at M=64."""
    roles = kernel.roles
    if kernel.function.template_params and kernel.function.file.path != context.program.sources.root:
        return "it is a template in a header, which other files may instantiate"
    if not roles.exact:
        return "its block size is not known"
    if roles.value == 1:
        return "one warpgroup runs its MMAs, and none of another can be joined with them"
    if roles.value not in (None, 2):
        return f"{roles.value} warpgroups run its MMAs, not two"
    if several_dimensions(context.program):
        return "its blocks have more than one dimension"
    return ""
