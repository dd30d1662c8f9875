# SPDX-License-Identifier: Apache-2.0
"""What kernels do with accumulators, A from registers, roles and batches, with the header of CuTe C++ ports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cute_run import Array, Unit, assert_clean, compiled, launched

from porter.diagnostics import Code, PorterError
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim.results import Schedule

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("constructs.cu")
# Threads, and `tcgen05.ld` instructions: 32 registers each.
KERNELS = {
    "tiles": (128, 4),
    "divided": (128, 4),
    "registers": (128, 4),
    "retiled": (128, 4),
    "two_fragments": (128, 4),
    "shared_columns": (128, 4),
    "roles": (384, 2),
    "batches": (128, 32),
    "atoms": (128, 4),
    "third": (384, 4),
}


@pytest.fixture(scope="module")
def unit() -> Unit:
    return compiled(SOURCE.read_text(), "sm_100a")


def operands() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (128, 64)) for _ in range(2))
    return a.astype(np.float16), b.astype(np.float16), a @ b.T


def wanted(kernel: str, product: Array) -> Array:
    want = product.astype(np.float32)
    if kernel in ("two_fragments", "shared_columns"):
        want *= 2
    if kernel == "registers":
        want = 2 * want + 3
        want[:64, :64] = 0
    if kernel == "atoms":
        want[64:] += 1
    return want


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_construct(kernel: str, schedule: Schedule, unit: Unit) -> None:
    a, b, product = operands()
    want = wanted(kernel, product)
    got, outcome = launched(
        unit, kernel, (a, b), np.zeros_like(want), threads=KERNELS[kernel][0], shared=32768, schedule=schedule
    )
    assert_clean(outcome, kernel)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_in_local_memory_and_only_loads_load(kernel: str, unit: Unit) -> None:
    assert "local_depot" not in unit.body(kernel)
    assert unit.count(kernel, "tcgen05.ld") == KERNELS[kernel][1]


def test_no_named_barrier_but_the_kernels_own(unit: Unit) -> None:
    assert unit.body("tiles").count("bar.sync") == 2  # the header's, and the kernel's


def test_integers_that_clamp(unit: Unit) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-50, 51, (64, 32)).astype(np.int8), rng.integers(-50, 51, (16, 32)).astype(np.int8)
    want = np.clip(2147483600 + a.astype(np.int64) @ b.T.astype(np.int64), -(1 << 31), (1 << 31) - 1).astype(np.int32)
    assert (want == (1 << 31) - 1).any()
    got, outcome = launched(unit, "clamped", (a, b), np.zeros_like(want), threads=128, shared=0)
    assert_clean(outcome)
    np.testing.assert_array_equal(got, want)


PLAIN = """
#include <cute/tensor.hpp>
#include "cute_sm100.hpp"
using namespace cute;
__global__ void kernel(half_t* a, float* d) {
    auto mma = make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{});
    extern __shared__ half_t storage[];
    using Layout64 = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{}));
    Tensor t = make_tensor(make_smem_ptr(storage), Layout64{});
    Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});
    auto thread = mma.get_slice(threadIdx.x);
    gemm(mma, thread.partition_fragment_A(t), thread.partition_fragment_B(t), acc);
}
"""


def test_plain_registers_are_refused_by_name() -> None:
    with pytest.raises(PorterError) as caught:
        compiled(PLAIN, "sm_100a")
    assert caught.value.diagnostic.code is Code.NVCC_ERROR
    assert "declare its accumulator by porter::accumulator" in caught.value.diagnostic.detail


REGISTERS = """
#include <cute/tensor.hpp>
using namespace cute;
using T = half_t;
using SmemLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_64, _64>{}));
extern "C" __global__ void __launch_bounds__(128) kernel(T const* a, T const* b, float* d) {
    __shared__ alignas(1024) T storage[64 * 64];
    auto mma = make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{});
    Tensor sB = make_tensor(make_smem_ptr(storage), SmemLayout{});
    for (int i = threadIdx.x; i < 64 * 64; i += 128) sB(i / 64, i % 64) = b[i];
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    auto thread = mma.get_slice(threadIdx.x);
    Tensor gA = make_tensor(make_gmem_ptr(a), Shape<_64, _64>{}, Stride<_64, _1>{});
    Tensor gD = make_tensor(make_gmem_ptr(d), Shape<_64, _64>{}, Stride<_64, _1>{});
    Tensor tA = make_fragment_like<T>(thread.partition_A(gA));
    copy(thread.partition_A(gA), tA);
    Tensor tB = thread.partition_fragment_B(sB);
    Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thread.partition_C(gD));
}
"""


@pytest.mark.parametrize("columns", [True, False])
def test_registers_of_a_without_columns_trap(columns: bool, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(REGISTERS)
    text = port_sources(load_sources(source)).files[str(source)].decode()
    lines = [line for line in text.splitlines() if columns or "tc.operand = " not in line]
    assert columns or len(lines) == len(text.splitlines()) - 1
    unit = compiled("\n".join(lines), "sm_100a")
    a, b, _ = operands()
    a, b = a[:64], b[:64]
    want = (a @ b.T).astype(np.float32)
    got, outcome = launched(unit, "kernel", (a, b), np.zeros_like(want), threads=128, shared=0)
    if columns:
        assert_clean(outcome)
        np.testing.assert_array_equal(got, want)
    else:
        assert [f.code for f in outcome.findings] == [Code.SIM_TRAP]
