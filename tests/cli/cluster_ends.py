# SPDX-License-Identifier: Apache-2.0
"""The kernel of `cluster_gemm` with other ends: without the cluster barrier that its blocks meet at last, with one in
other words, and with threads that leave on other ways."""

from __future__ import annotations

from cluster_gemm import KERNEL

MEET = 'asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;\\n" ::: "memory");'
_END = f"    {MEET}\n}}\n\nvoid launch"
_CLASS = "template <int BM, int BN, int CLUSTERS>\nstruct Tiles"
_OTHERS = "                }\n            }\n        }\n    } else {"
_RESULTS = "#undef PUT\n            }\n        }\n    }\n"
_FIRST = "    constexpr int kConsumers"
_TILES = "        while (tiles.next(m, n)) {\n            {"


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


BARE = changed(KERNEL, (_END, "}\n\nvoid launch"))

_BEHIND = f"{_OTHERS[:-12]}\n        WHAT\n    }} else {{"
_MET = _RESULTS.replace("        }\n    }\n", f"        }}\n        {MEET}\n    }}\n")
_LANES = "        if (tid == 0) {\n            while", "        if (tid != 0) return;\n        {\n            while"
_BEGIN = "    int stage = 0, parity"
_ROW = "            const int row = (m * CLUSTER"
_STORE = (
    "__device__ inline void put_there(float* p, int cta) {\n    uint64_t there;\n"
    '    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(cta));\n'
    "    *reinterpret_cast<float*>(there) = 1.f;\n}\n\n"
)
_STORED = (
    f"    {MEET}\n    __shared__ float last[4];\n"
    "    if (threadIdx.x < 4) put_there(&last[threadIdx.x], rank ^ 1);\n}\n\nvoid launch"
)
_DRAIN = (
    "            }\n            for (int i = 0; i < STAGES; ++i, ++stage) {\n"
    "                if (stage == STAGES) { stage = 0; parity ^= 1; }\n"
    "                wait_cluster(&empty[stage], parity);\n            }\n        }\n    } else {"
)
MENDED = {
    "nothing at the end": BARE,
    "a role that returns": changed(BARE, (_OTHERS, _BEHIND.replace("WHAT", "return;"))),
    "a role whose threads end": changed(BARE, (_OTHERS, _BEHIND.replace("WHAT", 'asm volatile("exit;");'))),
    "lanes that return": changed(BARE, _LANES),
    "a loop left by return": changed(
        BARE, (_TILES, "        for (;;) {\n            if (!tiles.next(m, n)) return;\n            {")
    ),
    "a loop left by goto": changed(
        BARE,
        (_TILES, "        while (true) {\n            if (!tiles.next(m, n)) goto done;\n            {"),
        ("}\n\nvoid launch", "done:;\n}\n\nvoid launch"),
    ),
    "blocks without a tile": changed(BARE, (_FIRST, f"    if (blockIdx.x >= CTAS) return;\n{_FIRST}")),
    "a cluster by the launch": changed(BARE, (" __cluster_dims__(CLUSTER, 1, 1)", "")),
    "a barrier in one role": changed(BARE, (_RESULTS, _MET)),
    "a barrier ahead of the last arrivals": changed(BARE, (_BEGIN, f"    {MEET}\n{_BEGIN}")),
    "an arm of a conditional": changed(
        BARE,
        (_FIRST, f"#if __CUDA_ARCH__ >= 900\n{_FIRST}"),
        ("}\n\nvoid launch", "#else\n    if (threadIdx.x == 0) C[0] = 0;\n#endif\n}\n\nvoid launch"),
    ),
    "its names taken": changed(BARE, (_CLASS, f"struct ClusterEnd {{ int cluster_end; }};\n{_CLASS}")),
    "stores to the other block": changed(KERNEL, (_CLASS, f"{_STORE}{_CLASS}"), (_END, _STORED)),
}
"""Kernels whose ports get the barrier."""

_LAST = f"__device__ inline void last() {{ {MEET} }}\n"
ENDED = {
    "as it is": KERNEL,
    "in a helper": changed(KERNEL, (_CLASS, f"{_LAST}{_CLASS}"), (_END, "    last();\n}\n\nvoid launch")),
    "in a lambda": changed(KERNEL, (_END, f"    auto last = [] {{ {MEET} }};\n    last();\n}}\n\nvoid launch")),
    "in a macro": changed(
        KERNEL, (_CLASS, f"#define LAST() {MEET}\n{_CLASS}"), (_END, "    LAST();\n}\n\nvoid launch")
    ),
    "in both roles": changed(BARE, (_OTHERS, _BEHIND.replace("WHAT", MEET)), (_RESULTS, _MET)),
    "by waiting for all stages": changed(
        BARE, (_OTHERS, _OTHERS.replace("            }\n        }\n    } else {", _DRAIN))
    ),
}
"""Kernels whose blocks wait for each other already."""

_LAUNCH = "    auto* kernel = cluster_gemm<128, 64, 64, 384, kStages, kCtas, 2>;\n"
_ALONE = """\
    auto* alone = cluster_gemm<128, 64, 64, 384, kStages, kCtas, 1>;
    if (k == 64) return alone<<<kCtas, 384, sizeof(Storage<128, 64, 64, kStages>)>>>(m, n, k, c, map_a, map_b);
"""
OF_TWO = changed(
    BARE,
    (_ROW, f"            if constexpr (CLUSTER == 1) __syncthreads();\n{_ROW}"),
    (_LAUNCH, _ALONE + _LAUNCH),
)
"""A template of which one kernel needs the barrier, and another one could hang by it."""
NAMED = {
    "an arrival at the end alone": changed(
        KERNEL, (_END, '    asm volatile("barrier.cluster.arrive;\\n" ::: "memory");\n}\n\nvoid launch')
    ),
    "a barrier that counts ended threads": changed(BARE, (_ROW, f"            __syncthreads();\n{_ROW}")),
}
"""Kernels in which a barrier at the end could be waited at for good."""
