# SPDX-License-Identifier: Apache-2.0
"""`tiled_gemm.cu` for numba's CUDA simulator: `NUMBA_ENABLE_CUDASIM=1 python tiled_gemm_numba.py N`.

Prints the seconds of processor time that one launch takes and the largest error, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def tiled_gemm(A, B, C, n):
    a = cuda.shared.array((TILE, TILE), float32)
    b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x
    total = float32(0)
    for k in range(0, n, TILE):
        a[y, x] = A[row, k + x]
        b[y, x] = B[k + y, col]
        cuda.syncthreads()
        for i in range(TILE):
            total += a[y, i] * b[i, x]
        cuda.syncthreads()
    C[row, col] = total


def main(n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    c = np.full((n, n), np.nan, np.float32)
    start = time.process_time()
    tiled_gemm[(n // TILE, n // TILE), (TILE, TILE)](a, b, c, n)
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "error": float(np.abs(c - a @ b).max())}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
