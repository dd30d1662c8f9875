# SPDX-License-Identifier: Apache-2.0
"""Kernels of the corpus in which two conditions have to hold at once, at sizes that no case of theirs has, before a
step is wrong: edges, alignments, lanes that leave, numbers of turns, blocks."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
Edits = tuple[tuple[str, str], ...]
BULK, TURNS = ("bulk-store",), ("release", "raster", "mma-thread", "tiles", "double-buffer")

IF = "        if (col < N) {\n            if (row < M) {"
END = "            }\n        }\n    }\n}\n\n#define CUDA"
NOTE = "__device__ void note(float* to, float value) { *to = value; }\n"
AGAIN = "row < M && lane % 4 == 0) note(&C[size_t(row) * N + n0], 2 * C[size_t(row) * N + n0]);"
COLUMNS = "for (int j = 0; j < BN / 8; ++j) {\n        const int col"


def leaving(how: str) -> tuple[str, Edits, tuple[str, ...]]:
    """Lanes leave the loop over columns."""
    return "gemm_coop", ((IF, f"        {how}\n        if (col < N) {{\n            if (row < M) {{"),), BULK


def again(condition: str) -> tuple[str, Edits, tuple[str, ...]]:
    """A result that its thread reads again."""
    helper = "template <int ROWS>\n__device__"
    return (
        "gemm_coop",
        ((helper, NOTE + helper), (END, END.replace("    }\n}", f"    }}\n    if ({condition} && {AGAIN}\n}}"))),
        BULK,
    )


BEGIN = "        sm90::wgmma_begin();\n#pragma unroll\n        for (int step"
WAITED = "    sm90::wgmma_wait<0>();\n\n    const int row"
FULL = "            full[qidx].wait(full[qidx].arrive());\n"
LANE = "        const int lane = tid % 32;\n"


def turn(what: str) -> tuple[str, Edits, tuple[str, ...]]:
    """Something in a turn of the main loop."""
    return "gemm_pipelined", ((BEGIN, f"        {what}\n{BEGIN}"),), ("release",)


def behind(what: str) -> tuple[str, Edits, tuple[str, ...]]:
    """Something behind the main loop."""
    return "gemm_pipelined", ((WAITED, WAITED.replace("\n\n", f"\n    {what}\n")),), ("release",)


def of_thread(what: str) -> tuple[str, Edits, tuple[str, ...]]:
    """Something in a turn of consumers whose MMAs get a thread of their own."""
    return "gemm_ws", ((FULL, f"{FULL}            {what}\n"),), TURNS


def of_block(what: str) -> tuple[str, Edits, tuple[str, ...]]:
    """Something ahead of where consumers store."""
    return "gemm_ws", ((LANE, f"        {what}\n{LANE}"),), TURNS


EDGES = "m % 16 == 8 && n % 4 == 2"
KERNELS: dict[str, tuple[str, Edits, tuple[str, ...]]] = {
    "lanes that leave whole groups of 16 bytes": ("gemm_int8", (), BULK),
    "lanes that leave at an edge": leaving("if (col >= N) break;"),
    "lanes that go on at an edge": leaving("if (col >= N) continue;"),
    "lanes of rows that go on": leaving("if (row >= M) continue;"),
    "lanes of rows that go on, by columns": leaving("if (row >= M && N % 4 == 0) continue;"),
    "lanes that return at an edge": leaving("if (col >= N) return;"),
    "turns that lanes count": (
        "gemm_coop", ((COLUMNS, COLUMNS.replace("BN / 8", "min(BN / 8, (N - n0 - lane % 4 * 2 + 7) / 8)")),), BULK,
    ),
    "elements left out at two edges": (
        "gemm_coop", ((IF, IF.replace("col < N", "col < N && !(N % 8 == 4 && M % 8 == 4 && row % 2)")),), BULK,
    ),
    "read again at two edges": again("M % 8 == 4 && N % 32 == 20"),
    "read again at an edge after one turn": again("K <= 64 && N % 32 == 20"),
    "read again by a block after one turn": again("K <= 64 && blockIdx.x == 1"),
    "read again by one condition of two sizes": again("(M % 64 ^ 4 | N % 128 ^ 20) == 0"),
    "read again by a sum of two sizes": again("M % 64 + N % 128 == 30"),
    "read again at a residue": again("N % 64 == 22"),
    "warps that meet at two edges": turn(f'if ({EDGES}) asm volatile("bar.sync 3, 256;" ::: "memory");'),
    "a store at two edges": turn(f"if ({EDGES} && tile_m + tile_n + kt + lane == 0) c[size_t(warp)] = 7.f;"),
    "lanes that return at two edges": behind(f"if ({EDGES} && lane > 15) return;"),
    "a stage that is read at two edges": behind(
        f"if ({EDGES} && k_tiles == 1) acc[0] += *(volatile char*)(smem_raw + 1024 + threadIdx.x);"
    ),
    "a stage that is read in a turn of an edge": turn(
        "if (kt == 1 && n % 4 == 2) acc[0] += *(volatile char*)(smem_raw + 1024 + threadIdx.x);"
    ),
    "a stage given back twice in a turn of an edge": turn("if (kt == 2 && m % 16 == 8) previous = pos.slot;"),
    "a store of one turn in a second block": of_thread(
        "if (num_blocks_k == 1 && num_block_n == 1 && tid == 0 && num_block_m == 0) C[consumer] = 3.f;"
    ),
    "warps that meet in two turns of a second block": of_thread(
        'if (num_blocks_k == 2 && num_block_n == 1) asm volatile("bar.sync 3, 256;" ::: "memory");'
    ),
    "a consumer that returns in a third block": of_block(
        "if (num_blocks_k == 2 && num_block_n == 2 && consumer == 1) return;"
    ),
    "a grid of two after three turns": of_block(
        "if (num_blocks_k == 3 && gridDim.x == 2 && blockIdx.y == 1) d[0][0][0] += 1.f;"
    ),
    "blocks of a grid after two turns": of_block(
        "if (num_blocks_k == 2 && N == 256 && M == 256) d[0][0][0] += gridDim.x * 4 + blockIdx.y;"
    ),
}  # fmt: skip


def write(folder: Path, name: str) -> Path:
    """The kernel with its case, and what it includes, in a folder."""
    kernel, edits, _ = KERNELS[name]
    for file in (CORPUS / kernel).iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    path = folder / f"{kernel}.cu"
    text = path.read_text()
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path
