# SPDX-License-Identifier: Apache-2.0
"""Products of the tensor cores, by wgmma and by tcgen05.mma, in one vocabulary.

An element of an accumulator is the word of what was there, of its row of A and its column of B as one instruction takes
them, and of the types: so it stands for the products that were added to it, in order. Where the accumulator lies, how
large the instruction's tile is and who has issued it is no part of that.
"""

from __future__ import annotations

import numpy as np

from porter.equal.contents import Contents, Taken
from porter.equal.meaning import Means, Read, Then, meaning, read, refused
from porter.equal.words import Words, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.facts.values import first
from porter.ptx import ast, table
from porter.ptx.arch import WARP
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.mma_cells import a_cells, decode_idesc, mma_cells
from porter.ptx.operand_chunks import operand_chunks
from porter.ptx.packing import operand_element_bits
from porter.ptx.smem_desc import Generation
from porter.ptx.types import ElementType
from porter.ptx.umma import UmmaOp
from porter.ptx.wgmma import THREADS, WgmmaOp, a_position, d_position, umma_kind

_CHUNK = 16


def operand(
    contents: Contents, rank: int, descriptor: int, generation: Generation, rows: int, k: int, bits: int,
    mn_major: bool,
) -> Words:  # fmt: skip
    """The words [rows] of an operand's rows (of B's columns) of k elements each in a block's shared memory. All
    warps of a warpgroup ask for the same."""
    key = rank, descriptor, generation, rows, k, bits, mn_major
    if key not in contents.operands:
        contents.operands[key] = _in_shared(contents.shared[rank], descriptor, generation, rows, k, bits, mn_major)
    return contents.operands[key]


def _in_shared(
    shared: Words, descriptor: int, generation: Generation, rows: int, k: int, bits: int, mn_major: bool
) -> Words:
    chunks = operand_chunks(descriptor, generation, rows, k, bits, mn_major)
    if int(chunks.max()) * _CHUNK + _CHUNK > len(shared):
        raise ValueError("an operand that passes the end of shared memory")
    data = shared[chunks[..., None] * _CHUNK + np.arange(_CHUNK)]
    if mn_major:
        if bits < 8:
            raise ValueError("elements of less than a byte that are not K-major")
        # [k, chunks of rows, bytes]: rows first
        size = bits // 8
        data = data.reshape(k, -1, size)[:, :rows].swapaxes(0, 1)
    return joined(data.reshape(rows, -1))


def _key(k: int, types: tuple[ElementType, ...], signs: tuple[bool, bool], saturates: bool) -> np.uint64:
    return word(" ".join(("product", str(k), *(t.value for t in types), str(signs), str(saturates))))


def accumulated(key: np.uint64, a: Words, b: Words, before: Words | None, size: int) -> Words:
    """The bytes [..., size] of elements of an accumulator behind a product of their rows `a` with their columns `b`."""
    old = np.zeros(size, np.uint64) if before is None else before[..., :size]
    return spread(mixed(key, a, b, joined(old)), size)


def element_bytes(d_type: ElementType) -> int:
    return 2 if d_type is ElementType.F16 else 4


# wgmma ------------------------------------------------------------------------------------------------


@meaning("wgmma")
def wgmma(step: Step) -> Means | None:
    return _wgmma(step) if step.ins.parts[1] == "mma_async" else None


def _wgmma(step: Step) -> Means:
    op = WgmmaOp.of(step.ins.modifiers)
    if op.sparse:
        return refused(step, "the kind of product")
    a_words: list[Read] = []
    in_registers = isinstance(step.ins["a"], ast.Vec)
    if in_registers:
        a_words = [read(step, o, 4) for o in table.items(step.ins["a"])]
    a, b = None if in_registers else step.value("a"), step.value("b")
    majors = [step.optional(name) for name in ("trans_a", "trans_b")]
    signs = [step.optional(name) for name in ("scale_a", "scale_b")]
    adds = read(step, step.ins["scale_d"], 1)
    names = step.registers("d")
    held = [read(step, o, 4) for o in table.items(step.ins["d"])]
    bits = operand_element_bits(umma_kind(op.a_type), op.a_type)
    thread = np.arange(WARP)[:, None]
    size = element_bytes(op.d_type)
    # registers of two elements each have those of the pairs of a wider accumulator
    rows, columns = d_position(thread, np.arange(len(names) * (4 // size))[None, :])

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
        before = np.stack([r(contents, warp, group) for r in held], axis=1) if adding else None
        rank = warp.block.rank
        key = _key(op.k, (op.a_type, op.b_type, op.d_type), (negated[0], negated[1]), op.satfinite)

        def then() -> None:
            if isinstance(of_a, int):
                of_rows = operand(contents, rank, of_a, "sm_90", op.m, op.k, bits, mn_a)
            else:
                of_rows = _in_registers(registers, warp.number % (THREADS // WARP), bits)
            of_columns = operand(contents, rank, of_b, "sm_90", op.n, op.k, bits, mn_b)
            place = rows + 16 * (warp.number % (THREADS // WARP))
            old = None if before is None else before.reshape(WARP, -1, size)
            found = accumulated(key, of_rows[place], of_columns[columns], old, size).reshape(WARP, len(names), 4)
            for index, name in enumerate(names):
                if name is not None:
                    contents.put(warp, name, taken, found[:, index])

        return then

    return means


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


# tcgen05.mma ------------------------------------------------------------------------------------------


@meaning("tcgen05.mma")
def tcgen05_mma(step: Step) -> Means:
    op = UmmaOp.of(step.ins.modifiers)
    if op.sparse or op.block_scale or op.ashift or "zero_column_mask" in step.ins:
        return refused(step, "the kind of product")
    names = ("d", "a", "b", "idesc", "enable_input_d")
    operands = {name: step.value(name) for name in names}
    scaled = step.optional("scale_d") if "scale_d" in step.ins else None
    disabled = step.values("disable_output_lane") if "disable_output_lane" in step.ins else []
    in_tensor = isinstance(step.ins["a"], ast.Mem)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        given = {name: value(machine, warp, group) for name, value in operands.items()}
        numbers = {name: v for name, v in given.items() if isinstance(v, int)}
        if len(numbers) < len(given):
            raise step.not_understood("an operand, which is data,")
        masks = [value(machine, warp, group) for value in disabled]
        if any(m != 0 for m in masks) or (scaled is not None and scaled(machine, warp, group) != 0):
            raise step.not_understood("lanes that are left out, or a scaled accumulator")
        idesc = decode_idesc(op, numbers["idesc"])
        rank = warp.block.rank
        ranks = [rank & ~1, rank | 1] if op.cta_group == 2 else [rank]

        def then() -> None:
            _Product(contents, op, idesc, numbers, in_tensor).run(ranks)

        return then

    return means


class _Product:
    def __init__(
        self, contents: Contents, op: UmmaOp, idesc: InstructionDescriptor, numbers: dict[str, int], in_tensor: bool
    ) -> None:
        self._contents, self._op, self._idesc, self._given = contents, op, idesc, numbers
        self._in_tensor = in_tensor

    def run(self, ranks: list[int]) -> None:
        """In the Tensor Memory of these blocks, each of which has a part of the columns of B."""
        op, idesc, given = self._op, self._idesc, self._given
        bits = operand_element_bits(op.kind, idesc.b_type)
        columns = [
            operand(self._contents, r, given["b"], "sm_100", idesc.n // len(ranks), op.k, bits, idesc.b_mn_major)
            for r in ranks
        ]
        b = np.concatenate(columns)
        types = (idesc.a_type, idesc.b_type, idesc.d_type)
        key = _key(op.k, types, (idesc.negate_a, idesc.negate_b), idesc.saturate)
        lanes, cells = mma_cells(op, given["idesc"], given["d"])
        for rank in ranks:
            tensor = self._contents.tensor[rank]
            a = self._rows(rank)
            if len(a) < len(lanes):
                raise ValueError("a layout whose rows of A are not those of the accumulator")
            before = tensor[lanes, cells] if given["enable_input_d"] & 1 else None
            size = element_bytes(idesc.d_type)
            tensor[lanes, cells, :size] = accumulated(key, a[: len(lanes), None], b[None, :], before, size)
            tensor[lanes, cells, size:] = 0

    def _rows(self, rank: int) -> Words:
        op, idesc = self._op, self._idesc
        bits = operand_element_bits(op.kind, idesc.a_type)
        if self._in_tensor:
            lanes, columns = a_cells(op, self._given["idesc"], self._given["a"])
            if len(lanes) != len(mma_cells(op, self._given["idesc"], self._given["d"])[0]):
                raise ValueError("a layout that has A twice")
            data = self._contents.tensor[rank][lanes, columns]
            return joined(data.reshape(len(lanes), -1))
        rows = idesc.m // op.cta_group
        return operand(self._contents, rank, self._given["a"], "sm_100", rows, op.k, bits, idesc.a_mn_major)
