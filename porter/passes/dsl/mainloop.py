# SPDX-License-Identifier: Apache-2.0
"""The loops over k tiles: one warp issues, commits release the buffers, nothing waits in between."""

from __future__ import annotations

import re

import libcst as cst

from porter.lang.cute_dsl import Statement, argument, body_of, called, walk
from porter.lang.text import Span
from porter.model.dsl import names
from porter.model.dsl.counts import count_that_may_be_zero, loop_bounds
from porter.model.dsl.gemm import KLoop, warp_test
from porter.model.dsl.helpers import Helper
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.context import ISSUER_RULE, MAINLOOP_RULE, KernelContext

_SYNC = (names.FENCE, names.COMMIT, names.WAIT)


def rewrite_mainloop(k: KernelContext) -> None:
    """Raises Unrecognized."""
    _synchronization(k)
    slice_of_one_mma(k)
    merged = _merge_prologue(k)
    kept = [loop for loop in k.gemm.loops if loop not in merged]
    for loop in kept:
        # In this order: both may insert at the end of the loop over k blocks.
        _accumulate(k, loop)
        _release(k, loop)
    _drop_release_state(k)
    zeroing = _first_mma_overwrites(k, kept)
    first, last = _region(k, kept, zeroing)
    _check_one_warp(k, first, last)
    _move(k, first, last, zeroing)
    _wait_for_result(k, last)


def is_call(k: KernelContext, statement: Statement, *wanted: str) -> bool:
    call = called(statement)
    return call is not None and k.file.call_name(call) in wanted


def _synchronization(k: KernelContext) -> None:
    """Fences, commits and waits of warpgroups go; the last wait is where the result is waited for."""
    helper = k.gemm.loops[0].helper
    for statement in [*k.gemm.kernel.statements, *(helper.scope.statements if helper is not None else ())]:
        if is_call(k, statement, *_SYNC) and statement is not _final_wait(k):
            k.edits.delete(MAINLOOP_RULE, statement)


def _final_wait(k: KernelContext) -> Statement | None:
    """The first `wait_group(0)` behind the loops, in their block."""
    last = max(k.gemm.block.index(loop.loop) for loop in k.gemm.loops)
    for statement in k.gemm.block[last + 1 :]:
        call = called(statement)
        if call is not None and k.file.call_name(call) == names.WAIT:
            if k.file.text(call.args[0].value) != "0":
                raise Unrecognized("the accumulator is read while MMAs are still running", statement)
            return statement
    return None


def slice_of_one_mma(k: KernelContext) -> None:
    """There is one MMA for all threads, so its slice is the CTA's place in the pair, which is 0."""
    for call in k.gemm.kernel.method_calls(k.gemm.mma, "get_slice"):
        k.edits.replace(MAINLOOP_RULE, call, f"{k.gemm.mma}.get_slice(0)")


def _normal(k: KernelContext, statements: list[Statement]) -> list[str]:
    """What statements do apart from synchronization, releases and the accumulate flag, as text."""
    gemm, found = k.gemm, []
    for statement in statements:
        if is_call(k, statement, *_SYNC) or is_set(k, statement):
            continue
        call = called(statement)
        receiver = call.func if call is not None else None
        if isinstance(receiver, cst.Attribute):
            owner = k.file.text(receiver.value)
            if (owner == gemm.pipeline and receiver.attr.value == "consumer_release") or (
                owner == gemm.release_state and owner != gemm.read_state
            ):
                continue
        if isinstance(statement, cst.For):
            head = f"for {k.file.text(statement.target)} in {k.file.text(statement.iter)}"
            found.append(_squeezed(head) + "{" + ";".join(_normal(k, body_of(statement))) + "}")
        else:
            found.append(_squeezed(k.file.text(statement)))
    return found


def _squeezed(text: str) -> str:
    """Code without comments, spaces and trailing commas."""
    plain = re.sub(r"#[^\n]*", "", text)
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", plain))


def _merge_prologue(k: KernelContext) -> list[KLoop]:
    """A prologue keeps MMAs in flight before the first wait. Without waits it is the main loop's beginning."""
    loops = k.gemm.loops
    if len(loops) != 2:
        if len(loops) > 2:
            raise Unrecognized(f"{len(loops)} loops over k tiles", loops[-1].loop)
        return []
    prologue, main = loops
    count, limits = loop_bounds(k.file, prologue.loop), loop_bounds(k.file, main.loop)
    if count is None or limits is None or len(limits) < 2:
        return []
    if len(count) > 1 and k.file.text(count[0]) == "0" and (len(count) == 2 or k.file.text(count[2]) == "1"):
        count = [count[1]]
    if len(count) != 1:
        return []
    meant = {_meaning(k, count[0]), k.file.text(count[0])}
    if k.file.text(limits[0]) not in meant and _meaning(k, limits[0]) not in meant:
        return []
    if len(limits) == 3 and k.file.text(limits[2]) != "1":
        return []
    first, rest = _normal(k, body_of(prologue.loop)), _normal(k, body_of(main.loop))
    if rest[: len(first)] != first:
        return []
    between = k.gemm.block[k.gemm.block.index(prologue.loop) + 1 : k.gemm.block.index(main.loop)]
    if _normal(k, between):
        return []
    k.edits.delete(MAINLOOP_RULE, prologue.loop)
    call = main.loop.iter
    assert isinstance(call, cst.Call)
    args = [k.file.text(limits[1]), *(k.file.text(a) for a in call.args if a.keyword is not None)]
    k.edits.replace(MAINLOOP_RULE, call, f"{k.file.text(call.func)}({', '.join(args)})")
    return [prologue]


def _meaning(k: KernelContext, node: cst.BaseExpression) -> str:
    return k.file.text(k.gemm.kernel.resolve(node))


def _release(k: KernelContext, loop: KLoop) -> None:
    """The commit that releases a buffer is issued right behind the MMAs that read it."""
    gemm = k.gemm
    body = body_of(loop.loop)
    releases = list(gemm.kernel.method_calls(gemm.pipeline, "consumer_release", loop.loop))
    statement = f"{gemm.pipeline}.consumer_release({gemm.read_state})"
    advances = gemm.kernel.method_calls(gemm.read_state, "advance", loop.loop)
    if not advances:
        raise Unrecognized(f"`{gemm.read_state}` does not advance in the loop", loop.loop)
    place = body.index(gemm.kernel.statement_of(advances[0]))
    direct = [c for c in releases if gemm.kernel.statement_of(c) in body]
    if direct and body.index(gemm.kernel.statement_of(direct[0])) < place:
        if gemm.release_state != gemm.read_state:
            k.edits.replace(MAINLOOP_RULE, direct[0].args[0], gemm.read_state)
        return
    for call in releases:
        k.edits.delete(MAINLOOP_RULE, _outermost(k, gemm.kernel.statement_of(call), body))
    behind = loop.inner if loop.inner is not None else loop.gemm
    k.edits.insert_after(MAINLOOP_RULE, behind, statement)


def _outermost(k: KernelContext, statement: Statement, body: list[Statement]) -> Statement:
    """A guard that holds only a release goes with it."""
    around = k.gemm.kernel.ancestors(statement)
    for outer in around:
        if outer in body and isinstance(outer, cst.If) and _only_releases(k, outer):
            return outer
    return statement


def _only_releases(k: KernelContext, block: cst.For | cst.If) -> bool:
    inner = body_of(block)
    return bool(inner) and block.orelse is None and all(_touches_release(k, s) for s in inner)


def _touches_release(k: KernelContext, statement: Statement) -> bool:
    call = called(statement)
    func = call.func if call is not None else None
    if not isinstance(func, cst.Attribute):
        return False
    owner, gemm = k.file.text(func.value), k.gemm
    return (owner == gemm.pipeline and func.attr.value == "consumer_release") or (
        owner == gemm.release_state != gemm.read_state
    )


def _drop_release_state(k: KernelContext) -> None:
    """The state that followed behind by the MMAs in flight has nothing to follow."""
    gemm = k.gemm
    inside = {id(n) for loop in gemm.loops for n in walk(loop.loop)}
    for statement in gemm.kernel.statements:
        if k.edits.removed(statement):
            continue
        holder = isinstance(statement, (cst.For, cst.If)) and _only_releases(k, statement)
        own = k.file.text(statement).startswith(gemm.release_state + ".")
        if holder or (_touches_release(k, statement) and (own or id(statement) not in inside)):
            k.edits.delete(MAINLOOP_RULE, statement)
    if gemm.release_state == gemm.read_state:
        return
    for statement, _ in gemm.kernel.definitions(gemm.release_state):
        k.edits.delete(MAINLOOP_RULE, statement)


def is_set(k: KernelContext, statement: Statement) -> bool:
    """`tiled_mma.set(Field.ACCUMULATE, ...)`."""
    call = called(statement)
    return call is not None and k.file.text(call.func) == f"{k.gemm.mma}.set" and bool(call.args) and (
        k.file.qualified(call.args[0].value) == names.ACCUMULATE
    )


def _flag(statement: Statement) -> cst.BaseExpression:
    call = called(statement)
    assert call is not None
    return call.args[1].value


def _sets(k: KernelContext, loop: KLoop) -> list[Statement]:
    return [s for s in walk(loop.loop) if isinstance(s, cst.SimpleStatementLine) and is_set(k, s)]


def _accumulate(k: KernelContext, loop: KLoop) -> None:
    """Every MMA but a tile's first one adds to what the one before it wrote."""
    field = f"{k.name('cutlass.cute.nvgpu.tcgen05')}.Field.ACCUMULATE"
    block = k.gemm.kernel.block(loop.gemm)
    behind = block[block.index(loop.gemm) + 1 :]
    steps = _sets(k, loop)
    turn_on = f"{k.gemm.mma}.set({field}, True)"
    if loop.helper is not None:
        _accumulate_in_helper(k, loop.helper, field)
        k.edits.insert_after(MAINLOOP_RULE, loop.gemm, turn_on)
        return
    if loop.inner is None:
        over_k_blocks(k, loop, turn_on)
        for step in steps:
            if step in behind:
                k.edits.delete(MAINLOOP_RULE, step)
        return
    if not steps:
        k.edits.insert_after(MAINLOOP_RULE, loop.gemm, turn_on)


def _accumulate_in_helper(k: KernelContext, helper: Helper, field: str) -> None:
    """The helper's MMAs but the first accumulate; what it sets may end with it, so the kernel sets it as well."""
    sets = [
        call for call in helper.scope.method_calls(helper.mma, "set")
        if call.args and k.file.qualified(call.args[0].value) == names.ACCUMULATE
    ]  # fmt: skip
    for call in sets:
        if k.file.text(call.args[1].value) != "True":
            raise Unrecognized("a helper decides whether its first MMA accumulates", call)
        k.edits.replace(MAINLOOP_RULE, call.args[0], field)
    if helper.traced and any(is_set(k, s) and k.file.text(_flag(s)) == "False" for s in k.gemm.kernel.statements):
        raise Unrecognized("the accumulate flag that a traced helper turns on is off again behind it", helper.gemm)
    if not sets:
        statement = helper.scope.statement_of(helper.gemm)
        k.edits.insert_after(MAINLOOP_RULE, statement, f"{helper.mma}.set({field}, True)")


def over_k_blocks(k: KernelContext, loop: KLoop, turn_on: str) -> None:
    """An MMA over a whole stage becomes a loop, since the flag changes behind its first k block."""
    gemm, file = k.gemm, k.file
    operands = [file.text(a.value) for a in loop.call.args[2:4]]
    found = [re.fullmatch(r"(\w+)\[\(?\s*None,\s*None,\s*None,\s*([^)\]]+?),?\s*\)?\]", t, re.S) for t in operands]
    if not all(found):
        raise Unrecognized("the operands of cute.gemm are no stage of a tensor", loop.gemm)
    (a, stage), (b, other) = ((m.group(1), m.group(2)) for m in found if m)
    if stage != other:
        raise Unrecognized("the operands of cute.gemm are in different stages", loop.gemm)
    cute, cutlass = k.name("cutlass.cute"), k.name("cutlass")
    index, place = k.context.fresh("k_block_idx"), k.context.fresh("k_block_coord")
    k.edits.replace_lines(
        MAINLOOP_RULE,
        loop.gemm,
        f"""
for {index} in {cutlass}.range({cute}.size({a}, mode=[2]), unroll_full=True):
    {place} = (None, None, {index}, {stage})
    {cute}.gemm(
        {gemm.mma}, {gemm.accumulator}, {a}[{place}], {b}[{place}], {gemm.accumulator}
    )
    {turn_on}
""",
    )


def _first_mma_overwrites(k: KernelContext, loops: list[KLoop]) -> Statement | None:
    """The statement that says so, before the loops; None if the port has to add it."""
    gemm, file = k.gemm, k.file
    filled = False
    for call in gemm.kernel.method_calls(gemm.accumulator, "fill"):
        if float(file.text(call.args[0].value)) != 0:
            raise Unrecognized("the accumulator does not begin with zero", call)
        k.edits.delete(MAINLOOP_RULE, gemm.kernel.statement_of(call))
        filled = True
    outside = [
        s for s in gemm.kernel.statements
        if is_set(k, s) and not any(s in walk(loop.loop) for loop in gemm.loops)
    ]  # fmt: skip
    field = f"{k.name('cutlass.cute.nvgpu.tcgen05')}.Field.ACCUMULATE"
    chosen: Statement | None = None
    for statement in outside:
        value = _flag(statement)
        if file.text(value) == "True" and filled:
            k.edits.replace(MAINLOOP_RULE, value, "False")
        elif file.text(value) != "False":
            raise Unrecognized("the first MMA of a tile may accumulate", statement)
        if statement in gemm.block:
            chosen = chosen or statement
    for loop in loops:
        for inner in _sets(k, loop):
            if file.text(_flag(inner)) == "False":
                raise Unrecognized("the accumulator is reset inside a loop over k tiles", inner)
    for statement in gemm.kernel.statements:
        if is_set(k, statement):
            step = called(statement)
            assert step is not None
            k.edits.replace(MAINLOOP_RULE, step.args[0], field)
    return chosen


def _region(k: KernelContext, loops: list[KLoop], zeroing: Statement | None) -> tuple[int, int]:
    """The statements that the issuing warp runs: the loops, and above them what only they need."""
    gemm, block = k.gemm, k.gemm.block
    first = min(block.index(loop.loop) for loop in gemm.loops)
    if zeroing is not None:
        first = min(first, block.index(zeroing))
    last = max(block.index(loop.loop) for loop in loops)
    count = count_that_may_be_zero(gemm)
    counted = [s for s, _ in gemm.kernel.definitions(count)] if count is not None else []
    while first > 0 and block[first - 1] not in counted and _only_for(k, block[first - 1], block[first : last + 1]):
        first -= 1
    return first, last


_MEETINGS = re.compile(
    r"cutlass\.cute\.arch\.(?:sync_threads|barrier\w*|cluster_\w+|warpgroup_reg_\w+|setmaxregister_\w+)"
    r"|cutlass\.pipeline\.(?:sync\w*|agent_sync|pipeline_init_\w+)"
)


def _check_one_warp(k: KernelContext, first: int, last: int) -> None:
    """What one warp is to run alone must not wait for others, nor be meant for another warp."""
    for statement in k.gemm.block[first : last + 1]:
        for node in walk(statement):
            if k.edits.removed(node) if isinstance(node, (cst.Call, cst.If)) else True:
                continue
            if isinstance(node, cst.If):
                warp = warp_test(k.gemm, node.test)
                if warp is not None and warp != k.gemm.issuer:
                    raise Unrecognized(f"warp {warp} has work of its own between the MMAs", node)
            elif isinstance(node, cst.Call):
                name = k.file.call_name(node) or ""
                method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
                if _MEETINGS.fullmatch(name) or method in ("arrive_and_wait", "arrive_and_drop"):
                    raise Unrecognized("threads meet between the MMAs, which one warp issues", node)


def _only_for(k: KernelContext, statement: Statement, region: list[Statement]) -> bool:
    """Whether a statement prepares nothing but what the region uses, and asks only for the consumer's state."""
    scope, gemm = k.gemm.kernel, k.gemm
    if k.edits.removed(statement):
        return True
    targets = [n.value for n in walk(statement) if isinstance(n, cst.Name) and scope._is_target(n)]
    text = k.file.text(statement)
    call = called(statement)
    if call is not None:
        return isinstance(call.func, cst.Attribute) and k.file.text(call.func.value) == gemm.read_state
    if not targets or "producer" in text or "copy(" in text:
        return False
    spans = [k.file.span(s) for s in (statement, *region)]
    return all(
        any(s.contains(k.file.span(use)) for s in spans) or k.edits.removed(use)
        for target in targets
        for use in scope.uses(target)
    )


def _move(k: KernelContext, first: int, last: int, zeroing: Statement | None) -> None:
    gemm, file = k.gemm, k.file
    start = file.comments_above(gemm.block[first]).start
    region = Span(start, file.whole_lines(gemm.block[last]).end)
    # The release of the last k tile may stand behind the loop; nothing of it is left.
    head, tail = "", ""
    if gemm.tile_loop is not None:
        head += f"{k.acc_pipeline}.producer_acquire({k.acc_producer})\n"
    if zeroing is None:
        field = f"{k.name('cutlass.cute.nvgpu.tcgen05')}.Field.ACCUMULATE"
        head += f"{gemm.mma}.set({field}, False)\n"
    tail += f"# Arrives when all MMAs of the tile are done\n{k.acc_pipeline}.producer_commit({k.acc_producer})\n"
    if gemm.tile_loop is not None:
        tail += f"{k.acc_producer}.advance()\n"
    k.edits.move_under(ISSUER_RULE, region, f"if {gemm.warp} == {gemm.issuer}:", head, tail)
    for statement in gemm.block[first : last + 1]:
        for node in walk(statement):
            if isinstance(node, cst.If) and warp_test(gemm, node.test) == gemm.issuer:
                test = node.test
                if isinstance(test, cst.BooleanOperation):
                    k.edits.replace(ISSUER_RULE, test, file.text(test.right))


def _wait_for_result(k: KernelContext, last: int) -> None:
    gemm = k.gemm
    text = f"{k.acc_pipeline}.consumer_wait({k.acc_consumer})"
    wait = _final_wait(k)
    if wait is not None:
        k.edits.replace_lines(MAINLOOP_RULE, wait, text)
        return
    inside = [
        s for loop in gemm.loops for s in walk(loop.loop)
        if isinstance(s, cst.SimpleStatementLine) and is_call(k, s, names.WAIT)
    ]  # fmt: skip
    if gemm.loops[0].helper is not None:
        of_helper = gemm.loops[0].helper.scope.statements
        inside += [s for s in of_helper if isinstance(s, cst.SimpleStatementLine) and is_call(k, s, names.WAIT)]
    waits = [called(s) for s in inside]
    if not any(c is not None and k.file.text(argument(c, "group", 0) or c) == "0" for c in waits):
        raise Unrecognized("nothing waits for the MMAs before the accumulator is read", gemm.block[last])
    following = gemm.block[last + 1] if last + 1 < len(gemm.block) else None
    if following is None:
        raise Unrecognized("nothing reads the accumulator behind the loops", gemm.block[last])
    k.edits.insert_before(MAINLOOP_RULE, following, text + "\n")
