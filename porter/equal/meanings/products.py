# SPDX-License-Identifier: Apache-2.0
"""Products of the tensor cores in one vocabulary, and those of wgmma.

An element of an accumulator is the word of what was there, of its row of A and its column of B as one instruction takes
them, and of the types: so it stands for the products that were added to it, in order. Where the accumulator lies, how
large the instruction's tile is and who has issued it is no part of that. A row of a sparse A is what is stored of it
and its metadata, a row or column with scale factors is its elements and these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from porter.equal.chains import behind, nothing, of_columns, of_rows
from porter.equal.contents import Contents, Taken, Tile
from porter.equal.meaning import Means, Then, meaning, read, refused
from porter.equal.rows import Read
from porter.equal.words import Words, element_words, is_number, joined, mixed, spread, word
from porter.facts.events import NotUnderstood
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.facts.values import first
from porter.ptx import ast, table
from porter.ptx.arch import WARP
from porter.ptx.operand_chunks import operand_chunks
from porter.ptx.packing import operand_element_bits
from porter.ptx.smem_desc import Generation
from porter.ptx.sparse import NIBBLE, chunk_elements, metadata_register
from porter.ptx.types import ElementType
from porter.ptx.wgmma import THREADS, WARP_ROWS, WgmmaOp, a_position, d_position, umma_kind

_CHUNK = 16


def operand_bytes(
    shared: Words, descriptor: int, generation: Generation, rows: int, k: int, bits: int, mn_major: bool
) -> Words:
    """The bytes [rows, k] of an operand in a block's shared memory [bytes]; of one that is MN-major [k, rows].

    Raises:
        ValueError: the descriptor is none, or it passes the end.
    """
    chunks = operand_chunks(descriptor, generation, rows, k, bits, mn_major)
    if int(chunks.max()) * _CHUNK + _CHUNK > len(shared):
        raise ValueError("an operand that passes the end of shared memory")
    data: Words = shared[chunks[..., None] * _CHUNK + np.arange(_CHUNK)]
    return data.reshape(len(chunks), -1)


def operand(
    shared: Words, descriptor: int, generation: Generation, rows: int, k: int, bits: int, mn_major: bool
) -> Words:
    """The words [rows] of an operand's rows (of B's columns) of k elements each in a block's shared memory."""
    data = operand_bytes(shared, descriptor, generation, rows, k, bits, mn_major)
    if mn_major:
        if bits < 8:
            raise NotUnderstood("elements of less than a byte that are not K-major")
        # [k, rows, bytes]: rows first
        data = data.reshape(k, -1, bits // 8)[:, :rows].swapaxes(0, 1)
    return joined(data.reshape(rows, -1))


@lru_cache(maxsize=256)
def key_of(k: int, types: tuple[ElementType, ...], signs: tuple[bool, bool], saturates: bool, *more: str) -> np.uint64:
    """The word of a kind of product. `more`: what it has besides."""
    return word(" ".join(("product", str(k), *(t.value for t in types), str(signs), str(saturates), *more)))


def nibbles(data: Words, low: npt.NDArray[np.int64]) -> Words:
    """Of registers or cells [..., 4] the four bits from `low` on."""
    held = np.take_along_axis(data, low[..., None] // 8, axis=-1)[..., 0]
    upper = (low // NIBBLE % 2).astype(np.uint64)
    number = held >> upper * np.uint64(NIBBLE) & np.uint64((1 << NIBBLE) - 1)
    return np.where(is_number(held), number, mixed(word("nibble"), held, upper))


def sparse_rows(stored: Words, metadata: Words) -> Words:
    """The words of rows of A, half of which is stored, with nibbles [..., chunks] that say where."""
    return mixed(word("sparse"), stored, joined(metadata))


def element_bytes(d_type: ElementType) -> int:
    return 2 if d_type is ElementType.F16 else 4


# wgmma ------------------------------------------------------------------------------------------------


@meaning("wgmma")
def wgmma(step: Step) -> Means | None:
    return _wgmma(step) if step.ins.parts[1] == "mma_async" else None


def _wgmma(step: Step) -> Means:
    op = WgmmaOp.of(step.ins.modifiers)
    if op.a_type is ElementType.B1:
        return refused(step, "the kind of product")
    in_registers = isinstance(step.ins["a"], ast.Vec)
    a_words = [read(step, o, 4) for o in table.items(step.ins["a"])] if in_registers else []
    a, b = None if in_registers else step.value("a"), step.value("b")
    majors = [step.optional(name) for name in ("trans_a", "trans_b")]
    signs = [step.optional(name) for name in ("scale_a", "scale_b")]
    adds = read(step, step.ins["scale_d"], 1)
    names = tuple(name for name in step.registers("d") if name is not None)
    bits = operand_element_bits(umma_kind(op.a_type), op.a_type)
    metadata = _metadata(step, op, bits) if op.sparse else None
    size = element_bytes(op.d_type)
    # registers of two elements each have those of the pairs of a wider accumulator
    tile = Tile(names, size, *d_position(np.arange(WARP)[:, None], np.arange(len(names) * (4 // size))[None, :]))

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        of_a, of_b = (None if r is None else r(machine, warp, group) for r in (a, b))
        if not isinstance(of_b, int) or (a is not None and not isinstance(of_a, int)):
            raise step.not_understood("a descriptor, which is data,")
        mn_a, mn_b = (bool(r(machine, warp, group)) if r is not None else False for r in majors)
        negated = tuple(r is not None and r(machine, warp, group) != 1 for r in signs)
        adding = adds(contents, warp, group)[first(taken.mask), 0]
        if adding > 1:
            raise step.not_understood("scale-d, which is data,")
        registers = [r(contents, warp, group) for r in a_words]
        key = key_of(op.k, (op.a_type, op.b_type, op.d_type), (negated[0], negated[1]), op.satfinite)
        number, turn = warp.number % (THREADS // WARP), warp.flight.issued
        of_metadata = metadata(contents, warp, group) if metadata is not None else None
        waits = contents.may_wait(group, taken, names if adding else ())
        before = contents.read_row(warp, group, names) if adding and not waits else None

        def then() -> None:
            if isinstance(of_a, int) and of_metadata is None:
                a_shape = op.m, op.stored_k, bits, mn_a
                rows = _in_shared(contents, warp, turn, of_a, a_shape, partial(of_rows, key))
            else:
                stored = _in_registers(registers, number, bits) if not isinstance(of_a, int) else \
                    _in_shared(contents, warp, turn, of_a, (op.m, op.stored_k, bits, mn_a), _as_it_is)  # fmt: skip
                rows = of_rows(key, stored if of_metadata is None else sparse_rows(stored, of_metadata))
            columns = _in_shared(contents, warp, turn, of_b, (op.n, op.k, bits, mn_b), of_columns)
            own = rows[WARP_ROWS * number :][:WARP_ROWS]
            if waits:
                contents.chain(warp, group, tile, bool(adding)).add(own, columns)
                return
            old = nothing(size) if before is None else element_words(before.reshape(WARP, -1, size))
            found = spread(behind(old, own[tile.rows], columns[tile.columns]), size)
            contents.put_row(warp, names, taken, found.reshape(WARP, len(names), 4))

        return then

    return means


def _in_shared(
    contents: Contents, warp: Warp, turn: int, descriptor: int, shape: tuple[int, int, int, bool],
    factors: Callable[[Words], Words],
) -> Words:  # fmt: skip
    """As the first warp of the warpgroup finds it: all four have come then, and go on with one product, which is their
    `turn`. `shape`: rows, elements of each, bits of one, and whether it is MN-major. `factors`: of the rows' words."""
    at = warp.block.rank, warp.number // (THREADS // WARP), factors is of_columns, descriptor, *shape
    found = contents.operands.get(at)
    if found is None or found[0] != turn:
        data = operand(contents.shared[warp.block.rank], descriptor, "sm_90", *shape)
        found = contents.operands[at] = turn, factors(data)
    return found[1]


def _as_it_is(data: Words) -> Words:
    return data


def _metadata(step: Step, op: WgmmaOp, bits: int) -> Read:
    """The nibbles [64, chunks] of the rows that a warp of a warpgroup holds, from its registers; of others nothing."""
    register, selector = read(step, step.ins["meta"], 4), step.value("select")

    def found(contents: Contents, warp: Warp, group: Group) -> Words:
        number, chosen = warp.number % (THREADS // WARP), selector(contents.machine, warp, group)
        assert isinstance(chosen, int)
        data = np.zeros((op.m, op.k // chunk_elements(bits)), np.uint64)
        rows = np.arange(WARP_ROWS * number, WARP_ROWS * (number + 1))[:, None]
        thread, low = metadata_register(rows, np.arange(data.shape[1])[None, :], bits, chosen)
        data[rows[:, 0]] = nibbles(register(contents, warp, group)[thread - WARP * number], low + 0 * thread)
        return data

    return found


def _in_registers(registers: list[Words], warp: int, bits: int) -> Words:
    """The words [64] of the rows of A that a warp of a warpgroup holds; those of other warps' rows are nothing."""
    size, per_register = bits // 8, 32 // bits
    k = per_register * 8
    whole = np.zeros((64, k * size), np.uint64)
    thread = np.arange(WARP, dtype=np.int64) + WARP * warp
    for register, data in enumerate(registers):
        for element in range(per_register):
            row, column = a_position(thread, np.full_like(thread, register), np.full_like(thread, element), bits)
            for byte in range(size):
                whole[row, column * size + byte] = data[:, element * size + byte]
    return joined(whole)
