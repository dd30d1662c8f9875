# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma of all kinds: dense and sparse, with scale factors, .ws, with A in shared or in Tensor Memory."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from porter.equal.chains import accumulated, of_columns, of_rows
from porter.equal.contents import UNDEFINED, Contents, Taken
from porter.equal.meaning import Means, Then, meaning
from porter.equal.meanings.products import element_bytes, key_of, nibbles, operand, sparse_rows
from porter.equal.words import Words, joined, mixed, word
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.facts.values import alike
from porter.ptx import ast
from porter.ptx.bits import unsigned
from porter.ptx.block_scale import scale_count
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.mma_cells import (
    a_cells,
    decode_idesc,
    layout_of,
    metadata_cells,
    metadata_places,
    mma_cells,
    scale_cells,
    stored_k,
)
from porter.ptx.packing import operand_element_bits
from porter.ptx.tmem import LANES, WARP_LANES, rows_per_cta
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns
from porter.sim.datapath.tcgen05 import shift_rows

_NUMBERS = ("d", "a", "b", "idesc", "enable_input_d", "meta", "scale_a", "scale_b", "zero_column_mask", "scale_input_d")
_MASK = 32
"""Lanes of each element of disable-output-lane."""


@meaning("tcgen05.mma")
def tcgen05_mma(step: Step) -> Means:
    op = UmmaOp.of(step.ins.modifiers)
    operands = {name: step.value(name) for name in _NUMBERS if name in step.ins}
    disabled = step.values("disable_output_lane") if "disable_output_lane" in step.ins else []
    in_tensor = isinstance(step.ins["a"], ast.Mem)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        given = {name: alike(value(machine, warp, group), taken.mask) for name, value in operands.items()}
        masks = [alike(value(machine, warp, group), taken.mask) for value in disabled]
        numbers = {name: v for name, v in given.items() if isinstance(v, int)}
        lanes_off = [unsigned(m, _MASK) << _MASK * i for i, m in enumerate(masks) if isinstance(m, int)]
        if len(numbers) < len(given) or len(lanes_off) < len(masks):
            raise step.not_understood("an operand, which is data,")
        rank = warp.block.rank
        ranks = [rank & ~1, rank | 1] if op.cta_group == 2 else [rank]

        def then() -> None:
            _Product(contents, op, numbers, in_tensor, sum(lanes_off)).run(ranks)

        return then

    return means


class _Product:
    """`off`: bit i keeps lane i of the accumulator as it is, 128 + i that of the odd block of a pair."""

    def __init__(self, contents: Contents, op: UmmaOp, numbers: dict[str, int], in_tensor: bool, off: int) -> None:
        self._contents, self._op, self._given, self._in_tensor, self._off = contents, op, numbers, in_tensor, off
        self._idesc = decode_idesc(op, numbers["idesc"])

    def run(self, ranks: list[int]) -> None:
        """In the Tensor Memory of these blocks, each of which has a part of the columns of B."""
        op, idesc, given = self._op, self._idesc, self._given
        windows = _windows(op, given["idesc"], given["d"])
        b = self._columns(ranks)
        for number, rank in enumerate(ranks):
            a = self._rows(rank)
            if windows and len(a) == 1 and not self._off and given.keys().isdisjoint(("scale_a", "scale_input_d")):
                size, adding = element_bytes(idesc.d_type), bool(given["enable_input_d"] & 1)
                key = op, given["idesc"], given["d"]
                chain = self._contents.chain_in_tensor(rank, key, windows, size, adding)
                chain.add(of_rows(self._key(), a[0]), of_columns(b))
            else:
                # each copy of A goes with its share of the columns
                rows = a.T if len(a) == 1 else a[np.arange(idesc.n) // (idesc.n // len(a))].T
                tensor, columns = self._contents.tensor[rank], b[None, :]
                lanes, cells = mma_cells(op, given["idesc"], given["d"])
                if "scale_a" in given:
                    rows, columns = self._scaled(tensor, rows, columns, lanes // WARP_LANES)
                before = tensor[lanes, cells]
                found = self._made(before, rows, columns)
                if self._off:
                    keeps = np.array([self._off >> LANES * number + lane & 1 for lane in range(LANES)], bool)[lanes]
                    found = np.where(keeps[..., None], before, found)
                tensor[lanes, cells] = found
            if op.ashift:
                a_lanes, a_columns = a_cells(op, given["idesc"], given["a"])
                shift_rows(self._contents.tensor[rank], a_lanes[:, 0], a_columns[0])

    def _made(self, before: Words, rows: Words, columns: Words) -> Words:
        """The accumulator behind the product."""
        size, scale = element_bytes(self._idesc.d_type), self._given.get("scale_input_d", 0)
        old = before if self._given["enable_input_d"] & 1 else None
        if old is not None and scale:
            old = mixed(word("scaled by a power of two"), old, np.uint64(scale))
        found = accumulated(self._key(), rows, columns, old, size)
        if size == before.shape[-1]:
            return found
        return np.concatenate((found, np.full_like(found, UNDEFINED)), axis=-1)

    def _key(self) -> np.uint64:
        op, idesc = self._op, self._idesc
        types = (idesc.a_type, idesc.b_type, idesc.d_type)
        more = (idesc.scale_type.value, str(self._factors)) if isinstance(idesc, ScaledDescriptor) else ()
        return key_of(op.k, types, (idesc.negate_a, idesc.negate_b), idesc.saturate, *more)

    @property
    def _factors(self) -> int:
        """Scale factors of a row along K."""
        return scale_count(self._op.kind, self._op.scale_vector)

    def _columns(self, ranks: list[int]) -> Words:
        """The words [N] of the columns of B."""
        op, idesc, given = self._op, self._idesc, self._given
        mask = ZeroColumns.decode(given["zero_column_mask"]) if "zero_column_mask" in given else None
        bits, width = operand_element_bits(op.kind, idesc.b_type), idesc.n // len(ranks)
        width += mask.shift if mask is not None else 0
        columns = [
            operand(self._contents.shared[r], given["b"], "sm_100", width, op.k, bits, idesc.b_mn_major) for r in ranks
        ]
        b = np.concatenate(columns)
        if mask is None:
            return b
        nothing = joined(np.zeros(op.k * bits // 8, np.uint64))
        return np.where(np.array(mask.zeroed(idesc.m, idesc.n)), nothing, b[mask.shift :])

    def _rows(self, rank: int) -> Words:
        """The words [copies, rows] of the rows of A in a block, of each copy for a share of the columns."""
        op, idesc, given = self._op, self._idesc, self._given
        contents = self._contents
        bits, count = operand_element_bits(op.kind, idesc.a_type), rows_per_cta(layout_of(op, idesc.m))
        if self._in_tensor:
            lanes, columns = a_cells(op, given["idesc"], given["a"])
            tensor = contents.tensor_of(rank, lanes, columns)
            rows = joined(tensor[lanes, columns].reshape(len(lanes), -1)).reshape(-1, count)
        else:
            of_a = given["a"]
            rows = operand(contents.shared[rank], of_a, "sm_100", count, stored_k(op), bits, idesc.a_mn_major)[None]
        if "meta" not in given:
            return rows
        places = metadata_cells(op, given["idesc"], given["meta"])
        _, _, low = metadata_places(op, idesc)
        metadata = nibbles(contents.tensor[rank][places], low + 0 * places[0]).reshape(-1, count, low.shape[1])
        return sparse_rows(rows, metadata)

    def _scaled(
        self, tensor: Words, rows: Words, columns: Words, partitions: npt.NDArray[np.int64]
    ) -> tuple[Words, Words]:
        """Rows and columns [rows, N] with their scale factors, as the 32 lanes of each accumulator's element find
        them."""
        of_a, of_b = (self._scale_words(tensor, name) for name in "ab")
        number, column = np.arange(len(rows))[:, None], np.arange(columns.shape[1])[None, :] % of_b.shape[1]
        return mixed(rows, of_a[partitions, number]), mixed(columns, of_b[partitions, column])

    def _scale_words(self, tensor: Words, name: str) -> Words:
        """The words [partitions, rows] of a row's factors."""
        assert isinstance(self._idesc, ScaledDescriptor)
        first = self._idesc.a_scale_id if name == "a" else self._idesc.b_scale_id
        lanes, columns = scale_cells(self._op, self._given["idesc"], self._given[f"scale_{name}"], name)
        return joined(tensor[lanes, columns, first : first + self._factors])


_Window = tuple[slice, tuple[slice, slice]]


@lru_cache(maxsize=256)
def _windows(op: UmmaOp, idesc: int, address: int) -> list[_Window]:
    """Rows of an accumulator that lie side by side, with their lanes and columns as slices, which are faster than
    numbers; none where its columns do not."""
    lanes, columns = mma_cells(op, idesc, address)
    first = lanes[:, :1]
    apart = (lanes != first).any() or (columns != columns[:1, :1] + np.arange(columns.shape[1])).any()
    if apart:
        return []
    starts = [0, *(np.flatnonzero(np.diff(first[:, 0]) != 1) + 1).tolist(), len(first)]
    of_columns = slice(int(columns[0, 0]), int(columns[0, -1]) + 1)
    return [
        (slice(start, end), (slice(int(first[start, 0]), int(first[start, 0]) + end - start), of_columns))
        for start, end in pairwise(starts)
    ]
