# SPDX-License-Identifier: Apache-2.0
"""wgmma of the source's own beside CuTe's wrappers of its synchronization, and behind CUTLASS's guards."""

from __future__ import annotations

from pathlib import Path

from kernels import LOOP, STORE, SYNC, kernel, ported, refused

FENCED = LOOP.replace("commit();", "commit();\n        for (int i = 0; i < 8; ++i) warpgroup_fence_operand(acc[i]);")
BODY = "    float acc[8] = {0};\n" + FENCED + STORE


def _with_cute(body: str) -> str:
    text = kernel(body).replace(SYNC, "#include <cute/arch/mma_sm90_gmma.hpp>\n")
    for own, cute in {
        "arrive();": "cute::warpgroup_arrive();",
        "commit();": "cute::warpgroup_commit_batch();",
        "wait<0>();": "cute::warpgroup_wait<0>();",
        " warpgroup_fence_operand": " cute::warpgroup_fence_operand",
    }.items():
        text = text.replace(own, cute)
    return text


def test_calls_of_cute_are_the_instructions_in_them(tmp_path: Path) -> None:
    text = ported(tmp_path, _with_cute(BODY))
    loop = text[text.index("__global__") :]
    assert "warpgroup_" not in loop.replace("sync_warpgroup", "")
    order = ["sync_warpgroup();", "mma(acc", ".commit();", ".wait(0);", "load(acc", "out["]
    assert [loop.index(piece) for piece in order] == sorted(loop.index(piece) for piece in order)


def test_a_wait_that_covers_too_little_is_seen(tmp_path: Path) -> None:
    text = _with_cute(BODY).replace("warpgroup_wait<0>", "warpgroup_wait<1>")
    assert any("no wait covers" in d for d in refused(tmp_path, text))


def test_calls_of_cute_without_wgmma_beside_them_stay_named(tmp_path: Path) -> None:
    found = refused(tmp_path, "__device__ void f() { cute::warpgroup_arrive(); }\n")
    assert any("warpgroup_arrive" in d for d in found)


GUARDED = """
__device__ void arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void warpgroup_fence_operand(float& x) {
#ifdef CUTLASS_ARCH_MMA_SM90A_ENABLED
    asm volatile("" : "+f"(x) :: "memory");
#else
    CUTE_INVALID_CONTROL_PATH("wgmma is for sm_90a");
#endif
}
template <int N> __device__ void wait() {
#ifdef CUTLASS_ARCH_MMA_SM90A_ENABLED
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
#else
    CUTE_INVALID_CONTROL_PATH("wgmma is for sm_90a");
#endif
}
"""


def test_a_branch_for_other_targets_that_aborts_is_no_way_around_a_wait(tmp_path: Path) -> None:
    text = ported(tmp_path, kernel(BODY).replace(SYNC, GUARDED))
    assert text.count("#ifdef CUTLASS_ARCH_MMA_SM100A_ENABLED") == 2
    assert "SM90A" not in text


def test_a_branch_for_other_targets_that_goes_on_is_one(tmp_path: Path) -> None:
    text = GUARDED.replace('CUTE_INVALID_CONTROL_PATH("wgmma is for sm_90a");', "__nanosleep(20);")
    assert any("no wait covers" in d for d in refused(tmp_path, kernel(BODY).replace(SYNC, text)))
