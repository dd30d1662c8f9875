# SPDX-License-Identifier: Apache-2.0
"""Kernels of the corpus with more stages, in which something else goes by their number as well, and with other steps
for MMAs of a library: for the judge."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from attention_kernels import changed

CORPUS = Path(__file__).parents[2] / "corpus"
Pairs = tuple[tuple[str, str], ...]
SEEN = "float* seen"
"""What parts write to beside results."""

ARRIVE = "        if (threadIdx.x % 128 == 0) Mbarrier::arrive(&smem->empty[s]);\n    }\n"
OF_RAW: Pairs = (
    ("float* __restrict__ c, int ldc, int k_tiles)", f"float* __restrict__ c, int ldc, int k_tiles, {SEEN})"),
    ("k / Tile::K);\n    return cuda", "k / Tile::K, nullptr);\n    return cuda"),
)


def _behind(text: str) -> Pairs:
    return ((ARRIVE, f"{ARRIVE}    {text}\n"),)


def _slot(next_line: str) -> Pairs:
    return ((f"int const s = t % Tile::Stages;\n{next_line}", f"int const s = t % 4;\n{next_line}"),)


RAW_MEMORY = "    extern __shared__ uint8_t raw[];\n"
RAW: dict[str, Pairs] = {
    "more stages": (),
    "an unrelated bound": _behind("if (threadIdx.x == 0 && k_tiles > Tile::Stages) seen[0] = 1;"),
    "an unrelated bound, late": _behind("if (threadIdx.x == 0 && k_tiles > 50 * Tile::Stages) seen[0] = 1;"),
    "an unrelated quotient": _behind("if (threadIdx.x == 0) seen[0] = k_tiles / Tile::Stages;"),
    "a unit of work": _behind("if (threadIdx.x == 0) seen[Tile::Stages * 16] = 1;"),
    "a loop over something else": _behind("for (int i = 0; i < Tile::Stages; ++i) if (threadIdx.x == 0) seen[i] = 1;"),
    "an array of registers": _behind(
        "float part[Tile::Stages] = {};\n    for (int t = 0; t < k_tiles; ++t) part[t % Tile::Stages] += t;\n"
        "    if (threadIdx.x == 0) seen[0] = part[0];"
    ),
    "mbarriers of a literal number": (("    uint64_t full[Tile::Stages];", "    uint64_t full[4];"),),
    "a literal phase": (("(t / Tile::Stages) & 1", "(t / 4) & 1"),),
    "a shifted phase": (("(t / Tile::Stages) & 1", "(t >> 2) & 1"),),
    "a literal slot of who loads": _slot("                int const r"),
    "a literal slot of who multiplies": _slot("        M"),
    "tiles that get smaller": (
        ("float a[Tile::Stages][Tile::M * Tile::K]", "float a[Tile::Stages][Tile::M * Tile::K * 4 / Tile::Stages]"),
    ),
    "bytes by the number": (
        ("(Tile::M + Tile::N) * Tile::K * sizeof(float));", "(Tile::M + Tile::N) * Tile::K * Tile::Stages);"),
    ),
    "mbarriers that are begun by a literal number": (("s < Tile::Stages; ++s", "s < 4; ++s"),),
    "stages in static memory of a literal number": (
        (RAW_MEMORY, RAW_MEMORY + "    __shared__ __align__(1024) float parts[4][Tile::N * Tile::K];\n"),
        ("load_box(smem->b[s],", "load_box(parts[s],"),
        ("k_major_sw128(smem->b[s])", "k_major_sw128(parts[s])"),
    ),
}  # fmt: skip

LAST = "        copy(results, thread_mma.partition_C(gD));\n"
OF_CUTE: Pairs = (
    ("config::Element* D, int M, int N, int K) {", f"config::Element* D, int M, int N, int K, {SEEN}) {{"),
    ("(map_a, map_b, D, M, N, K);", "(map_a, map_b, D, M, N, K, nullptr);"),
)
WRITES = "        if (threadIdx.x == 128) seen[blockIdx.x] = {};\n"
OF_B = "{})));\nusing LayoutB"
BYTES = "params.transaction_bytes = (kM + kN) * kK * sizeof(Element);"


def _writes(text: str) -> Pairs:
    return ((LAST, LAST + WRITES.format(text)),)


CUTE: dict[str, Pairs] = {
    "more stages, by types": (),
    "all elements of a tensor": _writes("int(size(sA))"),
    "the stages of a tensor": _writes("int(size<2>(sA))"),
    "the stages of a part": _writes("int(size<3>(tCrA))"),
    "the stages of a pipeline": _writes("Pipeline::Stages"),
    "elements of a layout as bytes": (
        (BYTES, "params.transaction_bytes = (cosize_v<LayoutA> + cosize_v<LayoutB>) / 3 * sizeof(Element);"),
    ),
    "a larger tile": ((f"Int<kStages>{OF_B}", f"Int<2 * kStages>{OF_B}"),),
    "states of a literal number": (("PipelineState<kStages> read, release;", "PipelineState<3> read, release;"),),
    "a stage by a literal number": (("tCrA(_, _, i, read.index())", "tCrA(_, _, i, read.count() % 3)"),),
    "stages that are not the last extent": (
        ("Int<kM>{}, Int<kK>{}, Int<kStages>{})));", "Int<kM>{}, Int<kK>{}, Int<kStages>{}), Step<_1, _3, _2>{}));"),
    ),
    "memory that grows by half a stage": (("bytes = sizeof(Storage);", "bytes = 65536 + config::kStages * 16384;"),),
    "memory by a part of the size": (("bytes = sizeof(Storage);", "bytes = sizeof(Storage) - 1024;"),),
}  # fmt: skip
WAITS = "            pipeline.consumer_wait(read);\n"
MEETS = "            warpgroup_arrive();\n"
GIVES = "                pipeline.consumer_release(release);\n"
READS = "                if (threadIdx.x == 128) seen[0] = float(sA(0, 0, release.index()));\n"
ZERO = "        mma.accumulate_ = GMMA::ScaleOut::Zero;"
CLEARED = "        clear(sums);\n        mma.accumulate_ = GMMA::ScaleOut::One;"
TAIL = "    pipeline.producer_tail(write);\n"
RELEASE, THREAD = ("release",), ("release", "mma-thread")
PAIR = (*THREAD, "pair")
STEPS: dict[str, tuple[Pairs, tuple[str, ...]]] = {
    "as it is, a warp of its own for a library's MMAs": ((), THREAD),
    "a stage that is waited for behind the meeting": (((WAITS, ""), (MEETS, MEETS + WAITS)), RELEASE),
    "an element of a stage that threads read": (((GIVES, READS + GIVES),), RELEASE),
    "a stage's number that consumers read behind their MMAs": (_writes("read.count()"), THREAD),
    "sums that begin with zeros of threads": (((ZERO, CLEARED),), THREAD),
    "stages that nobody waits for at the end": (((TAIL, ""),), PAIR),
}  # fmt: skip
"""Of a library's MMAs and pipelines: what other steps are wrong for."""
EVERY = {**RAW, **CUTE, **{name: pairs for name, (pairs, _) in STEPS.items()}}


def write(folder: Path, name: str) -> Path:
    """A kernel with its case, in a folder."""
    kernel, signature = ("gemm_tf32", OF_RAW) if name in RAW else ("cute_gemm_persistent", OF_CUTE)
    shutil.copytree(CORPUS / kernel, folder, dirs_exist_ok=True)
    path = folder / f"{kernel}.cu"
    path.write_text(changed(path.read_text(), (*signature, *EVERY[name])))
    case = folder / "case.yaml"
    text = case.read_text()
    text = text.replace("tensor_maps:", "  S: {dtype: f32, shape: [1024], role: scratch, fill: 0}\ntensor_maps:")
    columns, long, short = (64, 288, 32) if name in RAW else (128, 256, 64)
    rows, columns = (256, 256) if name in STEPS else (128, columns)
    sizes = f"{{M: {rows}, N: {columns}, K: {long}}}\nother_sizes: [{{K: {short}}}]"
    text = re.sub(r"(?m)^sizes: .*\nother_sizes:\n(?:  - .*\n)+mutate_sizes: .*", f"sizes: {sizes}", text)
    text = text.replace('"K / BK"]', '"K / BK", S]').replace("M, N, K]\nreduction", "M, N, K, S]\nreduction")
    case.write_text(text)
    return path
