# SPDX-License-Identifier: Apache-2.0
"""Which names of libraries are Hopper's: those of other chips are none."""

from __future__ import annotations

import pytest

from porter.scan.constructs import cuda_inventory

HOPPERS = [
    "cutlass::arch::Sm90",
    "cutlass::gemm::KernelTmaWarpSpecialized",
    "cutlass::gemm::KernelTmaWarpSpecializedPingpong",
    "cutlass::gemm::KernelTmaWarpSpecializedCooperative",
    "KernelTmaWarpSpecializedCooperativeFP8FastAccum",
    "KernelTmaWarpSpecializedPingpongMixedInput",
]
OTHERS = [
    "cutlass::arch::Sm100",
    "cutlass::arch::Sm120",
    "cutlass::arch::Sm80",
    "cutlass::gemm::KernelTmaWarpSpecialized1SmSm100",
    "cutlass::gemm::KernelTmaWarpSpecialized2SmNvf4Sm100",
    "cutlass::gemm::KernelTmaWarpSpecializedPingpongSm120",
    "cutlass::gemm::KernelTmaWarpSpecializedCooperativeSm120<3>",
    "KernelTmaWarpSpecializedPingpongMxf8f6f4Sm120",
    "KernelTmaWarpSpecializedCooperativeBlockScaledSm120",
    "SM100_MMA_F16BF16_SS",
    "SM120_16x8x32_TN",
    "cutlass::epilogue::TmaWarpSpecialized1Sm",
]


def hopper_only(name: str) -> int:
    found, _ = cuda_inventory("k.cu", f"using Wanted = {name};\n".encode())
    return found.hopper_only


@pytest.mark.parametrize("name", HOPPERS)
def test_names_of_hopper(name: str) -> None:
    assert hopper_only(name) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_other_chips(name: str) -> None:
    assert hopper_only(name) == 0


@pytest.mark.parametrize(
    "text",
    [
        "warpgroup::mma_ABt(c, a, b);",
        "warpgroup::mma_AB(c, a, b);",
        "kittens::warpgroup::mm_ABt(c, a, b);",
        "warpgroup::mma_AtB<transpose>(c, a, b);",
    ],
)
def test_warpgroup_multiplies_of_a_library_are_named(text: str) -> None:
    found, _ = cuda_inventory("k.cu", f"__device__ void f() {{ {text} }}\n".encode())
    assert found.hopper_only == 1
    assert "tcgen05" in found.constructs[0].becomes
