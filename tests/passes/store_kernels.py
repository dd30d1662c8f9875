# SPDX-License-Identifier: Apache-2.0
"""A kernel whose threads store sums in a loop over columns, in many ways of writing: as a text, and with operands and a
case for the judge."""

from __future__ import annotations

import re
from pathlib import Path

from native_kernels import HEAD

KERNEL = """\
#include <cuda_bf16.h>
@HELP@
__global__ void __launch_bounds__(@THREADS@)
kernel(@OUT@, uint64_t a, uint64_t b, int rows, int columns, int ld@MORE@) {
    float acc[8] = {};
    fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>();
    @BEHIND@
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.y * 128 + threadIdx.x / 32 * 16 + lane / 4;
    const int column = blockIdx.x * 16 + lane % 4 * 2;
    @STORE@
    @AFTER@
}
"""
DEFAULTS = {
    "HELP": "",
    "THREADS": "128",
    "OUT": "float* out",
    "MORE": "",
    "BEHIND": "",
    "STORE": """\
for (int n = 0; n < 2; ++n) {
        float* at = out + size_t(row) * ld + column + 8 * n;
        at[0] = acc[4 * n];
        at[1] = acc[4 * n + 1];
        at[8 * ld] = acc[4 * n + 2];
        at[8 * ld + 1] = acc[4 * n + 3];
    }""",
    "AFTER": "",
}
AT_OF_LANE = ("0", "1", "8 * ld", "8 * ld + 1")
ROWS = "for (int h = 0; h < 2; ++h) for (int e = 0; e < 2; ++e) "
ELEMENT = "out[size_t(row + 8 * h) * ld + column + 8 * n + e]"


def loop(body: str, head: str = "int n = 0; n < 2; ++n") -> dict[str, str]:
    return {"STORE": f"for ({head}) {{ {body} }}"}


def source(**parts: str) -> str:
    text = HEAD + KERNEL
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    return text


OPERANDS = """\
    __shared__ __align__(1024) unsigned short tiles[80 * 16];
    for (int i = threadIdx.x; i < 80 * 16; i += blockDim.x) {
        const int r = i / 16, c = i % 16;
        const unsigned short* from = r < 64 ? a_in + blockIdx.y * 1024 : b_in + blockIdx.x * 256 - 1024;
        tiles[r / 8 * 128 + c / 8 * 64 + r % 8 * 8 + c % 8] = from[i];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t a = (shared(tiles) >> 4) | 8ull << 16 | 16ull << 32, b = a + 128;
    float acc[8] = {};
"""
CASE = """\
version: 1
kernel: kernel.cu
entry: kernel
sizes: {M: 128, N: 32}
other_sizes: [{M: 64, N: 16}]
families: [integers]
multiples: {M: 64, N: 16}
tensors:
  A: {dtype: f16, shape: [M, 16], role: input}
  B: {dtype: f16, shape: [N, 16], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
  S: {dtype: f32, shape: [2 * M * N], role: scratch, fill: 0}
launch: {grid: [N / 16, M / 64, 1], block: [128, 1, 1]}
params: [C, M, N, N, A, B, S]
reference: "A @ B.T"
accumulate: f32
"""
ZERO = re.sub(r"acc\[.*?\]", "0", DEFAULTS["STORE"])
NOTE = "__device__ void note(float* to, float value) { *to = value; }\n"
TOLD = "__threadfence(); if (lane == 0) atomicAdd(reinterpret_cast<int*>(seen), 1);"
JUDGED: dict[str, dict[str, str]] = {
    "results by bulk copies": {},
    "results that are read again": {"AFTER": "note(seen + row * ld + column, out[row * ld + column]);"},
    "results that another warp reads": {
        "AFTER": "__syncthreads(); note(seen + row * ld + column, out[(row ^ 16) * ld + column]);",
    },
    "results that are read again, late": {
        "AFTER": "if (rows > 2000) note(seen + row * ld + column, out[row * ld + column]);",
    },
    "a flag for others": {"AFTER": TOLD},
    "a flag for others, late": {"AFTER": f"if (rows > 2000) {{ {TOLD} }}"},
    "an element that is stored again": {
        "AFTER": "if (rows > 2000 && threadIdx.x == 0) note(out + row * ld + column, 2 * acc[0]);"
    },
    "an element by a macro that names it": {
        "HELP": NOTE + "#define AGAIN note(out + row * ld + column, 2 * acc[0])\n",
        "AFTER": "if (rows > 2000) AGAIN;",
    },
    "results that are stored twice": {"STORE": ZERO + "\n    " + DEFAULTS["STORE"]},
    "two outputs": loop(
        "for (int e = 0; e < 2; ++e) { out[size_t(row) * ld + column + 8 * n + e] = acc[4 * n + e];"
        "out[size_t(row + 8) * ld + column + 8 * n + e] = acc[4 * n + 2 + e];"
        "note(seen + size_t(row) * ld + column + 8 * n + e, acc[4 * n + e]); }"
    ),
    "what the loop has stored": loop(
        ROWS + "{ " + ELEMENT + " = acc[4 * n + 2 * h + e]; note(seen + row * ld + column + e, " + ELEMENT + "); }"
    ),
    "a value that is counted": loop(
        ROWS + ELEMENT + " = acc[4 * n + 2 * h + e] + 0 * atomicAdd(reinterpret_cast<int*>(seen) + row, 1);"
    ),
    "lanes that meet in the loop": loop(ROWS + "{ " + ELEMENT + " = acc[4 * n + 2 * h + e]; __syncwarp(); }"),
    "a loop that lanes leave": loop(
        f"if (lane > 7) break; {ROWS}{ELEMENT} = acc[4 * n + 2 * h + e];"
        f" }} if (lane > 7) for (int n = 0; n < 2; ++n) {{ {ROWS}note(&{ELEMENT}, acc[4 * n + 2 * h + e]);"
    ),
    "a loop that lanes leave, late": loop(
        f"if (rows > 2000 && lane > 7) break; {ROWS}{ELEMENT} = acc[4 * n + 2 * h + e];"
    ),
    "lanes that swap their columns": loop(
        "float* at = out + size_t(row) * ld + blockIdx.x * 16 + (lane ^ 2) % 4 * 2 + 8 * n;"
        + " ".join(f"at[{at}] = __shfl_xor_sync(~0u, acc[4 * n + {i}], 2);" for i, at in enumerate(AT_OF_LANE))
    ),
    "copies of its own": {"AFTER": 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");'},
    "a way out for all": {"BEHIND": "if (rows == 0) return;"},
    "a way out for all, late": {"BEHIND": "if (rows > 2000) return;"},
    "a block that stores nothing, late": {
        "STORE": "if (rows < 2000 || blockIdx.y > 0) {\n" + DEFAULTS["STORE"] + "\n}",
    },
}

TWICE = "for (int n = 0; n < 2; ++n) { " + ROWS + "seen[@AT@] = acc[4 * n + 2 * h + e]; }"
PLACE = "size_t(r + 8 * h) * ld + column + 8 * n + e"


def again(before: str, place: str = PLACE, turns: str = TWICE) -> dict[str, str]:
    """The sums once more, at a place in another array that is not that of a fragment."""
    return {"AFTER": f"int r = row; {before} {turns.replace('@AT@', place)}"}


JUDGED |= {
    "once more": again(""),
    "rows that some lanes choose": again("if (lane % 4 == 1) r ^= 1;"),
    "rows that some lanes choose, late": again("if (rows > 2000 && lane % 4 == 1) r ^= 1;"),
    "rows that a loop of each lane counts": again(
        "int t = 0; while (true) { t += 1; if (t > lane % 4) break; } r ^= t;"
    ),
    "rows that turns change": again(
        "", turns=TWICE.replace("acc[4 * n + 2 * h + e];", "acc[4 * n + 2 * h + e]; r ^= 1;")
    ),
    "columns that wrap": again("", "size_t(r + 8 * h) * ld + (unsigned char)(column + 8 * n + e)"),
    "columns that wrap at 16": again("", "size_t(r + 8 * h) * ld + ((column + 8 * n + e) & 15)"),
    "columns in another order": again(
        "",
        "size_t(r + 8 * h) * 2 * ld + column + blockIdx.x * 16 + 8 * (n ^ n / 2) + e",
        TWICE.replace("n < 2", "n < 4").replace("4 * n", "4 * (n % 2)"),
    ),
    "lanes of eight rows each": again(
        "", "size_t(r - lane / 4 + lane % 8 + 8 * h) * ld + column - lane % 4 * 2 + lane / 8 * 2 + 8 * n + e"
    ),
    "a pointer that lanes move": again("seen += lane % 4 * 32;"),
    "a pitch of each lane": again("const int p = ld * (1 + lane % 2);", PLACE.replace("ld", "p")),
}


JUDGED |= {
    "rows of more warps than there is room for": {"THREADS": "1024"},
    "rows beside more memory than there is room for": {
        "SHARED": "225280", "BEHIND": "extern __shared__ char more[]; if (rows < 0) note(seen, more[ld]);",
    },
    "a loop that stands behind a condition": {"STORE": "if (rows > 0)\n    " + DEFAULTS["STORE"]},
}  # fmt: skip


def write(folder: Path, **parts: str) -> Path:
    """The kernel with operands and its case, in a folder. `SHARED`: bytes of dynamic shared memory."""
    parts = {"HELP": NOTE, "SHARED": "0", **parts}
    text = source(**{"MORE": ", const unsigned short* a_in, const unsigned short* b_in, float* seen", **parts})
    text = text.replace(", uint64_t a, uint64_t b, int rows", ", int rows").replace(
        "blockIdx.y * 128", "blockIdx.y * 64"
    )
    (folder / "kernel.cu").write_text(text.replace("    float acc[8] = {};\n", OPERANDS))
    block = "block: [128, 1, 1]"
    (folder / "case.yaml").write_text(CASE.replace(block, f"{block}, dynamic_smem: {parts['SHARED']}"))
    return folder / "kernel.cu"
