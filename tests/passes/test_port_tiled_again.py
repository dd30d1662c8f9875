# SPDX-License-Identifier: Apache-2.0
"""Sources with the header of CuTe C++ ports: what a port holds stays, calls for Hopper that are left are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources
from porter.passes.tiled.port import HEADER, header_text

HEAD = f"""#include <cute/tensor.hpp>
#include "{HEADER}"
using Mma = decltype(cute::make_tiled_mma(cute::SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{{}}));
"""


def port(tmp_path: Path, text: str) -> PortResult:
    path = tmp_path / "kernel.cu"
    path.write_text(HEAD + text)
    (tmp_path / HEADER).write_text(header_text(), "utf-8")
    return port_sources(load_sources(path))


@pytest.mark.parametrize(
    "call",
    [
        "cute::warpgroup_wait<0>()",
        "cute::warpgroup_wait<N>()",
        "cute::warpgroup_arrive()",
        "cute::warpgroup_commit_batch()",
        "using namespace cute; warpgroup_wait<0>()",
        "using cute::warpgroup_arrive; warpgroup_arrive()",
        "auto wait = [] { cute::warpgroup_wait<0>(); }; wait()",
    ],
)
def test_synchronization_for_hopper_is_refused(tmp_path: Path, call: str) -> None:
    result = port(tmp_path, f"template <int N> __global__ void k() {{ {call}; }}\n")
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed
    left = [d for d in result.diagnostics if d.code is Code.LIBRARY_CONSTRUCT]
    assert [d.where is not None and d.where.line for d in left] == [4]
    assert "warpgroup_" in left[0].message


@pytest.mark.parametrize(
    "text",
    [
        "__device__ void f(float& r) { cute::warpgroup_fence_operand(r); }\n",
        "template <class C> __device__ void f(C& acc) { porter::wait<0>(acc); porter::load(acc); }\n",
        "__device__ void warpgroup_wait() {}\n__global__ void k() { warpgroup_wait(); }\n",
        "// cute::warpgroup_wait<0>()\n",
    ],
)
def test_what_a_port_holds_stays(tmp_path: Path, text: str) -> None:
    result = port(tmp_path, text)
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    assert not result.groups
