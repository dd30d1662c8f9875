# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back, where the CTAs of a cluster do so for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import left, ported, taken

STEP = ("release",)
ARRIVE_AT = """\
__device__ void arrive_at(uint64_t* bar, uint32_t cta) {
    asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];}"
                 ::"r"(shared(bar)), "r"(cta) : "memory");
}
"""
LANE = "threadIdx.x % 32"
OF_WARPS = {
    "HEAD": ARRIVE_AT, "INIT": "init(&empty[i], 16);",
    "RELEASE": f"if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE});",
}  # fmt: skip
UNDERSTOOD = {
    "two lanes of each warp": ({}, "tc.release(&empty[k % 2], 0x3);", 2),
    "four lanes of each warp": (
        {"INIT": "init(&empty[i], 32);", "RELEASE": f"if ({LANE} < 4) arrive_at(&empty[k % 2], {LANE});"},
        "tc.release(&empty[k % 2], 0xf);", 4,
    ),
    "threads of each consumer": (
        {"INIT": "init(&empty[i], 2 * 2);",
         "RELEASE": "if (threadIdx.x % 128 < 2) arrive_at(&empty[k % 2], threadIdx.x % 128);"},
        "tc.release(&empty[k % 2], 0x3);", 2,
    ),
    "a constant and a variable": (
        {"HEAD": ARRIVE_AT + "constexpr int kCtas = 2;", "INIT": "init(&empty[i], kCtas * 8);",
         "RELEASE": f"const int lane = {LANE}; if (lane < kCtas) arrive_at(&empty[k % 2], lane);"},
        "tc.release(&empty[k % 2], 0x3);", 2,
    ),
    "all threads, by turns": (
        {"INIT": "init(&empty[i], 256);", "RELEASE": "arrive_at(&empty[k % 2], threadIdx.x % 2);"},
        "tc.release(&empty[k % 2], 0x3);", 2,
    ),
    "a reference to the mbarrier": (
        {"HEAD": ARRIVE_AT.replace("uint64_t* bar", "uint64_t& bar").replace("shared(bar)", "shared(&bar)"),
         "RELEASE": f"if ({LANE} < 2) arrive_at(empty[k % 2], {LANE});"},
        "tc.release(&empty[k % 2], 0x3);", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_all_ctas_get_a_commit(tmp_path: Path, name: str) -> None:
    parts, expected, ctas = UNDERSTOOD[name]
    text = taken(ported(tmp_path, STEP, **{**OF_WARPS, **parts}), *STEP)
    assert expected in text
    assert f"init(&empty[i], {ctas});" in text
    assert text.count("tc.commit(); tc.wait(0); tc.drain();") == 1


REFUSED = {
    "the first CTA alone": (
        {"RELEASE": f"if ({LANE} < 1) arrive_at(&empty[k % 2], {LANE});"}, "of each CTA of the cluster",
    ),
    "a CTA that is left out": (
        {"RELEASE": f"if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE} * 2);"}, "of each CTA of the cluster",
    ),
    "a count that differs": ({"INIT": "init(&empty[i], 8);"}, "it counts 8, and 8 of each arrive"),
    "a count that nobody knows": ({"INIT": "init(&empty[i], steps);"}, "it counts None"),
    "a rank that nobody knows": (
        {"RELEASE": f"if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE} ^ steps);"}, "the rank of the CTA",
    ),
    "one's own CTA by itself": (
        {"RELEASE": f"arrive(&empty[k % 2]); if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE});"}, "of all CTAs",
    ),
    "stages that all call empty at first": (
        {"AHEAD": f"for (int i = 0; i < 2; ++i) if ({LANE} < 2) arrive_at(&empty[i], {LANE});"}, "behind their MMAs",
    ),
    "more mbarriers than are counted": ({"BARRIERS": "uint64_t full[32], empty[32]"}, "follow each other"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    assert "tc.release(" not in left(ported(tmp_path, STEP, **{**OF_WARPS, **parts}), what)
