# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma in flight. Where many blocks' land one after another, those alike are computed together."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.ptx.umma import UmmaOp
from porter.sim.datapath import tcgen05
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.tcgen05_batch import can_batch, mma_many
from porter.sim.engine import Operation
from porter.sim.machine import Machine
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
            except DatapathError as problem:
                for op in group:
                    op.error = problem
            for op in group:
                op.ready = True


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
        op: UmmaOp,
        code: int,
        args: tcgen05.MmaArguments,
        use: Use,
        after: list[Operation | None],
    ) -> None:
        super().__init__(at, warp, self._land, after)
        self.machine = machine
        self.op, self.code, self.args = op, code, args
        self.use = use
        self.ctas = use.ctas
        self.columns = use.columns
        self.ready = False
        self.error: DatapathError | None = None

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
