# SPDX-License-Identifier: Apache-2.0
"""One MMA makes the tiles of two warpgroups, which meet for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Edit
from porter.model.block_size import launch_sizes
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.frames import first_value
from porter.model.program import Program
from porter.model.scopes import Variable, resolve
from porter.model.threads import Threads
from porter.passes.context import PortContext
from porter.passes.full_rate.proposing import Proposal, narrow, of_mmas, of_sources, written_over
from porter.passes.full_rate.renaming import rename
from porter.passes.full_rate.turns import turns
from porter.passes.native.sites import Left
from porter.passes.needs import Common
from porter.ptx.wgmma import THREADS as WARPGROUP

_DEEPEST = 8
ALONE = "one warpgroup runs its MMAs, and none of another can be joined with them"
"""What is said of a kernel whose one warpgroup has no two tiles below each other."""


def two_consumers(context: PortContext, common: Common) -> Proposal:
    """How one MMA makes the tiles of two warpgroups."""
    kernels, found = context.kernels, Proposal(False)
    found.missing += (m for k in kernels for m in _of_consumers(context, common, kernels[0].roles.first, k))
    found.missing = found.missing or [*_of_mmas(context.program)]
    if found.missing:
        return found
    found.edits, found.missing = _dropped_turns(context, kernels)
    found.row_edits, found.rows = rename(context, [k.function for k in kernels], found.edits)
    return found


def _dropped_turns(context: PortContext, kernels: Sequence[Kernel]) -> tuple[list[Edit], list[Left]]:
    """The edits without which consumers would wait for each other's turns, and what keeps them from being made."""
    edits = [Edit(f.file.path, span, b"") for k in kernels for f, span in turns(context.program, k)]
    if over := written_over(context, edits):
        what = "another step of the port writes where consumers take turns"
        return edits, [Left(kernels[0].function, over, what)]
    return edits, []


def _of_mmas(program: Program) -> Iterator[Left]:
    """What keeps the MMAs of the sources from M=128: A has to tell the two consumers apart."""
    threads = Threads(program)
    for function, span, step, nodes in of_mmas(program):
        yield from narrow(function, span, step)
        node = nodes.get(step.a)
        if not step.a_registers and node is not None and not _may_differ(program, threads, function, node, 0):
            yield Left(function, span, f"the A descriptor `{step.a}` is that of the other consumer, too")


def _may_differ(program: Program, threads: Threads, function: Function, node: Node, depth: int) -> bool:
    """Whether an expression may have another value in another thread: by a member, by what it is made of, or as
    something changes that."""
    if depth > _DEEPEST or threads.differ(function, node) or next(find(node, "field_expression"), None) is not None:
        return True
    made = list[tuple[Function, Node]]()
    for name in find(node, "identifier"):
        variable = resolve(function, name, function.text(name))
        if variable is not None and _is_set_apart(threads, variable):
            return True
        if variable is not None and variable.param is not None:
            index = variable.param.index
            made += ((c.caller, c.args[index]) for c in program.callers(variable.function) if index < len(c.args))
        elif variable is not None and (value := first_value(variable)) is not None:
            made.append((variable.function, value))
    return any(_may_differ(program, threads, where, value, depth + 1) for where, value in made)


def _is_set_apart(threads: Threads, variable: Variable) -> bool:
    """Whether a variable is changed behind a condition that threads may answer differently."""
    function = variable.function
    changes = find(function.body, "assignment_expression", "update_expression")
    mine = (n for n in changes if variable.name in function.text(n.child_by_field_name("left") or n.named_children[0]))
    return any(threads.splits(function, node, function.body) for node in mine)


def _of_consumers(context: PortContext, common: Common, first: int, kernel: Kernel) -> Iterator[Left]:
    """What keeps the two warpgroups of a kernel from one MMA, where those of the file begin with `first`."""
    function, threads = kernel.function, (first + 2) * WARPGROUP
    if whole := of_sources(context, common, kernel) or _of_kernel(first, kernel):
        yield Left(function, function.head, whole)
        return
    for size in sorted(launch_sizes(context.program, function)):
        if size < threads:
            what = f"a launch gives its blocks {size} threads, and both consumers take {threads}"
            yield Left(function, function.head, what)


def _of_kernel(first: int, kernel: Kernel) -> str:
    """What keeps two warpgroups of a kernel from one MMA, where those of the file begin with `first`."""
    roles = kernel.roles
    if roles.first != first:
        return "another kernel of the file has its consumers in other warpgroups"
    if roles.value == 1:
        return ALONE
    if roles.value not in (None, 2):
        return f"{roles.value} warpgroups run its MMAs, not two"
    return ""
