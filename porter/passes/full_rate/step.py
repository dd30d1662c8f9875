# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128: taken for all kernels of a source set, or left out with the fact that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import find
from porter.lang.text import Edit, Span
from porter.model.block_size import launch_sizes
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.mentions import Mentions
from porter.model.pipeline.frames import first_value
from porter.model.program import Program
from porter.model.scopes import Variable, resolve
from porter.model.tensor_core import MmaStep
from porter.model.thread_values import several_dimensions
from porter.model.threads import Threads
from porter.passes.context import PortContext
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.permuting import RULE as PERMUTING
from porter.passes.full_rate.permuting import Boxes, Permuted, permute
from porter.passes.full_rate.renaming import rename
from porter.passes.full_rate.tiles import TILES, Tiles
from porter.passes.full_rate.turns import turns
from porter.passes.moves import Moves
from porter.passes.needs import NOTHING, Common
from porter.ptx.arch import WARP
from porter.ptx.tmem import LANES
from porter.ptx.umma import N_STEPS
from porter.ptx.wgmma import THREADS as WARPGROUP

_DEEPEST = 8
RULE = "PTR180"
ALONE = "one warpgroup runs its MMAs, and none of another can be joined with them"
"""What is said of a kernel whose one warpgroup has no two tiles below each other."""


@dataclass(frozen=True)
class HostSide:
    """What stands beside kernels: the `boxes` of tensor maps that host code makes, None where nobody reads it; whether
    the port is for `both_chips`, with one host code."""

    boxes: Boxes | None = None
    both_chips: bool = False


@dataclass
class _Found:
    """The edits with which one MMA does the work of two tiles; what is not known of the MMAs (`missing`), and of the
    rows that other warps then have (`rows`); the edits of these, which are not needed where rows stay."""

    stacked: bool
    edits: list[Edit] = field(default_factory=list)
    row_edits: list[Edit] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    rows: list[Missing] = field(default_factory=list)


def take(context: PortContext, common: Common, moves: Moves, host: HostSide | None = None) -> bool:
    """Whether the kernels run M=128 MMAs; what a fact is missing for stays as it is, and is named."""
    if not context.kernels:
        return False
    found = _stacked(context, common, moves) or _joined(context, common)
    missing = [*found.missing, *found.rows]
    permuted = Permuted()
    if found.rows and not found.missing and host is not None and host.boxes is not None:
        permuted = permute(context, host.boxes, host.both_chips)
        missing += [
            replace(m, what=f"nor can rows of A be loaded in another order: {m.what}") for m in permuted.missing
        ]
    names = ", ".join(k.function.name for k in context.kernels)
    if missing and not permuted.edits:
        for one in {(m.function.file.path, m.span, m.what): m for m in missing}.values():
            context.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=names, what=one.what)
        return False
    if permuted.edits:
        why = found.rows[0]
        context.report(Code.FULL_RATE_PERMUTED, why.function, why.span, kernel=names, what=why.what)
        context.edits.setdefault(PERMUTING, []).extend(permuted.edits)
        context.helpers.permuted = True
    edits = [*found.edits, *(() if permuted.edits else found.row_edits)]
    if edits or not permuted.edits:
        context.edits.setdefault(RULE, []).extend(edits)
    context.helpers.stacked, context.helpers.joined = found.stacked, not found.stacked
    if not found.stacked:
        context.helpers.issuer = context.kernels[0].roles.first * (WARPGROUP // WARP)
    return True


def _stacked(context: PortContext, common: Common, moves: Moves) -> _Found | None:
    """How one MMA makes both tiles of a warpgroup; None where its accumulators are no two tiles below each other."""
    program, owners = context.program, context.accumulators.accumulators
    homes = [a.home for a in owners]
    if not homes or any(h.depth != 1 or h.field_name or len(h.tile_extents) != 1 for h in homes):
        return None
    counts = {program.value(a.function, a.home.tile_extents[0]) for a in owners}
    if counts != {TILES} and (counts - {TILES, None} or any(k.roles.value != 1 for k in context.kernels)):
        # where the number is a template's, the tiles of two warpgroups may be what is below each other
        return None
    mentions = Mentions(program, context.accumulators)
    found = _Found(True, missing=[m for k in context.kernels if (m := _alone(context, common, k)) is not None])
    for accumulator in owners:
        kernels = [k for k in context.kernels if k.function is accumulator.function]
        at = accumulator.function.span(accumulator.variable.declaration or accumulator.function.body)
        if len(kernels) != 1 or sum(a.function is accumulator.function for a in owners) != 1:
            found.missing.append(Missing(accumulator.function, at, "its accumulator is not the only one of a kernel"))
            continue
        tiles, zeroed = Tiles(program, kernels[0], accumulator), context.flow.zeroing_of(accumulator)
        found.rows += tiles.rows(mentions.of(accumulator, zeroed))
        if tiles.same_a() or tiles.interleaved:
            return None
        found.missing += tiles.missing()
        if not tiles.terms and not found.rows:
            found.rows.append(Missing(accumulator.function, at, "nothing tells which rows of a tile a warp has"))
        if moves.stores[accumulator] or moves.tracked or context.kept_params:
            found.missing.append(Missing(accumulator.function, at, "its registers are written between MMAs"))
        if any(z.tile for z in zeroed):
            found.missing.append(Missing(accumulator.function, at, "its tiles are set to zero one by one"))
        found.row_edits += tiles.edits()
    found.missing += _of_mmas(program, kernels=(), stacked=True)
    if over := _written_over(context, found.row_edits):
        found.rows.append(Missing(owners[0].function, over, "another step of the port writes the rows of a tile"))
    return found


def _alone(context: PortContext, common: Common, kernel: Kernel) -> Missing | None:
    """What keeps a kernel as a whole from it."""
    what = of_sources(context, common, kernel)
    if not what and kernel.roles.value is None:
        what = "how many warpgroups run its MMAs is not known"
    return Missing(kernel.function, title(kernel.function), what) if what else None


def title(function: Function) -> Span:
    return function.name_span or function.span(function.body)


def _joined(context: PortContext, common: Common) -> _Found:
    """How one MMA makes the tiles of two warpgroups."""
    kernels, found = context.kernels, _Found(False)
    found.missing += (m for k in kernels for m in of_consumers(context, common, kernels[0].roles.first, k))
    found.missing = found.missing or [*_of_mmas(context.program, kernels, stacked=False)]
    if found.missing:
        return found
    found.edits, found.missing = dropped_turns(context, kernels)
    found.row_edits, found.rows = rename(context, [k.function for k in kernels], found.edits)
    return found


def dropped_turns(context: PortContext, kernels: Sequence[Kernel]) -> tuple[list[Edit], list[Missing]]:
    """The edits without which consumers would wait for each other's turns, and what keeps them from being made."""
    edits = [Edit(f.file.path, span, b"") for k in kernels for f, span in turns(context.program, k)]
    if over := _written_over(context, edits):
        what = "another step of the port writes where consumers take turns"
        return edits, [Missing(kernels[0].function, over, what)]
    return edits, []


def _written_over(context: PortContext, edits: Sequence[Edit]) -> Span | None:
    """The first of some edits where another step of the port writes."""
    written = [e for of_rule in context.edits.values() for e in of_rule]
    for edit in edits:
        for other in (e for e in written if e.path == edit.path):
            if other.span.overlaps(edit.span) or edit.span.start < other.span.start < edit.span.end:
                return edit.span
    return None


def _of_mmas(program: Program, kernels: Sequence[Kernel], stacked: bool) -> Iterator[Missing]:
    """What keeps the MMAs of the sources from M=128. Of two consumers of `kernels` A has to tell them apart."""
    threads = Threads(program)
    for statement in program.statements:
        nodes = {" ".join(o.expr.split()): o.expr_node for o in statement.statement.operands}
        for step in (s for s in statement.steps if isinstance(s, MmaStep)):
            function, span, node = statement.function, statement.statement.span, nodes.get(step.a)
            if step.op.n % N_STEPS[LANES]:
                what = f"N is {step.op.n}, and an M={LANES} MMA takes multiples of {N_STEPS[LANES]}"
                yield Missing(function, span, what)
            if step.a_registers and stacked:
                yield Missing(function, span, "A comes from registers, for each tile of a warpgroup")
            if not kernels or step.a_registers or node is None:
                continue
            if not _may_differ(program, threads, function, node, 0):
                yield Missing(function, span, f"the A descriptor `{step.a}` is that of the other consumer, too")


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


def of_consumers(context: PortContext, common: Common, first: int, kernel: Kernel) -> Iterator[Missing]:
    """What keeps the two warpgroups of a kernel from one MMA, where those of the file begin with `first`."""
    function, threads = kernel.function, (first + 2) * WARPGROUP
    if whole := of_sources(context, common, kernel) or of_kernel(first, kernel):
        yield Missing(function, title(function), whole)
        return
    for size in sorted(launch_sizes(context.program, function)):
        if size < threads:
            what = f"a launch gives its blocks {size} threads, and both consumers take {threads}"
            yield Missing(function, title(function), what)


def of_sources(context: PortContext, common: Common, kernel: Kernel) -> str:
    """What keeps a kernel at M=64 whichever tiles could become one."""
    if common != NOTHING:
        return "its helpers stand in a header that kernels of other files share"
    if kernel.function.template_params and kernel.function.file.path != context.program.sources.root:
        return "it is a template in a header, which other files may instantiate"
    if not kernel.roles.exact:
        return "its block size is not known"
    return "its blocks have more than one dimension" if several_dimensions(context.program) else ""


def of_kernel(first: int, kernel: Kernel) -> str:
    """What keeps two warpgroups of a kernel from one MMA, where those of the file begin with `first`."""
    roles = kernel.roles
    if roles.first != first:
        return "another kernel of the file has its consumers in other warpgroups"
    if roles.value == 1:
        return ALONE
    if roles.value not in (None, 2):
        return f"{roles.value} warpgroups run its MMAs, not two"
    return ""
