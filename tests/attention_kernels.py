# SPDX-License-Identifier: Apache-2.0
"""Kernels for attention that are written in different ways, made of the corpus' `attention_fwd`: texts, and the cases
that run them."""

from __future__ import annotations

import re
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "corpus" / "attention_fwd"
Pairs = tuple[tuple[str, str], ...]

PRODUCT = """\
        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);
        named_barrier_sync(kTurn0 + consumer, kConsumers * 128);
        warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < HeadDim / 16; ++k) {
            const uint64_t desc_q = k_major_desc(smem.q[k / 4] + consumer * 64 * 64 + k % 4 * 16);
            const uint64_t desc_k = k_major_desc(smem.k[ring.stage][k / 4] + k % 4 * 16);
            wgmma_ss_m64n64k16(scores, desc_q, desc_k, k != 0);
        }
        warpgroup_commit();
        // the last turn of the second consumer has nobody to wake
        if (consumer == 0 || block + 1 < blocks) named_barrier_arrive(kTurn1 - consumer, kConsumers * 128);
        warpgroup_wait<0>();
        mbarrier_arrive(&smem.k_empty[ring.stage]);
"""
"""What a turn of the corpus kernel begins with."""
LOOP = "    Ring ring;\n    for (int block = 0; block < blocks; ++block) {\n"
FOR = LOOP.partition("\n")[2]
TURNS: Pairs = (
    ("        named_barrier_sync(kTurn0 + consumer, kConsumers * 128);\n", ""),
    ("        // the last turn of the second consumer has nobody to wake\n", ""),
    (
        "        if (consumer == 0 || block + 1 < blocks) named_barrier_arrive(kTurn1 - consumer, kConsumers * 128);\n",
        "",
    ),
    ("    if (consumer == 1) named_barrier_arrive(kTurn0, kConsumers * 128);\n", ""),
)
"""Consumers without turns."""
HELPERS = """\
template <int HeadDim>
__device__ __forceinline__ void issue_scores(float (&s)[kBlockN / 2], SharedStorage<HeadDim>& smem, int stage,
                                             int consumer) {
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < HeadDim / 16; ++k) {
        wgmma_ss_m64n64k16(s, k_major_desc(smem.q[k / 4] + consumer * 64 * 64 + k % 4 * 16),
                           k_major_desc(smem.k[stage][k / 4] + k % 4 * 16), k != 0);
    }
    warpgroup_commit();
}

__device__ __forceinline__ void advance(int& stage, uint32_t& phase) {
    if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
    }
}

template <int HeadDim, bool Causal>
__global__"""
LOOSE: Pairs = (
    (LOOP + "        float scores",
     "    int stage = 0;\n    uint32_t phase = 0;\n" + FOR + "        float scores"),
    ("        mbarrier_wait(&smem.v_full[ring.stage], ring.phase);\n        warpgroup_arrive();",
     "        mbarrier_wait(&smem.v_full[stage], phase);\n        warpgroup_arrive();"),
    ("smem.v[ring.stage][0] + k * 16", "smem.v[stage][0] + k * 16"),
    ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n",
     "        mbarrier_arrive(&smem.v_empty[stage]);\n        advance(stage, phase);\n"),
)  # fmt: skip
"""Consumers whose stage and phase are variables."""
OWN_HELPERS: Pairs = (
    ("template <int HeadDim, bool Causal>\n__global__", HELPERS),
    (PRODUCT,
     "        mbarrier_wait(&smem.k_full[stage], phase);\n"
     "        issue_scores<HeadDim>(scores, smem, stage, consumer);\n"
     "        warpgroup_wait<0>();\n        mbarrier_arrive(&smem.k_empty[stage]);\n"),
    (TURNS[3]),
    *LOOSE,
)  # fmt: skip
WHOLE_HELPERS: Pairs = (
    ("template <int HeadDim, bool Causal>\n__global__", """\
template <int HeadDim>
__device__ __forceinline__ void begin_turn(float (&s)[kBlockN / 2], SharedStorage<HeadDim>& smem, const Ring& ring,
                                           int consumer) {
    mbarrier_wait(&smem.k_full[ring.stage], ring.phase);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < HeadDim / 16; ++k) {
        wgmma_ss_m64n64k16(s, k_major_desc(smem.q[k / 4] + consumer * 64 * 64 + k % 4 * 16),
                           k_major_desc(smem.k[ring.stage][k / 4] + k % 4 * 16), k != 0);
    }
    warpgroup_commit();
}

__device__ __forceinline__ void mask(float (&s)[kBlockN / 2], int key0, int row, int seqlen, bool causal) {
#pragma unroll
    for (int i = 0; i < kBlockN / 2; ++i) {
        const int key = key0 + i / 4 * 8 + i % 2;
        const int query = row + (i & 2) * 4;
        if (key >= seqlen || (causal && key > query)) s[i] = -INFINITY;
    }
}

template <int HeadDim, bool Causal>
__global__"""),
    (PRODUCT,
     "        begin_turn<HeadDim>(scores, smem, ring, consumer);\n"
     "        warpgroup_wait<0>();\n        mbarrier_arrive(&smem.k_empty[ring.stage]);\n"),
    (TURNS[3]),
    ("""\
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) {
                const int key = key0 + i / 4 * 8 + i % 2;
                const int query = row + (i & 2) * 4;
                if (key >= seqlen || (Causal && key > query)) scores[i] = -INFINITY;
            }
""", "            mask(scores, key0, row, seqlen, Causal);\n"),
)  # fmt: skip
"""Functions that wait and issue, and that mask."""
MODULO: Pairs = (
    *TURNS,
    (LOOP + "        float scores[kBlockN / 2];\n",
     "    for (uint32_t block = 0; block < blocks; ++block) {\n        float scores[kBlockN / 2];\n"
     "        const uint32_t stage = block % kStages, phase = block / kStages & 1;\n"),
    ("        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n        warpgroup",
     "        mbarrier_wait(&smem.k_full[stage], phase);\n        warpgroup"),
    ("smem.k[ring.stage][k / 4] + k % 4", "smem.k[stage][k / 4] + k % 4"),
    ("mbarrier_arrive(&smem.k_empty[ring.stage]);", "mbarrier_arrive(&smem.k_empty[stage]);"),
    *LOOSE[1:3],
    ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n",
     "        mbarrier_arrive(&smem.v_empty[stage]);\n"),
)  # fmt: skip
WHILE: Pairs = (
    *TURNS,
    (LOOP + "        float scores",
     "    Ring ring;\n    int block = 0;\n    while (block < blocks) {\n        float scores"),
    ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n",
     "        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n        block += 1;\n"),
)  # fmt: skip
EARLY_NEXT: Pairs = (
    *TURNS,
    (LOOP + "        float scores",
     "    Ring ring, values;\n" + FOR + "        float scores"),
    ("        mbarrier_arrive(&smem.k_empty[ring.stage]);\n",
     "        mbarrier_arrive(&smem.k_empty[ring.stage]);\n        ring.next();\n"),
    ("        mbarrier_wait(&smem.v_full[ring.stage], ring.phase);\n        warpgroup_arrive();",
     "        mbarrier_wait(&smem.v_full[values.stage], values.phase);\n        warpgroup_arrive();"),
    ("smem.v[ring.stage][0] + k * 16", "smem.v[values.stage][0] + k * 16"),
    ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n",
     "        mbarrier_arrive(&smem.v_empty[values.stage]);\n        values.next();\n"),
)  # fmt: skip
"""K goes on in the middle of a turn, V at its end."""
ONE_RING: Pairs = (
    *TURNS,
    ("constexpr int kStages = 2;", "constexpr int kStages = 4;"),
    ("    alignas(1024) bf16 v[kStages][kSlabs][kBlockN * 64];\n", ""),
    ("    uint64_t v_full[kStages], v_empty[kStages];\n", ""),
    ("            mbarrier_init(&smem.v_full[s], 1);\n", ""),
    ("            mbarrier_init(&smem.v_empty[s], kConsumers * 128);\n", ""),
    ("        mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);\n",
     "        ring.next();\n        mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);\n"),
    ("mbarrier_expect(&smem.v_full[ring.stage], kBytesKV);", "mbarrier_expect(&smem.k_full[ring.stage], kBytesKV);"),
    ("tma_load_3d(smem.v[ring.stage][s], &map_v, &smem.v_full[ring.stage]",
     "tma_load_3d(smem.k[ring.stage][s], &map_v, &smem.k_full[ring.stage]"),
    ("        mbarrier_arrive(&smem.k_empty[ring.stage]);\n",
     "        mbarrier_arrive(&smem.k_empty[ring.stage]);\n        ring.next();\n"),
    ("        mbarrier_wait(&smem.v_full[ring.stage], ring.phase);\n        warpgroup_arrive();",
     "        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n        warpgroup_arrive();"),
    ("mn_major_desc(smem.v[ring.stage][0] + k * 16 * 64, sizeof(smem.v[0][0]))",
     "mn_major_desc(smem.k[ring.stage][0] + k * 16 * 64, sizeof(smem.k[0][0]))"),
    ("mbarrier_arrive(&smem.v_empty[ring.stage]);", "mbarrier_arrive(&smem.k_empty[ring.stage]);"),
)  # fmt: skip
"""K and V in one ring of four stages."""
ALONE: Pairs = (
    *TURNS,
    ("constexpr int kBlockM = 128;", "constexpr int kBlockM = 64;"),
    ("constexpr int kConsumers = 2;", "constexpr int kConsumers = 1;"),
)
"""One consumer warpgroup."""
TILES: Pairs = (
    *TURNS,
    ("uint64_t q_full;", "uint64_t q_full, q_empty;"),
    ("            mbarrier_init(&smem.v_empty[s], kConsumers * 128);\n        }\n",
     "            mbarrier_init(&smem.v_empty[s], kConsumers * 128);\n        }\n"
     "        mbarrier_init(&smem.q_empty, kConsumers * 128);\n"),
    ("                                        int blocks) {\n",
     "                                        int blocks, int tile, Ring& ring) {\n"
     "    mbarrier_wait(&smem.q_empty, tile % 2 ^ 1);\n"),
    ("    Ring ring;\n    for (int block = 0; block < blocks; ++block) {\n        mbarrier_wait(&smem.k_empty",
     "    for (int block = 0; block < blocks; ++block) {\n        mbarrier_wait(&smem.k_empty"),
    ("    const int query0 = blockIdx.x * kBlockM;\n", ""),
    ("    // with the causal mask no query of this CTA sees keys from query0 + kBlockM on\n"
     "    const int keys = Causal ? min(seqlen, query0 + kBlockM) : seqlen;\n"
     "    const int blocks = (keys + kBlockN - 1) / kBlockN;\n", ""),
    ("        if (threadIdx.x == 0) produce(smem, map_q, map_k, map_v, query0, head, blocks);\n        return;\n",
     "        Ring ring;\n        if (threadIdx.x == 0) {\n"
     "            for (int tile = 0; tile * kBlockM < seqlen; ++tile) {\n"
     "                const int keys = Causal ? min(seqlen, tile * kBlockM + kBlockM) : seqlen;\n"
     "                produce(smem, map_q, map_k, map_v, tile * kBlockM, head, (keys + kBlockN - 1) / kBlockN, tile,\n"
     "                        ring);\n"
     "            }\n        }\n        return;\n"),
    ("    const int row = query0 + consumer * 64 + warp * 16 + lane / 4;  // and row + 8\n", ""),
    ("    float o[HeadDim / 2];\n",
     "    Ring ring;\n    for (int tile = 0; tile * kBlockM < seqlen; ++tile) {\n"
     "    const int query0 = tile * kBlockM;\n"
     "    const int keys = Causal ? min(seqlen, query0 + kBlockM) : seqlen;\n"
     "    const int blocks = (keys + kBlockN - 1) / kBlockN;\n"
     "    const int row = query0 + consumer * 64 + warp * 16 + lane / 4;\n    float o[HeadDim / 2];\n"),
    ("    mbarrier_wait(&smem.q_full, 0);\n\n    Ring ring;\n", "    mbarrier_wait(&smem.q_full, tile % 2);\n\n"),
    ("        ring.next();\n    }\n\n#pragma unroll\n    for (int h = 0; h < 2; ++h) {\n        const int query",
     "        ring.next();\n    }\n    mbarrier_arrive(&smem.q_empty);\n\n#pragma unroll\n"
     "    for (int h = 0; h < 2; ++h) {\n        const int query"),
    ("            if (lane % 4 == 0) lse[at] = row_max[h] * softmax_scale + logf(sum);\n        }\n    }\n",
     "            if (lane % 4 == 0) lse[at] = row_max[h] * softmax_scale + logf(sum);\n        }\n    }\n    }\n"),
)  # fmt: skip
"""A block does all tiles of a head; stages go on from one to the next."""
WIDE: Pairs = (
    *TURNS,
    ("constexpr int kBlockN = 64;", "constexpr int kBlockN = 128;"),
    ("wgmma_ss_m64n64k16", "wgmma_ss_m64n128k16"),
)
"""128 keys a turn: with heads of 128 columns no two blocks fit an SM."""
ISSUED_AHEAD: Pairs = (
    *TURNS,
    ("        float scores[kBlockN / 2];\n        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n",
     "        if (block > 0) mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n"),
    ("    Ring ring;\n    for (int block = 0; block < blocks; ++block) {\n        if",
     "    Ring ring;\n    float scores[kBlockN / 2];\n    mbarrier_wait(&smem.k_full[0], 0);\n    warpgroup_arrive();\n"
     "    wgmma_ss_m64n64k16(scores, k_major_desc(smem.q[0]), k_major_desc(smem.k[0][0]), 0);\n"
     "    warpgroup_commit();\n"
     "    for (int block = 0; block < blocks; ++block) {\n        if"),
)  # fmt: skip
"""A kernel that issues a first product ahead of the loop; for its text alone."""


def _wide_mma() -> str:
    """The first product's MMA with 128 columns."""
    outs = ", ".join(f"%{i}" for i in range(64))
    regs = ", ".join(f'"+f"(s[{i}])' for i in range(64))
    return (
        "__device__ __forceinline__ void wgmma_ss_m64n128k16(float (&s)[64], uint64_t desc_q, uint64_t desc_k,\n"
        "                                                    int more) {\n"
        '    asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, %66, 0;\\n"\n'
        '                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "\n'
        f'                 "{{{outs}}}, %64, %65, p, 1, 1, 0, 0;\\n}}\\n"\n'
        f'                 : {regs} : "l"(desc_q), "l"(desc_k), "r"(more));\n'
        "}\n"
    )


def changed(text: str, pairs: Pairs) -> str:
    """A text with other parts; each of them stands in it."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def sources(pairs: Pairs) -> dict[str, str]:
    """The kernel's files, by name, with other parts and without host code."""
    kernel = (CORPUS / "attention_fwd.cu").read_text().partition("// ---- host")[0]
    header = (CORPUS / "wgmma.cuh").read_text()
    end = header.rindex("}  // namespace flash")
    return {
        "attention_fwd.cu": changed(kernel, pairs),
        "wgmma.cuh": header[:end] + _wide_mma() + "\n" + header[end:],
        "reference.py": (CORPUS / "reference.py").read_text(),
    }


def case(
    consumers: int = 2,
    keys: int = 64,
    stages: int = 2,
    one_ring: bool = False,
    heads: tuple[int, ...] = (64, 128),
    one_block: bool = False,
) -> str:
    """The case beside it: heads of these sizes, causal and not."""
    text = (CORPUS / "case.yaml").read_text()
    text = text.replace("BM: 128, BN: 64, STAGES: 2", f"BM: {64 * consumers}, BN: {keys}, STAGES: {stages}")
    text = text.replace("block: [384, 1, 1]", f"block: [{128 * (consumers + 1)}, 1, 1]")
    if one_block:
        text = text.replace('grid: ["ceil_div(S, BM)", H, 1]', "grid: [1, H, 1]")
    if one_ring:
        text = text.replace("(BM + 2 * STAGES * BN)", "(BM + STAGES * BN)")
    every = [
        f"{{H: 1, S: {keys * 2 + 64 + 8}, D: {d}, CAUSAL: {c}}}" for d in heads for c in ("true", "false")
    ]  # fmt: skip
    text = re.sub(r"sizes: \{.*?\}[^\n]*\n", f"sizes: {every[0]}\n", text, count=1)
    text = re.sub(r"other_sizes:\n(?:  - .*\n)+", "other_sizes:\n" + "".join(f"  - {e}\n" for e in every[1:]), text)
    return re.sub(r"mutate_sizes: .*\n", "", text)


def written(folder: Path, pairs: Pairs, **options: object) -> Path:
    """The files and the case of a kernel in a folder; gives the kernel's."""
    for name, text in sources(pairs).items():
        (folder / name).write_text(text)
    (folder / "case.yaml").write_text(case(**options))  # type: ignore[arg-type]
    return folder / "attention_fwd.cu"
