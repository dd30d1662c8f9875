# SPDX-License-Identifier: Apache-2.0
"""A header that was not found is named first, and nothing is said to be without Hopper code because of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM, LOOP, STORE, SYNC, port_files, wrapper

from porter.cli.main import main
from porter.diagnostics import ExitCode

HOST = "void launch() {}\n"
OPS = "#pragma once\n#include <cstdint>\n" + SYNC + wrapper(16)
KERNEL = (
    "__global__ void __launch_bounds__(128) kernel(float* out, uint64_t a, uint64_t b, int steps) {\n"
    "    float acc[8] = {0};\n" + LOOP + STORE + "}\n"
)

MISSING = [
    pytest.param('#include "kernels.cuh"\n' + HOST, '"kernels.cuh"', id="quoted"),
    pytest.param("#include <project/kernels.cuh>\n" + HOST, "<project/kernels.cuh>", id="angles"),
    pytest.param('#include "../gone/kernels.cuh"\n', '"../gone/kernels.cuh"', id="above"),
    pytest.param('#include <cstdio>\n#  include   "kernels.cuh"  // all\n', '"kernels.cuh"', id="spaces"),
    pytest.param("#define KERNELS <project/kernels.cuh>\n#include KERNELS\n", "KERNELS", id="macro"),
    pytest.param("#include KERNELS\n", "KERNELS", id="unknown macro"),
    pytest.param('#ifdef FAST\n#include "kernels.cuh"\n#endif\n', '"kernels.cuh"', id="under a condition"),
    pytest.param('#if 0\n#else\n#include "kernels.cuh"\n#endif\n', '"kernels.cuh"', id="else of #if 0"),
    pytest.param('#include "kernels.cuh"\n#include "more.cuh"\n', '"kernels.cuh", "more.cuh"', id="two"),
    pytest.param('__global__ void k() {}\n#include "kernels.cuh"\r\n', '"kernels.cuh"', id="CRLF, other kernel"),
    pytest.param(
        '#include "kernels.cuh"\nbool ok(int major) { return major == 9; }\n', '"kernels.cuh"', id="host check"
    ),
]


@pytest.mark.parametrize(("text", "name"), MISSING)
def test_nothing_found_behind_a_missing_header(tmp_path: Path, text: str, name: str) -> None:
    result = port_files(tmp_path, {"kernel.cu": text})
    found = [str(d) for d in result.diagnostics]
    assert result.exit_code == ExitCode.UNPORTED, found
    assert not result.changed
    assert "[PT1005]" in found[0]
    assert "kernel.cu:" in found[0]
    assert name.split(", ")[0] in found[0] or "project/kernels.cuh" in found[0]
    assert "[PT1007]" in found[-1]
    assert not any("[PT0007]" in d for d in found)


NOT_MISSING = [
    "#include <cstdint>\n#include <vector>\n#include <bit>\n#include <stdio.h>\n#include <sys/mman.h>\n",
    "#include <cuda.h>\n#include <cuda_fp8.h>\n#include <cuda/std/array>\n#include <cub/cub.cuh>\n",
    "#include <cooperative_groups/reduce.h>\n#include <mma.h>\n#include <cublas_v2.h>\n#include <cublasLt.h>\n",
    '#include "cutlass/cutlass.h"\n#include <cute/tensor.hpp>\n#include "cuda_runtime.h"\n#include "nccl.h"\n',
    "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n#include <pybind11/pybind11.h>\n",
    '#ifdef _WIN32\n#include "win.h"\n#endif\n#if defined(USE_ROCM)\n#include "hip_ops.h"\n#endif\n',
    '#if __has_include("config.h")\n#include "config.h"\n#endif\n#if 0\n#include "old.h"\n#endif\n',
    '// #include "gone.h"\n/*\n#include "gone.h"\n*/\nconst char* s = R"(\n#include "gone.h"\n)";\n',
]


@pytest.mark.parametrize("text", NOT_MISSING)
def test_headers_that_are_not_the_projects(tmp_path: Path, text: str) -> None:
    result = port_files(tmp_path, {"kernel.cu": text + HOST})
    assert result.exit_code == ExitCode.OK
    assert not result.diagnostics


def test_it_comes_before_what_else_is_said(tmp_path: Path) -> None:
    refused = GEMM.replace('"wgmma.mma', '"@p wgmma.mma')
    result = port_files(tmp_path, {"kernel.cu": refused.replace("#include", '#include "gone.cuh"\n#include', 1)})
    assert [d.code.id for d in result.diagnostics] == ["PT1005", "PT2001"]


def test_a_kernel_that_is_here_is_ported(tmp_path: Path) -> None:
    result = port_files(tmp_path, {"kernel.cu": GEMM.replace("#include", '#include "gone.cuh"\n#include', 1)})
    assert result.exit_code == ExitCode.OK
    assert result.changed
    assert result.diagnostics[0].code.id == "PT1005"


def test_what_to_pass_is_said_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "include" / "ops").mkdir(parents=True)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "include" / "ops" / "ops.cuh").write_text(OPS + KERNEL)
    (tmp_path / "csrc" / "all.cu").write_text("#include <ops/ops.cuh>\n")
    outcome = CliRunner().invoke(main, ["port", "csrc/all.cu"])
    assert outcome.exit_code == ExitCode.UNPORTED, outcome.output
    assert "csrc/all.cu:1" in outcome.output
    assert "#include <ops/ops.cuh>" in " ".join(outcome.output.split())
    assert "-I include" in " ".join(outcome.output.split())
    outcome = CliRunner().invoke(main, ["port", "csrc/all.cu", "-I", "include"])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "tcgen05.mma" in outcome.output


def test_a_macro_that_names_a_header_is_followed(tmp_path: Path) -> None:
    files = {"ops.cuh": OPS + KERNEL, "kernel.cu": '#define OPS "ops.cuh"\n#include OPS\n'}
    result = port_files(tmp_path, files)
    assert result.exit_code == ExitCode.OK
    assert result.kernels == ["kernel"]


@pytest.mark.parametrize("command", ["port", "plan"])
def test_commands_give_the_same_answer(tmp_path: Path, command: str) -> None:
    (tmp_path / "kernel.cu").write_text('#include "gone.cuh"\n')
    outcome = CliRunner().invoke(main, ["--format", "json", command, str(tmp_path / "kernel.cu")])
    assert outcome.exit_code == ExitCode.UNPORTED, outcome.output
    document = json.loads(outcome.output[outcome.output.index("{") :])
    assert [d["id"] for d in document["diagnostics"]] == ["PT1005", "PT1007"]
    assert "".join(str(tmp_path).split()) in "".join(outcome.output.split())


def test_scan_counts_them(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text('#include "gone.cuh"\n#include <p/here.cuh>\n#include "gone.cuh"\n')
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "here.cuh").write_text("int x;\n")
    outcome = CliRunner().invoke(main, ["--format", "json", "scan", str(tmp_path)])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    document = json.loads(outcome.output[outcome.output.index("{") :])
    assert document["headers_not_found"] == 1
    assert [d["id"] for d in document["diagnostics"]] == ["PT1005"]


def test_verify_does_not_take_it_for_ported(tmp_path: Path) -> None:
    from porter.cli.context import current
    from porter.cli.making import Ports

    (tmp_path / "kernel.cu").write_text('#include "gone.cuh"\n')
    plan, left = Ports(current()).of_file(tmp_path / "kernel.cu")
    assert plan is None
    assert [d.code.id for d in left] == ["PT5028", "PT1005", "PT1007"]


@pytest.mark.slow
def test_a_string_with_a_kernel_makes_up_for_another(tmp_path: Path) -> None:
    other = 'const char* kHost = R"src(#include "host.h"\n__global__ void f() {}  // no wgmma, no asm\n)src";\n'
    strings = f'const char* kSource = R"src({GEMM})src";\n'
    path = tmp_path / "host.cpp"
    for text, code in ((strings + other, ExitCode.OK), (other, ExitCode.UNPORTED)):
        path.write_text(text)
        outcome = CliRunner().invoke(main, ["port", str(path)])
        assert outcome.exit_code == code, outcome.output
        assert "PT1005" in outcome.output
