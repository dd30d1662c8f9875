# SPDX-License-Identifier: Apache-2.0
"""Which bytes of shared memory a matrix operand covers, as shadow-memory bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.smem_desc import Generation
from porter.sim.check.shadow import GRANULE
from porter.sim.datapath.operands import operand_chunks

_CHUNK = 16


def chunk_bits(chunks: npt.NDArray[Any]) -> int:
    """16-byte chunks as granules."""
    low = int(chunks.min())
    mark = np.zeros(int(chunks.max()) - low + 1, bool)
    mark[(chunks - low).reshape(-1)] = True
    per_chunk = _CHUNK // GRANULE
    packed = np.packbits(np.repeat(mark, per_chunk), bitorder="little").tobytes()
    return int.from_bytes(packed, "little") << low * per_chunk


@lru_cache(maxsize=4096)
def operand_bits(descriptor: int, generation: Generation, rows: int, k: int, element_bits: int, mn_major: bool) -> int:
    """Raises DatapathError for an invalid descriptor."""
    return chunk_bits(operand_chunks(descriptor, generation, rows, k, element_bits, mn_major))


@lru_cache(maxsize=4096)
def operand_rows_bits(
    descriptor: int,
    generation: Generation,
    rows: int,
    k: int,
    element_bits: int,
    mn_major: bool,
    first: int,
    count: int,
) -> int:
    """The same for `count` rows from `first` on."""
    chunks = operand_chunks(descriptor, generation, rows, k, element_bits, mn_major)
    if mn_major:
        per_chunk = 8 * _CHUNK // element_bits
        return chunk_bits(chunks[:, first // per_chunk : -(-(first + count) // per_chunk)])
    return chunk_bits(chunks[first : first + count])
