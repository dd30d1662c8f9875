# SPDX-License-Identifier: Apache-2.0
"""tmp"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
import test_full_rate as F
import test_full_rate_distance as D
import test_full_rate_parting as G
import test_full_rate_stacked as S
import test_full_rate_waiting as W
import test_full_rate_written as R


class Kernel(NamedTuple):
    text: str
    threads: int


SIG = "kernel(float* out, uint64_t a, uint64_t b, int steps, int rows) {"
NEW = """kernel(float* out, const uint4* in, int steps, int rows) {
    __shared__ __align__(1024) uint4 operands[1408];
    for (int i = threadIdx.x; i < 1408; i += blockDim.x) operands[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    out += (blockIdx.y * gridDim.x + blockIdx.x) * 8192;
    uint64_t a = (uint64_t)(__cvta_generic_to_shared(operands) & 0x3ffff) >> 4 | (uint64_t)8 << 16 | (uint64_t)64 << 32;
    uint64_t b = a + 1152;
"""


def runnable(text):
    assert SIG in text
    return text.replace(SIG, NEW)


def J(parts, kernel=F.KERNEL):
    t = F.WGMMA + kernel
    v = {**F.DEFAULTS, **parts}
    for n, x in v.items():
        t = t.replace(f"@{n}@", x)
    return Kernel(t, int(v["THREADS"]))


def T(parts):
    p = dict(parts)
    if "STORE" in p:
        p["STORE"] = re.sub(
            r"\bout\[(row[^\]]*)\] =",
            r"out[(\1) * 32 + lane % 4 * 8 + i] =",
            p["STORE"]
            .replace("out[row * 16 + lane % 4 * 2 + i]", "out[row]")
            .replace("out[row * 16 + i]", "out[row]")
            .replace("+=", "="),
        )
    if "stage[" in p.get("STORE", "") + p.get("BEFORE", "") + p.get("HEAD", "") and "stage" not in p.get("AFTER", ""):
        p["AFTER"] = (
            p.get("AFTER", "") + " __syncthreads(); for (int j = threadIdx.x; j < 2048; j += 128) out[j] = stage[j];"
        )
    if "two[" in p.get("STORE", ""):
        p["AFTER"] = " __syncthreads(); for (int j = threadIdx.x; j < 1024; j += 128) out[j] = two[j / 16][j % 16];"
    t = F.WGMMA + S.KERNEL
    v = {**S.DEFAULTS, **p}
    for n, x in v.items():
        t = t.replace(f"@{n}@", x)
    return Kernel(t, int(v["THREADS"]))


def begin(n, p):
    return p[0] + (
        ' if (threadIdx.x < 2) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(at(&'
        + ("all.order" if n == "a member" else "order")
        + "[threadIdx.x]))); __syncthreads(); if (consumer == 1) give(at(&"
        + ("all.order" if n == "a member" else "order")
        + "[0]));"
        if "order" in p[0] or n == "a member"
        else " if (threadIdx.x == 0) turn = 0; __syncthreads();"
    )


FIRST = {"ROLE": f"{F.CONSUMER} if (consumer == 1) wake(1, 256);"}
GROUPS = {
    "two consumers": {n: J({**p, **(FIRST if n.startswith("turns") else {})}) for n, (p, _) in F.REFUSED.items()},
    "what parts consumers": {n: J(p) for n, p in G.PARTED_BY.items()},
    "a consumer that leaves": {n: J({"HEAD": G.LEAVING, "ROLE": f"{G.CONSUMER} {p}"}) for n, p in G.LEFT_BY.items()},
    "B of its own": {n: J({"HEAD": G.SIDE + G.MADE, "ROLE": p[1], "B": p[0]}) for n, p in G.OF_ITS_OWN.items()},
    "an index that is not renamed": {n: J({"HEAD": p[0], "ROLE": p[1]}) for n, p in G.OPAQUE.items()},
    "consumers that wait": {
        n: J({"HEAD": W.MBARRIERS + W.ASKING, "ROLE": begin(n, p), "BEFORE": p[1] + " ", "AFTER": p[2]})
        for n, p in W.WAITING.items()
    },
    "what is hidden": {n: J(p) for n, (p, _) in W.HIDDEN.items()},
    "consumers apart": {
        n: J({"HEAD": D.PICK, "ROLE": f"{F.CONSUMER} {role}"}, F.KERNEL.replace("a + consumer * 512", a))
        for n, (a, role) in D.OF_CONSUMERS.items()
    },
    "consumers apart, ahead": {
        n: J({"HEAD": h, "ROLE": f"{F.CONSUMER} {role}"}, F.KERNEL.replace("a + consumer * 512", "a + mine * 512"))
        for n, (h, role) in R.APART.items()
    },
    "two tiles": {n: T(p) for n, (p, _) in S.REFUSED.items()},
    "tiles apart": {
        n: T({"HEAD": D.PICK, "ROLE": role, "MMA": f"wgmma_m64n16k16(acc[m], {a}, b);"})
        for n, (a, role) in D.OF_TILES.items()
    },
    "what is set": {n: J(p) for n, p in R.PARTS_BY.items()},
    "taken: two consumers": {n: J(p) for n, p in F.TAKEN.items()},
    "taken: two tiles": {n: T(p) for n, p in S.TAKEN.items()},
    "taken: consumers apart": {
        n: J({"HEAD": D.PICK, "ROLE": f"{F.CONSUMER} {role}"}, F.KERNEL.replace("a + consumer * 512", a))
        for n, (a, role) in D.ALIKE.items()
    },
    "taken: tiles apart": {
        n: T({"HEAD": D.PICK, "ROLE": role, "MMA": f"wgmma_m64n16k16(acc[m], {a}, b);"})
        for n, (a, role) in D.TILES_ALIKE.items()
    },
}
