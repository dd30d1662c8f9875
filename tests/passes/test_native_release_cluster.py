# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back, where the CTAs of a cluster do so for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import ARRIVE_AT, LANE, OF_WARPS, left, ported, taken

STEP = ("release",)
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


CALLED_EMPTY = {
    **OF_WARPS,
    "AHEAD": f"for (int i = 0; i < 2; ++i) if ({LANE} < 2) arrive_at(&empty[i], {LANE});",
    "ACQUIRE": "wait(&empty[k % 2], k / 2 % 2);",
}
FIRST = {
    "lanes of all warps": {},
    "threads of each consumer": {
        "INIT": "init(&empty[i], 4);",
        "AHEAD": "const int tid = threadIdx.x % 128; "
        "for (int i = 0; i < 2; ++i) if (tid < 2) arrive_at(&empty[i], tid);",
        "RELEASE": "if (tid < 2) arrive_at(&empty[k % 2], tid);",
    },
    "a role that is counted down": {
        "AHEAD": f"int mine = threadIdx.x / 128; --mine; for (int i = 0; i < 2; ++i) "
        f"if ({LANE} < 2 && mine < 2) arrive_at(&empty[i], {LANE});",
    },
    "wide scopes": {
        "HEAD": ARRIVE_AT.replace("mapa.shared", " mapa.shared"),
    },
}


@pytest.mark.parametrize("steps", [STEP, (*STEP, "mma-thread")], ids=["release", "mma-thread"])
@pytest.mark.parametrize("name", FIRST)
def test_stages_that_all_call_empty_at_first(tmp_path: Path, name: str, steps: tuple[str, ...]) -> None:
    result = ported(tmp_path, steps, **{**CALLED_EMPTY, **FIRST[name]})
    text = taken(result, *steps)
    helpers = next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode()
    assert "if (tcgen05::thread_index() / 32 == 4) arrive_at(&empty[i]," in text
    assert "init(&empty[i], 2);" in text
    assert text.count("tc.drain(&empty[0], 2);") == 1
    assert "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p" in text
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]" in text
    assert "void drain(const void* mbarriers, uint32_t stages)" in helpers


NARROW = {
    "waits": ("try_wait.parity.acquire.cta.shared", "try_wait.parity.acquire.cluster.shared"),
    "tests of a phase": ("test_wait.parity.shared", "test_wait.parity.acquire.cluster.shared"),
    "waits that are wide": ("try_wait.parity.acquire.cluster.shared", "try_wait.parity.acquire.cluster.shared"),
    "waits that are relaxed": ("try_wait.parity.relaxed.cluster.shared", "try_wait.parity.relaxed.cluster.shared"),
}


@pytest.mark.parametrize("name", NARROW)
def test_who_waits_for_other_ctas_has_their_scope(tmp_path: Path, name: str) -> None:
    written, expected = NARROW[name]
    until = (
        '__device__ void until(uint64_t* bar, int parity) { asm volatile("{ .reg .pred p; W: mbarrier.'
        f'{written}::cta.b64 p, [%0], %1; @!p bra W; }}" ::"r"(shared(bar)), "r"(parity) : "memory"); }}\n'
    )
    parts = {"HEAD": ARRIVE_AT + until, "ACQUIRE": "until(&empty[k % 2], k / 2 % 2 ^ 1);"}
    text = taken(ported(tmp_path, STEP, **{**OF_WARPS, **parts}), *STEP)
    assert f"mbarrier.{expected}::cta.b64 p" in text


REFUSED = {
    "a rank that nobody knows": (
        {"RELEASE": f"if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE} ^ steps);"}, "the rank of the CTA",
    ),
    "one's own CTA by itself": (
        {"RELEASE": f"arrive(&empty[k % 2]); if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE});"}, "the rank of the CTA",
    ),
    "more mbarriers than are counted": ({"BARRIERS": "uint64_t full[32], empty[32]"}, "follow each other"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    assert "tc.release(" not in left(ported(tmp_path, STEP, **{**OF_WARPS, **parts}), what)
