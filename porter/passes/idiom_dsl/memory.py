# SPDX-License-Identifier: Apache-2.0
"""The accumulator in Tensor Memory: its columns, the barriers on which it is full and empty again, and its end.

PTX ISA 9.7.16.7.1 (tcgen05.alloc), 9.7.16.6.4 (tcgen05.fence). CUTLASS: python/CuTeDSL/cutlass/pipeline/sm100.py.
"""

from __future__ import annotations

import math
import re

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import agreed
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED, ONE_BLOCK
from porter.passes.idiom_dsl.text import (
    Draft,
    Left,
    Statement,
    Text,
    argument,
    assigned,
    found_in,
    method,
    one,
    operand,
)
from porter.passes.idiom_dsl.words import Words
from porter.ptx.wgmma import THREADS

STORAGE, PIPELINE, ACCUMULATOR, END = "PTR582", "PTR583", "PTR584", "PTR588"
_NONE = re.compile(ONE_BLOCK)


def storage(kernel: Kernel, draft: Draft, words: Words) -> None:
    """Shared memory for two mbarriers and for the address of the columns, behind the mbarriers of the loads."""
    if kernel.is_by_hand:
        words["smem"], last = allocations(kernel, kernel.accumulator.statement)
        draft.below(STORAGE, last, words.text("arrays"))
        return
    owner, field = member_of(kernel, kernel.pipeline[1])
    draft.below(STORAGE, field, words.text("storage"))
    words["barriers"] = f"{owner}.{words['barriers']}.data_ptr()"
    words["address"] = f"{owner}.{words['address']}.ptr"


def member_of(kernel: Kernel, create: cst.Call) -> tuple[str, Statement]:
    """Where the mbarriers of a pipeline of loads are: what the kernel calls their struct, and the member of it."""
    text, created = kernel.text, argument(create, None, "barrier_storage")
    value = _followed(kernel, created.value) if created is not None else None
    shape = m.Call(m.Attribute(m.Attribute(m.Name(), m.Name()), m.Name("data_ptr")), [])
    if value is None or not m.matches(value, shape):
        raise Left("mbarriers of the loads that are no member of a struct", create)
    called = cst.ensure_type(cst.ensure_type(value, cst.Call).func, cst.Attribute)
    member = cst.ensure_type(called.value, cst.Attribute)
    owner, name = text.code(member.value), member.attr.value
    fields = [
        s
        for s in found_in(text.module, cst.SimpleStatementLine)
        if m.matches(s, _field(name)) and _in_struct(kernel, s)
    ]
    return owner, one(fields, f"members `{name}` of structs")


def allocations(kernel: Kernel, sums: Statement) -> tuple[str, Statement]:
    """What the kernel calls its allocator of shared memory, and the last statement that asks it for some, which stands
    ahead of the one that makes the accumulator."""
    text = kernel.text
    body = [s for s in kernel.function.body.body if isinstance(s, cst.BaseStatement)]
    made = [a for s in body if (a := assigned(s)) is not None and isinstance(a[1], cst.Call)]
    names = [n for n, v in made if text.is_a(cst.ensure_type(v, cst.Call).func, KNOWN["allocator"])]
    if len(names) != 1:
        raise Left("shared memory of an allocator with a name", kernel.function)
    asked = [s for s in body for c in found_in(s, cst.Call) if method(c, *KNOWN["allocates"]) == names[0]]
    if not asked or text.span(asked[-1]).start > text.span(sums).start:
        raise Left("shared memory that is allocated ahead of the accumulator", sums)
    return names[0], asked[-1]


def _field(name: str) -> m.SimpleStatementLine:
    return m.SimpleStatementLine([m.AnnAssign(m.Name(name))])


def _in_struct(kernel: Kernel, statement: cst.CSTNode) -> bool:
    above = next(kernel.text.above(kernel.text.parent(statement)), None)
    return isinstance(above, cst.ClassDef) and any(
        kernel.text.is_a(d.decorator, KNOWN["struct"]) for d in above.decorators
    )


def _followed(kernel: Kernel, value: cst.BaseExpression) -> cst.BaseExpression:
    """The value of a name that the kernel binds once; else the value itself."""
    while isinstance(value, cst.Name):
        name = value.value
        bound = [a for s in found_in(kernel.function, cst.SimpleStatementLine) if (a := assigned(s)) and a[0] == name]
        if len(bound) != 1:
            return value
        value = bound[0][1]
    return value


def pipelines(kernel: Kernel, draft: Draft, words: Words, slice_: str, warpgroups: int, number: str) -> None:
    """A buffer of the loads is given back by `tcgen05.commit`, one arrival for each CTA that reads it; the accumulator
    has a pipeline of its own. `slice_`: the thread among those of the `warpgroups` that read it, whose `number` the
    kernel says so."""
    layout: cst.Arg | None = None
    defer: cst.Arg | None = None
    if kernel.is_by_hand:
        place = allocations(kernel, kernel.accumulator.statement)[1]
    else:
        create = kernel.pipeline[1]
        place = kernel.text.statement(create)
        layout, defer = argument(create, None, "cta_layout_vmnk"), argument(create, None, "defer_sync")
        _arrivals(kernel, draft, create, layout)
    words["layout"] = kernel.text.code(layout.value) if layout is not None else ""
    if words["pair"]:
        words["layout"] = f"{words['cute']}.make_layout((2, 1, 1, 1))"
    words["defer"] = kernel.text.code(defer.value) if defer is not None else ""
    everybody = kernel.branch is None
    words["readers"] = _block(kernel, warpgroups) if everybody else _threads(number)
    if words["pair"]:
        words["readers"] = f"2 * {operand(words['readers'])}"
    words["apart"] = kernel.text.margin(kernel.accumulator.statement) != kernel.text.margin(
        kernel.function.body.body[0]
    )
    words["allocating"] = words["readers"] if words["apart"] or everybody else _block(kernel, warpgroups)
    words["barrier"] = _free_barrier(kernel)
    words["allocator"] = first_warp(kernel, slice_) if words["apart"] else 0
    draft.below(PIPELINE, place, words.text("pipeline"))


def _threads(warpgroups: str) -> str:
    """The threads of so many warpgroups."""
    return str(THREADS * int(warpgroups)) if warpgroups.isdecimal() else f"{THREADS} * {warpgroups}"


def first_warp(kernel: Kernel, slice_: str) -> int:
    """The first warp of those that multiply, by what is taken from the thread's index to count them from 0."""
    value = cst.parse_expression(slice_)
    first: int | None = 0
    if m.matches(value, m.BinaryOperation(m.Name(), m.Subtract())):
        minus = cst.ensure_type(value, cst.BinaryOperation)
        first, value = kernel.number(minus.right), minus.left
    thread = isinstance(value, cst.Name) and value.value in thread_indices(kernel.text, kernel.function)
    if not thread or first is None or first % THREADS:
        raise Left("which warp is the first that multiplies is not said by a number", kernel.accumulator.statement)
    return first // 32


def thread_indices(text: Text, function: cst.FunctionDef) -> set[str]:
    """Names of the thread's index in its block."""
    found = set[str]()
    for node in found_in(function, cst.Assign):
        target = node.targets[0].target
        if isinstance(node.value, cst.Call) and text.is_a(node.value.func, *OBSERVED["thread_index"]):
            first = target.elements[0].value if isinstance(target, cst.Tuple) else None
            found |= {first.value} if isinstance(first, cst.Name) else set()
    return found


def _block(kernel: Kernel, warpgroups: int) -> str:
    """The threads of the port's block, of whose warpgroups so many read the accumulator: what the host code says of
    it, or their number."""
    widths = {s.case: math.prod(s.value(5, "atom_layout_mnk")) for s in kernel.facts.of("make_mma")}
    threads = {t.threads - THREADS * (widths[i] - warpgroups) for i, t in enumerate(kernel.facts.traces) if i in widths}
    number = agreed(threads, "threads of a block")
    for call in found_in(kernel.text.module, cst.Call):
        block = argument(call, None, "block") if method(call, "launch") else None
        if block is not None and isinstance(block.value, (cst.List, cst.Tuple)) and len(block.value.elements):
            first = block.value.elements[0].value
            if not isinstance(first, cst.Integer) and kernel.is_global(first):
                return kernel.text.code(first)
    return str(number)


def _arrivals(kernel: Kernel, draft: Draft, create: cst.Call, layout: cst.Arg | None) -> None:
    consumers = argument(create, None, "consumer_group")
    group = _followed(kernel, consumers.value) if consumers is not None else None
    if not isinstance(group, cst.Call) or not kernel.text.is_a(group.func, *OBSERVED["group"]):
        raise Left("who consumes the loads is not said where their pipeline is made", create)
    count = argument(group, 1, "size")
    if count is None:
        raise Left("consumers of the loads without a number", group)
    ones = layout is None or _NONE.fullmatch(kernel.text.code(_followed(kernel, layout.value)))
    ctas = "" if ones else _ctas(kernel, count.value)
    if ones:
        first, new = kernel.text.code(group.args[0]).rstrip(", "), ""
        draft.replace(PIPELINE, group, f"{kernel.text.code(group.func)}({first})", [group.func, group.args[0]])
    elif ctas:
        new = ctas if count.keyword is None else f"size={ctas}"
        draft.replace(PIPELINE, count, new)
    else:
        assert layout is not None
        text = kernel.text.code(layout.value)
        new = f"{text}.shape[1] + {text}.shape[2] - 1"
        draft.replace(PIPELINE, count, new if count.keyword is None else f"size={new}")


def _ctas(kernel: Kernel, count: cst.BaseExpression) -> str:
    """Of a product of warps and CTAs, what the CTAs are called; empty if the text does not say it so."""
    value = _followed(kernel, count)
    if not m.matches(value, m.BinaryOperation(operator=m.Multiply())):
        return ""
    sides = [cst.ensure_type(value, cst.BinaryOperation).left, cst.ensure_type(value, cst.BinaryOperation).right]
    per_warp = [
        s for s in sides if re.search(r"// (32|cute\.arch\.WARP_SIZE)\W*$", kernel.text.code(_followed(kernel, s)))
    ]
    others = [s for s in sides if s not in per_warp]
    return kernel.text.code(others[0]) if len(per_warp) == len(others) == 1 and isinstance(others[0], cst.Name) else ""


def _free_barrier(kernel: Kernel) -> int:
    """A named barrier that no case uses; 0 is that of all threads of a block."""
    used = {s.value(0, "barrier_id") for s in kernel.facts.of("barrier")}
    if not all(isinstance(n, int) or n is None for n in used):
        raise Left("a named barrier whose number is not known when the kernel is traced")
    return next(n for n in range(1, 16) if n not in used)


def accumulator(kernel: Kernel, draft: Draft, words: Words) -> None:
    """The registers become a tile of Tensor Memory with the same partition."""
    acc, text = kernel.accumulator, kernel.text
    block = kernel.region.block
    if words["apart"] and not (text.block(acc.statement) is block or text.in_block(block, text.block(acc.statement))):
        raise Left("an accumulator that is made away from its main loop", acc.statement)
    if acc.seen[0].name.endswith("make_fragment_C"):
        fragment = text.code(acc.call)
    else:
        shape = argument(acc.call, 0, "shape_or_layout")
        if shape is None or acc.seen[0].name.endswith("_like"):
            raise Left("an accumulator that is made like another tensor", acc.call)
        fragment = f"{kernel.mma}.make_fragment_C({text.code(shape.value)})"
    several = len(acc.names) > 1
    if several or words["stages"] > 1:
        shape = argument(acc.call, 0)
        assert shape is not None
        both = f"{words['cute']}.append({text.code(shape.value)}, {max(len(acc.names), words['stages'])})"
        fragment = f"{kernel.mma}.make_fragment_C({both})"
    parts = [f"{name} = {words['acc']}[(None, None, None, {i})]" for i, name in enumerate(acc.names) if several]
    draft.instead(ACCUMULATOR, acc.statement, "\n".join([words.text("accumulator", fragment=fragment), *parts]))
    for statement in acc.statements[1:]:
        draft.remove(ACCUMULATOR, statement)


def end(kernel: Kernel, draft: Draft, words: Words) -> None:
    """The columns are given back when all threads have read them, and no commit of another CTA is under way to this."""
    text = kernel.text
    block = text.block(kernel.accumulator.statement)
    body = list(block.body)
    returns = [
        r for s in kernel.function.body.body for r in found_in(s, cst.Return) if text.function(r) is kernel.function
    ]
    last = body[-1]
    if m.matches(last, m.SimpleStatementLine([m.Return(None)])) and len(returns) == 1:
        last = body[-2]
    elif returns:
        raise Left("a kernel that ends at several places", returns[0])
    drained = ""
    if kernel.loader and not kernel.of_pipeline(kernel.function, "producer_tail") and _has_clusters(kernel):
        state = {text.code(c.args[0].value) for c in kernel.of_pipeline(kernel.function, "producer_acquire")}
        if len(state) != 1:
            raise Left("loads with several states")
        drained = f"if {kernel.loader}:\n    {kernel.pipeline[0]}.producer_tail({state.pop()})\n"
    meet = f"{words['gathered']}.arrive_and_wait()" if words["apart"] else f"{words['cute']}.arch.sync_threads()"
    if words["pair"]:
        meet = f"{words['cute']}.arch.cluster_arrive()\n{words['cute']}.arch.cluster_wait()"
    draft.below(END, last, drained + words.text("end", meet=meet))


def _has_clusters(kernel: Kernel) -> bool:
    layout = argument(kernel.pipeline[1], None, "cta_layout_vmnk")
    ones = layout is None or _NONE.fullmatch(kernel.text.code(_followed(kernel, layout.value)))
    return any(t.cluster > 1 for t in kernel.facts.traces) or not ones
