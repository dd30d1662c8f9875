# SPDX-License-Identifier: Apache-2.0
"""One tcgen05.mma of many CTAs: the plain forms, with both operands in shared memory and an f32 accumulator."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma_cells import MmaArguments, check_d, decode_idesc, layout_of
from porter.ptx.mma_numerics import dot_rule
from porter.ptx.operand_errors import OperandError
from porter.ptx.tmem import rows_per_cta
from porter.ptx.types import ElementType
from porter.ptx.umma import UmmaOp
from porter.sim.datapath.mma_arith import Arithmetic, Words, accumulate, canonical
from porter.sim.datapath.operands import Bytes, read_smem_operands
from porter.sim.datapath.tcgen05 import Place

_TYPES = frozenset((ElementType.F16, ElementType.BF16, ElementType.TF32, ElementType.E4M3, ElementType.E5M2))


@lru_cache(maxsize=256)
def _plain(op: UmmaOp, idesc: int) -> bool:
    if op.sparse or op.block_scale or op.ws or op.ashift or op.cta_group != 1:
        return False
    try:
        decoded = decode_idesc(op, idesc)
    except OperandError:
        return False
    return decoded.d_type is ElementType.F32 and {decoded.a_type, decoded.b_type} <= _TYPES


def can_batch(op: UmmaOp, idesc: int, args: MmaArguments) -> bool:
    """Is the instruction of a form that `mma_many` executes?"""
    extras = (args.a_tmem, args.disable_lanes, args.metadata, args.scale_a, args.scale_b, args.zero_columns)
    return args.a_desc is not None and not args.scale_d and extras == (None,) * 6 and _plain(op, idesc)


def mma_many(
    op: UmmaOp,
    idesc: int,
    args: MmaArguments,
    smem: Bytes,
    ctas: list[int],
    tmem: list[Words],
    mode: Arithmetic,
    seen: dict[Any, NDArray[np.float64]],
) -> None:
    """Execute a tcgen05.mma that `can_batch` accepts in each of `ctas`, as `tcgen05.mma` does.

    `smem` [all CTAs, bytes]; `tmem` is the Tensor Memory of each of `ctas`, updated in place. `seen` keeps
    decoded B operands, and room to work in, for calls between which shared memory stays as it is. Raises
    OperandError for invalid operands; then nothing is changed.
    """
    decoded = decode_idesc(op, idesc)
    lane, column = check_d(op, decoded, args.d_addr)
    layout = layout_of(op, decoded.m)
    place = Place(layout, decoded.n, lane, column)
    assert args.a_desc is not None
    rows = rows_per_cta(layout)
    left = read_smem_operands(smem, ctas, args.a_desc, "sm_100", rows, op.k, decoded.a_type, decoded.a_mn_major)
    key = args.b_desc, decoded.n, op.k, decoded.b_type, decoded.b_mn_major, tuple(ctas)
    right = seen.get(key)
    if right is None:
        right = read_smem_operands(
            smem, ctas, args.b_desc, "sm_100", decoded.n, op.k, decoded.b_type, decoded.b_mn_major, k_first=True
        )
        seen[key] = right
    if decoded.negate_a != decoded.negate_b:
        left = -left
    rule = dot_rule("sm_100", "tcgen05", decoded.a_type, decoded.b_type, decoded.d_type, saturate=decoded.saturate)
    words = np.stack([place.take(cells) for cells in tmem])
    scratch = seen.get(words.shape)
    if scratch is None:
        scratch = seen[words.shape] = np.empty(words.shape)
    accumulate(words, left, right, args.enable_d, rule, mode, scratch)
    for cells, result in zip(tmem, canonical(words, decoded.d_type), strict=True):
        place.put(cells, result)
