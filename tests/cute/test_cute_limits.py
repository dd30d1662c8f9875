# SPDX-License-Identifier: Apache-2.0
"""Ports of CuTe C++ that the compiler finds too large are refused with their numbers: columns, shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cute_run import cutlass_directories

from porter.build.layout import Layout
from porter.build.tree import Tree
from porter.cli.main import main
from porter.diagnostics import ExitCode, Location
from porter.passes.tiled.port import HEADER
from porter.verify import gate

ASSERTION = """cute_sm100.hpp(258): error: static assertion failed with "more columns than there are"
      static_assert(kNeeded <= kThere, "more columns than there are");
      ^
          detected during:
            instantiation of class "porter::Columns<kNeeded, kThere> [with kNeeded=768, kThere=512]" at line 274
            instantiation of class "porter::Tmem<kColumns, kWarpgroups> [with kColumns=768, kWarpgroups=1]" at line 27

1 error detected in the compilation of "kernel.cu".
"""


def test_what_the_header_of_a_port_asserts_is_a_refusal_with_its_numbers() -> None:
    found = gate.ASSERTED.search(ASSERTION)
    assert found is not None
    assert found.groupdict() == {
        "what": "more columns than there are", "needed": "768", "there": "512"
    }  # fmt: skip
    plain = gate.ASSERTED.search('cute_sm100.hpp(9): error: static assertion failed with "not of this MMA"\n  x\n\n')
    assert plain is not None
    assert (plain["what"], plain["needed"]) == ("not of this MMA", None)
    assert gate.HEADER == HEADER


def test_a_refusal_of_the_header_has_its_place_in_the_original(tmp_path: Path) -> None:
    original, base = tmp_path / "mine/kernel.cu", tmp_path / "made"
    original.parent.mkdir()
    base.mkdir()
    original.write_text("one\ntwo\nthree\n")
    (base / "kernel.cu").write_text("one\nadded\nadded\ntwo\nthree\n")
    tree = Tree(base, Layout(original.parent), {original: "kernel.cu"})
    line = 'instantiation of "int porter::group_size<Layout>() [with Layout=L]" at line'
    said = f"{line} 456\n{line} 4 of {base}/kernel.cu\n{line} 5 of {base}/kernel.cu\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(original.parent)
        assert gate.instantiated(said, tree) == Location("kernel.cu", 2)
    assert gate.instantiated(f"{line} 456", tree) is None


WIDE = """#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x256x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using LayoutA = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{}));
using LayoutB = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_256, _64>{}));
struct Storage { alignas(1024) half_t a[64 * 64], b[256 * 64]; char more[MORE]; };
extern "C" __global__ void __launch_bounds__(128) kernel(float* d) {
  extern __shared__ char shared_memory[];
  auto& storage = *reinterpret_cast<Storage*>(shared_memory);
  Mma mma;
  auto thread = mma.get_slice(threadIdx.x);
  Tensor tA = thread.partition_fragment_A(make_tensor(make_smem_ptr(storage.a), LayoutA{}));
  Tensor tB = thread.partition_fragment_B(make_tensor(make_smem_ptr(storage.b), LayoutB{}));
  TENSORS
  warpgroup_arrive();
  GEMMS
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  SUMS
}
"""


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    ("count", "more", "option", "told"),
    [
        (2, 186 * 1024, [], ""),
        (3, 1024, [], "more columns than Tensor Memory has: 768, and there are 512"),
        (1, 187 * 1024 - 64, [], "more bytes than a block can have: 233472, and there are 232448"),
        (1, 187 * 1024 - 64, ["--shared-storage", "Storage"], ""),
        (1, 187 * 1024, ["--shared-storage", "Storage"], "a block can have: 233472, and there are 232448"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(
    tmp_path: Path, count: int, more: int, option: list[str], told: str
) -> None:
    text = WIDE.replace("MORE", str(more))
    for place, each in {
        "TENSORS": "Tensor ACC = partition_fragment_C(mma, Shape<_64, _256>{}); clear(ACC); ",
        "GEMMS": "gemm(mma, tA, tB, ACC); ",
        "SUMS": "for (int i = 0; i < size(ACC); ++i) d[i * 128 + threadIdx.x] += ACC(i); ",
    }.items():
        text = text.replace(place, "".join(each.replace("ACC", f"acc{i}") for i in range(count)))
    source = tmp_path / "kernel.cu"
    source.write_text(text)
    arguments = ["port", str(source), "-I", str(cutlass_directories()[0]), "-o", str(tmp_path / "port"), *option]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == (ExitCode.UNPORTED if told else ExitCode.OK), result.output
    assert told in result.output + result.stderr


TILES = """#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{}));
using LayoutB = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{}));
extern "C" __global__ void __launch_bounds__(128) kernel(float* d) {
  alignas(1024) __shared__ half_t b[64 * 64];
  Mma mma;
  Tensor gA = make_tensor(make_gmem_ptr(reinterpret_cast<half_t*>(d)), Shape<Int<ROWS>, _64>{}, Stride<_64, _1>{});
  Tensor tA = mma.get_slice(threadIdx.x).partition_fragment_A(gA);
  fill(tA, half_t(1));
  Tensor tB = mma.get_slice(threadIdx.x).partition_fragment_B(make_tensor(make_smem_ptr(b), LayoutB{}));
  Tensor acc = partition_fragment_C(mma, Shape<Int<ROWS>, _64>{});
  clear(acc);
  warpgroup_arrive();
  gemm(mma, tA(_, 1, 0), tB(_, 0, 0), acc(_, 0, 0));
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  for (int i = 0; i < size(acc); ++i) d[i * 128 + threadIdx.x] += acc(i);
}
"""


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (128, "an m64 tile of A from registers is multiplied into a tile of the accumulator with another number"),
        (192, ""),  # an odd number of tiles is in both halves of the lanes
    ],
)
def test_a_tile_of_a_in_the_other_half_of_the_lanes_is_refused(tmp_path: Path, rows: int, told: str) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(TILES.replace("ROWS", str(rows)))
    arguments = ["port", str(source), "-I", str(cutlass_directories()[0]), "-o", str(tmp_path / "port")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == (ExitCode.UNPORTED if told else ExitCode.OK), result.output
    assert told in result.output + result.stderr
    assert "not compiled" not in result.output
