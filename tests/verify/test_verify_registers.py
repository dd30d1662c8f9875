# SPDX-License-Identifier: Apache-2.0
"""Kernels whose setmaxnreg do not fit each other: plain `porter verify PATH` must not say clean.

Needs a CUDA compiler. The mistakes are planted in copies of corpus kernels, so that original and port have them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.cli.main import main
from porter.diagnostics import ExitCode, PorterError

ROOT = Path(__file__).resolve().parents[2]


def _compiler_missing() -> str | None:
    try:
        find_toolkit()
        find_host_compiler()
    except PorterError as error:
        return error.diagnostic.message
    return None


pytestmark = pytest.mark.skipif(_compiler_missing() is not None, reason=str(_compiler_missing()))

# Kernel, file, what stands there, what takes its place.
MISTAKES = [
    ("gemm_ws", "gemm_ws.cu", r"warpgroup_reg_dealloc<num_regs>\(\);", ""),
    ("gemm_ws", "gemm_ws.cu", r"constexpr int num_regs = 240;", "constexpr int num_regs = 248;"),
    pytest.param("gemm_ws", "gemm_ws.cu", r"constexpr int num_regs = 24;", "constexpr int num_regs = 96;",
                 marks=pytest.mark.slow),
    ("gemm_cooperative_128", "gemm_cooperative_128.cu", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', ""),
    ("gemm_cluster", "gemm_cluster.cu", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', ""),
    pytest.param("attention_fwd", "attention_fwd.cu", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', "",
                 marks=pytest.mark.slow),
]  # fmt: skip


def verify(path: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["verify", str(path), "--families", "normal", *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.spread(2)
@pytest.mark.parametrize(("name", "file", "pattern", "planted"), MISTAKES, ids=lambda x: re.sub(r"\W+", "-", x)[:24])
def test_registers_that_do_not_come(name: str, file: str, pattern: str, planted: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(ROOT / "corpus" / name, folder)
    text, count = re.subn(pattern, planted, (folder / file).read_text())
    assert count == 1
    (folder / file).write_text(text)
    code, output = verify(folder)
    assert code == ExitCode.DIFFERENT, output
    assert "PT4003" in output
    assert re.search(r"setmaxnreg\.inc \d+ waits for registers, \d+ more are asked for", output), output


def test_an_original_whose_setmaxnreg_ptxas_ignores_is_right(tmp_path: Path) -> None:
    """gemm_ws does not say how many blocks share an SM, so on Hopper nobody waits; its port says it."""
    folder = tmp_path / "gemm_ws"
    shutil.copytree(ROOT / "corpus" / "gemm_ws", folder)
    source = folder / "gemm_ws.cu"
    source.write_text(source.read_text().replace("warpgroup_reg_dealloc<num_regs>();", ""))
    code, output = verify(folder, "--original-only")
    assert code == ExitCode.OK, output
    source.write_text(source.read_text().replace("__launch_bounds__(NUM_THREADS)", "__launch_bounds__(NUM_THREADS, 1)"))
    code, output = verify(folder, "--original-only")
    assert code == ExitCode.DIFFERENT, output
    assert "no warp has executed setmaxnreg.dec" in output


def test_a_setmaxnreg_that_ptxas_alone_knows_to_ignore(tmp_path: Path) -> None:
    """A call of a function in another file: ptxas says C7504, and the simulator, which cannot tell, asks it."""
    folder = tmp_path / "gemm_ws"
    shutil.copytree(ROOT / "corpus" / "gemm_ws", folder)
    source = folder / "gemm_ws.cu"
    text = source.read_text().replace("warpgroup_reg_dealloc<num_regs>();", "")
    text = text.replace("__launch_bounds__(NUM_THREADS)", "__launch_bounds__(NUM_THREADS, 1)")
    elsewhere = "extern __device__ void elsewhere(int);\n\ntemplate <int BM, int BN, int BK, int NUM_THREADS"
    text = text.replace("template <int BM, int BN, int BK, int NUM_THREADS", elsewhere, 1)
    text = text.replace("    __syncthreads();\n", "    __syncthreads();\n    if (K < 0) elsewhere(K);\n", 1)
    source.write_text(text)
    code, output = verify(folder, "--original-only")
    assert code == ExitCode.OK, output
