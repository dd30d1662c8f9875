# SPDX-License-Identifier: Apache-2.0
"""Kernels with an operand A from registers: each warpgroup has a tile of 64 rows of its own and waits for all of its
MMAs right behind them. What lies in registers lies in Tensor Memory while MMAs are under way, and nowhere else.

With 64 rows, a load of 16 lanes and 256 bits gives each thread the elements that WGMMA gives it, in the same order,
and a store of 16 lanes and 128 bits takes those of an operand A: all that a kernel computes in registers stays.

PTX ISA 9.7.16.2.3.1 (data path layouts), 9.7.16.8 (tcgen05.ld, tcgen05.st).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import libcst as cst

from porter.passes.idiom_dsl.facts import Seen, agreed
from porter.passes.idiom_dsl.held import Settled, settled
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import OBSERVED
from porter.passes.idiom_dsl.parts import Accumulator, Parts
from porter.passes.idiom_dsl.shapes import operand_of, targets_of
from porter.passes.idiom_dsl.text import Left, Statement, argument, assigned, found_in, method
from porter.passes.idiom_dsl.threads import Threads
from porter.passes.idiom_dsl.waited import Batch, text_of, waited_for
from porter.ptx.tmem import COLUMNS
from porter.ptx.wgmma import THREADS

_ROWS = 64
_ELEMENTS = ("Float16", "BFloat16")
"""Types of an operand A whose registers a store of 16 lanes and 128 bits takes as they are."""
_REPEATED = (1, 2, 4, 8, 16, 32)
"""How many groups of 8 columns one load of 16 lanes and 256 bits has."""
_PACKED = [[2, 2, 2], 1]
"""The first modes of the registers of an operand A of 16 bits and 64 rows."""
_LOOPS: tuple[type[cst.CSTNode], ...] = (cst.For, cst.While)


@dataclass(frozen=True)
class Product:
    """MMAs of one tiled MMA that add to one accumulator."""

    parts: Parts
    accumulator: Accumulator
    settled: tuple[Settled, ...]

    @property
    def is_stored(self) -> bool:
        return any(s.stored for s in self.settled)


@dataclass(frozen=True)
class Operand:
    """Registers of an operand A, of which cases have so many `blocks` of K, and the MMAs that have them. `is_ahead`:
    they are made where the accumulators are, and not each time that they are filled."""

    name: str
    statement: Statement
    call: cst.Call
    mma: str
    gemms: tuple[cst.Call, ...]
    blocks: frozenset[int]
    is_ahead: bool


@dataclass(frozen=True)
class Products:
    """Of a kernel, of whose block's threads `teams` warpgroups multiply from warp `warp` on. `slice`: the thread in its
    warpgroup; `ids`: named barriers that are free."""

    kernel: Kernel
    products: tuple[Product, ...]
    operands: tuple[Operand, ...]
    batches: tuple[Batch, ...]
    slice: str
    teams: int
    warp: int
    block: cst.IndentedBlock
    is_everybody: bool
    threads: int
    ids: tuple[int, ...]


def has_operands_in_registers(kernel: Kernel) -> bool:
    return any("RMEM" in str((s.value(0, "atom")["op"].get("a_src") or {}).get("text")) for s in kernel.multiplies)


def products_of(kernel: Kernel) -> Products:
    """Raises Left: what keeps the kernel from it."""
    text = kernel.text
    operands = tuple(_operands(kernel))
    if any(t.cluster > 1 for t in kernel.facts.traces):
        raise Left("A from registers in a cluster", kernel.gemms[0])
    for seen in kernel.multiplies:
        _require_types(seen)
    batches = tuple(waited_for(kernel))
    groups = list(_groups(kernel))
    accumulators = [_accumulator(parts) for parts in groups]
    blocks = {text.block(a.statement) for a in accumulators}
    if len(blocks) > 1:
        raise Left("accumulators that are made in several places", accumulators[-1].statement)
    block = blocks.pop()
    operands = tuple(_placed(kernel, o, block) for o in operands)
    made = [a.statement for a in accumulators] + [o.statement for o in operands if o.is_ahead]
    last = max(text.span(s).start for s in made)
    for batch in batches:
        if text.in_block(batch.first, block) is None or text.span(batch.first).start < last:
            raise Left("MMAs away from where their registers are made", batch.first)
    products = tuple(
        Product(p, a, tuple(settled(p, a, batches, block))) for p, a in zip(groups, accumulators, strict=True)
    )
    return _by_threads(kernel, products, operands, batches, block)


def _require_types(seen: Seen) -> None:
    op = seen.value(0, "atom")["op"]
    a, b, sums = (str((op.get(k) or {}).get("type")) for k in ("a_dtype", "b_dtype", "acc_dtype"))
    if "Sparse" in op["kind"]:
        raise Left("a sparse MMA", seen.call)
    if a not in _ELEMENTS or a != b:
        raise Left(f"MMAs of {a} and {b} beside A from registers", seen.call)
    if sums != "Float32":
        raise Left(f"sums of {sums} beside A from registers", seen.call)


def _groups(kernel: Kernel) -> Iterator[Parts]:
    """The MMAs by what they are of and what they add to."""
    found: dict[tuple[str, str], list[cst.Call]] = {}
    for gemm in kernel.gemms:
        found.setdefault((text_of(kernel, gemm), kernel.text.code(operand_of(gemm, 1, "d"))), []).append(gemm)
    if len({d for _, d in found}) < len(found):
        raise Left("an accumulator of several tiled MMAs", kernel.gemms[0])
    for gemms in found.values():
        yield Parts(kernel.text, kernel.facts, kernel.function, gemms, kernel.taken)


def _accumulator(parts: Parts) -> Accumulator:
    acc = parts.accumulator
    if len(acc.names) > 1 or acc.loops or acc.views:
        raise Left("several accumulators of one tiled MMA beside A from registers", acc.call)
    cases = {s.case for s in parts.multiplies}
    if set(parts.tiles) != cases:
        raise Left("a tiled MMA that is made elsewhere", parts.gemms[0])
    for made in made_of(parts):
        if made.case in cases and list(made.value(5, "atom_layout_mnk")) != [1, 1, 1]:
            raise Left("A from registers of several warpgroups that share a tile", made.call)
    for seen in parts.multiplies:
        rows, columns = parts.tiles[seen.case]
        if rows != _ROWS:
            raise Left(f"A from registers beside a tile of {rows} rows", seen.call)
        shape = seen.value(1, "d")["shape"]
        if shape != [[2, 2, columns // 8], 1, 1] or columns // 8 not in _REPEATED:
            raise Left(f"an accumulator of {columns} columns, which one load of Tensor Memory does not have", seen.call)
    bound = assigned(acc.statement)
    if bound is None or bound[1] is not acc.call:
        raise Left("accumulators that are made in one statement with others", acc.call)
    if acc.seen[0].name.endswith("_like"):
        raise Left(f"`{acc.name}` that is made like another tensor", acc.call)
    return acc


def made_of(parts: Parts) -> list[Seen]:
    """Where its tiled MMA is made."""
    numbers = {(s.case, s.value(0, "atom")["op"]["number"]) for s in parts.multiplies}
    return [s for s in parts.facts.of("make_mma") if (s.case, s.result["op"]["number"]) in numbers]


def is_from_registers(parts: Parts, gemm: cst.Call) -> bool:
    """Raises Left: the cases say otherwise."""
    sources = [str((s.value(0, "atom")["op"].get("a_src") or {}).get("text")) for s in parts.seen(gemm)]
    return bool(agreed(["RMEM" in s for s in sources], "where A comes from"))


def _operands(kernel: Kernel) -> Iterator[Operand]:
    text, by_name = kernel.text, dict[str, list[cst.Call]]()
    for gemm in kernel.gemms:
        if is_from_registers(kernel, gemm):
            value = operand_of(gemm, 2, "a")
            whole = value.value if isinstance(value, cst.Subscript) else value
            if not isinstance(whole, cst.Name):
                raise Left("A from registers", gemm)
            by_name.setdefault(whole.value, []).append(gemm)
    for name, gemms in by_name.items():
        made = [
            s for s in [*kernel.facts.of("registers"), *kernel.facts.of("fragment_a")]
            if assigned(text.statement(s.call)) == (name, s.call) and text.function(s.call) is kernel.function
        ]  # fmt: skip
        calls = {s.call for s in made}
        bound = [t for t in found_in(kernel.function, cst.AssignTarget) if name in set(targets_of(t.target))]
        if not calls:
            raise Left("A from registers", gemms[0])
        if len(calls) != 1 or len(bound) != 1:
            raise Left(f"registers `{name}` of A that are not made at one place", gemms[0])
        cases = {s.case for g in gemms for s in kernel.seen(g)}
        if not {s.case for s in made} >= cases or any(not _is_packed(s) for s in made):
            raise Left(f"registers `{name}` of A in another order than the operand's", made[0].call)
        statement, mmas = text.statement(made[0].call), {text_of(kernel, g) for g in gemms}
        if len(mmas) > 1:
            raise Left(f"registers `{name}` of A of several tiled MMAs", gemms[0])
        blocks = frozenset(s.result["shape"][2] for s in made if s.case in cases)
        yield Operand(name, statement, made[0].call, mmas.pop(), tuple(gemms), blocks, True)


def _placed(kernel: Kernel, operand: Operand, block: cst.IndentedBlock) -> Operand:
    """Raises Left: registers are made where not all of the warpgroup's MMAs follow."""
    text, made = kernel.text, operand.statement
    if text.block(made) is block:
        return operand
    behind = all(text.in_block(g, text.block(made)) for g in operand.gemms)
    if text.in_block(made, block) is None or not behind or len(operand.blocks) > 1:
        raise Left(f"registers `{operand.name}` of A that are made away from the accumulator", made)
    return replace(operand, is_ahead=False)


def _is_packed(seen: Seen) -> bool:
    """Whether registers are those of the operand, one block of K after the other."""
    shape, stride = seen.result["shape"], seen.result.get("stride")
    if not isinstance(shape, list) or shape[:2] != _PACKED or len(shape) != 3 or not isinstance(shape[2], int):
        return False
    return (
        isinstance(stride, list)
        and stride[0] == [1, 2, 4]
        and (shape[2] == 1 or stride[2] == 8)
        and seen.result.get("element_type", {}).get("type") in _ELEMENTS
    )


def _by_threads(
    kernel: Kernel,
    products: tuple[Product, ...],
    operands: tuple[Operand, ...],
    batches: tuple[Batch, ...],
    block: cst.IndentedBlock,
) -> Products:
    text, cases = kernel.text, {s.case for s in kernel.multiplies}
    number = agreed([t.threads for i, t in enumerate(kernel.facts.traces) if i in cases], "threads of a block")
    threads = Threads(kernel, number)
    made = products[0].accumulator.statement
    if any(isinstance(n, _LOOPS) for n in text.above(made)):
        raise Left("an accumulator that is made in a loop", made)
    own = threads.where(made)
    if not own or own != list(range(own[0], own[-1] + 1)) or own[0] % THREADS or len(own) % THREADS:
        raise Left("which warpgroups multiply is not said by the thread's index", made)
    teams = len(own) // THREADS
    slices = _slices(kernel, {p.parts.mma for p in products})
    for value in slices:
        if any(threads.value(value, t) != t % THREADS for t in own):
            raise Left("a slice of the tiled MMA of another thread than that of the warpgroup", value)
    if not slices:
        raise Left("a tiled MMA of which no thread has a slice", kernel.gemms[0])
    sums = sum(columns for p in products for columns in [max(c for _, c in p.parts.tiles.values())])
    deep = sum(max(o.blocks) for o in operands)
    if teams * (sums + 8 * deep) > COLUMNS:
        raise Left("accumulators and operands for which Tensor Memory has not enough columns", kernel.gemms[0])
    ids = _free_ids(kernel, threads)
    if len(ids) < teams + 1:
        raise Left("named barriers that are all used", kernel.gemms[0])
    here = text.code(slices[0])
    return Products(
        kernel, products, operands, batches, here, teams, own[0] // 32, block, len(own) == number, number, ids
    )


def _slices(kernel: Kernel, mmas: AbstractSet[str]) -> list[cst.BaseExpression]:
    calls = [c for c in found_in(kernel.function, cst.Call) if method(c, "get_slice") in mmas and len(c.args) == 1]
    return [c.args[0].value for c in calls]


def _free_ids(kernel: Kernel, threads: Threads) -> tuple[int, ...]:
    """Numbers of named barriers that no case uses; 0 is that of all threads of a block."""
    used = {0}
    for seen in kernel.facts.of("barrier"):
        told, said = seen.value(0, "barrier_id"), argument(seen.call, 0, "barrier_id")
        if isinstance(told, int) or said is None:
            used.add(told if isinstance(told, int) else 0)
            continue
        values = {threads.value(said.value, t) for t in range(threads.number)}
        if kernel.text.function(seen.call) is not kernel.function or None in values:
            raise Left("a named barrier whose number is not said by the thread's index", seen.call)
        used |= {v for v in values if v is not None}
    for told in kernel.facts.elsewhere:
        if told["name"] in OBSERVED["barrier"]:
            number = told["values"].get("0", told["values"].get("barrier_id", 0))
            if not isinstance(number, int):
                raise Left("a named barrier of another file whose number is not known when the kernel is traced")
            used.add(number)
    return tuple(n for n in range(1, 16) if n not in used)
