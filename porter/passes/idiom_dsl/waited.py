# SPDX-License-Identifier: Apache-2.0
"""Batches of MMAs that all threads of a warpgroup wait for right behind them, whatever adds to which accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.regions import is_whole_wait
from porter.passes.idiom_dsl.shapes import operand_of, targets_of
from porter.passes.idiom_dsl.text import Left, Statement, Text, found_in, method

_CHANGES: tuple[type[cst.CSTNode], ...] = (cst.AugAssign, cst.AnnAssign, cst.NamedExpr)
_LEAVES: tuple[type[cst.CSTNode], ...] = (cst.Return, cst.Break, cst.Continue)


@dataclass(frozen=True)
class Batch:
    """MMAs from the `first` statement to the `last` of a block, and the `wait` for all of them."""

    block: cst.IndentedBlock
    first: Statement
    last: Statement
    wait: Statement

    @property
    def statements(self) -> list[Statement]:
        body = list(self.block.body)
        return body[body.index(self.first) : body.index(self.last) + 1]


def waited_for(kernel: Kernel) -> Iterator[Batch]:
    text, inside = kernel.text, []
    for wait in text.calls(kernel.function, *OBSERVED["wait"]):
        statement = text.statement(wait)
        if not is_whole_wait(kernel, statement):
            raise Left("MMAs that are not all waited for", wait)
        block = text.block(statement)
        ahead = list(block.body)[: list(block.body).index(statement)]
        before = max((i for i, s in enumerate(ahead) if text.calls(s, *OBSERVED["wait"])), default=-1)
        own = [s for s in ahead[before + 1 :] if kernel.gemms_in(s) or kernel.warpgroup_calls(s)]
        if not any(map(kernel.gemms_in, own)):
            raise Left("a wait with no MMAs ahead of it", wait)
        batch = Batch(block, own[0], own[-1], statement)
        _require_apart(kernel, batch)
        inside += [text.span(s) for s in batch.statements]
        yield batch
    for call in [*kernel.gemms, *text.calls(kernel.function, *OBSERVED["commit"], *OBSERVED["fence"])]:
        if not any(span.contains(text.span(call)) for span in inside):
            raise Left("MMAs that are not waited for right behind them", call)


def _require_apart(kernel: Kernel, batch: Batch) -> None:
    """Raises Left: a batch does more than to multiply, or something else needs what it binds."""
    text, mmas = kernel.text, {text_of(kernel, c) for c in kernel.gemms}
    bound = set[str]()
    for statement in batch.statements:
        own = {*kernel.gemms_in(statement), *kernel.warpgroup_calls(statement)}
        for call in found_in(statement, cst.Call):
            plain = text.is_a(call.func, *KNOWN["counts"], *KNOWN["loops"]) or method(call, "set") in mmas
            if call not in own and not plain:
                raise Left("work among MMAs that is not theirs", call)
        if counted := [node for kind in _CHANGES for node in found_in(statement, kind)]:
            raise Left("a value that is changed among MMAs", counted[0])
        for target in found_in(statement, cst.AssignTarget):
            if not all(isinstance(n, cst.Name) for n in parts_of(target.target)):
                raise Left("a value that is changed among MMAs", target)
            bound |= set(targets_of(target.target))
        for loop in found_in(statement, cst.For):
            bound |= set(targets_of(loop.target))
        if any(found_in(statement, kind) for kind in _LEAVES):
            raise Left("MMAs that may be left", statement)
    spans = [text.span(s) for s in batch.statements]
    for name in found_in(kernel.function, cst.Name):
        outside = not any(span.contains(text.span(name)) for span in spans)
        if name.value in bound and outside and is_use(text, name) and not _has_own(text, name):
            raise Left(f"`{name.value}` of the MMAs is used beside them", name)


def parts_of(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What an assignment assigns to."""
    return [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else [target]


def text_of(kernel: Parts, gemm: cst.Call) -> str:
    """What the tiled MMA is called."""
    return kernel.text.code(operand_of(gemm, 0, "atom"))


def is_use(text: Text, node: cst.Name) -> bool:
    """Whether a name is read, and is no keyword or attribute."""
    parent = text.parent(node)
    if isinstance(parent, (cst.AssignTarget, cst.Param)):
        return False
    if isinstance(parent, cst.Arg):
        return parent.keyword is not node
    return not (isinstance(parent, cst.Attribute) and parent.attr is node)


def _has_own(text: Text, name: cst.Name) -> bool:
    """Whether a loop around a name binds it."""
    return any(isinstance(n, cst.For) and name.value in set(targets_of(n.target)) for n in text.above(name))
