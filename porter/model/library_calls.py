# SPDX-License-Identifier: Apache-2.0
"""CuTe's one-line wrappers of wgmma synchronization, called beside wgmma of the source's own.

A call stands for the asm statement in the wrapper, whose header is not among the sources.

Source: CUTLASS include/cute/arch/mma_sm90_gmma.hpp.
"""

from __future__ import annotations

from collections.abc import Callable

from porter.lang.asm import AsmOperand, AsmStatement
from porter.lang.text import Span
from porter.model.functions import Call
from porter.ptx.inline import parse_template

REGISTER_FENCE = "warpgroup_fence_operand"
"""Pins a register, as an empty asm statement with it as operand does."""

_TEMPLATES = {
    "warpgroup_arrive": "wgmma.fence.sync.aligned;",
    "warpgroup_commit_batch": "wgmma.commit_group.sync.aligned;",
    "warpgroup_wait": "wgmma.wait_group.sync.aligned %0;",
}


_NAMESPACE = "cute::"


def is_library_call(call: Call, outside: Callable[[Call], str | None]) -> bool:
    """Whether a call is of CuTe's functions above. `outside` gives the qualified name of a function that the sources
    do not declare, None for theirs. A bare name is CuTe's: its `using namespace` may stand in a header that is not at
    hand."""
    if call.name not in _TEMPLATES and call.name != REGISTER_FENCE:
        return False
    name = outside(call)
    return name is not None and name.removeprefix(_NAMESPACE) == call.name


def as_statement(call: Call) -> AsmStatement | None:
    """The asm statement that a call of CuTe stands for; None for every other call. Its span has no semicolon."""
    template = _TEMPLATES.get(call.name)
    if template is None or call.args or len(call.template_args) != template.count("%"):
        return None
    function = call.caller
    at = function.span(call.node)
    inputs = tuple(
        AsmOperand("n", text, Span(call.name_span.end, call.name_span.end), None, None, False)
        for text in call.template_args
    )
    return AsmStatement(
        path=function.file.path,
        node=call.node,
        span=at,
        template_span=at,
        template=template,
        outputs=(),
        inputs=inputs,
        clobbers=("memory",),
        volatile=True,
        where=function.file.location(at),
        ptx=parse_template(template),
        shift=function.shift,
    )
