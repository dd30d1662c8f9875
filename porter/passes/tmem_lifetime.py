# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory is allocated once per CTA before its warps part, and freed on every way out."""

from __future__ import annotations

import re
from dataclasses import replace

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.coherence import STATEMENT_LISTS
from porter.model.functions import Style
from porter.model.kernels import Kernel, top_level_above
from porter.model.program import Program, needs_warpgroup
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS
from porter.model.tensor_core import MmaStep
from porter.model.warps import Warps
from porter.passes import emit
from porter.passes.columns import Columns, End
from porter.passes.context import PortContext, qualified
from porter.passes.helpers import OPERAND_COLUMNS, OPERANDS
from porter.passes.widths import Spot, columns_at, greatest
from porter.ptx.tmem import COLUMNS
from porter.ptx.wgmma import THREADS as WARPGROUP

RULE = "PTR140"


def allocate(context: PortContext, columns: Columns) -> dict[Kernel, str]:
    """Set up Tensor Memory in every kernel; gives the columns of one warpgroup, as a number where it is known."""
    return {kernel: _set_up(context, kernel, columns) for kernel in columns.owned}


def _report_too_large(context: PortContext, kernel: Kernel, columns: int) -> None:
    # an upper bound of the warpgroups is cut to what Tensor Memory has room for
    warpgroups = kernel.roles.value if kernel.roles.exact else 1
    if warpgroups is not None and columns * ((warpgroups + 1) // 2) > COLUMNS:
        function, at = kernel.function, kernel.function.span(kernel.setup_before)
        columns *= (warpgroups + 1) // 2
        context.report(Code.TMEM_TOO_LARGE, function, at, kernel=function.name, columns=columns)


def _set_up(context: PortContext, kernel: Kernel, placed: Columns) -> str:
    """Set up Tensor Memory and the warpgroup's state in a kernel; gives the columns of one warpgroup."""
    function, accumulators = kernel.function, placed.owned[kernel]
    anchor = setup_position(kernel, accumulators)
    columns = total_columns(context, kernel, placed, anchor)
    if columns is None:
        pairs = ((kernel.roles.value or 3) + 1) // 2
        columns = str(COLUMNS // pairs)
        context.report(Code.TMEM_SIZE_UNKNOWN, function, function.span(anchor), kernel=function.name, columns=columns)
    if uses_register_operands(context.program, kernel):
        columns += f" + {qualified('kOperands')} * {OPERAND_COLUMNS}"
    known = context.program.value(function, columns.replace(qualified("kOperands"), str(OPERANDS)))
    if known is not None:
        _report_too_large(context, kernel, known)
    if not kernel.roles.exact and known:
        # as many warpgroups as Tensor Memory has room for
        fitting = max(1, min(kernel.roles.value or 1, 2 * (COLUMNS // known)))
        kernel.roles = replace(kernel.roles, count=str(fitting), value=fitting)
    roles = kernel.roles
    index = f"{_thread(context)} / {WARPGROUP}" if roles.value != 1 else "0"
    if roles.first and roles.value != 1:
        index += f" - {roles.first}"
    names = context.names
    who = (
        "the warpgroup's accumulators"
        if roles.value == 1
        else f"the accumulators of warpgroups {roles.first} and up; warpgroup 0 has none"
        if roles.first
        else "the accumulators of each warpgroup"
    )
    types = {f"{name.lower()}_type": qualified(name) for name in ("Shared", "Tmem")}
    text = emit.lines(
        "tensor_memory", who=who, columns=columns, count=roles.count, shared=names.shared, tmem=names.tmem, **types
    )
    state = emit.lines(
        "warpgroup", state_type=qualified("Warpgroup"), state=names.warpgroup, tmem=names.tmem, index=index
    )
    user = first_user(context, kernel, accumulators)
    together = _end_together(context, kernel, anchor)
    if user is None or user.id == anchor.id:
        text += f"\n{state}\n{together}"
    else:
        text += f"\n{together}"
        span, lines = context.statement_before(function, user, state, above_comments=True)
        context.edit(RULE, function, span, lines)
    span, lines = context.statement_before(function, anchor, text, above_comments=True)
    context.edit(RULE, function, span, lines)
    return str(known) if known else columns


def _end_together(context: PortContext, kernel: Kernel, anchor: Node) -> str:
    """What opens a lambda around the rest of the kernel, if lanes of a warp may return apart: what frees Tensor Memory
    needs whole warps, and the lanes meet behind the lambda."""
    function = kernel.function
    apart = Warps(context.program, context.flow.threads).returns_apart(function, anchor.start_byte)
    if not apart:
        return ""
    if anchor.parent is None or anchor.parent.id != function.body.id:
        context.report(
            Code.THREADS_LEAVE,
            function,
            function.span(apart[0]),
            what="lanes of a warp return apart in a kernel whose MMAs stand in an `#if`",
        )
        return ""
    end = function.span(function.body).end - 1
    context.edit(
        RULE, function, Span(end, end), f"{context.indent(function, function.span(anchor))}{emit.lines('apart')}\n"
    )
    return emit.lines("together")


def first_user(context: PortContext, kernel: Kernel, accumulators: list[Accumulator]) -> Node | None:
    """The first statement that needs the warpgroup's state, in the innermost block outside any loop that holds
    all that do: a role that runs no MMAs then has no registers for it."""
    function = kernel.function
    nodes = [
        a.variable.declaration for a in accumulators if a.function is function and a.variable.declaration is not None
    ]
    nodes += [s.statement.node for s in context.program.steps_in(function) if needs_warpgroup(s)]
    inner = [f for f in context.program.functions if f.style is Style.LAMBDA and f.parent is function]
    nodes += [f.node for f in inner if context.needs_context(f) and context.sees_context(f)]
    for call in function.calls:
        targets = context.program.targets(call)
        if any(context.takes_context_param(t) or (t.is_object_macro and context.needs_context(t)) for t in targets):
            nodes.append(call.node)
    if not nodes:
        return None
    node = min(nodes, key=lambda n: n.start_byte)
    found: Node | None = None
    inner_node, current = node, node.parent
    while current is not None:
        if current.type in STATEMENT_LISTS and not _jumped_into(current):
            holds_all = all(current.start_byte <= n.start_byte and n.end_byte <= current.end_byte for n in nodes)
            if holds_all and found is None:
                found = inner_node
        elif current.type in LOOPS:
            found = None
        if current.id == function.body.id:
            break
        inner_node, current = current, current.parent
    return found


def _jumped_into(block: Node) -> bool:
    """Whether labels of a `switch` stand in a block: a jump to one would pass by what is declared in front."""
    within = block.parent.type if block.parent is not None else ""
    return block.type == "case_statement" or within == "switch_statement"


def uses_register_operands(program: Program, kernel: Kernel) -> bool:
    """Whether the kernel reaches an MMA whose A operand comes from registers."""
    owners = [
        s.function
        for s in program.statements
        if any(isinstance(step, MmaStep) and step.a_registers for step in s.steps)
    ]
    return id(kernel.function) in program.reaching(owners)


def _thread(context: PortContext) -> str:
    return qualified("thread_rank()") if context.helpers.linear_thread else "threadIdx.x"


def setup_position(kernel: Kernel, accumulators: list[Accumulator]) -> Node:
    """The earliest of: the kernel's own set-up position, a top-level declaration of an accumulator."""
    anchor = kernel.setup_before
    for accumulator in accumulators:
        declaration = accumulator.variable.declaration
        if accumulator.function is kernel.function and declaration is not None:
            top = top_level_above(kernel.function, declaration)
            if top.start_byte < anchor.start_byte:
                anchor = top
    needed = [a.variable.declaration for a in accumulators if a.function is kernel.function]
    needed += [s.statement.node for s in kernel.function_statements]
    while anchor.parent is not None and anchor.parent.type in PREPROCESSOR_BLOCKS:
        branch = anchor.parent
        if all(n is None or branch.start_byte <= n.start_byte < branch.end_byte for n in needed):
            alternative = branch.child_by_field_name("alternative")
            in_other = alternative is not None and any(
                n is not None and alternative.start_byte <= n.start_byte for n in needed
            )
            if not in_other or branch.type == "preproc_else":
                break
        # what needs the set-up stands in another branch of the conditional, or behind it
        anchor = branch
    return anchor


def total_columns(context: PortContext, kernel: Kernel, columns: Columns, anchor: Node) -> str | None:
    """Columns of the accumulators of one warpgroup, as a constant expression at `anchor`; None if they depend on
    something that has no name there."""
    program, spot = context.program, Spot(kernel.function, anchor)
    total, ends = columns.total.get(kernel), [End(0, tuple(columns.owned[kernel]))]
    if total is None:
        ends = columns.ends_of(kernel)
    texts: list[str] = []
    for end in ends:
        found = [str(end.number)] * bool(end.number) + [columns_at(program, a, spot) or "" for a in end.behind]
        if "" in found:
            return None if total is None else str(total)
        value = program.value(kernel.function, " + ".join(found))
        plain = all(re.fullmatch(r"[\d\s*+/()]+", t) for t in found)
        texts.append(str(value) if plain and value is not None else " + ".join(found))
    text = greatest(texts)
    return text if total is None or program.value(kernel.function, text) == total else str(total)
