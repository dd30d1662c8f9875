# SPDX-License-Identifier: Apache-2.0
"""Sparse A: stored elements and metadata to a matrix with zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from porter.ptx import wgmma
from porter.ptx.operand_errors import OperandError
from porter.ptx.sparse import NIBBLE, chunk_elements, legal_nibbles, logical_offset, metadata_register
from porter.sim.datapath.mma_arith import Decoded, Mask, Words

Indices = NDArray[np.int64]


def expand(stored: Decoded, nibbles: Indices, element_bits: int) -> tuple[Decoded, Mask]:
    """Sparse A [rows, K] with zeros, and where its stored elements are.

    `stored` is [rows, K / 2], `nibbles` the metadata [rows, chunks]. Raises OperandError for metadata that has
    no meaning.
    """
    legal = np.array(sorted(legal_nibbles(element_bits)))
    bad = ~np.isin(nibbles, legal)
    if bad.any():
        row, chunk = np.argwhere(bad)[0]
        raise OperandError(
            f"sparsity metadata {int(nibbles[row, chunk]):#06b} of row {row}, chunk {chunk} has no meaning"
        )
    width = chunk_elements(element_bits)
    place = np.arange(stored.shape[1], dtype=np.int64)[None, :]
    chunk = place // (width // 2)
    k = chunk * width + logical_offset(nibbles[:, chunk[0]], place % (width // 2), element_bits)
    full = np.zeros((stored.shape[0], 2 * stored.shape[1]))
    active = np.zeros(full.shape, bool)
    rows = np.arange(stored.shape[0])[:, None]
    full[rows, k] = stored
    active[rows, k] = True
    return full, active


def register_nibbles(metadata: Words, k: int, element_bits: int, selector: int) -> Indices:
    """The nibbles [64, chunks] in wgmma's metadata registers [128 threads]. Raises OperandError for a selector
    that the element type does not have."""
    if selector not in ((0, 1) if element_bits >= 16 else (0,)):
        raise OperandError(f"sparsity selector {selector} of {element_bits}-bit elements")
    rows = np.arange(wgmma.M, dtype=np.int64)[:, None]
    chunks = np.arange(k // chunk_elements(element_bits), dtype=np.int64)[None, :]
    thread, low = metadata_register(rows, chunks, element_bits, selector)
    nibbles: Indices = metadata[thread].astype(np.int64) >> low & ((1 << NIBBLE) - 1)
    return nibbles
