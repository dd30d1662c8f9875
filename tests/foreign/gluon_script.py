# SPDX-License-Identifier: Apache-2.0
"""A script that launches Gluon's kernels on arrays of NumPy: `python gluon_script.py NAME ...`.

Fails where a kernel gives other values than NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))

from triton_script import F16, F32, Array, integers

DEPTH: gl.constexpr = gl.constexpr(64)
STAGES: gl.constexpr = gl.constexpr(3)


@gluon.jit
def elements(x, y, n, B: gl.constexpr):
    at = gl.program_id(0) * B + gl.arange(0, B, gl.BlockedLayout([4], [32], [4], [0]))
    gl.store(y + at, gl.load(x + at, mask=at < n) * 2.0 + 1.0, mask=at < n)


@gluon.jit
def transposed(x, y, B: gl.constexpr):
    """Out of shared memory in another layout than it came in."""
    landed = mbarrier.allocate_mbarrier()
    mbarrier.init(landed, count=1)
    tile = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    mbarrier.expect(landed, x.block_type.nbytes)
    tma.async_load(x, [gl.program_id(0) * B, 0], landed, tile)
    mbarrier.wait(landed, 0)
    mbarrier.invalidate(landed)
    values = tile.load(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
    tile.store(values * 3.0)
    fence_async_shared()
    tma.async_store(y, [gl.program_id(0) * B, 0], tile)
    tma.store_wait(0)


@gluon.jit
def product(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr):
    """One tile, step by step."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    landed, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(landed, count=1)
    mbarrier.init(done, count=1)
    x = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    y = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    phase = 0
    for at in range(0, k, DEPTH):
        mbarrier.expect(landed, a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [row, at], landed, x)
        tma.async_load(b, [column, at], landed, y)
        mbarrier.wait(landed, phase)
        tcgen05_mma(x, y.permute((1, 0)), total, use_acc=at > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(landed)
    mbarrier.invalidate(done)
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], out)
    tma.store_wait(0)


@gluon.jit
def load_stages(a, b, x, y, landed, free, k, row, column):
    for step in range(k // DEPTH):
        stage = step % STAGES
        mbarrier.wait(free.index(stage), (step // STAGES & 1) ^ 1)
        mbarrier.expect(landed.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [row, step * DEPTH], landed.index(stage), x.index(stage))
        tma.async_load(b, [column, step * DEPTH], landed.index(stage), y.index(stage))


@gluon.jit
def multiply_stages(x, y, landed, free, done, total, k):
    for step in range(k // DEPTH):
        stage = step % STAGES
        mbarrier.wait(landed.index(stage), step // STAGES & 1)
        tcgen05_mma(x.index(stage), y.index(stage).permute((1, 0)), total, use_acc=step > 0)
        tcgen05_commit(free.index(stage))
    tcgen05_commit(done)


@gluon.jit
def store_tile(c, done, total, out, row, column):
    mbarrier.wait(done, 0)
    out.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], out)
    tma.store_wait(0)


@gluon.jit
def apart(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr):
    """Warps that load, that multiply and that store."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    x = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    y = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    landed, free = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    for stage in gl.static_range(STAGES):
        mbarrier.init(landed.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    mbarrier.init(done, count=1)
    gl.warp_specialize(
        [
            (store_tile, (c, done, total, out, row, column)),
            (load_stages, (a, b, x, y, landed, free, k, row, column)),
            (multiply_stages, (x, y, landed, free, done, total, k)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def handed_out(x, y, B: gl.constexpr):
    """Blocks that do the work of others that have not begun."""
    answered = mbarrier.allocate_mbarrier()
    mbarrier.init(answered, count=1)
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    tile, phase, more = gl.program_id(0), 0, True
    while more:
        mbarrier.expect(answered, 16)
        clc.try_cancel(answer, answered)
        at = tile * B + gl.arange(0, B, layout)
        gl.store(y + at, gl.load(x + at) + 5.0)
        mbarrier.wait(answered, phase)
        result = clc.load_result(answer)
        more = result.is_canceled()
        tile = result.program_id(0)
        phase ^= 1
    mbarrier.invalidate(answered)


def tiled(array: np.ndarray, block: list[int], kind: Any = F16) -> Any:
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    return TensorDescriptor.from_tensor(Array(array, kind), block, layout)


def of_elements() -> bool:
    x = np.arange(1000, dtype=np.float32)
    y = np.zeros_like(x)
    elements[(4,)](Array(x, F32), Array(y, F32), 1000, B=256)
    return np.array_equal(y, x * 2 + 1)


def of_transposed() -> bool:
    x = integers(128, 64)
    y = np.zeros_like(x)
    transposed[(2,)](tiled(x, [64, 64]), tiled(y, [64, 64]), B=64)
    return np.array_equal(y, x * 3)


def of_product(kernel: Any, k: int = 320) -> bool:
    a, b, c = integers(256, k), integers(256, k), np.zeros((256, 256), np.float16)
    kernel[(2, 2)](tiled(a, [128, 64]), tiled(b, [128, 64]), tiled(c, [128, 128]), k, BM=128, BN=128)
    return np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


def of_handed_out() -> bool:
    x = np.arange(128 * 24, dtype=np.float32)
    y = np.zeros_like(x)
    handed_out[(24,)](Array(x, F32), Array(y, F32), B=128)
    return np.array_equal(y, x + 5)


KERNELS: dict[str, Callable[[], bool]] = {
    "elements": of_elements,
    "copies": of_transposed,
    "product": lambda: of_product(product),
    "warps apart": lambda: of_product(apart),
    "handed out": of_handed_out,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or KERNELS:
        if not KERNELS[name]():
            sys.exit(f"{name}: other values")
