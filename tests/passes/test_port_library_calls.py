# SPDX-License-Identifier: Apache-2.0
"""wgmma of the source's own beside CuTe's wrappers of its synchronization, and behind CUTLASS's guards."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def _calling(fence: str, before: str = "", inside: str = "", opened: str = "") -> str:
    """A kernel whose MMAs are fenced by a call of `fence`; it stands in the namespace `opened`."""
    loop = LOOP.replace("arrive();", f"{fence};").replace("commit();", "::cute::warpgroup_commit_batch();")
    body = f"    {inside}\n    float acc[8] = {{0}};\n" + loop.replace("wait<0>", "::cute::warpgroup_wait<0>") + STORE
    text = kernel(body).replace(SYNC, before)
    if opened:
        text = text.replace("__global__", f"namespace {opened} {{\n__global__") + "}\n"
    return text


OTHER = "namespace other { __device__ void warpgroup_arrive(); }\n"
LATER = OTHER.replace("();", "() { __nanosleep(9); }")
OWN = '#include "own.h"\n'
"""A header of the project that is not at hand."""
CUTE = "#include <cute/tensor.hpp>\n"


@pytest.mark.parametrize(
    ("fence", "before", "inside", "opened"),
    [
        ("cute::warpgroup_arrive()", OTHER, "", ""),
        ("::cute::warpgroup_arrive()", OTHER, "", ""),
        ("cute :: warpgroup_arrive /* now */ ( )", OTHER, "", ""),
        ("warpgroup_arrive()", OTHER + "using namespace cute;\n", "", ""),
        ("warpgroup_arrive()", OTHER, "using namespace cute;", ""),
        ("warpgroup_arrive()", OTHER + "using cute::warpgroup_arrive;\n", "", ""),
        ("warpgroup_arrive()", OTHER + "using namespace other;\n", "using cute::warpgroup_arrive;", ""),
        ("warpgroup_arrive()", OTHER, "", "cute"),
        ("warpgroup_arrive()", CUTE + "namespace flash { using namespace cute; }\n", "", "flash"),
        ("c::warpgroup_arrive()", OTHER + "namespace c = cute;\n", "", ""),
        ("c::warpgroup_arrive()", OTHER, "namespace c = ::cute;", ""),
        ("LIB::warpgroup_arrive()", OTHER + "#define LIB cute\n", "", ""),
        ("FENCE()", OTHER + "#define FENCE cute::warpgroup_arrive\n", "", ""),
        ("mine::warpgroup_arrive()", OTHER + "namespace mine { using namespace cute; }\n", "", ""),
        ("mine::warpgroup_arrive()", OTHER + "namespace mine { using cute::warpgroup_arrive; }\n", "", ""),
        ("deep_gemm::warpgroup_arrive()", OTHER, "", ""),
        ("[&] { warpgroup_arrive(); }()", OTHER, "using cute::warpgroup_arrive;", ""),
        ("[&] { c::warpgroup_arrive(); }()", OTHER, "namespace c = cute;", ""),
        ("{ using namespace cute; warpgroup_arrive(); }", OTHER, "", ""),
    ],
)  # fmt: skip
def test_names_that_mean_the_library(tmp_path: Path, fence: str, before: str, inside: str, opened: str) -> None:
    text = ported(tmp_path, _calling(fence, before, inside, opened))
    loop = text[text.index("float acc[8]") :]
    assert loop.index("tcgen05::sync_warpgroup();") < loop.index("mma(acc")
    assert "warpgroup_arrive();" not in loop.replace("sync_warpgroup", "")


@pytest.mark.parametrize(
    ("fence", "before", "inside", "opened"),
    [
        ("other::warpgroup_arrive()", OTHER, "", ""),
        ("other::warpgroup_arrive()", "", "", ""),
        ("other::cute::warpgroup_arrive()", CUTE, "", ""),
        ("warpgroup_arrive()", CUTE + "using other::warpgroup_arrive;\n", "", ""),
        ("other::warpgroup_arrive()", LATER + "using namespace cute;\n", "", ""),
        ("::other::warpgroup_arrive()", OTHER, "", ""),
        ("warpgroup_arrive()", OTHER + "using namespace other;\n", "", ""),
        ("warpgroup_arrive()", LATER + "using namespace cute;\n", "using other::warpgroup_arrive;", ""),
        ("warpgroup_arrive()", OTHER + "using namespace cute;\n", "", "other"),
        ("c::warpgroup_arrive()", LATER + "namespace c = other;\n", "", ""),
        ("LIB::warpgroup_arrive()", OTHER + "#define LIB other\n", "", ""),
        ("FENCE()", LATER + "#define FENCE other::warpgroup_arrive\n", "", ""),
        ("FENCE()", OTHER + "#define FENCE() other::warpgroup_arrive()\n", "", ""),
        ("Ops::warpgroup_arrive()", "struct Ops { static __device__ void warpgroup_arrive(); };\n", "", ""),
        ("cute::warpgroup_arrive()", "namespace other { namespace cute { __device__ void warpgroup_arrive(); } }\n",
         "", "other"),
        ("ops.warpgroup_arrive()", "struct Ops { __device__ void warpgroup_arrive(); };\n", "Ops ops;", ""),
        ("[&] { warpgroup_arrive(); }()", CUTE + "using namespace cute;\n", "using other::warpgroup_arrive;", ""),
        ("[&] { c::warpgroup_arrive(); }()", CUTE + "namespace c = cute;\n", "namespace c = other;", ""),
        ("{ using other::warpgroup_arrive; warpgroup_arrive(); }", CUTE + "using namespace cute;\n", "", ""),
        ("warpgroup_arrive()", CUTE + "using namespace cute;\n", "auto warpgroup_arrive = [] { __nanosleep(9); };", ""),
    ],
)  # fmt: skip
def test_a_function_of_the_same_name_stays(tmp_path: Path, fence: str, before: str, inside: str, opened: str) -> None:
    """It does something else, which the port must go on doing; no barrier is put in its place."""
    text = ported(tmp_path, _calling(fence, before, inside, opened))
    loop = text[text.index("float acc[8]") :]
    assert f"{fence};" in loop
    assert "sync_warpgroup" not in loop


@pytest.mark.parametrize("fence", ["cute::warpgroup_arrive()", "::cute::warpgroup_arrive()", "warpgroup_arrive()"])
def test_a_library_whose_text_is_at_hand_is_read_like_any_source(tmp_path: Path, fence: str) -> None:
    before = 'namespace cute { __device__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;"); } }\n'
    text = ported(tmp_path, _calling(fence, before + "using namespace cute;\n"))
    assert "void warpgroup_arrive() { tcgen05::sync_warpgroup(); }" in text
    assert f"{fence};" in text[text.index("float acc[8]") :]


@pytest.mark.parametrize(
    ("fence", "before", "inside", "opened"),
    [
        ("other::warpgroup_arrive()", OWN, "", ""),
        ("other::cute::warpgroup_arrive()", OWN, "", ""),
        ("warpgroup_arrive()", "", "", ""),
        ("warpgroup_arrive()", "using namespace other;\n", "", ""),
        ("warpgroup_arrive()", OWN + "using other::warpgroup_arrive;\n", "", ""),
        ("warpgroup_arrive()", "", "", "other"),
        ("warpgroup_arrive()", OWN + "using namespace cute;\n", "", "other"),
        ("LIB::warpgroup_arrive()", OWN + "#define LIB other\n", "", ""),
        ("LIB::warpgroup_arrive()", "#ifdef A\n#define LIB other\n#else\n#define LIB cute\n#endif\n", "", ""),
        ("FENCE()", OWN + "#define FENCE() other::warpgroup_arrive()\n", "", ""),
        ("FENCE()", "#define FENCE() cute::warpgroup_arrive()\n", "", ""),
        ("STEP(3)", "#define FENCE() { cute::warpgroup_arrive(); }\n#define STEP(x) FENCE()\n", "", ""),
        ("cute::warpgroup_arrive()", "#define warpgroup_arrive() sleep()\n", "", ""),
        ("cute::warpgroup_arrive(3)", "", "", ""),
        ("cute::warpgroup_arrive<3>()", "", "", ""),
        ("Base::warpgroup_arrive()", OWN + "namespace other { namespace Base {} }\nusing namespace other;\n", "", ""),
    ],
)  # fmt: skip
def test_a_name_that_may_be_another_function_is_refused(
    tmp_path: Path, fence: str, before: str, inside: str, opened: str
) -> None:
    found = refused(tmp_path, _calling(fence, before, inside, opened))
    assert any("warpgroup_arrive" in d and "error" in d for d in found)


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


INVALID = 'CUTE_INVALID_CONTROL_PATH("wgmma is for sm_90a")'


@pytest.mark.parametrize(
    ("says", "before"),
    [
        ("__trap()", ""),
        ("::__trap()", ""),
        ("std::abort()", ""),
        ("__builtin_unreachable()", ""),
        ('assert(false && "wgmma is for sm_90a")', ""),
        ("DIE()", "#define DIE() __trap()\n"),
        ('DIE("no")', "#define DIE(text) do { printf(text); __trap(); } while (0)\n"),
        ('DIE("no")', "#define STOP() __trap()\n#define DIE(text) printf(text); STOP()\n"),
        ("die()", "__device__ void die() { __trap(); }\n"),
        ("ops::die(3)", 'namespace ops { __device__ void die(int) { printf("no"); __trap(); } }\n'),
        ('CUTLASS_INVALID_CONTROL_PATH("no")', ""),
    ],
)
def test_what_aborts(tmp_path: Path, says: str, before: str) -> None:
    ported(tmp_path, kernel(BODY).replace(SYNC, before + GUARDED.replace(INVALID, says)))


@pytest.mark.parametrize(
    ("says", "before"),
    [
        ("MY_UNREACHABLE_HINT()", ""),
        ("NOTE_UNREACHABLE()", "#define NOTE_UNREACHABLE() __nanosleep(9)\n"),
        ('MY_INVALID_CONTROL_PATH("no")', ""),
        ("count_INVALID_CONTROL_PATH()", "__device__ void count_INVALID_CONTROL_PATH() { __nanosleep(9); }\n"),
        ("ops::abort()", "namespace ops { __device__ void abort() { __nanosleep(9); } }\n"),
        ("abort()", "__device__ void abort() { __nanosleep(9); }\n"),
        ("__trap()", "#define __trap() __nanosleep(9)\n"),
        ("DIE(0)", "#define DIE(x) if (x) __trap()\n"),
        ("DIE(0)", "#define DIE(x) (x) ? __trap() : void()\n"),
        ("DIE()", "#ifdef A\n#define DIE() __trap()\n#else\n#define DIE() __nanosleep(9)\n#endif\n"),
        ("die(0)", "__device__ void die(int x) { if (x) __trap(); }\n"),
        ('assert(threadIdx.x < 128)', ""),
    ],
)  # fmt: skip
def test_what_only_sounds_like_it_goes_on(tmp_path: Path, says: str, before: str) -> None:
    text = kernel(BODY).replace(SYNC, before + GUARDED.replace(INVALID, says))
    assert any("no wait covers" in d for d in refused(tmp_path, text))
