# SPDX-License-Identifier: Apache-2.0
"""A kernel whose warpgroup has two tiles below each other in many ways of writing: what M=128 MMAs are proposed for,
and what they are refused for."""

from __future__ import annotations

from pathlib import Path

from full_rate_kernels import MEET, port_of

from porter.passes.port import PortResult

KERNEL = """\
@HEAD@__global__ void __launch_bounds__(@THREADS@) kernel(float* out, uint64_t a, uint64_t b, int steps, int rows) {
    __shared__ float stage[128 * 16];
    @ROLE@
    const int warp = threadIdx.x / 32 % 4;
    const int lane = threadIdx.x % 32;
    float acc[@TILES@][8] = {};
    for (int k = 0; k < steps; ++k) {
        fence();
        for (int m = 0; m < 2; ++m) {
            @MMA@
        }
        commit();
        wait();
    }
    @BEFORE@
    for (int m = 0; m < 2; ++m) {
        @ROW@
        for (int i = 0; i < 8; ++i) { @STORE@ }
    }
    @AFTER@
}
"""


DEFAULTS = {
    "HEAD": "",
    "THREADS": "128",
    "ROLE": "",
    "TILES": "2",
    "MMA": "wgmma_m64n16k16(acc[m], a + m * 512 + k % 6 * 2, b + k % 6 * 2);",
    "BEFORE": "",
    "ROW": "const int row = m * 64 + warp * 16 + lane / 4;",
    "STORE": "out[(row + i / 2 % 2 * 8) * 16 + lane % 4 * 2 + i % 2 + i / 4 * 8] = acc[m][i];",
    "AFTER": "",
}


def ported(folder: Path, **parts: str) -> PortResult:
    return port_of(folder, KERNEL, {**DEFAULTS, **parts})


def row(text: str) -> dict[str, str]:
    return {"ROW": f"const int row = {text};"}


GROUP = "const int group = threadIdx.x / 128;"


TAKEN: dict[str, dict[str, str]] = {
    "rows": {},
    "the factor first": row("64 * m + 16 * warp + lane / 4"),
    "a shift": row("(m << 6) + (warp << 4) + (lane >> 2)"),
    "by the thread": row("m * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4"),
    "by bits of the thread": row("m * 64 + (threadIdx.x & 96) / 2 + lane / 4"),
    "behind the block's": row("blockIdx.x * 128 + m * 64 + warp * 16 + lane / 4"),
    "the tile last": row("warp * 16 + lane / 4 + m * 64"),
    "in braces": row("lane / 4 + (m * 64 + warp * 16)"),
    "a constant of the sources": {"HEAD": "constexpr int TILE = 64;\n", **row("m * TILE + warp * 16 + lane / 4")},
    "a part from outside": {
        "BEFORE": "const int part = warp * 16 + lane / 4;",
        **row("m * 64 + part"),
    },
    "a helper of the warp": {
        "HEAD": "__device__ int part() { return threadIdx.x / 32 * 16; }\n",
        **row("m * 64 + part() + lane / 4"),
    },
    "a mask": {"STORE": "if (row < rows) out[row * 16 + lane % 4 * 2 + i] = acc[m][i];"},
    "a turn that is skipped": {
        "ROW": "const int row = m * 64 + warp * 16 + lane / 4; if (row >= rows) continue;",
    },
    "rows in shared memory": {
        "STORE": "stage[row * 16 + i] = acc[m][i];",
        "AFTER": "__syncthreads(); out[threadIdx.x] = stage[threadIdx.x];",
    },
    "two sums": {"STORE": "out[row] = acc[m][i]; stage[m * 64 + warp * 16 + i] = 0;"},
    "a lambda": {
        "BEFORE": "auto store = [&](int r, float v) { if (r < rows) out[r * 16] = v; };",
        "STORE": "store(row, acc[m][i]);",
    },
    "a helper": {
        "HEAD": "__device__ void store(float* out, int row, float v) { out[row * 16] = v; }\n",
        "STORE": "store(out, row, acc[m][i]);",
    },
    "lanes among themselves": {"STORE": "out[row] = acc[m][i] + __shfl_xor_sync(0xffffffffu, acc[m][i], 1);"},
    "a leader behind": {"AFTER": "if (threadIdx.x == 0) out[0] = 1;"},
    "a condition of the block": {"BEFORE": "if (blockIdx.x * 128 >= rows) return;"},
    "a descriptor by a helper": {
        "HEAD": "__device__ uint64_t at(uint64_t base, int m) { return base + m * 512; }\n",
        "MMA": "wgmma_m64n16k16(acc[m], at(a, m), b);",
    },
    "descriptors in variables": {
        "MMA": "const uint64_t da = a + m * 512; const uint64_t db = b; wgmma_m64n16k16(acc[m], da, db);",
    },
    "steps inside": {"MMA": "for (int j = 0; j < 4; ++j) wgmma_m64n16k16(acc[m], a + m * 512 + j, b + j);"},
    "two warpgroups with two tiles each": {
        "THREADS": "256",
        "ROLE": GROUP,
        "MMA": "wgmma_m64n16k16(acc[m], a + group * 1024 + m * 512, b);",
        **row("group * 128 + m * 64 + warp * 16 + lane / 4"),
    },
    "a buffer for each warpgroup": {
        "THREADS": "256",
        "ROLE": GROUP,
        "BEFORE": "float* mine = out + group * 2048;",
        "STORE": "mine[row * 16 + i] = acc[m][i];",
    },
    "a row of a tile by shuffle": {
        "BEFORE": "const int w = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);",
        **row("m * 64 + w * 16 + lane / 4"),
    },
    "twice the row": row("(m * 64 + warp * 16 + lane / 4) * 2"),
    "a swizzle": {"STORE": "stage[row * 16 + (i ^ (row & 7))] = acc[m][i];"},
    "a pointer to a row": {"STORE": "float* p = out + row * 16; p[i] = acc[m][i];"},
    "two dimensions": {"BEFORE": "__shared__ float two[128][16];", "STORE": "two[row][i] = acc[m][i];"},
    "a sum in place": {"STORE": "out[row * 16 + i] += acc[m][i];"},
    "an atomic": {"STORE": "atomicAdd(&out[row * 16 + i], acc[m][i]);"},
    "a wide store": {"STORE": "*reinterpret_cast<float2*>(&out[row * 16 + i]) = make_float2(acc[m][i], 0);"},
    "a streaming store": {"STORE": "__stcs(&out[row * 16], acc[m][i]);"},
    "a tile of registers by a helper": {
        "HEAD": "__device__ float first(const float (&d)[8]) { return d[0]; }\n",
        "STORE": "out[row] = first(acc[m]);",
    },
    "a producer": {
        "THREADS": "256",
        "ROLE": f"{GROUP} if (group == 1) {{ if (threadIdx.x == 128) out[0] = 1; return; }}",
    },
}


ROWS, BETWEEN, PART, HANDS, LESS = "which rows of a tile", "stands between", "may part", "hands", "wait for less"


SAME = "same place, or wait"


MBAR = """\
__device__ void await(unsigned b) {
    asm volatile("{.reg .pred P; L%=: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; @!P bra L%=;}" :: "r"(b));
}
__device__ void give(unsigned b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b)); }
__device__ unsigned place(const void* p) { return __cvta_generic_to_shared(p); }
"""


MODULO = "stage[(row % 64) * 16 + i]"


INDEX = "used for something else than its rows"


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a warp that adds for many rows": (
        {
            "STORE": "out[(row + i / 2 % 2 * 8) * 16 + lane % 4 * 2 + i % 2 + i / 4 * 8] = "
            "acc[m][i] + (rows > 1000 && warp == 1);"
        },
        "",
    ),
    # rows that the index of the tile and the warp tell in another way
    "the tile's rows are no 64": (row("m * 32 + warp * 16 + lane / 4"), INDEX),
    "the warp's rows are no 16": (row("m * 64 + warp * 32 + lane / 4"), ROWS),
    "the warps in another order": (row("m * 64 + (warp ^ 1) * 16 + lane / 4"), ROWS),
    "the warps from the other end": (row("m * 64 + 48 - warp * 16 + lane / 4"), ROWS),
    "rows by turns": (row("lane / 4 * 8 + m * 4 + warp"), INDEX),
    "no warp": (row("m * 64 + lane"), ROWS),
    "the tile is taken away": (row("127 - m * 64 - warp * 16 - lane / 4"), ROWS),
    "rows by or": (row("m * 64 | warp * 16 | lane / 4"), ROWS),
    "rows times a pitch": (
        {"STORE": "out[m * 64 * 16 + warp * 16 * 16 + lane + i] = acc[m][i];", "ROW": ""}, ROWS),
    "a part that changes": (
        {"BEFORE": "int part = warp * 16; if (rows) part = 0;", **row("m * 64 + part + lane / 4")}, ROWS),
    "a part that a helper writes": (
        {"HEAD": "__device__ void tell(int& p) { p = threadIdx.x / 32 * 16; }\n",
         "BEFORE": "int part = 0; tell(part);", **row("m * 64 + part + lane / 4")}, ROWS),
    "rows from memory": (
        {"BEFORE": "const int part = int(out[threadIdx.x]);", **row("m * 64 + part + lane / 4")}, ROWS),
    # other things that depend on the tile or the warp
    "a bias for the rows of each tile": (
        {"BEFORE": "const float bias = out[warp * 16 + lane / 4];", "STORE": "out[row] = acc[m][i] + bias;"}, ROWS),
    "a bias by the tile": ({"STORE": "out[row] = acc[m][i] + out[m];"}, INDEX),
    "a buffer for each warp": (
        {"BEFORE": "float* mine = stage + warp * 256;", "STORE": "mine[lane + i] = acc[m][i];"}, ROWS),
    "a tile's rows in shared memory": ({"STORE": "stage[(warp * 16 + lane / 4) * 16 + i] = acc[m][i];"}, ROWS),
    "only the first tile": ({"STORE": "if (m == 0) out[row] = acc[m][i];"}, INDEX),
    "only the first warp": ({"STORE": "if (warp == 0) out[row] = acc[m][i];"}, ROWS),
    "only one thread": ({"STORE": "if (threadIdx.x == 0) out[row] = acc[m][i];"}, ROWS),
    "a warp by a helper": (
        {"HEAD": "__device__ bool first() { return threadIdx.x < 32; }\n",
         "STORE": "if (first()) out[row] = acc[m][i];"}, ROWS),
    "a warp by a lambda": (
        {"BEFORE": "auto store = [&](int r, float v) { out[r + warp] = v; };",
         "STORE": "store(row, acc[m][i]);"}, ROWS),
    "a warp by a lambda that is handed on": (
        {"HEAD": "template <typename F> __device__ void with(F f, int r, float v) { f(r, v); }\n",
         "BEFORE": "auto store = [&](int r, float v) { out[r + warp] = v; };",
         "STORE": "with(store, row, acc[m][i]);"}, ROWS),
    "a warp by a macro": (
        {"HEAD": "#define PUT(v) out[row + warp] = v\n", "STORE": "PUT(acc[m][i]);"}, "macro"),
    "a warp by an object": (
        {"HEAD": "struct Who { int w = threadIdx.x / 32; };\n",
         "STORE": "Who who; out[row + who.w] = acc[m][i];"}, ROWS),
    "a warp by asm": (
        {"STORE": 'unsigned w; asm("mov.u32 %0, %%warpid;" : "=r"(w)); out[row + w] = acc[m][i];'}, ROWS),
    "another name of the index": ({"STORE": "const int t = m; out[row + t] = acc[m][i];"}, INDEX),
    # what a turn leaves behind
    "a sum over tiles": (
        {"BEFORE": "float sum = 0;", "STORE": "sum += acc[m][i];", "AFTER": "out[warp] = sum;", "ROW": ""}, HANDS),
    "a sum over tiles by a lambda": (
        {"BEFORE": "float sum = 0; auto add = [&](float v) { sum += v; };", "STORE": "add(acc[m][i]);",
         "AFTER": "out[warp] = sum;", "ROW": ""}, ROWS),
    "a sum over tiles by a helper": (
        {"HEAD": "__device__ void add(float& s, float v) { s += v; }\n", "BEFORE": "float sum = 0;",
         "STORE": "add(sum, acc[m][i]);", "AFTER": "out[warp] = sum;", "ROW": ""}, HANDS),
    "a sum over tiles by a pointer": (
        {"HEAD": "__device__ void add(float* s, float v) { *s += v; }\n", "BEFORE": "float sum = 0;",
         "STORE": "add(&sum, acc[m][i]);", "AFTER": "out[warp] = sum;", "ROW": ""}, HANDS),
    "a pointer that moves on": (
        {"BEFORE": "float* p = out + (warp * 16 + lane / 4) * 16;", "STORE": "p[i] = acc[m][i];",
         "ROW": "p += m * 64;"}, HANDS),
    "registers of another array": (
        {"BEFORE": "float kept[16];", "STORE": "kept[i] = acc[m][i];", "AFTER": "out[threadIdx.x] = kept[0];",
         "ROW": ""}, HANDS),
    "registers side by side": (
        {"BEFORE": "float kept[2][8];", "STORE": "kept[m][i] = acc[m][i];", "AFTER": "out[threadIdx.x] = kept[0][0];",
         "ROW": ""}, INDEX),
    # around the loops
    "tiles by hand": ({"AFTER": "out[warp * 16] = acc[0][0]; out[64 + warp * 16] = acc[1][0];"}, "tile by tile"),
    "a helper is handed both": (
        {"HEAD": "__device__ void show(float* o, float (&d)[2][8]) { o[threadIdx.x] = d[0][0]; }\n",
         "AFTER": "show(out, acc);"}, "tile by tile"),
    "the other tile": ({"STORE": "out[row] = acc[1 - m][i];"}, "tile by tile"),
    "warps that leave": ({"BEFORE": "if (warp * 16 >= rows) return;"}, PART),
    "warps that leave by a macro": (
        {"HEAD": "#define LEAVE(c) if (c) return\n", "BEFORE": "LEAVE(warp * 16 >= rows);"}, "macro"),
    "a tile that ends the loop": (
        {"ROW": "const int row = m * 64 + warp * 16 + lane / 4; if (row >= rows) break;"}, PART),
    "a warp that stores": ({"BEFORE": "if (warp < 2)"}, PART),
    "warps among themselves": ({"AFTER": "__syncwarp(); out[lane] = stage[warp * 256 + lane];"}, LESS),
    "two warps among themselves": (
        {"AFTER": 'asm volatile("bar.sync %0, 64;" ::"r"(1 + warp / 2) : "memory");'}, LESS),
    "two warps among themselves, by a helper": (
        {"HEAD": MEET, "AFTER": "meet(1 + warp / 2, 64);"}, LESS),
    "two warps among themselves, under an id of their own": (
        {"AFTER": 'asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 2) : "memory");'}, LESS),
    "two warps among themselves, by an mbarrier for each pair": (
        {"HEAD": MBAR, "BEFORE": "__shared__ uint64_t pair[2]; const unsigned o = place(pair) + warp / 2 * 8;",
         "AFTER": "give(o); await(o); out[lane] = stage[lane];"}, LESS),
    "two warps among themselves, by an mbarrier": (
        {"HEAD": MBAR, "BEFORE": "__shared__ uint64_t pair;",
         "AFTER": "if (warp < 2) { give(place(&pair)); await(place(&pair)); out[lane] = stage[lane]; }"}, LESS),
    # turns that meet in a place
    "tiles that are added up": ({"STORE": f"{MODULO} += acc[m][i];"}, SAME),
    "one place for both tiles": ({"STORE": "stage[(row & 63) * 16 + i] = acc[m][i];"}, SAME),
    "half a row": ({"STORE": "const int r = row / 2; stage[r] = acc[m][i];"}, SAME),
    "a row that becomes less": ({"STORE": "int r = row; r %= 64; stage[r] = acc[m][i];"}, SAME),
    "a pointer to one place": ({"STORE": "float* p = out + row % 64 * 16; p[i] = acc[m][i];"}, SAME),
    "one place, of two dimensions": (
        {"BEFORE": "__shared__ float two[64][16];", "STORE": "two[row % 64][i] = acc[m][i];"}, SAME),
    "one place, by a table": ({"BEFORE": "__shared__ int all[128];", "STORE": "out[all[row]] = acc[m][i];"}, SAME),
    "one place, by a lambda": (
        {"BEFORE": "auto put = [&](int r, float v) { stage[r % 64] = v; };", "STORE": "put(row, acc[m][i]);"}, SAME),
    "one place, by a helper": (
        {"HEAD": "__device__ void put(float* o, int r, float v) { o[r & 63] = v; }\n",
         "STORE": "put(out, row, acc[m][i]);"}, SAME),
    "one place, by a library": ({"STORE": "__stcs(&out[row % 64], acc[m][i]);"}, SAME),
    "the tile before": ({"STORE": "out[row] = acc[m][i] + out[row - 64];"}, SAME),
    "the tile before, by a library": ({"STORE": "out[row] = acc[m][i] + __ldg(out + row - 64);"}, SAME),
    "the tile before, by a helper": (
        {"HEAD": "__device__ void put(float* o, int r, float v) { o[r] = v; }\n",
         "STORE": "put(out, row, acc[m][i]); stage[row] = out[row - 64];"}, SAME),
    "a tile at a time": (
        {"STORE": f'{MODULO} = 0; asm volatile("bar.sync 1, 128;" ::: "memory"); out[row] = acc[m][i];'}, SAME),
    "a tile at a time, by a helper": ({"HEAD": MEET, "STORE": "meet(1, 128); out[row] = acc[m][i];"}, SAME),
    "a tile at a time, all warps": ({"STORE": "__syncthreads(); out[row] = acc[m][i];"}, SAME),
    # MMAs
    "B of the tile": ({"MMA": "wgmma_m64n16k16(acc[m], a + m * 512, b + m * 2);"}, "B descriptor"),
    "B of the tile by a variable": (
        {"MMA": "const uint64_t db = b + m; wgmma_m64n16k16(acc[m], a + m * 512, db);"}, "B descriptor"),
    "B by a helper that counts": (
        {"HEAD": "__device__ uint64_t next(uint64_t& b) { b += 2; return b; }\n",
         "MMA": "wgmma_m64n16k16(acc[m], a + m * 512, next(b));"}, BETWEEN),
    "B by a lambda that counts": (
        {"ROLE": "auto next = [&] { b += 2; return b; };",
         "MMA": "wgmma_m64n16k16(acc[m], a + m * 512, next());"}, BETWEEN),
    "B that moves on": ({"MMA": "wgmma_m64n16k16(acc[m], a + m * 512, b); b += 2;"}, BETWEEN),
    "a tile that is left out": ({"MMA": "if (m < rows) wgmma_m64n16k16(acc[m], a + m * 512, b);"}, BETWEEN),
    "steps of its own": (
        {"MMA": "for (int j = m; j < 4; ++j) wgmma_m64n16k16(acc[m], a + m * 512 + j, b + j);"}, BETWEEN),
    "a batch for each tile": ({"MMA": "wgmma_m64n16k16(acc[m], a + m * 512, b); commit();"}, BETWEEN),
    "a wait in between": ({"MMA": "__syncthreads(); wgmma_m64n16k16(acc[m], a + m * 512, b);"}, BETWEEN),
    "the other tile's MMA": ({"MMA": "wgmma_m64n16k16(acc[1 - m], a + m * 512, b);"}, "which tile"),
    "MMAs by hand": (
        {"MMA": "wgmma_m64n16k16(acc[0], a + m * 512, b); wgmma_m64n16k16(acc[1], a + m * 512, b);"}, "which tile"),
    "one tile is set to zero": ({"ROLE": "", "BEFORE": "for (int i = 0; i < 8; ++i) acc[1][i] = 0;"}, "one by one"),
}  # fmt: skip
