# SPDX-License-Identifier: Apache-2.0
"""Two-level accumulation: MMAs sum into Tensor Memory, the threads load each part and add it up in registers.

The order of things stays as it is. One warp issues what the warpgroup issued together; where the partial sums are
read, a commit says that they are complete, every warp loads its rows subtile by subtile, and only when all have
loaded may the next MMA write.
"""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import Statement, assigned, called, walk
from porter.lang.text import Span
from porter.model.dsl import names
from porter.model.dsl.promotion import Promotion
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.context import ISSUER_RULE, MAINLOOP_RULE, PROMOTION_RULE, KernelContext
from porter.passes.dsl.mainloop import is_call, is_set, over_k_blocks, slice_of_one_mma

_SYNC = (names.FENCE, names.COMMIT, names.WAIT)


def rewrite_promotion(k: KernelContext, promotion: Promotion) -> None:
    """Raises Unrecognized."""
    for statement in k.gemm.kernel.statements:
        if is_call(k, statement, *_SYNC):
            k.edits.delete(MAINLOOP_RULE, statement)
    slice_of_one_mma(k)
    _flags(k, promotion)
    runs, moved = _releases_follow(k, _issue_runs(k))
    committed = {id(read): run for read in promotion.reads if (run := _run_before(k, runs, read[0])) is not None}
    for run in runs:
        _issue(k, run, moved.get(id(run), ""), commits=any(run is other for other in committed.values()))
    parts = {name: k.context.fresh(f"{name}_part") for name in (promotion.total, *promotion.views)}
    index = k.context.fresh("subtile")
    for read in promotion.reads:
        _read(k, promotion, read, index, parts, commit=id(read) not in committed)


def _flags(k: KernelContext, promotion: Promotion) -> None:
    """Partial sums that were filled with zero are overwritten by the next MMA."""
    gemm, file = k.gemm, k.file
    field = f"{k.name('cutlass.cute.nvgpu.tcgen05')}.Field.ACCUMULATE"
    turn_on, turn_off = (f"{gemm.mma}.set({field}, {value})" for value in (True, False))
    inside = {id(n) for loop in gemm.loops for n in walk(loop.inner or loop.gemm)}
    behind = set()
    for loop in gemm.loops:
        block = gemm.kernel.block(loop.gemm)
        behind |= {id(s) for s in block[block.index(loop.gemm) + 1 :] if is_set(k, s)}
        if loop.inner is None:
            over_k_blocks(k, loop, turn_on)
        elif not behind & {id(s) for s in block}:
            k.edits.insert_after(MAINLOOP_RULE, loop.gemm, turn_on)
    for statement in gemm.kernel.statements:
        if not is_set(k, statement):
            continue
        call = called(statement)
        assert call is not None
        value = file.text(call.args[1].value)
        if promotion.clears and value == "True" and id(statement) not in inside:
            k.edits.delete(MAINLOOP_RULE, statement)
        else:
            k.edits.replace(MAINLOOP_RULE, call.args[0], field)
    for clear in promotion.clears:
        k.edits.replace_lines(MAINLOOP_RULE, clear, turn_off)


def _kind(k: KernelContext, statement: Statement) -> str:
    """What a statement does for the MMAs."""
    gemm = k.gemm
    if any(statement is (loop.inner or loop.gemm) for loop in gemm.loops):
        return "mma"
    call = called(statement)
    func = call.func if call is not None else None
    if isinstance(func, cst.Attribute) and k.file.text(func.value) == gemm.pipeline:
        return {"consumer_wait": "wait", "consumer_release": "release"}.get(func.attr.value, "")
    if is_set(k, statement) or k.edits.removed(statement):
        return "between"
    return ""


def _issue_runs(k: KernelContext) -> list[list[Statement]]:
    """Neighbouring statements that one warp does: from a wait or an MMA to the last MMA or release behind it."""
    runs: list[list[Statement]] = []
    seen: set[int] = set()
    for first in k.gemm.kernel.statements:
        block = k.gemm.kernel.block(first)
        if id(first) in seen:
            continue
        seen |= {id(s) for s in block}
        run: list[Statement] = []
        for statement in [*block, None]:
            if statement is not None and _kind(k, statement):
                run.append(statement)
                continue
            while run and _kind(k, run[-1]) not in ("mma", "release"):
                run.pop()
            while run and k.edits.removed(run[0]):
                run.pop(0)
            if run:
                runs.append(run)
            run = []
    return runs


def _releases_follow(
    k: KernelContext, runs: list[list[Statement]]
) -> tuple[list[list[Statement]], dict[int, str]]:
    """A release that stands a few assignments behind its MMAs is issued with them, since a commit waits by itself.

    Also returns the text that goes behind each run.
    """
    kept: list[list[Statement]] = []
    moved: dict[int, str] = {}
    for run in runs:
        before = _run_before(k, kept, run[0])
        if before is None or any(_kind(k, s) not in ("release", "between") for s in run):
            kept.append(run)
            continue
        for statement in run:
            if _kind(k, statement) == "release":
                moved[id(before)] = moved.get(id(before), "") + k.file.text(statement).strip() + "\n"
                k.edits.delete(MAINLOOP_RULE, statement)
    return kept, moved


def _run_before(k: KernelContext, runs: list[list[Statement]], read: Statement) -> list[Statement] | None:
    """The MMAs whose sums a statement reads, if every path from them leads straight to it."""
    block = k.gemm.kernel.block(read)
    for statement in reversed(block[: block.index(read)]):
        for run in runs:
            if run[-1] is statement:
                return run if any(_kind(k, s) == "mma" for s in run) else None
        if isinstance(statement, cst.BaseCompoundStatement):
            return None
    return None


def _commit(k: KernelContext) -> str:
    return f"{k.acc_pipeline}.producer_commit({k.acc_producer})\n{k.acc_producer}.advance()\n"


def _issue(k: KernelContext, run: list[Statement], behind: str, commits: bool) -> None:
    gemm, file = k.gemm, k.file
    start = file.comments_above(run[0]).start
    region = Span(start, file.whole_lines(run[-1]).end)
    multiplies = any(_kind(k, s) == "mma" for s in run)
    head = f"{k.acc_pipeline}.producer_acquire({k.acc_producer})\n" if multiplies else ""
    tail = behind + (f"# Arrives when the MMAs are done\n{_commit(k)}" if commits else "")
    k.edits.move_under(ISSUER_RULE, region, f"if {gemm.warp} == {gemm.issuer}:", head, tail)


def _read(
    k: KernelContext, promotion: Promotion, read: list[Statement], index: str, parts: dict[str, str], commit: bool
) -> None:
    """The statements run once for each subtile, on registers that tcgen05.ld has filled."""
    file = k.file
    cute, cutlass = k.name("cutlass.cute"), k.name("cutlass")
    renamed = {promotion.partial: k.t2r_target, promotion.total: parts[promotion.total]}
    renamed |= dict.fromkeys(promotion.shapes, f"{k.t2r_target}.shape")
    used = {n.value for s in read for n in walk(s) if isinstance(n, cst.Name)}
    renamed |= {view: parts[view] for view in promotion.views if view in used}
    sliced = [name for name in (promotion.total, *promotion.views) if name in renamed]
    slices = "".join(f"{parts[name]} = {name}[(None, None, (None, {index}))]\n" for name in sliced)
    for size, of in promotion.sizes.items():
        renamed[size] = f"{cute}.size({renamed.get(of, k.t2r_target)})"
    header = ""
    if commit:
        header += f"if {k.gemm.warp} == {k.gemm.issuer}:\n"
        header += "".join(f"    {line}\n" for line in _commit(k).splitlines())
    header += f"{k.acc_pipeline}.consumer_wait({k.acc_consumer})\n"
    header += f"for {index} in {cutlass}.range_constexpr({cute}.size({k.t2r_source}, mode=[3])):"
    head = (
        f"{cute}.copy({k.t2r}, {k.t2r_source}[(None, None, None, {index})], {k.t2r_target})\n"
        f"{cute}.arch.fence_view_async_tmem_load()\n{slices}"
    )
    behind = f"{k.acc_pipeline}.consumer_release({k.acc_consumer})\n{k.acc_consumer}.advance()\n"
    region = Span(file.comments_above(read[0]).start, file.whole_lines(read[-1]).end)
    k.edits.move_under(PROMOTION_RULE, region, header, head, "", behind)
    for statement in read:
        for node in walk(statement):
            if isinstance(node, cst.Name) and node.value in renamed and _is_local(k, node):
                k.edits.replace(PROMOTION_RULE, node, renamed[node.value])


def _is_local(k: KernelContext, node: cst.Name) -> bool:
    parent = k.file.parent(node)
    if isinstance(parent, cst.Attribute):
        return parent.attr is not node
    return not (isinstance(parent, cst.Arg) and parent.keyword is node)


def registers_text(k: KernelContext, promotion: Promotion, tile: str, anchor: int) -> str:
    """The registers of the sums, and what is divided among the threads alike, for behind the copy's definition."""
    gemm, scope = k.gemm, k.gemm.kernel
    cute, made = k.name("cutlass.cute"), k.file.text(gemm.registers.args[1].value)
    text = f"""
# (T2R, T2R_M, (T2R_N, subtiles))
{promotion.total} = {cute}.make_rmem_tensor(
    (*{k.t2r_target}.shape[:2], ({k.t2r_target}.shape[2], {cute}.size({k.t2r_source}, mode=[3]))),
    {made},
)
"""
    k.edits.delete(PROMOTION_RULE, promotion.definition)
    for name, statement in promotion.shapes.items():
        if all(k.edits.removed(use) for use in scope.uses(name)):
            continue
        k.edits.delete(PROMOTION_RULE, statement)
        if any(not k.edits.removed(use) for use in scope.uses(name)):
            text += f"{name} = {promotion.total}.shape\n"
    for name, (statement, divided) in promotion.views.items():
        if not any(_contents(k, use) for use in scope.uses(name)):
            continue
        view = (
            f"{k.thr_t2r}.partition_D(\n    {cute}.flat_divide({divided}, {tile})\n)\n"
            f"{name} = {cute}.group_modes({cute}.group_modes({name}, 3, 5), 2, 4)"
        )
        if k.file.span(statement).start < anchor:
            k.edits.delete(PROMOTION_RULE, statement)
            text += f"{name} = {view}\n"
        else:
            comment = "# (T2R, T2R_M, (T2R_N, subtiles)), as the accumulator\n"
            k.edits.replace_lines(PROMOTION_RULE, statement, f"{comment}{name} = {view}")
    return text


def _contents(k: KernelContext, use: cst.Name) -> bool:
    parent = k.file.parent(use)
    return not (isinstance(parent, cst.Attribute) and parent.attr.value in ("shape", "layout"))


def anchor_of(k: KernelContext, promotion: Promotion, wanted: Statement) -> Statement:
    """Where the copy from Tensor Memory is defined: as wanted, or else in front of what first needs it.

    Raises:
        Unrecognized: there it is not yet known where the copy's threads write to.
    """
    scope, file = k.gemm.kernel, k.file
    needed = [s for read in promotion.reads for s in read]
    needed += [scope.statement_of(u) for u in scope.uses(promotion.total) if not _makes(k, promotion, u)]
    first = min(needed, key=lambda s: file.span(s).start)
    if file.span(wanted).start < file.span(first).start:
        return wanted
    chain = [first, *scope.ancestors(first)]
    place = next((s for s in chain if any(s is other for other in k.gemm.block)), None)
    if place is None:
        raise Unrecognized(f"`{promotion.total}` is used before the epilogue's copy is known", first)
    return place


def _makes(k: KernelContext, promotion: Promotion, use: cst.Name) -> bool:
    """Definitions of other registers by the shape of these."""
    statement = k.gemm.kernel.statement_of(use)
    return assigned(statement) is not None and not _contents(k, use)
