# SPDX-License-Identifier: Apache-2.0
"""The text that variants share: helpers, MMA wrappers and the frame of a kernel, with names for common pieces."""

from __future__ import annotations

from collections.abc import Mapping

from variant_types import KINDS, TILES, Variant, Want, add, total

HEAD = """#include <cstdint>

"""

SYNC = """__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
"""

TILE = """
// Rows of 192 bytes as core matrices of 8 rows by 16 bytes, those of one column of the tile behind one another.
template <int Rows>
__device__ void fill(uint4* tile, const uint4* from, int thread, int threads) {
    for (int i = thread; i < Rows * 12; i += threads) {
        const int row = i / 12, chunk = i % 12;
        tile[(chunk * (Rows / 8) + row / 8) * 8 + row % 8] = from[i];
    }
}

template <int Rows>
__device__ uint64_t describe(const uint4* tile) {
    const uint64_t address = __cvta_generic_to_shared(tile);
    return (address >> 4 & 0x3fff) | uint64_t(Rows / 8 * 128 >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

// What a step of 32 bytes adds to a descriptor.
constexpr int kA = 2 * 64;
constexpr int kB = 2 * <N>;
constexpr int kN = <N>;

__device__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ int col_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }
__device__ int at(int i) { return row_of(i) * kN + col_of(i); }
"""

FRAME = """
%(before)s__global__ void %(bounds)s %(name)s(const uint4* a_in, const uint4* b_in, %(out)s* c, int tiles) {
    %(shared)s
    fill<%(rows)s>(a_tile, a_in, %(thread)s, %(threads)s);
    fill<%(n)s>(b_tile, b_in, %(thread)s, %(threads)s);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t a = describe<64>(a_tile), b = describe<%(n)s>(b_tile);
    %(body)s
}
"""

ZERO = "for (int i = 0; i < <R>; ++i) d[i] = 0;"
DECLARE = "<T> d[<R>];\n    " + ZERO
TWO = "mma(d, a + 2 * t * kA, b + 2 * t * kB);\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"
BATCH = "fence();\n        <two>\n        commit();"
MULTIPLY = "<batch>\n        wait<0>();"
LOOP = "for (int t = 0; t < tiles; ++t) {\n        <multiply>\n    }"
STORE = "for (int i = 0; i < <R>; ++i) c[at(i)] = d[i];"

ROUND = "for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        %s\n    }"


def loop(after: str) -> str:
    """The main loop with statements behind each tile's wait."""
    return ROUND % after


TWO_TILES = """d[2][16];
    for (int q = 0; q < 2; ++q) for (int i = 0; i < 16; ++i) d[q][i] = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        for (int q = 0; q < 2; ++q) mma(d[q], a + (2 * t + q) * kA, b + (2 * t + q) * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];"""
"""A kernel's text behind the type of an array of two tiles."""

PIECES = {
    "store": STORE,
    "loop": LOOP,
    "multiply": MULTIPLY,
    "batch": BATCH,
    "two": TWO,
    "declare": DECLARE,
    "zero": ZERO,
}
"""Pieces by the name that stands for them in angle brackets; later ones stand in earlier ones."""


def asm(names: list[str], kind: str = "bf16", *, a: str = "a", b: str = "b", flag: str = "", sources: str = "",
        around: tuple[str, str] = ("", ""), more: str = "") -> str:  # fmt: skip
    """One wgmma that adds to the registers `names`, or overwrites them where the text `flag` is zero. `sources` are the
    four registers of A, in place of a descriptor. `around` are instructions before and behind it in the statement,
    `more` further inputs."""
    k = KINDS[kind]
    count = len(names)
    n = 2 * count * k.packed
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+{k.constraint}"({name})' for name in names)
    first = [f'"r"({s})' for s in sources.split(",")] if sources else [f'"l"({a})']
    inputs = ", ".join([*first, f'"l"({b})', *([f'"r"({flag})'] if flag else [])])
    left = ", ".join(f"%{count + i}" for i in range(len(first)))
    left = "{" + left + "}" if sources else left
    tail = k.tail
    if sources and kind != "tf32" and tail:
        tail = "1, 1, 0"
    scale = "p" if flag else "1"
    operands = ", ".join(x for x in (left, f"%{count + len(first)}", scale, tail) if x)
    text = f"wgmma.mma_async.sync.aligned.m64n{n}k{k.depth}.{k.types} {{{registers}}}, {operands};"
    if flag:
        text = f"{{.reg .pred p; setp.ne.b32 p, %{count + len(first) + 1}, 0; {text}}}"
    text, inputs = around[0] + text + around[1], inputs + more
    return f'asm volatile("{text}"\n                 : {outputs}\n                 : {inputs});'


def registers(array: str, count: int) -> list[str]:
    return [f"{array}[{i}]" for i in range(count)]


def wrapper(n: int = 32, kind: str = "bf16", *, name: str = "mma", parameter: str = "", flag: bool = False) -> str:
    """A device function around one MMA: `name(d, a, b)`, or with a flag that says whether to accumulate."""
    k = KINDS[kind]
    count = n // 2 // k.packed
    parameter = parameter or f"{k.register} (&d)[{count}]"
    more = ", int accumulate" if flag else ""
    statement = asm(registers("d", count), kind, flag="accumulate" if flag else "")
    return f"""
__device__ __forceinline__ void {name}({parameter}, uint64_t a, uint64_t b{more}) {{
    {statement}
}}
"""


def fill_in(text: str, n: int, kind: str, pieces: Mapping[str, str] | None = None) -> str:
    """Put the pieces in the place of their names."""
    k = KINDS[kind]
    for name, piece in {**PIECES, **(pieces or {})}.items():
        text = text.replace(f"<{name}>", piece)
    return text.replace("<R>", str(n // 2 // k.packed)).replace("<T>", k.register)


def kernel(
    body: str,
    *,
    n: int = 32,
    kind: str = "bf16",
    warpgroups: int = 1,
    block: tuple[int, int, int] | None = None,
    bounds: str | None = None,
    before: str = "",
    name: str = "kernel",
    shared: str | None = None,
) -> str:
    """A kernel with this body, in which `a` and `b` describe the tiles of the first 64 rows, all of K in place."""
    threads = 128 * warpgroups if block is None else block[0] * block[1] * block[2]
    flat = "threadIdx.x" if block is None or block[1] == 1 else f"(threadIdx.y * {block[0]} + threadIdx.x)"
    rows = 64 * warpgroups
    if shared is None:
        shared = f"__shared__ alignas(128) uint4 a_tile[{rows} * 12], b_tile[{n} * 12];"
    values = {
        "before": before,
        "bounds": f"__launch_bounds__({threads})" if bounds is None else bounds,
        "name": name,
        "out": KINDS[kind].register,
        "shared": shared,
        "rows": rows,
        "n": n,
        "thread": flat,
        "threads": threads,
        "body": body,
    }
    text = FRAME % values
    if rows != 64:
        # each warpgroup's rows are a tile of their own
        one = f"    fill<{rows}>(a_tile, a_in, {flat}, {threads});\n"
        each = f"    for (int w = 0; w < {warpgroups}; ++w)\n        fill<64>(a_tile + w * 768, a_in + w * 768, "
        text = text.replace(one, f"{each}{flat}, {threads});\n")
        text = text.replace("describe<64>(a_tile)", "describe<64>(a_tile + threadIdx.x / 128 * 768)")
    return text


def file(
    text: str, *, n: int = 32, kind: str = "bf16", mma: str | None = None, sync: str = SYNC, head: str = ""
) -> str:
    """A whole file: the helpers and `text`. `mma` takes the place of the wrapper."""
    wrapped = wrapper(n, kind) if mma is None else mma
    return HEAD + head + sync + TILE.replace("<N>", str(n)) + wrapped + text


def variant(
    name: str,
    body: str,
    *,
    axis: str,
    types: str = "",
    want: Want = total,
    wants: Mapping[str, Want] | None = None,
    n: int = 32,
    kind: str = "bf16",
    warpgroups: int = 1,
    rows: int | None = None,
    block: tuple[int, int, int] | None = None,
    bounds: str | None = None,
    before: str = "",
    after: str = "",
    shared: str | None = None,
    mma: str | None = None,
    sync: str = SYNC,
    head: str = "",
    tiles: int = TILES,
    dynamic_smem: int = 0,
    files: Mapping[str, str] | None = None,
    pieces: Mapping[str, str] | None = None,
    by_step: bool = False,
    serialized: bool = False,
) -> None:
    """Take in a variant: `types` stand before the kernel with this `body`, `after` behind it."""
    frame = kernel(
        body, n=n, kind=kind, warpgroups=warpgroups, block=block, bounds=bounds, before=before, shared=shared
    )
    text = file(types + frame + after, n=n, kind=kind, mma=mma, sync=sync, head=head)
    add(
        Variant(
            name,
            axis,
            {"kernel.cu": fill_in(text, n, kind, pieces), **(files or {})},
            want,
            wants or {},
            kind,
            64 * warpgroups if rows is None else rows,
            n,
            block or (128 * warpgroups, 1, 1),
            tiles,
            dynamic_smem,
            by_step,
            serialized,
        )
    )


def whole(
    name: str, text: str, *, axis: str, n: int = 32, kind: str = "bf16", rows: int = 64,
    block: tuple[int, int, int] = (128, 1, 1), want: Want = total, wants: Mapping[str, Want] | None = None,
    tiles: int = TILES, dynamic_smem: int = 0, files: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Take in a variant whose whole file is given."""
    sources = {"kernel.cu": fill_in(text, n, kind), **{p: fill_in(t, n, kind) for p, t in (files or {}).items()}}
    add(Variant(name, axis, sources, want, wants or {}, kind, rows, n, block, tiles, dynamic_smem))
