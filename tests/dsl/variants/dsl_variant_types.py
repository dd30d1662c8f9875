# SPDX-License-Identifier: Apache-2.0
"""What a variant is: a small Hopper GEMM in CuTe DSL, written in an unusual but legal way, and what it computes.

All operands are put into shared memory first, a stage for each k tile; then the variant's own statements compute
C[M, N] from A[M, K] B[N, K]^T.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """Element types by their names in the cutlass package, and elements of K in a tile (128 bytes)."""

    operand: str
    accumulator: str
    depth: int
    width: int


KINDS = {
    "bf16": Kind("BFloat16", "Float32", 64, 2),
    "f16": Kind("Float16", "Float32", 64, 2),
    "f16acc": Kind("Float16", "Float16", 64, 2),
    "f8": Kind("Float8E4M3FN", "Float32", 128, 1),
    "s8": Kind("Int8", "Int32", 128, 1),
}

TILES = 3
"""K tiles in shared memory."""


@dataclass(frozen=True)
class Mma:
    """A tiled MMA: warpgroups in M and N, columns of an atom (None: all of C's), where its A is."""

    atoms: tuple[int, int] = (1, 1)
    n: int | None = None
    registers: bool = False


@dataclass(frozen=True)
class Variant:
    """`body` are the kernel's statements, `helpers` definitions in front of it. `want` are NumPy statements: `p` are
    the products of the tiles (tile, M, N), `a` and `b` the operands, `row`, `col`, and of each element of C the
    `thread` and the place `i` in its fragment, if one warpgroup holds 64 rows each; they set `c`. `tiles` is what the
    kernel is told at run time. The original of a `lax` variant may do what the PTX ISA does not allow and hardware
    does; in that of a `moved` one the DSL's compiler puts uses of registers in front of their wait, so its values say
    nothing. `refused` is part of the reason why a variant cannot be ported."""

    name: str
    axis: str
    body: str
    helpers: str = ""
    want: str = "c = p.sum(0)"
    kind: str = "bf16"
    m: int = 64
    n: int = 64
    block: tuple[int, int, int] = (128, 1, 1)
    mmas: Mapping[str, Mma] = field(default_factory=lambda: {"mma": Mma()})
    tiles: int = TILES
    lax: bool = False
    moved: bool = False
    refused: str = ""


VARIANTS: dict[str, Variant] = {}
"""All variants by name, in the order in which they are written down."""


def add(axis: str, name: str, body: str, **values: object) -> None:
    if name in VARIANTS:
        raise ValueError(f"two variants are called {name}")
    texts = {k: textwrap.dedent(v) if isinstance(v, str) else v for k, v in values.items()}
    VARIANTS[name] = Variant(name, axis, textwrap.dedent(body), **texts)  # type: ignore[arg-type]
