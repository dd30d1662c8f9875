# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma in flight. Where many blocks' land one after another, those alike are computed together."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from porter.ptx.mma_cells import MmaArguments, decode_idesc, mma_footprint, stored_k
from porter.ptx.operand_errors import OperandError
from porter.ptx.packing import operand_element_bits
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns
from porter.sim.datapath import tcgen05
from porter.sim.datapath.tcgen05_batch import can_batch, mma_many
from porter.sim.effects import Effect
from porter.sim.footprints import cell_bits, operand_bits
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.tensor_memory import Use

# Blocks that are worked on together: few enough to stay in a core's second-level cache.
_TOGETHER_BYTES = 1 << 20


def _prepare(ops: list[Operation]) -> None:
    """Compute MMAs, given in issue order, before they land."""
    by_cta: dict[int, list[TensorMma]] = {}
    for op in ops:
        assert isinstance(op, TensorMma)
        if not can_batch(op.op, op.code, op.args):
            # Results of one block's MMAs feed each other, also those that are computed alone.
            return
        by_cta.setdefault(op.ctas[0], []).append(op)
    columns = max(op.columns.size for mine in by_cta.values() for op in mine)
    together = max(1, _TOGETHER_BYTES // (128 * 8 * columns))
    blocks = list(by_cta.values())
    with np.errstate(all="ignore"):
        for first in range(0, len(blocks), together):
            _compute(blocks[first : first + together])


def _compute(blocks: list[list[TensorMma]]) -> None:
    seen: dict[Any, Any] = {}
    for step in range(max(map(len, blocks))):
        alike: dict[Any, list[TensorMma]] = {}
        for mine in blocks:
            if step < len(mine):
                op = mine[step]
                alike.setdefault((op.op, op.code, op.args), []).append(op)
        for group in alike.values():
            one, M = group[0], group[0].machine
            ctas = [op.ctas[0] for op in group]
            cells = [M.tmem.cells(c) for c in ctas]
            try:
                mma_many(one.op, one.code, one.args, M.smem, ctas, cells, M.options.arithmetic, seen)
            except OperandError as problem:
                for op in group:
                    op.error = problem
            for op in group:
                op.ready = True


class DecodedMma:
    """A tcgen05.mma with what its operands in Tensor Memory say: `columns` are those that it touches in each block.

    Raises OperandError for an invalid instruction descriptor or address.
    """

    def __init__(self, op: UmmaOp, code: int, args: MmaArguments) -> None:
        self.op, self.code = op, code
        self.idesc = decode_idesc(op, code)
        self._cells = mma_footprint(op, code, args)
        self.columns = np.concatenate([np.unique(columns) for *_, columns in self._cells])
        # Accesses of one pair keep their order.
        self._pairs: dict[str, Any] = {
            "d": (op.cta_group, op.kind, self.idesc.m, self.idesc.n, args.d_addr),
            # A that .ashift moves down is meant for the next MMA.
            "a": ("a", op.cta_group, args.a_tmem),
        }

    @cached_property
    def accesses(self) -> list[tuple[bool, int, Any]]:
        """(written, footprint, pair) of the parts of Tensor Memory, the accumulator first."""
        return [
            (write, cell_bits(lanes, columns), self._pairs.get(what)) for what, write, lanes, columns in self._cells
        ]

    def source(self, args: MmaArguments) -> int:
        """The footprint of operands in each block's shared memory. Raises OperandError or ValueError for invalid
        descriptors."""
        op, idesc = self.op, self.idesc
        width = idesc.n // op.cta_group
        if args.zero_columns is not None:
            width += ZeroColumns.decode(args.zero_columns).shift
        bits = operand_element_bits(op.kind, idesc.b_type)
        found = operand_bits(args.b_desc, "sm_100", width, op.k, bits, idesc.b_mn_major)
        if args.a_desc is not None:
            height = idesc.m // op.cta_group
            bits = operand_element_bits(op.kind, idesc.a_type)
            found |= operand_bits(args.a_desc, "sm_100", height, stored_k(op), bits, idesc.a_mn_major)
        return found


class TensorMma(Operation):
    """A tcgen05.mma of one thread on Tensor Memory of its block, or of a pair of blocks: `use` is all that it touches
    there."""

    __slots__ = ("args", "code", "columns", "ctas", "error", "machine", "op", "ready", "use")

    prepare = staticmethod(_prepare)

    def __init__(
        self,
        machine: Machine,
        at: int,
        warp: int,
        mma: DecodedMma,
        args: MmaArguments,
        use: Use,
        after: list[Operation | None],
        effect: Effect | None,
    ) -> None:
        super().__init__(at, warp, self._land, after, effect=effect)
        self.machine = machine
        self.op, self.code, self.args = mma.op, mma.code, args
        self.use = use
        self.ctas = use.ctas
        self.columns = use.columns
        self.ready = False
        self.error: OperandError | None = None

    def _land(self) -> None:
        M = self.machine
        self.use.landing()
        if self.error is not None:
            raise self.error
        if self.ready:
            return
        tcgen05.mma(
            self.op,
            self.code,
            self.args,
            smem=[M.smem[c] for c in self.ctas],
            tmem=[M.tmem.cells(c) for c in self.ctas],
            mode=M.options.arithmetic,
        )
