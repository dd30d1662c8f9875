# SPDX-License-Identifier: Apache-2.0
"""What a variant is: a small Hopper GEMM written in an unusual but legal way, and what it computes.

One CTA computes C[M,N] = A[M,K] * B[N,K]^T from shared memory, K in three tiles of two `wgmma` steps of 32 bytes. What
a variant does to its accumulator registers besides is repeated by `want` in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Want = Callable[[Values], Values]
"""From the products of the tiles, in fragments (tile, thread, element), to the fragments that are stored (thread,
element). Element i of a thread is the i-th of an m64nN accumulator: row 8 * (i / 2 % 2), column i / 4 * 8 + i % 2 from
the thread's own."""

TILES, STEPS = 3, 2
"""K tiles of a run, and `wgmma` steps of a tile."""


@dataclass(frozen=True)
class Kind:
    """Element types of an MMA: `types` as in its name, elements of K in 32 bytes, the C++ type of an accumulator
    register and its constraint, and how many values it holds."""

    types: str
    depth: int
    register: str = "float"
    constraint: str = "f"
    packed: int = 1
    tail: str = "1, 1, 0, 0"


KINDS = {
    "bf16": Kind("f32.bf16.bf16", 16),
    "f16": Kind("f32.f16.f16", 16),
    "f16acc": Kind("f16.f16.f16", 16, "uint32_t", "r", 2),
    "tf32": Kind("f32.tf32.tf32", 8, tail="1, 1"),
    "s8": Kind("s32.s8.s8", 32, "int", "r", tail=""),
}


def total(p: Values) -> Values:
    """The plain product."""
    return np.asarray(p.sum(0))


def _execute(statements: str, d: Values) -> None:
    """Run Python on the fragments, as (element, thread) so that the text reads like the kernel's."""
    exec(statements, {"np": np, "d": d.T, "thread": np.arange(len(d))})


def then(statements: str) -> Want:
    """The product, changed at the end: `d[0] += 1` changes the first element of every thread."""

    def want(p: Values) -> Values:
        d = total(p)
        _execute(statements, d)
        return d

    return want


def each(statements: str) -> Want:
    """The accumulators are changed after every tile."""

    def want(p: Values) -> Values:
        d = np.zeros_like(p[0])
        for part in p:
            d += part
            _execute(statements, d)
        return d

    return want


def plus(values: Mapping[int, float]) -> Want:
    """The product and a value on some elements."""
    return then("; ".join(f"d[{i}] += {value}" for i, value in values.items()))


@dataclass(frozen=True)
class Variant:
    """`files` by name; `kernel.cu` is the one that is compiled and ported. Every kernel that the file instantiates is
    launched with (A, B, C, tiles); `wants` gives those whose name holds the key another meaning than `want`.

    `rows` of C are the M of the problem, `n` its columns; `tiles` are multiplied. With `by_step`, what `want` is given
    are the products of the steps, two for every tile. A `serialized` original touches registers of MMAs under way:
    ptxas waits for each of them there, the simulator does not, and its port alone is judged.
    """

    name: str
    axis: str
    files: Mapping[str, str]
    want: Want = total
    wants: Mapping[str, Want] = field(default_factory=dict)
    kind: str = "bf16"
    rows: int = 64
    n: int = 32
    block: tuple[int, int, int] = (128, 1, 1)
    tiles: int = TILES
    dynamic_smem: int = 0
    by_step: bool = False
    serialized: bool = False

    @property
    def source(self) -> str:
        return self.files["kernel.cu"]


VARIANTS: dict[str, Variant] = {}
"""All variants by name, in the order in which they are written down."""


def add(variant: Variant) -> None:
    if variant.name in VARIANTS:
        raise ValueError(f"two variants are called {variant.name}")
    VARIANTS[variant.name] = variant


def rows_and_columns(threads: int, elements: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the elements of the threads' fragments lie in C, (thread, element) each."""
    t, i = np.arange(threads)[:, None], np.arange(elements)[None, :]
    return t // 32 * 16 + t % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2


def expected(variant: Variant, a: Values, b: Values, want: Want) -> Values:
    """C of a variant, (rows, n)."""
    rows, columns = rows_and_columns(variant.rows * 2, variant.n // 2)
    per_tile = 1 if not variant.by_step else STEPS
    depth = KINDS[variant.kind].depth * STEPS // per_tile
    count = variant.tiles * per_tile
    parts = [(a[:, k : k + depth] @ b[:, k : k + depth].T)[rows, columns] for k in range(0, count * depth, depth)]
    c = np.empty((variant.rows, variant.n))
    c[rows, columns] = want(np.stack(parts or [np.zeros(rows.shape)]))
    return c
