# SPDX-License-Identifier: Apache-2.0
"""Kernels for SM100 as PTX, small, in the idioms of different authors: who issues, what is waited for how, how results
leave. Operands lie in global memory as the tensor core wants them, tile after tile.

Every instruction that somebody may forget is named: a line `text; //@name`; `with_mistake` leaves it out, or puts
another text for a part of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.hazard import Level
from porter.sim.results import Schedule

M, N, KT = 128, 64, 32
A_BYTES, B_BYTES = M * KT * 2, N * KT * 2
STAGE = A_BYTES + B_BYTES
VERSION = 1 << 46
IDESC = 1 << 4 | N >> 3 << 17 | M >> 4 << 24
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TAG = re.compile(r"^.*//@(\w+)$", re.MULTILINE)
Mistake = str | tuple[str, str]
"""A named line that is left out, or a text and what stands for it."""


@dataclass(frozen=True)
class Kernel:
    """`wrong` are mistakes with what the checker has to find at practice level: a kind of hazard, or the ID of what
    ends the run."""

    body: str
    threads: int
    wrong: Mapping[str, tuple[Mistake, str]]
    tiles: int = 4
    blocks: int = 1
    cluster: int = 1
    run: Run = field(default=lambda *a: products()(*a))


Run = Callable[[str, Kernel, Options], tuple[Outcome, bool]]
"""Runs the text of a kernel; the outcome, and whether its values are right."""


def with_mistake(body: str, mistake: Mistake) -> str:
    if isinstance(mistake, tuple):
        assert mistake[0] in body, mistake
        return body.replace(*mistake, 1)
    assert mistake in _TAG.findall(body), mistake
    return _TAG.sub(lambda m: "" if m.group(1) == mistake else m.group(0), body)


# Pieces -------------------------------------------------------------------------------------------------

HEADER = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 c)
{
.reg .b16 %h<9>; .reg .b32 %r<200>; .reg .b64 %d<40>; .reg .b128 %q<2>; .reg .pred %p<20>;
.shared .align 16 .b8 bars[256]; .shared .align 4 .b8 slot[4];
.reg .b32 %sm, %bar, %lane, %warp, %tmem, %id; .reg .b64 %a, %b, %c; .reg .pred %one, %no, %yes;
mov.u32 %sm, dyn; mov.u32 %bar, bars; mov.u32 %r0, %tid.x; shr.u32 %warp, %r0, 5; and.b32 %lane, %r0, 31;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c];
setp.ne.u32 %no, 0, 0; setp.eq.u32 %yes, 0, 0; setp.eq.u32 %one, %lane, 0; setp.eq.u32 %p10, %lane, 1;
"""


def init(*counts: int) -> str:
    """The mbarriers, by thread 0, and the fence."""
    lines = [f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], {count};" for i, count in enumerate(counts)]
    return "setp.eq.u32 %p0, %r0, 0;\n" + "\n".join(lines) + "\n@%p0 fence.mbarrier_init.release.cluster;\n"


def alloc(warp: int, columns: int = 64, group: int = 1) -> str:
    return (
        f"setp.ne.u32 %p1, %warp, {warp}; @%p1 bra ALLOCATED;\n"
        f"tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [slot], {columns};\n"
        f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;\nALLOCATED:\n"
    )


def published(barrier: str = "bar.sync 0;") -> str:
    return (
        f"tcgen05.fence::before_thread_sync;\n{barrier} //@start_barrier\ntcgen05.fence::after_thread_sync;\n"
        "ld.shared.u32 %tmem, [slot];\n"
    )


def free(warp: int, columns: int = 64, group: int = 1, barrier: str = "bar.sync 0;") -> str:
    return (
        f"END: tcgen05.fence::before_thread_sync;\n{barrier} //@end_barrier\ntcgen05.fence::after_thread_sync;\n"
        f"setp.ne.u32 %p1, %warp, {warp}; @%p1 bra OUT;\n"
        f"tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %tmem, {columns};\nOUT: ret;\n"
    )


_labels = iter(range(1 << 30))


def wait(slot: int | str, parity: int | str, name: str = "", modifiers: str = "") -> str:
    """A loop on one line."""
    label = f"W{next(_labels)}"
    tag = f" //@{name}" if name else ""
    return (
        f"{label}: mbarrier.try_wait.parity{modifiers}.shared::cta.b64 %p9, [{_bar(slot)}], {parity}; "
        f"@!%p9 bra {label};{tag}\n"
    )


def stages_back(stages: int, tiles: int) -> str:
    """Waits until all stages came back, ahead of a block's end: what comes from elsewhere arrives on no block that is
    gone."""
    turns = tiles // stages
    return "".join(wait(stages + s, (turns - 1) & 1, f"tail{s}", ".acquire.cluster") for s in range(stages))


def _bar(slot: int | str) -> str:
    return f"%bar+{8 * slot}" if isinstance(slot, int) else slot


def load(stage: int, tile: int, slot: int, guard: str = "%one", a: int = A_BYTES, b: int = B_BYTES) -> str:
    """Both tiles of a stage by bulk copies."""
    return f"""add.u64 %d1, %a, {tile * a}; add.u64 %d2, %b, {tile * b}; add.u32 %r3, %sm, {stage * (a + b)};
add.u32 %r4, %r3, {a}; add.u32 %r5, %bar, {8 * slot};
@{guard} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {a + b}; //@expect{tile}
@{guard} {COPY} [%r3], [%d1], {a}, [%r5];
@{guard} {COPY} [%r4], [%d2], {b}, [%r5];
"""


def descriptor(register: str, offset: int, leading: int, stride: int = 128) -> str:
    fields = leading >> 4 << 16 | stride >> 4 << 32 | VERSION
    return (
        f"add.u32 %r6, %sm, {offset}; and.b32 %r6, %r6, 0x3ffff; shr.u32 %r6, %r6, 4; cvt.u64.u32 {register}, %r6; "
        f"or.b64 {register}, {register}, {fields};\n"
    )


def mma(stage: int, first: bool, guard: str = "%one", accumulator: str = "%tmem", base: int = 0, n: int = N) -> str:
    """The products of a stage: two, each of 16 columns of A and B. `base`: which rows of B, in groups of eight."""
    out = f"mov.u32 %id, {1 << 4 | n >> 3 << 17 | M >> 4 << 24};\n"
    for step in range(KT // 16):
        out += descriptor("%d3", stage * STAGE + step * 2 * M * 16, M * 16)
        out += descriptor("%d4", stage * STAGE + A_BYTES + step * 2 * N * 16 + base * 128, N * 16)
        enable = "%no" if first and step == 0 else "%yes"
        out += f"@{guard} tcgen05.mma.cta_group::1.kind::f16 [{accumulator}], %d3, %d4, %id, {enable};\n"
    return out


def commit(slot: int, guard: str = "%one", name: str = "") -> str:
    tag = f" //@{name}" if name else ""
    return (
        f"add.u32 %r5, %bar, {8 * slot};\n"
        f"@{guard} tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5];{tag}\n"
    )


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def lanes(at: int = 0, warp: str = "%warp") -> str:
    """The address of a column in a warp's lanes of Tensor Memory."""
    return f"and.b32 %r7, {warp}, 3; shl.b32 %r7, %r7, 21; add.u32 %r7, %r7, %tmem; add.u32 %r7, %r7, {at};\n"


def read(columns: int = N, at: int = 0, name: str = "wait_ld", warp: str = "%warp") -> str:
    """A warp's 32 lanes of Tensor Memory into %r100 and on."""
    return lanes(at, warp) + (
        f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {registers(100, columns)}, [%r7];\n"
        f"tcgen05.wait::ld.sync.aligned; //@{name}\n"
    )


def write(columns: int = N, at: int = 0, row: str = "%r8", first: int = 100) -> str:
    """Registers from %r100 on to a row of C."""
    out = f"mul.wide.u32 %d5, {row}, {N * 4}; add.u64 %d5, %d5, %c;\n"
    for i in range(0, columns, 4):
        out += f"st.global.v4.u32 [%d5+{4 * (at + i)}], {registers(first + i, 4)};\n"
    return out


ROLES = "setp.eq.u32 %p2, %warp, 4; @%p2 bra LOADS; setp.eq.u32 %p2, %warp, 5; @%p2 bra MULTIPLIES; bra STORES;\n"
AFTER, BEFORE = "tcgen05.fence::after_thread_sync;\n", "tcgen05.fence::before_thread_sync;\n"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
ROW = "and.b32 %r8, %warp, 3; shl.b32 %r8, %r8, 5; add.u32 %r8, %r8, %lane;\n"


# Running ------------------------------------------------------------------------------------------------


def packed(matrix: np.ndarray) -> np.ndarray:
    """A matrix in tiles of KT columns, each in core matrices of 8 rows by 16 bytes, rows first."""
    rows, columns = matrix.shape
    size = 16 // matrix.itemsize
    cores = matrix.reshape(rows // 8, 8, columns // KT, KT // size, size)
    return np.ascontiguousarray(cores.transpose(2, 3, 0, 1, 4))


def launch(
    text: str, kernel: Kernel, data: Sequence[np.ndarray], out: int, options: Options, smem: int = 65536
) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    places = []
    for i, array in enumerate(data):
        raw = array.reshape(-1).view(np.uint8)
        places.append(memory.alloc(raw.size, name="ab"[i]))
        memory.write(places[-1], raw)
    places.append(memory.alloc(out, fill=0, name="c"))
    module = parse_module(HEADER + text + "\n}\n")
    where = Launch((kernel.blocks, 1, 1), (kernel.threads, 1, 1), (kernel.cluster, 1, 1), smem)
    outcome = simulate(module, "kernel", where, pack_params(module.function("kernel"), places), memory, options)
    return outcome, memory.read(places[-1], out)


def products(
    wanted: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda a, b: a @ b.T,
    a_in: Callable[[np.ndarray], np.ndarray] = packed,
    b_in: Callable[[np.ndarray], np.ndarray] = packed,
    rows: int = M,
    tiles: int | None = None,
    result: type[np.floating[Any]] = np.float32,
) -> Run:
    """C is `wanted` of A (`rows` x K) and B, whole numbers that lie in memory as `a_in` and `b_in` put them. K has
    `tiles`, or as many as the kernel."""

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        rng = np.random.default_rng(3)
        a, b = (rng.integers(-3, 4, (n, (tiles or kernel.tiles) * KT)).astype(np.float16) for n in (rows, N))
        right = wanted(a.astype(float), b.astype(float))
        outcome, c = launch(text, kernel, [a_in(a), b_in(b)], right.size * np.dtype(result).itemsize, options)
        return outcome, bool((c.view(result).reshape(right.shape) == right).all())

    return run


def in_halves(matrix: np.ndarray) -> np.ndarray:
    """Upper and lower rows, packed one behind the other."""
    return np.concatenate([packed(half).reshape(-1) for half in np.split(matrix, 2)])


def by_columns(a: np.ndarray, b: np.ndarray, width: int) -> np.ndarray:
    """The product in blocks of so many columns, one behind the other."""
    c = a @ b.T
    return c.reshape(len(c), -1, width).transpose(1, 0, 2)


def checked(
    kernel: Kernel, mistake: Mistake | None = None, level: Level = "practice", schedule: Schedule = "late"
) -> tuple[Outcome, bool]:
    options = Options(mode="checking", level=level, schedule=schedule, seed=1, max_warp_instructions=100_000)
    text = kernel.body if mistake is None else with_mistake(kernel.body, mistake)
    return kernel.run(text, kernel, options)
