# SPDX-License-Identifier: Apache-2.0
"""A kernel with a TiledMMA in pieces, which tests of idiomatic ports write in other ways."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, PortResult, port_sources

ATOM = "SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>"
MMA = f"    using Mma = decltype(make_tiled_mma({ATOM}{{}}));\n"
STORAGE = """    struct Storage {
        alignas(1024) half_t a[STAGES * BM * 64];
        uint64_t full[STAGES];
        uint64_t empty[STAGES];
    };
"""
SLICE = """    auto thread_mma = mma.get_slice(threadIdx.x - 128);
    Tensor tCrA = thread_mma.partition_fragment_A(tensors.a());
    Tensor tCrB = thread_mma.partition_fragment_B(tensors.b());
"""
ACCUMULATOR = "    Tensor tCrC = partition_fragment_C(mma, Shape<Int<BM>, Int<BN>>{});\n"
ZERO = "    mma.accumulate_ = GMMA::ScaleOut::Zero;\n"
FULL = "        Full::wait(&storage.full[tile % STAGES], tile / STAGES % 2);\n"
ARRIVE = "        warpgroup_fence_operand(tCrC);\n        warpgroup_arrive();\n"
STEPS = """        CUTE_UNROLL
        for (int k = 0; k < size<2>(tCrA); ++k) {
            gemm(mma, tCrA(_, _, k, tile % STAGES), tCrB(_, _, k, tile % STAGES), tCrC);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
"""
WAIT = "        warpgroup_commit_batch();\n        warpgroup_wait<0>();\n"
EMPTY = "        Empty::arrive(&storage.empty[tile % STAGES]);\n"
LOOP = f"    for (int tile = 0; tile < tiles; ++tile) {{\n{FULL}{ARRIVE}{STEPS}{WAIT}{EMPTY}    }}\n"
RESULTS = "    copy(tCrC, thread_mma.partition_C(gC));\n"
SYNC = "    __syncthreads();\n"
BODY = f"{SLICE}{ACCUMULATOR}{ZERO}{LOOP}{RESULTS}"

LAUNCH = "k<128, 128, 4><<<1, 256, sizeof(Traits<128, 128, 4>::Storage)>>>(tensors, gC, 8);"
TEXT = f"""#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
using namespace cute;
template <int BM, int BN, int STAGES>
struct Traits {{
    using Element = cutlass::half_t;
{MMA}{STORAGE}}};
template <int BM, int BN, int STAGES, class Tensors, class Out>
__global__ void __launch_bounds__(256) k(Tensors tensors, Out gC, int tiles) {{
    extern __shared__ char memory[];
    auto& storage = *reinterpret_cast<typename Traits<BM, BN, STAGES>::Storage*>(memory);
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;
    if (threadIdx.x == 0) Empty::init(&storage.empty[0], 128);
{SYNC}    if (threadIdx.x < 128) return;
    typename Traits<BM, BN, STAGES>::Mma mma;
{BODY}}}
template <class Tensors, class Out>
void launch(Tensors tensors, Out gC) {{
    {LAUNCH}
}}
"""
TYPES = (128, 128, 128, 4, 16)


def changed(*pairs: tuple[str, str]) -> str:
    """The kernel with parts in other words."""
    text = TEXT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def port(tmp_path: Path, text: str, types: tuple[int, ...] = TYPES) -> PortResult:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return port_sources(load_sources(path), PortOptions(types=answering(*types)))


def idiomatic(tmp_path: Path, text: str, types: tuple[int, ...] = TYPES) -> str:
    """The kernel's text in SM100's own words."""
    result = port(tmp_path, text, types)
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    assert [d.message for d in result.diagnostics if d.code is Code.IDIOM_LEFT] == []
    assert set(result.files) == {str(tmp_path / "kernel.cu")}
    ported = result.files[str(tmp_path / "kernel.cu")].decode()
    for opening, closing in ("{}", "()"):
        assert ported.count(opening) - text.count(opening) == ported.count(closing) - text.count(closing)
    return ported


def left(tmp_path: Path, text: str, types: tuple[int, ...] = TYPES) -> str:
    """What is missing of a kernel whose port is that of the compat style."""
    result = port(tmp_path, text, types)
    said = [str(d.values["what"]) for d in result.diagnostics if d.code is Code.IDIOM_LEFT]
    assert said or result.exit_code is ExitCode.UNPORTED
    assert "SM100_MMA" not in result.files[str(tmp_path / "kernel.cu")].decode()
    return "\n".join([*said, *(d.message for d in result.diagnostics if d.code is not Code.IDIOM_LEFT)])
