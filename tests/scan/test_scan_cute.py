# SPDX-License-Identifier: Apache-2.0
"""CuTe C++ in `porter scan` and `porter plan`: one summary a kernel, atoms by family, missing headers first."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.report.json import schema
from porter.rules.load import load_rules
from porter.scan.constructs import Construct
from porter.scan.inventory import Inventory, take_inventory
from porter.scan.kernels import KernelSummary, kernel_summaries

KERNEL = """
template <class Mma>
__global__ void __launch_bounds__(128) {name}(Mma mma, float* out) {{
  __shared__ half_t a[64 * 64], b[64 * 64];
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(make_tensor(make_smem_ptr(a), Shape<_64, _64>{{}}));
  Tensor tB = thr.partition_fragment_B(make_tensor(make_smem_ptr(b), Shape<_64, _64>{{}}));
  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{{}});
  clear(acc);
  {inside}
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  for (int i = 0; i < size(acc); ++i) out[threadIdx.x * 32 + i] = acc(i);
}}
"""
HEAD = "#include <cute/tensor.hpp>\nusing namespace cute;\n"
ATOMS = (
    "using A = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;\n"
    "using B = SM90_64x256x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;\n"
    "using C = SM90_64x64x16_F32F16F16_SS<GMMA::Major::MN, GMMA::Major::K>;\n"
)


def kernel(name: str = "k", inside: str = "") -> str:
    return KERNEL.format(name=name, inside=inside)


def taken(tmp_path: Path, text: str, name: str = "k.cu") -> Inventory:
    (tmp_path / name).write_text(text)
    return take_inventory([tmp_path / name])


def summaries(tmp_path: Path, text: str) -> list[KernelSummary]:
    (file,) = taken(tmp_path, text).files
    return list(file.summaries)


def constructs(tmp_path: Path, text: str) -> dict[str, Construct]:
    (file,) = taken(tmp_path, text).files
    return {c.name: c for c in file.constructs}


@pytest.mark.parametrize(
    ("text", "name", "sizes"),
    [
        (ATOMS, "SM90_64xNxK_F32F16F16_SS", {"64x64x16": 2, "64x256x16": 1}),
        ("using A = SM90_64x8x32_F32E4M3E4M3_RS_TN<>;\n", "SM90_64xNxK_F32E4M3E4M3_RS_TN", {"64x8x32": 1}),
        ("using A = SM90::GMMA::MMA_64x64x16_F16F16F16_SS<A, B>;\n", "SM90::GMMA::MMA_64xNxK_F16F16F16_SS",
         {"64x64x16": 1}),
        ("using A = SM90::GMMA::SPARSE::GMMA_64x64x32_F16F16F16_SS<A, B>;\n",
         "SM90::GMMA::SPARSE::GMMA_64xNxK_F16F16F16_SS", {"64x64x32": 1}),
    ],
)  # fmt: skip
def test_atoms_are_one_family_with_their_sizes(tmp_path: Path, text: str, name: str, sizes: dict[str, int]) -> None:
    found = constructs(tmp_path, text)
    assert dict(found[name].forms) == sizes
    assert found[name].count == sum(sizes.values())
    assert found[name].status == "hopper"


def test_what_stays_as_it_is_has_not_to_be_ported(tmp_path: Path) -> None:
    found = constructs(tmp_path, HEAD + ATOMS)
    assert (found["GMMA::Major"].status, found["GMMA::Major"].becomes) == ("both", "unchanged")


@pytest.mark.parametrize(
    ("outside", "inside", "uses"),
    [
        (ATOMS, "", ("SM90_64xNxK_F32F16F16_SS 64x64x16, 64x256x16",)),
        ("", "SM90_TMA_LOAD::copy(a);", ("TMA loads",)),
        ("", "SM90_TMA_LOAD_MULTICAST::copy(a);", ("TMA multicast",)),
        ("using P = cutlass::PipelineTmaAsync<4>;\n", "", ("PipelineTmaAsync",)),
        ("using B = cutlass::arch::ClusterBarrier;\n", "", ("mbarriers used directly",)),
        ("", "cp_async_fence(); cp_async_wait<0>();", ("cp.async",)),
        ("using S = SM90_U32x4_STSM_N;\n", "SM90_TMA_STORE::copy(a);", ("stmatrix", "TMA stores")),
        ("", "cutlass::arch::warpgroup_reg_alloc<232>();", ("setmaxnreg",)),
        ("", "cutlass::arch::NamedBarrier::sync(128, 1);", ("named barriers",)),
        ("", "cluster_arrive(); cluster_wait();", ("clusters",)),
        ("", "cutlass::arch::wait_on_dependent_grids();", ("dependent grids",)),
        ("using A = decltype(GMMA::rs_op_selector<T, T, float, Tile>());\n", "",
         ("an atom that GMMA::rs_op_selector picks",)),
    ],
)  # fmt: skip
def test_what_a_kernel_uses(tmp_path: Path, outside: str, inside: str, uses: tuple[str, ...]) -> None:
    (found,) = summaries(tmp_path, HEAD + ATOMS * (not outside) + outside + kernel(inside=inside))
    assert found.kernel == "k"
    expected = uses if outside else ("SM90_64xNxK_F32F16F16_SS 64x64x16, 64x256x16", *uses)
    assert found.uses == expected


def test_functions_belong_to_the_kernels_that_come_to_them(tmp_path: Path) -> None:
    helpers = (
        "CUTE_DEVICE void fetch() { SM90_TMA_LOAD::copy(a); }\n"
        "CUTE_DEVICE void begin() { fetch(); }\n"
        "CUTE_DEVICE void other() { cp_async_fence(); }\n"
    )
    found = summaries(tmp_path, HEAD + ATOMS + helpers + kernel("k", "begin();") + kernel("l", "other();"))
    assert [(s.kernel, s.uses[1:]) for s in found] == [("k", ("TMA loads",)), ("l", ("cp.async",))]


def test_how_a_kernel_is_ported_or_what_stops_it(tmp_path: Path) -> None:
    (found,) = summaries(tmp_path, HEAD + ATOMS + kernel())
    assert found.blocks == ()
    assert "1 accumulator in Tensor Memory (acc)" in found.port
    stopped = HEAD + ATOMS + kernel(inside="MMA_64x64x16<>::fma(acc(0)); warpgroup_wait<N>(x, y);")
    (found,) = summaries(tmp_path, stopped)
    assert found.port == ()
    assert found.blocks
    assert all(text.startswith("PT") for text in found.blocks)


def test_headers_that_were_not_found_come_first(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    stopped = kernel(inside="warpgroup_wait<N>(x, y);")
    path.write_text(HEAD + '#include "tile.cuh"\n' + ATOMS + stopped)
    (found,) = kernel_summaries(port_sources(load_sources(path)), load_rules())
    assert "tile.cuh" in found.blocks[0]
    result = CliRunner().invoke(main, ["--format", "json", "plan", str(path)])
    assert json.loads(result.stdout)["diagnostics"][0]["id"] == "PT1005"


def test_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(HEAD + ATOMS + kernel())
    text = CliRunner().invoke(main, ["scan", str(path)]).stdout
    assert "SM90_64xNxK_F32F16F16_SS 64x64x16, 64x256x16" in text
    assert "in Tensor Memory (acc)" in text
    for command in ("scan", "plan"):
        read = json.loads(CliRunner().invoke(main, ["--format", "json", command, str(path)]).stdout)
        jsonschema.validate(read, schema(command))
        (one,) = read["summaries"] if command == "plan" else read["files"][0]["summaries"]
        assert one["kernel"] == "k"
        assert one["port"]
    assert "SM90_64xNxK_F32F16F16_SS" in CliRunner().invoke(main, ["plan", str(path)]).stdout


def test_a_port_has_nothing_of_hopper_left(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HEAD + ATOMS + kernel())
    result = port_sources(load_sources(tmp_path / "k.cu"))
    port = tmp_path / "port"
    port.mkdir()
    for path, text in result.files.items():
        (port / Path(path).name).write_bytes(text)
    found = take_inventory([port], effort=False)
    assert found.hopper_only == 0
    assert CliRunner().invoke(main, ["check", str(port)]).exit_code == 0
    assert CliRunner().invoke(main, ["check", str(tmp_path / "k.cu")]).exit_code == 1
