# SPDX-License-Identifier: Apache-2.0
"""What the model takes of a kernel: the loop over K of one block, its epilogue, and how many blocks share an SM.

What nobody found is None, and the model then says that it does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from porter.facts.stages import Roles
from porter.ptx.umma import DENSE_K, Kind

Store = Literal["threads", "rows", "tma"]
"""How results leave: stored by threads as fragments; 16 bytes a thread, each thread a row of its own; by TMA."""


@dataclass(frozen=True)
class Mma:
    """One MMA. `m` counts the rows of both blocks of a pair; `a` is where A lies."""

    m: int
    n: int
    kind: Kind = Kind.F16
    cta_group: int = 1
    a: Literal["shared", "tensor", "registers"] = "shared"
    wgmma: bool = False

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * DENSE_K[self.kind]

    @property
    def speed(self) -> float:
        """Operations of this type in the time of one of 16 bits."""
        return DENSE_K[self.kind] / DENSE_K[Kind.F16]


@dataclass(frozen=True)
class Epilogue:
    """Of one output tile of a block.

    `overlapped`: other warps store it while the next tile is multiplied into other columns. `pieces`: how many parts
    it leaves in, one being loaded while another is stored. `load_columns`: columns that one tcgen05.ld loads. `ways`:
    rounds of one access to shared memory on their way, because of banks.
    """

    element_bytes: int = 2
    store: Store = "threads"
    pieces: int = 1
    overlapped: bool = False
    load_columns: int | None = None
    ways: int = 1


@dataclass(frozen=True)
class Work:
    """What the threads of a block do in a stage, beside MMAs: `instructions` that warps issue, all counted, and
    evaluations of `mufu` functions, by lane. `waits_mma`: they need the result of the stage's own MMAs. `kinds`: what
    the instructions are, the most first."""

    instructions: int = 0
    mufu: int = 0
    waits_mma: bool = False
    kinds: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Residency:
    """What one block takes of an SM; None where it is not known."""

    smem: int | None = None
    tmem_columns: int = 0
    threads: int | None = None
    registers: int | None = None


@dataclass(frozen=True)
class Shape:
    """One block of a kernel.

    `mmas` are those of one stage, issued for this block (or, of a pair, for both), with their numbers. `load_bytes`
    are those that this block's TMA brings into its own shared memory per stage, `row_bytes` the width of the narrowest
    box. `tile_m` x `tile_n` is the output tile of the block, or of the pair. `waits_each`: whoever issues MMAs waits
    for those of a stage before it issues more. `issuers`: warps that issue MMAs of tiles of their own at a time.
    `in_turns`: one after the other, as named barriers say. `multicast`: blocks of a cluster share what they load.
    `by_threads`: threads load into registers and store to shared memory.
    """

    arch: str
    mmas: tuple[tuple[Mma, int], ...]
    tile_m: int | None
    tile_n: int | None
    load_bytes: int | None
    stages: int | None
    roles: Roles | None
    row_bytes: int | None = None
    waits_each: bool = False
    issuers: int = 1
    cluster: int = 1
    persistent: bool = False
    multicast: bool = False
    by_threads: bool = False
    in_turns: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue)
    work: Work = field(default_factory=Work)
    residency: Residency = field(default_factory=Residency)
    assumed: tuple[str, ...] = ()
    """What was taken for granted, in words."""
    batches: int = 1
    """Batches of a stage's MMAs that are waited for, one after the other."""
    ahead: tuple[tuple[Mma, int], ...] = ()
    """Those of `mmas` that are issued a stage ahead, and run beside the work of the stage before."""
    late: float = 0.0
    """Where the others are waited for in the work of the stage behind: the share of this that comes later."""

    @property
    def cta_group(self) -> int:
        return max((mma.cta_group for mma, _ in self.mmas), default=1)

    @property
    def kind(self) -> Kind:
        return self.mmas[0][0].kind

    @property
    def operations(self) -> int:
        """Of a stage, by all the MMAs in `mmas`."""
        return sum(mma.operations * count for mma, count in self.mmas)

    @property
    def tile_k(self) -> int | None:
        """Elements of K of a stage, where the stage is one of a plain product."""
        if self.tile_m is None or self.tile_n is None:
            return None
        return self.operations // (2 * self.tile_m * self.tile_n) or None

    @property
    def is_product(self) -> bool:
        """Whether the stage adds to one output tile, as that of a GEMM does."""
        k = self.tile_k
        return k is not None and k * 2 * (self.tile_m or 0) * (self.tile_n or 0) == self.operations


@dataclass(frozen=True)
class Problem:
    """C[m, n] += A[m, k] B[k, n]."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"
