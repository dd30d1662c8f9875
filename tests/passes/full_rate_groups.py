# SPDX-License-Identifier: Apache-2.0
"""Kernels that M=128 MMAs are wrong for, or were once refused for, and some that they are right for, as they run:
operands come out of global memory into shared memory, and each block has a part of the results for itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import full_rate_distance as distance
import full_rate_kernels as joined
import full_rate_parting as parting
import full_rate_tiles as tiles
import full_rate_waiting as waiting
import full_rate_written as written


class Kernel(NamedTuple):
    """`results` are the numbers of a block; `shared` bytes of shared memory are asked for."""

    text: str
    threads: int
    results: int = 8192
    shared: int = 0


_HEAD = "kernel(float* out, uint64_t a, uint64_t b, int steps, int rows) {"
_WITH_OPERANDS = """kernel(float* out, const uint4* in, int steps, int rows) {
    __shared__ __align__(1024) uint4 operands[1408];
    for (int i = threadIdx.x; i < 1408; i += blockDim.x) operands[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    out += (blockIdx.y * gridDim.x + blockIdx.x) * 8192;
    uint64_t a = (uint64_t)(__cvta_generic_to_shared(operands) & 0x3ffff) >> 4 | (uint64_t)8 << 16 | (uint64_t)64 << 32;
    uint64_t b = a + 1152;
"""


def _of(kernel: str, defaults: Mapping[str, str], parts: Mapping[str, str]) -> Kernel:
    text, values = joined.WGMMA + kernel, {**defaults, **parts}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    assert _HEAD in text
    return Kernel(text.replace(_HEAD, _WITH_OPERANDS), int(values["THREADS"]))


def _joined(parts: Mapping[str, str], a: str = "a + consumer * 512") -> Kernel:
    return _of(joined.KERNEL.replace("a + consumer * 512", a), joined.DEFAULTS, parts)


def _apart(a: str, role: str, head: str = distance.PICK) -> Kernel:
    return _joined({"HEAD": head, "ROLE": f"{joined.CONSUMER} {role}"}, a)


def _tiles(parts: Mapping[str, str]) -> Kernel:
    """Each lane of a row stores to a place of its own, and what is kept in shared memory is stored behind."""
    found = dict(parts)
    if "STORE" in found:
        plain = found["STORE"].replace("out[row * 16 + lane % 4 * 2 + i]", "out[row]").replace("+=", "=")
        plain = plain.replace("out[row * 16 + i]", "out[row]")
        found["STORE"] = re.sub(r"\bout\[(row[^\]]*)\] =", r"out[(\1) * 32 + lane % 4 * 8 + i] =", plain)
    after = found.get("AFTER", "")
    if "stage[" in "".join(found.get(part, "") for part in ("STORE", "BEFORE", "HEAD")) and "stage" not in after:
        found["AFTER"] = f"{after} __syncthreads(); for (int j = threadIdx.x; j < 2048; j += 128) out[j] = stage[j];"
    if "two[" in found.get("STORE", ""):
        found["AFTER"] = " __syncthreads(); for (int j = threadIdx.x; j < 1024; j += 128) out[j] = two[j / 16][j % 16];"
    return _of(tiles.KERNEL, tiles.DEFAULTS, found)


def _tiles_apart(a: str, role: str) -> Kernel:
    return _tiles({"HEAD": distance.PICK, "ROLE": role, "MMA": f"wgmma_m64n16k16(acc[m], {a}, b);"})


def _waiting(role: str, before: str, after: str) -> Kernel:
    """With the barriers that consumers wait at, of which the first one's is complete, or their flag."""
    bars = "all.order" if "All all" in role else "order" if "order" in role else ""
    begin = " if (threadIdx.x == 0) turn = 0; __syncthreads();"
    if bars:
        begin = (
            f' if (threadIdx.x < 2) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(at(&{bars}'
            f"[threadIdx.x]))); __syncthreads(); if (consumer == 1) give(at(&{bars}[0]));"
        )
    head = waiting.MBARRIERS + waiting.ASKING
    return _joined({"HEAD": head, "ROLE": role + begin, "BEFORE": before + " ", "AFTER": after})


_FIRST = {"ROLE": f"{joined.CONSUMER} if (consumer == 1) wake(1, 256);"}
WRONG: dict[str, dict[str, Kernel]] = {
    "two consumers": {
        n: _joined({**p, **(_FIRST if n.startswith("turns") else {})}) for n, (p, _) in joined.REFUSED.items()
    },
    "what parts consumers": {n: _joined(p) for n, p in parting.PARTED_BY.items()},
    "a consumer that leaves": {
        n: _joined({"HEAD": parting.LEAVING, "ROLE": f"{joined.CONSUMER} {p}"}) for n, p in parting.LEFT_BY.items()
    },
    "B of its own": {
        n: _joined({"HEAD": parting.SIDE + parting.MADE, "ROLE": role, "B": b})
        for n, (b, role) in parting.OF_ITS_OWN.items()
    },
    "an index that is not renamed": {
        n: _joined({"HEAD": head, "ROLE": role}) for n, (head, role) in parting.OPAQUE.items()
    },
    "what is hidden": {n: _joined(p) for n, (p, _) in waiting.HIDDEN.items()},
    "what is set": {n: _joined(p) for n, p in written.PARTS_BY.items()},
    "consumers that wait": {n: _waiting(*p) for n, p in waiting.WAITING.items()},
    "consumers that wait by a library": {
        n: _joined({"HEAD": head, "ROLE": role, "BEFORE": before})
        for n, (head, role, before) in written.WAITING.items()
    },
    "consumers apart": {n: _apart(a, role) for n, (a, role) in distance.OF_CONSUMERS.items()},
    "consumers apart, ahead": {
        n: _apart("a + mine * 512", role, head) for n, (head, role) in written.APART.items()
    },
    "two tiles": {n: _tiles(p) for n, (p, _) in tiles.REFUSED.items()},
    "tiles apart": {n: _tiles_apart(*p) for n, p in distance.OF_TILES.items()},
}  # fmt: skip
TAKEN: dict[str, dict[str, Kernel]] = {
    "taken: two consumers": {n: _joined(p) for n, p in joined.TAKEN.items()},
    "taken: two tiles": {n: _tiles(p) for n, p in tiles.TAKEN.items()},
    "taken: consumers apart": {n: _apart(*p) for n, p in distance.ALIKE.items()},
    "taken: tiles apart": {n: _tiles_apart(*p) for n, p in distance.TILES_ALIKE.items()},
}
GROUPS = WRONG | TAKEN
