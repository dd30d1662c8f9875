# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory is freed by whichever warp ends last: no warp of a port waits where the kernel's own may be waiting."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.header import NAME
from porter.passes.port import port_sources

CORPUS = Path(__file__).parents[2] / "corpus"
EPILOGUE = "        const int lane = tid % 32;\n"

# A teardown at barrier 0: a warp that ends arrives at whatever `__syncthreads()` the others are at.
AT_BARRIER_0 = """    __device__ __forceinline__ ~Tmem() {
        fence_before_sync();
        asm volatile("barrier.cta.sync 0;" ::: "memory");
        fence_after_sync();
        if (threadIdx.x / 32 == 0) {
            __syncwarp();
            asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(shared_.tmem), "n"(kAllocated));
        }
    }
"""


def kernel(tmp_path: Path, before_epilogue: str) -> Path:
    """gemm_ws with a statement of the consumers in front of their epilogue; its producers have ended by then."""
    folder = tmp_path / "gemm_ws"
    shutil.copytree(CORPUS / "gemm_ws", folder)
    path = folder / "gemm_ws.cu"
    text = path.read_text()
    assert text.count(EPILOGUE) == 1
    path.write_text(text.replace(EPILOGUE, f"        {before_epilogue}\n{EPILOGUE}"))
    return path


def with_other_teardown(path: Path) -> Path:
    """The port of a kernel, freed at barrier 0."""
    result = port_sources(load_sources(path))
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]
    header = str(path.parent / NAME)
    text = result.files[header].decode()
    destructor = re.compile(r"    __device__ __forceinline__ ~Tmem\(\) \{\n.*?\n    \}\n", re.DOTALL)
    changed, count = destructor.subn(lambda _: AT_BARRIER_0, text)
    assert count == 1
    port = path.parent / "out" / path.name
    port.parent.mkdir()
    port.write_bytes(result.files[str(path)])
    (port.parent / NAME).write_text(changed)
    return port


def verify(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(main, ["verify", "--style", "compat", *arguments, "--families", "integers"])
    return outcome.exit_code, outcome.output


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("__syncthreads();", marks=pytest.mark.slow),
        pytest.param("__syncthreads(); __syncthreads();", marks=pytest.mark.slow),
        pytest.param("if (consumer < 4) __syncthreads();", marks=pytest.mark.slow),
        pytest.param('asm volatile("barrier.sync 0;" ::: "memory");', marks=pytest.mark.slow),
        pytest.param('asm volatile("bar.sync 0, 256;" ::: "memory");', marks=pytest.mark.slow),
        pytest.param("(void)__syncthreads_or(1);", marks=pytest.mark.slow),
        pytest.param("(void)__syncthreads_count(1);", marks=pytest.mark.slow),
    ],
)
def test_roles_that_have_ended_do_not_disturb_the_others(tmp_path: Path, statement: str) -> None:
    path = kernel(tmp_path, statement)
    code, output = verify(str(path))
    assert code == ExitCode.OK, output
    words = ["hazards", "--style", "compat", "--only", "port", "--level", "strict"]
    checked = CliRunner().invoke(main, [*words, str(path)])
    assert checked.exit_code == ExitCode.OK, checked.output
    assert "0 errors" in checked.output


def test_a_teardown_at_the_kernels_barrier_is_an_error_of_plain_verify(tmp_path: Path) -> None:
    path = kernel(tmp_path, "__syncthreads();")
    port = with_other_teardown(path)
    code, output = verify(str(path), "--port", str(port), "--no-hazards")
    assert code == ExitCode.DIFFERENT, output
    assert "not allocated" in output
