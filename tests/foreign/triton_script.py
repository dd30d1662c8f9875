# SPDX-License-Identifier: Apache-2.0
"""A script that launches Triton's kernels on arrays of NumPy: `python triton_script.py NAME ...`.

Fails where a kernel gives other values than NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


class Kind:
    """What Triton asks of an element's type."""

    is_floating_point = True

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __str__(self) -> str:
        return f"array.{self.name}"


F16, F32, U8, F8 = Kind("float16", 2), Kind("float32", 4), Kind("uint8", 1), Kind("float8_e4m3fn", 1)


class Array:
    def __init__(self, values: Any, kind: Kind) -> None:
        self.values, self.dtype, self.nbytes = values, kind, values.nbytes
        self.shape = values.shape

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(n // self.values.itemsize for n in self.values.strides)


@triton.jit
def by_pointers(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a += rows[:, None] * k + depth[None, :]
    b += depth[:, None] * n + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        x = tl.load(a, mask=depth[None, :] < k - at, other=0.0)
        y = tl.load(b, mask=depth[:, None] < k - at, other=0.0)
        total = tl.dot(x, y, total)
        a += BK
        b += BK * n
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@triton.jit
def tiles(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, APART: tl.constexpr):
    across = tl.cdiv(m, BM)
    for tile in tl.range(tl.program_id(0), across * tl.cdiv(n, BN), tl.num_programs(0), warp_specialize=APART):
        row, column = tile % across * BM, tile // across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
        c.store([row, column], total.to(tl.float16))


@triton.jit
def described_on_device(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    x = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    y = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    z = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    tiles(x, y, z, m, n, k, BM, BN, BK, False)


@triton.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * BM
    largest, total = tl.zeros([BM], tl.float32) - float("inf"), tl.zeros([BM], tl.float32)
    found, asked = tl.zeros([BM, D], tl.float32), q.load([row, 0])
    for at in tl.range(0, n, BN):
        scores = tl.dot(asked, k.load([at, 0]).T) * scale
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights, kept = tl.math.exp2(scores - larger[:, None]), tl.math.exp2(largest - larger)
        found = tl.dot(weights.to(tl.float16), v.load([at, 0]), found * kept[:, None])
        total = total * kept + tl.sum(weights, 1)
        largest = larger
    o.store([row, 0], (found / total[:, None]).to(tl.float16))


@triton.jit
def scaled(a, scale_a, b, scale_b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns, group = row + tl.arange(0, BM), column + tl.arange(0, BN), tl.arange(0, BK // 32)
    total = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK):
        by_a = tl.load(scale_a + rows[:, None] * (k // 32) + at // 32 + group[None, :])
        by_b = tl.load(scale_b + columns[:, None] * (k // 32) + at // 32 + group[None, :])
        x, y = a.load([row, at]), b.load([column, at])
        total = tl.dot_scaled(x, by_a, "e4m3", y.T, by_b, "e4m3", total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * n + at, weights / tl.sum(weights, 0), mask=at < n)


@triton.jit
def split(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    depth = tl.program_id(1) * BK + tl.arange(0, BK)
    x = tl.load(a + rows[:, None] * k + depth[None, :])
    y = tl.load(b + depth[:, None] * n + columns[None, :])
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], tl.dot(x, y))


DICE = np.random.default_rng(0)
M, N, K = 256, 256, 192


def integers(*shape: int) -> Any:
    return DICE.integers(-3, 4, shape).astype(np.float16)


def product(launch: Callable[[Array, Array, Array], Any], transposed: bool = True) -> bool:
    a, b, c = integers(M, K), integers(K, N), np.zeros((M, N), np.float16)
    other = np.ascontiguousarray(b.T) if transposed else b
    launch(Array(a, F16), Array(other, F16), Array(c, F16))
    return np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def of_tiles(blocks: int = 2, rows: int = 128, **options: Any) -> bool:
    def launch(a: Array, b: Array, c: Array) -> None:
        maps = [TensorDescriptor.from_tensor(t, [n, 64]) for t, n in ((a, rows), (b, 128))]
        maps.append(TensorDescriptor.from_tensor(c, [rows, 128]))
        tiles[(blocks,)](*maps, M, N, K, BM=rows, BN=128, BK=64, **{"APART": False, **options})

    return product(launch)


def of_pointers(**options: Any) -> bool:
    return product(
        lambda a, b, c: by_pointers[(2, 2)](a, b, c, M, N, K, BM=128, BN=128, BK=64, **options), transposed=False
    )


def of_device_descriptors() -> bool:
    return product(lambda a, b, c: described_on_device[(2,)](a, b, c, M, N, K, BM=128, BN=128, BK=64))


def of_attention() -> bool:
    q, k, v = (DICE.standard_normal((256, 64)).astype(np.float16) for _ in range(3))
    o = np.zeros_like(q)
    maps = [TensorDescriptor.from_tensor(Array(t, F16), [n, 64]) for t, n in ((q, 128), (k, 64), (v, 64), (o, 128))]
    attention[(2,)](*maps, 256, 0.18, BM=128, BN=64, D=64)
    weights = np.exp2(q.astype(np.float32) @ k.astype(np.float32).T * 0.18)
    expected = weights / weights.sum(1, keepdims=True) @ v.astype(np.float32)
    return np.allclose(o, expected, atol=4e-3)


def of_scaled() -> bool:
    depth, words = 256, np.array([0x38, 0xB8, 0x40, 0xC0, 0], np.uint8)
    means = {0x38: 1.0, 0xB8: -1.0, 0x40: 2.0, 0xC0: -2.0, 0: 0.0}
    a, b = (DICE.choice(words, (n, depth)) for n in (M, N))
    by = [DICE.integers(126, 129, (n, depth // 32)).astype(np.uint8) for n in (M, N)]
    c = np.zeros((M, N), np.float32)
    x, y = (TensorDescriptor.from_tensor(Array(t, F8), [128, 128]) for t in (a, b))
    scaled[(2, 2)](x, Array(by[0], U8), y, Array(by[1], U8), Array(c, F32), M, N, depth, BM=128, BN=128, BK=128)
    full = [
        np.vectorize(means.__getitem__)(t) * np.repeat(2.0 ** (s.astype(int) - 127), 32, 1)
        for t, s in zip((a, b), by, strict=True)
    ]
    return np.array_equal(c, (full[0] @ full[1].T).astype(np.float32))


def of_softmax() -> bool:
    x = DICE.standard_normal((4, 200)).astype(np.float32)
    y = np.zeros_like(x)
    softmax[(4,)](Array(x, F32), Array(y, F32), 200, B=256)
    weights = np.exp(x - x.max(1, keepdims=True))
    return np.allclose(y, weights / weights.sum(1, keepdims=True), rtol=1e-5)


def of_split() -> bool:
    a, b, c = integers(128, 256), integers(256, 128), np.zeros((128, 128), np.float32)
    split[(1, 4)](Array(a, F16), Array(b, F16), Array(c, F32), 128, 256, BM=128, BN=128, BK=64)
    return np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


KERNELS: dict[str, Callable[[], bool]] = {
    "pointers": of_pointers,
    "descriptors": of_tiles,
    "persistent": lambda: of_tiles(1),
    "specialized": lambda: of_tiles(APART=True),
    "pair": lambda: of_tiles(rows=256, num_ctas=2),
    "dependent launch": lambda: of_tiles(launch_pdl=True),
    "described on the device": of_device_descriptors,
    "attention": of_attention,
    "scaled": of_scaled,
    "softmax": of_softmax,
    "split k": of_split,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or KERNELS:
        if not KERNELS[name]():
            sys.exit(f"{name}: other values")
