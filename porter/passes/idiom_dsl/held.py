# SPDX-License-Identifier: Apache-2.0
"""Where registers of sums are used beside MMAs: in between they lie in Tensor Memory alone.

A use that may change registers, by whatever name, has them stored ahead of MMAs that add to them. What is not known to
leave them as they are may change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from porter.passes.idiom_dsl.names import KNOWN
from porter.passes.idiom_dsl.parts import Accumulator, Parts
from porter.passes.idiom_dsl.shapes import targets_of, whole_call
from porter.passes.idiom_dsl.text import Left, Statement, Text, found_in, method
from porter.passes.idiom_dsl.waited import Batch, is_use, parts_of

_COMPOUND: tuple[type[cst.CSTNode], ...] = (cst.For, cst.While, cst.If, cst.With)
_INNER: tuple[type[cst.CSTNode], ...] = (cst.FunctionDef, cst.Lambda)
_READS = ("load", "element_type", "shape", "layout")


@dataclass(frozen=True)
class Settled:
    """Statements of one block in which registers of a product are not used: they are `stored` ahead of the first, if
    they may say what MMAs add to, and loaded behind the last."""

    first: Statement
    last: Statement
    stored: bool


def _aliases_of(parts: Parts, name: str) -> set[str]:
    """Names that may stand for registers, or for a part of them."""
    found, grown = {name}, True
    while grown:
        new = set[str]()
        for value, targets in _bindings(parts.function):
            if any(n.value in found and _hands_on(parts.text, n) for n in found_in(value, cst.Name)):
                if any(isinstance(t, cst.Attribute) for target in targets for t in parts_of(target)):
                    raise Left("registers of sums that something else than the kernel has", value)
                new |= {name for target in targets for name in targets_of(target)}
        grown = bool(new - found)
        found |= new
    for inner in (node for kind in _INNER for node in found_in(parts.function.body, kind)):
        if {n.value for n in found_in(inner, cst.Name)} & found:
            raise Left("registers of sums that a function in the kernel has", inner)
    return found


def _bindings(function: cst.FunctionDef) -> Iterator[tuple[cst.BaseExpression, list[cst.BaseExpression]]]:
    """Values, and what each is assigned to."""
    for assign in found_in(function, cst.Assign):
        yield assign.value, [t.target for t in assign.targets]
    for noted in found_in(function, cst.AnnAssign):
        if noted.value is not None:
            yield noted.value, [noted.target]
    for named in found_in(function, cst.NamedExpr):
        yield named.value, [named.target]
    for loop in found_in(function, cst.For):
        yield loop.iter, [loop.target]
    for item in found_in(function, cst.WithItem):
        if item.asname is not None:
            yield item.item, [item.asname.name]


def _hands_on(text: Text, name: cst.Name) -> bool:
    """Whether what an expression is made of may be registers of this name, not their layout or their values."""
    parent = text.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name and parent.attr.value not in _READS
    return is_use(text, name) and not _is_measured(text, name)


def _is_chosen_early(parts: Parts, name: cst.Name) -> bool:
    """Whether an index, if there is one, is known when the kernel is traced: registers that are chosen later lie in
    memory, where they would be put ahead of the wait for their load."""
    text, above = parts.text, parts.text.parent(name)
    if not isinstance(above, cst.Subscript) or above.value is not name:
        return True
    own = {n for _, targets in _bindings(parts.function) for target in targets for n in targets_of(target)}
    own |= {p.name.value for p in parts.function.params.params} - {"self"}
    for index in (n for element in above.slice for n in found_in(element, cst.Name) if is_use(text, n)):
        loops = [a for a in text.above(index) if isinstance(a, cst.For) and index.value in set(targets_of(a.target))]
        if not (all(_is_unrolled(parts, loop) for loop in loops) if loops else index.value not in own):
            return False
    return True


def _is_measured(text: Text, name: cst.Name) -> bool:
    """Whether registers are asked for their size."""
    parent = text.parent(name)
    call = text.parent(parent)
    return isinstance(parent, cst.Arg) and isinstance(call, cst.Call) and text.is_a(call.func, KNOWN["size"])


def settled(parts: Parts, acc: Accumulator, batches: Sequence[Batch], block: cst.IndentedBlock) -> Iterator[Settled]:
    text = parts.text
    used = list(_used(parts, acc))
    for name in used:
        if not _is_chosen_early(parts, name):
            raise Left("registers of sums of which one is chosen when the kernel runs", name)
    own = [b for b in batches if any(map(parts.gemms_in, b.statements))]
    around = _unused_around(parts, own, used, block)
    if around is not None:
        written = any(not _only_reads(text, n) for n in used)
        yield Settled(around, around, written)
        return
    for batch in own:
        inside = [text.span(s) for s in batch.statements] + [text.span(batch.wait)]
        if any(s.contains(text.span(n)) for s in inside for n in used):
            raise Left("registers of the accumulator that are used among its MMAs", batch.first)
        written = any(not _only_reads(text, n) for n in used)
        yield Settled(batch.first, batch.wait, written and not _begins_anew(parts, batch))


def _used(parts: Parts, acc: Accumulator) -> Iterator[cst.Name]:
    """Where registers of sums are read or written, by whatever name."""
    names = _aliases_of(parts, acc.name)
    made = [parts.text.span(c) for c in acc.calls]
    for name in parts.uses(names):
        if not any(s.contains(parts.text.span(name)) for s in made) and not _is_measured(parts.text, name):
            yield name
    for call in found_in(parts.function, cst.Call):
        if method(call, "fill") in names and isinstance(call.func, cst.Attribute):
            yield from found_in(call.func.value, cst.Name)


def _unused_around(
    parts: Parts, batches: Sequence[Batch], used: Sequence[cst.Name], block: cst.IndentedBlock
) -> Statement | None:
    """The largest loop or condition around all batches in which registers are not used."""
    text, found = parts.text, None
    for node in text.above(batches[0].wait):
        if node is block:
            break
        if isinstance(node, _COMPOUND):
            span = text.span(node)
            if any(span.contains(text.span(n)) for n in used):
                break
            if all(span.contains(text.span(b.wait)) for b in batches) and isinstance(node, cst.BaseStatement):
                found = node
    return found


def _begins_anew(parts: Parts, batch: Batch) -> bool:
    """Whether the first MMA of a batch adds to nothing, whatever was before, and there is one."""
    for gemm in (g for s in batch.statements for g in parts.gemms_in(s)):
        for above in parts.text.above(gemm):
            if above is batch.block:
                break
            if isinstance(above, (cst.If, cst.While)) or (
                isinstance(above, cst.For) and not _is_unrolled(parts, above)
            ):
                return False
    for statement in batch.statements:
        call = whole_call(statement)
        if call is not None and method(call, "set") == parts.mma and call.args:
            return parts.text.code(call.args[-1].value) == "False"
        if parts.gemms_in(statement):
            return False
    return False


def _is_unrolled(parts: Parts, loop: cst.For) -> bool:
    """Whether a loop has as many turns as the trace has seen."""
    return isinstance(loop.iter, cst.Call) and parts.text.is_a(loop.iter.func, *KNOWN["constant_loops"])


def _only_reads(text: Text, name: cst.Name) -> bool:
    """Whether a use of registers cannot change them."""
    parent = text.parent(name)
    if isinstance(parent, cst.Attribute) and parent.value is name:
        return parent.attr.value in _READS
    if isinstance(parent, cst.Subscript) and parent.value is name:
        above = text.parent(parent)
        return not isinstance(above, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Arg))
    if isinstance(parent, cst.Arg):
        call = text.parent(parent)
        return isinstance(call, cst.Call) and bool(method(call, "retile"))
    return isinstance(parent, (cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.IfExp))
