# SPDX-License-Identifier: Apache-2.0
"""Two-level accumulation: the MMA sums a part of K, the threads add the parts up in registers of their own.

FP8 kernels for Hopper do this because the tensor core keeps few bits of an FP8 sum, and because operands with
block scales need a factor for each part. `partial` is the accumulator of the MMAs, `total` what the epilogue
stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from porter.lang.cute_dsl import DslFile, Statement, assigned, body_of, called, walk
from porter.model.dsl import names
from porter.model.dsl.gemm import Gemm, made_registers
from porter.model.dsl.scope import Unrecognized


@dataclass(eq=False)
class Promotion:
    """`reads` are runs of statements that stand side by side and read the partial sums."""

    partial: str
    total: str
    definition: Statement
    reads: list[list[Statement]]
    clears: list[Statement]
    """Statements that fill the partial sums with zero."""
    views: dict[str, tuple[Statement, str]] = field(default_factory=dict)
    """Tensors that are divided among the threads as the accumulator is: where, and what is divided."""
    shapes: dict[str, Statement] = field(default_factory=dict)
    """Names of the accumulator's shape."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Names of the number of a thread's elements, and of which tensor."""
    compensates: bool = False
    """Whether the parts are added as they are, without a factor."""


def find_promotion(gemm: Gemm) -> Promotion | None:
    """What adds up the partial sums, or None where the epilogue reads the accumulator of the MMAs itself.

    Raises:
        Unrecognized: the sums are used in another way.
    """
    scope, file = gemm.kernel, gemm.file
    total = _total(gemm)
    if total is None:
        return None
    found = scope.definition(total)
    assert found is not None
    if gemm.loops[0].helper is not None:
        raise Unrecognized("partial sums of MMAs that a helper issues", gemm.loops[0].gemm)
    promotion = Promotion(gemm.accumulator, total, found[0], [], [])
    _views(gemm, promotion)
    reads: list[Statement] = []
    for use in scope.uses(promotion.partial):
        statement = scope.statement_of(use)
        if any(statement is loop.gemm for loop in gemm.loops):
            continue
        call = called(statement)
        func = call.func if call is not None else None
        if call is not None and isinstance(func, cst.Attribute) and func.value is use:
            if func.attr.value != "fill" or file.text(call.args[0].value) not in ("0", "0.0"):
                raise Unrecognized(f"threads write `{promotion.partial}`, the accumulator of the MMAs", statement)
            promotion.clears.append(statement)
            continue
        if _only_shape(use, gemm):
            continue
        lifted = _element_loops(gemm, statement)
        if lifted not in reads:
            reads.append(lifted)
    if not reads:
        raise Unrecognized(f"nothing adds `{promotion.partial}` to `{total}`", found[0])
    for statement in reads:
        _check_read(gemm, promotion, statement)
    for use in scope.uses(total):
        statement = _element_loops(gemm, scope.statement_of(use))
        if statement not in reads and not _only_shape(use, gemm):
            _check_elements(gemm, promotion, statement)
    promotion.reads = _runs(gemm, reads)
    promotion.compensates = all(_plain_sum(gemm, promotion, statement) for statement in reads)
    return promotion


def _total(gemm: Gemm) -> str | None:
    """The registers that the epilogue copies from, if they are not the accumulator of the MMAs."""
    scope, file = gemm.kernel, gemm.file
    for call in scope.calls():
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "retile" or len(call.args) != 1:
            continue
        name = file.text(call.args[0].value)
        if name != gemm.accumulator and made_registers(scope, name) is not None and _meets(gemm, name):
            return name
    return None


def _meets(gemm: Gemm, name: str) -> bool:
    """Whether some statement names these registers together with the accumulator of the MMAs."""
    scope = gemm.kernel
    parts = {id(_element_loops(gemm, scope.statement_of(use))) for use in scope.uses(gemm.accumulator)}
    return any(id(_element_loops(gemm, scope.statement_of(use))) in parts for use in scope.uses(name))


def _element_loops(gemm: Gemm, statement: Statement) -> Statement:
    """The outermost loop over elements around a statement: one in which nothing but arithmetic happens."""
    scope, current = gemm.kernel, statement
    for around in scope.ancestors(statement):
        if not isinstance(around, cst.For) or any(_acts(gemm, node) for node in walk(around)):
            break
        current = around
    return current


def _acts(gemm: Gemm, node: cst.CSTNode) -> bool:
    """A call that multiplies, copies, waits or counts."""
    if not isinstance(node, cst.Call):
        return False
    name = gemm.file.call_name(node) or ""
    method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    return name in (names.GEMM, "cutlass.cute.copy") or name.startswith((names.WARPGROUP, "cutlass.cute.arch.")) or (
        method in ("advance", "arrive_and_wait") or method.startswith(("consumer_", "producer_"))
    )


def _only_shape(use: cst.Name, gemm: Gemm) -> bool:
    """`x.shape`, `cute.size(x)`, `make_rmem_tensor_like(x)`: nothing of the contents."""
    parent = gemm.file.parent(use)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in ("shape", "layout", "element_type")
    call = gemm.file.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and gemm.file.call_name(call) in ("cutlass.cute.size", *names.REGISTERS_LIKE)


def _views(gemm: Gemm, promotion: Promotion) -> None:
    scope, file = gemm.kernel, gemm.file
    held = (promotion.partial, promotion.total)
    shapes = {file.text(made.args[0].value) for name in held if (made := made_registers(scope, name)) is not None}
    for statement in scope.statements:
        pair = assigned(statement)
        if pair is None or not isinstance(pair[0], cst.Name):
            continue
        name, value = pair[0].value, pair[1]
        if name in shapes or file.text(value) in (f"{held[0]}.shape", f"{held[1]}.shape"):
            promotion.shapes[name] = statement
        elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == (
            "partition_C"
        ):
            promotion.views[name] = (statement, file.text(value.args[0].value))
    for statement in scope.statements:
        pair = assigned(statement)
        if pair is None or not isinstance(pair[0], cst.Name) or not isinstance(pair[1], cst.Call):
            continue
        if file.call_name(pair[1]) == "cutlass.cute.size" and len(pair[1].args) == 1:
            of = file.text(pair[1].args[0].value)
            if of in held or of in promotion.views or of in promotion.shapes:
                promotion.sizes[pair[0].value] = of


def _check_read(gemm: Gemm, promotion: Promotion, statement: Statement) -> None:
    _check_elements(gemm, promotion, statement)
    if not _waited(gemm, statement):
        raise Unrecognized(f"`{promotion.partial}` is read while MMAs are still running", statement)
    for node in walk(statement):
        if isinstance(node, cst.Name):
            _check_origin(gemm, promotion, node, statement, set())


def _check_elements(gemm: Gemm, promotion: Promotion, statement: Statement) -> None:
    """Elements are reached by the index of a loop over all of them: which is where is not the code's business."""
    file = gemm.file
    fragments = {promotion.partial, promotion.total, *promotion.views}
    known = {*fragments, *promotion.shapes, *promotion.sizes}
    targets: set[str] = set()
    for node in walk(statement):
        if isinstance(node, cst.For):
            if not known & {n.value for n in walk(node.iter) if isinstance(n, cst.Name)}:
                raise Unrecognized(f"`{file.text(node.iter)}` is no loop over the accumulator's elements", node)
            targets |= {n.value for n in walk(node.target) if isinstance(n, cst.Name)}
    for node in walk(statement):
        if not isinstance(node, cst.Subscript):
            continue
        indices = [e for element in node.slice for e in _indices(element)]
        inner = {name for e in indices for name in _bare(file, e, fragments)}
        base = file.text(node.value)
        if base in fragments and not all(isinstance(e, cst.Name) and e.value in targets for e in indices):
            raise Unrecognized(f"`{file.text(node)}` takes an element by its place in the fragment", node)
        if base not in fragments and base not in promotion.shapes and inner & targets:
            raise Unrecognized(f"`{base}` is no tensor that is divided among the threads as the accumulator is", node)


def _bare(file: DslFile, node: cst.CSTNode, fragments: set[str]) -> Iterator[str]:
    """Names in an index, but for those that choose an element of a fragment."""
    if isinstance(node, cst.Subscript) and file.text(node.value) in fragments:
        return
    if isinstance(node, cst.Name):
        yield node.value
    for child in node.children:
        yield from _bare(file, child, fragments)


def _indices(element: cst.SubscriptElement) -> Iterator[cst.BaseExpression]:
    item = element.slice
    if not isinstance(item, cst.Index):
        yield from ()
    elif isinstance(item.value, cst.Tuple):
        yield from (e.value for e in item.value.elements)
    else:
        yield item.value


def _waited(gemm: Gemm, statement: Statement) -> bool:
    """Whether `wait_group(0)` stands between the last MMA and a statement."""
    scope, file = gemm.kernel, gemm.file
    current: Statement | None = statement
    while current is not None:
        block = scope.block(current)
        for before in reversed(block[: block.index(current)]):
            call = called(before)
            if call is not None and file.call_name(call) == names.WAIT:
                return file.text(call.args[0].value) == "0"
            if list(scope.calls_of(names.GEMM, before)):
                return False
        current = next(iter(scope.ancestors(current)), None)
        if isinstance(current, (cst.For, cst.While)):
            return False
    return False


_THREAD = ("cutlass.cute.arch.thread_idx", "cutlass.cute.arch.lane_idx", "cutlass.cute.arch.warp_idx")


def _check_origin(
    gemm: Gemm, promotion: Promotion, name: cst.Name, where: Statement, seen: set[str]
) -> None:
    """A factor must not be found by the thread's number, nor lie in the buffer that the MMAs release."""
    scope, file = gemm.kernel, gemm.file
    parent = file.parent(name)
    if (isinstance(parent, cst.Attribute) and parent.attr is name) or (
        isinstance(parent, cst.Arg) and parent.keyword is name
    ):
        return
    known = {promotion.partial, promotion.total, *promotion.views, *promotion.shapes, *promotion.sizes}
    if name.value in seen or name.value in known:
        return
    seen.add(name.value)
    if name.value in (gemm.read_state, gemm.release_state):
        if isinstance(parent, cst.Attribute) and parent.attr.value == "index":
            raise Unrecognized("a factor lies in the buffer that the MMAs release", where)
        return
    for value in scope.values(name.value):
        if isinstance(value, cst.Call) and file.call_name(value) in _THREAD:
            raise Unrecognized(
                f"the sums are treated by the number of the thread (`{name.value}`), and tcgen05.ld gives a thread "
                "other elements than wgmma; partition_C of an identity tensor says which", where
            )  # fmt: skip
        for node in walk(value):
            if isinstance(node, cst.Name):
                _check_origin(gemm, promotion, node, where, seen)


def _runs(gemm: Gemm, reads: list[Statement]) -> list[list[Statement]]:
    """Statements that stand side by side are one run."""
    runs: list[list[Statement]] = []
    for statement in sorted(reads, key=lambda s: gemm.file.span(s).start):
        block = gemm.kernel.block(statement)
        place = block.index(statement)
        if runs and place and block[place - 1] is runs[-1][-1]:
            runs[-1].append(statement)
        else:
            runs.append([statement])
    return runs


def _plain_sum(gemm: Gemm, promotion: Promotion, statement: Statement) -> bool:
    """`total[i] = total[i] + partial[i]`, `total.store(total.load() + partial.load())`."""
    inner: Statement = statement
    while isinstance(inner, cst.For) and len(body_of(inner)) == 1:
        inner = body_of(inner)[0]
    pair, call = assigned(inner), called(inner)
    value: cst.BaseExpression | None = pair[1] if pair is not None else None
    if value is None and call is not None and call.args:
        value = call.args[0].value
    if value is None and isinstance(inner, cst.SimpleStatementLine) and isinstance(inner.body[0], cst.AugAssign):
        step = inner.body[0]
        return isinstance(step.operator, cst.AddAssign) and gemm.file.text(step.value).startswith(
            promotion.partial
        ) and not any(isinstance(n, cst.BinaryOperation) for n in walk(step.value))
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return False
    sides = {gemm.file.text(side).split("[")[0].split(".")[0] for side in (value.left, value.right)}
    nested = any(isinstance(n, cst.BinaryOperation) for side in (value.left, value.right) for n in walk(side))
    return sides == {promotion.partial, promotion.total} and not nested
