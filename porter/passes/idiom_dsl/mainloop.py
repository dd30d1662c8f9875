# SPDX-License-Identifier: Apache-2.0
"""The main loop is one warp's: what commits an MMA gives its buffer back, and nobody waits for it but the loads.

PTX ISA 9.7.16.12.1 (tcgen05.commit). CUTLASS: python/CuTeDSL/cutlass/pipeline/sm100.py, PipelineTmaUmma.
"""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.batches import read_between, wait_behind
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.regions import Region, is_whole_wait
from porter.passes.idiom_dsl.shapes import advanced, binds, first_of
from porter.passes.idiom_dsl.site import Placed
from porter.passes.idiom_dsl.text import Draft, Left, Statement, argument, assigned, deeper, found_in, method, operand
from porter.passes.idiom_dsl.words import Words

RULE = "PTR585"


def edit(kernel: Kernel, draft: Draft, words: Words, slice_: str, placed: Placed | None = None) -> None:
    """`slice_`: the thread among those that read the accumulator. `placed`: what a step does with the main loop."""
    region = kernel.region
    _cleared(kernel, draft, words)
    _released(kernel, draft, region)
    condition = kernel.loader or f"{words['cute']}.arch.make_warp_uniform({operand(slice_)} // 32) == 0"
    if region.turns:
        draft.above(RULE, region.first, f"{words['issues']} = {condition}")
        condition = words["issues"]
        (_between_batches if region.is_waited_for else _between_turns)(kernel, draft, words, condition)
    for call in kernel.warpgroup_calls(kernel.function):
        draft.remove(RULE, _alone(kernel, call))
    _unrolled(kernel, draft, words)
    _emptied(kernel, draft, region)
    for turn in region.turns:
        if not region.is_waited_for:
            draft.above(RULE, turn.first, f"if {condition}:")
        draft.indent(RULE, turn.first, turn.last)
    if placed is not None:
        placed(draft, words)
    elif not region.turns:
        _under_one_warp(kernel, draft, words, region, condition)


def _between_turns(kernel: Kernel, draft: Draft, words: Words, condition: str) -> None:
    """Where all MMAs are waited for, sums are loaded; behind that the next MMA may begin."""
    if not words["load_whole"] or words["known"]:
        raise Left("sums that are used between MMAs and stored tile by tile", kernel.region.first)
    commit, acquire = (deeper(words.text(s, state=words["fills"])) for s in ("commit", "acquire"))
    parts = (f"if {condition}:", commit, words.text("wait"), words.text("copy_whole"), words.text("release"))
    for call in kernel.warpgroup_calls(kernel.function):
        if is_whole_wait(kernel, statement := kernel.text.statement(call)):
            draft.instead(RULE, statement, "\n".join([*parts, f"if {condition}:", acquire]))


def _between_batches(kernel: Kernel, draft: Draft, words: Words, condition: str) -> None:
    """Each batch has the accumulator for itself, and all threads wait for it. Sums are loaded there if something reads
    them before the next one, else behind all."""
    region, between = kernel.region, read_between(kernel, kernel.region)
    if not words["load_whole"]:
        raise Left("sums that are waited for at once and stored tile by tile", region.first)
    if between and words["known"]:
        raise Left("cleared sums that are used between MMAs", region.first)
    acquire, commit = (deeper(words.text(s, state=words["fills"])) for s in ("acquire", "commit"))
    behind = [words.text("copy_whole"), words.text("release")] if between else [words.text("turn_over")]
    for turn in region.turns:
        draft.above(RULE, turn.first, f"if {condition}:\n{acquire}")
        draft.below(RULE, turn.last, commit)
        draft.instead(RULE, wait_behind(kernel, turn), "\n".join([words.text("wait"), *behind]))
    if not between:
        known = [f"{words['any']} = {words['known']}"] if words["known"] else []
        draft.below(RULE, region.last, "\n".join([*known, words.loaded("copy_whole")]))


def _alone(kernel: Kernel, call: cst.Call) -> Statement:
    """The statement that is this call and nothing else."""
    statement = kernel.text.statement(call)
    if not m.matches(statement, m.SimpleStatementLine([m.Expr(m.Call())])):
        raise Left("a call among others in one statement", call)
    return statement


def _released(kernel: Kernel, draft: Draft, region: Region) -> None:
    """A buffer is given back right behind the MMAs that read it, whether the text waits for them first or not."""
    text = kernel.text
    waits = kernel.of_pipeline(region.block, "consumer_wait")
    releases = kernel.of_pipeline(region.block, "consumer_release")
    states = set()
    for wait in waits:
        block, state = text.block(text.statement(wait)), text.code(wait.args[0].value)
        states.add(state)
        multiplies = [s for s in block.body if kernel.gemms_in(s)]
        if not multiplies:
            raise Left("a buffer that is waited for away from its MMAs", wait)
        index = list(block.body).index(multiplies[-1])
        own = [r for r in releases if text.statement(r) in block.body and text.code(r.args[0].value) == state]
        behind = [s for s in block.body[index + 1 :] if kernel.warpgroup_calls(s)]
        if own:
            place = list(block.body).index(text.statement(own[0]))
            early = place < index or any(advanced(s) == state for s in block.body[:place])
            if len(own) > 1 or early:
                raise Left("a buffer that is given back behind the next one's turn", own[0])
            releases.remove(own[0])
            continue
        new = f"{kernel.pipeline[0]}.consumer_release({state})"
        if behind and text.is_a(_call(behind[0]).func, *OBSERVED["commit"]):
            draft.instead(RULE, behind[0], new, 1)
        else:
            draft.below(RULE, multiplies[-1], new, 1)
    late = {text.code(r.args[0].value) for r in releases} - states
    for release in releases:
        draft.remove(RULE, _alone(kernel, release))
    for statement in found_in(kernel.function, cst.SimpleStatementLine):
        if advanced(statement, "advance", "reset_count") in late:
            draft.remove(RULE, statement)
        bound = assigned(statement)
        if bound is not None and bound[0] in late:
            draft.remove(RULE, statement)


def _call(statement: cst.CSTNode) -> cst.Call:
    return found_in(statement, cst.Call)[0]


def _emptied(kernel: Kernel, draft: Draft, region: Region) -> None:
    """A condition under which nothing is left goes."""
    for statement in region.statements:
        conditions: list[cst.If | cst.For] = [*found_in(statement, cst.If), *found_in(statement, cst.For)]
        for whole in conditions:
            if whole.orelse is None and all(draft.is_gone(kernel.text.span(s)) for s in whole.body.body):
                draft.drop(whole)
                draft.remove(RULE, whole)


def _cleared(kernel: Kernel, draft: Draft, words: Words) -> None:
    """The first MMA does not add to an accumulator that is cleared. Where there may be none, registers are cleared."""
    names, text = kernel.accumulator.names, kernel.text
    words["known"] = ""
    fills = [c for c in found_in(kernel.function, cst.Call) if method(c, "fill") in names]
    if not fills:
        return
    if len(names) > 1:
        raise Left("several accumulators that are cleared", fills[0])
    for call in fills:
        if len(call.args) != 1 or text.code(call.args[0].value) not in ("0", "0.0"):
            raise Left("an accumulator that begins with something else than zero", call)
        if text.in_block(call, kernel.region.block) is None:
            raise Left("an accumulator that is cleared away from its main loop", call)
        if kernel.region.is_waited_for and (
            len(fills) > 1
            or text.statement(call) not in kernel.region.block.body
            or text.span(call).start > text.span(kernel.region.first).start
        ):
            raise Left("an accumulator that is cleared more than once, or between MMAs", call)
        draft.remove(RULE, _alone(kernel, call))
    begins = [c for c in kernel.settings if text.statement(c) in kernel.region.block.body]
    if len(begins) != 1 or text.code(begins[0].args[-1].value) != "True":
        raise Left("an accumulator that is cleared, and not added to from the first MMA on", fills[0])
    draft.replace(RULE, begins[0].args[-1].value, "False")
    words["known"] = " or ".join(f"{bound} > 0" for bound in bounds(kernel))
    for call in kernel.gemms:
        block, statement = text.block(text.statement(call)), text.statement(call)
        behind = list(block.body)[list(block.body).index(statement) + 1 :]
        if not any(method(c, "set") == kernel.mma for s in behind for c in found_in(s, cst.Call)) and not _is_deep(
            kernel, call
        ):
            draft.below(RULE, statement, f"{kernel.mma}.set({words['tcgen05']}.Field.ACCUMULATE, True)", 1)


def bounds(kernel: Kernel) -> list[str]:
    """What all have to be 0 for the main loop to have no MMA: the ends of its loops, each of which begins at 0 or where
    the one before ends."""
    text, found = kernel.text, list[str]()
    for loop in (s for s in kernel.region.block.body if kernel.gemms_in(s)):
        count = loop.iter if isinstance(loop, cst.For) else None
        ends = [text.code(a.value) for a in count.args if a.keyword is None] if isinstance(count, cst.Call) else []
        begin = [] if len(ends) == 1 else ends[:1]
        if (
            not ends
            or len(ends) > 3
            or (begin and begin[0] != "0" and begin != found[-1:])
            or ends[2:] not in ([], ["1"])
        ):
            raise Left("a cleared accumulator whose loop does not begin at 0", loop)
        found.append(operand(ends[0] if len(ends) == 1 else ends[1]))
    return found


def _counted(kernel: Kernel, known: str) -> list[Statement]:
    """Statements of the region that name what says whether there is an MMA, and may stand ahead of it."""
    text, names = kernel.text, {n.value for n in found_in(cst.parse_expression(known), cst.Name)}
    found, bound = list[Statement](), set[str]()
    for statement in kernel.region.statements:
        own = set(binds(statement))
        if own & names:
            value = assigned(statement)
            calls = found_in(statement, cst.Call)
            read = {n.value for n in found_in(value[1], cst.Name)} if value is not None else bound
            if value is None or read & bound or not all(text.is_a(c.func, *KNOWN["counts"]) for c in calls):
                raise Left("a number of turns that the main loop itself says", statement)
            found.append(statement)
        bound |= own
    return found


def _is_deep(kernel: Kernel, call: cst.Call) -> bool:
    """Whether an MMA is over several k blocks."""
    deep = {len(s.value(2, "a")["shape"]) > 2 and s.value(2, "a")["shape"][2] != 1 for s in kernel.seen(call)}
    if len(deep) != 1:
        raise Left("an MMA of one k block in one case and of several in another", call)
    return deep.pop()


def _unrolled(kernel: Kernel, draft: Draft, words: Words) -> None:
    """ACCUMULATE holds for a whole call, so that one over all k blocks becomes a loop."""
    for call in kernel.gemms:
        if not _is_deep(kernel, call):
            continue
        values = [argument(call, i, k) for i, k in enumerate(("atom", "d", "a", "b", "c"))]
        field = [c for c in kernel.settings if c.args]
        if not field or None in values:
            raise Left("an MMA over several k blocks that begins somewhere else", call)
        texts = [" ".join(kernel.text.code(v.value).split()) for v in values if v is not None]
        names = dict(zip(("mma", "acc", "a", "b"), texts, strict=False))
        new = words.text("multiply", gemm=kernel.text.code(call.func), field=f"{words['tcgen05']}.Field", **names)
        draft.instead(RULE, _alone(kernel, call), new, 1)


def _under_one_warp(kernel: Kernel, draft: Draft, words: Words, region: Region, condition: str) -> None:
    """The region under one condition; loads ahead that stand under it already begin it."""
    text, statements = kernel.text, region.statements
    state = words["fills"] if kernel.repeats else words["reads"]
    acquire = words.text_if_any("acquire") if kernel.repeats else ""
    first = statements[0]
    if words["known"]:
        counts = _counted(kernel, words["known"])
        draft.above(RULE, first, "\n".join([*map(text.dedented, counts), f"{words['any']} = {words['known']}"]))
        for statement in counts:
            draft.remove(RULE, statement)
    if isinstance(first, cst.If) and first.orelse is None and text.code(first.test) == condition:
        statements = statements[1:]
        if acquire:
            draft.above(RULE, statements[0], acquire, 1)
    else:
        draft.above(RULE, first, "\n".join([f"if {condition}:", deeper(acquire)] if acquire else [f"if {condition}:"]))
    draft.indent(RULE, statements[0], region.last)
    for test in (t for s in statements for t in found_in(s, cst.If)):
        if kernel.loader and text.code(first_of(test.test)) == kernel.loader and not draft.is_gone(text.span(test)):
            _without_first(draft, test)
    closing = deeper(words.text_if_any("commit", state=state))
    beside = list(map(text.dedented, region.beside))
    for statement in region.beside:
        draft.remove(RULE, statement)
    whole = [words.loaded("copy_whole")] if words["load_whole"] else []
    given_back = [words.text_if_any("release")] if whole and kernel.repeats else []
    draft.below(RULE, region.last, "\n".join([closing, *beside, words.text_if_any("wait"), *whole, *given_back]))


def _without_first(draft: Draft, test: cst.If) -> None:
    """`if W and C:` is `if C:` where W holds anyway; `if W:` stands for itself."""
    inner = test.test
    while m.matches(inner, m.BooleanOperation(operator=m.And(), left=m.BooleanOperation(operator=m.And()))):
        inner = cst.ensure_type(inner, cst.BooleanOperation).left
    if m.matches(inner, m.BooleanOperation(operator=m.And())):
        both = cst.ensure_type(inner, cst.BooleanOperation)
        draft.cut(RULE, both.left, both.right)
