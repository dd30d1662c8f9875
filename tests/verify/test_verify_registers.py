# SPDX-License-Identifier: Apache-2.0
"""Kernels whose setmaxnreg do not fit each other: plain `porter verify PATH` must not say clean.

Needs a CUDA compiler. The mistakes are planted in copies of corpus kernels, so that original and port have them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept

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

# Kernel, what stands there, what takes its place.
MISTAKES = [
    ("gemm_ws", r"warpgroup_reg_dealloc<num_regs>\(\);", ""),
    ("gemm_ws", r"constexpr int num_regs = 240;", "constexpr int num_regs = 248;"),
    pytest.param("gemm_ws", r"constexpr int num_regs = 24;", "constexpr int num_regs = 96;",
                 marks=pytest.mark.slow),
    ("gemm_cooperative_128", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', ""),
    ("gemm_cluster", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', ""),
    pytest.param("attention_fwd", r'asm volatile\("setmaxnreg\.dec[^;]*;[^;]*;', "",
                 marks=pytest.mark.slow),
]  # fmt: skip


def changed(name: str, *changes: tuple[str, str]) -> Path:
    """A corpus kernel's folder in which each pattern, which stands there once, is replaced."""
    files = {p.name: p.read_text() for p in (ROOT / "corpus" / name).iterdir() if p.is_file()}
    for pattern, instead in changes:
        files[f"{name}.cu"], count = re.subn(pattern, instead, files[f"{name}.cu"])
        assert count == 1
    return kept(files)


def verify(path: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["verify", "--style", "compat", str(path), "--families", "normal", *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.slow
@pytest.mark.spread(4)
@pytest.mark.parametrize(("name", "pattern", "planted"), MISTAKES, ids=lambda x: re.sub(r"\W+", "-", x)[:24])
def test_registers_that_do_not_come(name: str, pattern: str, planted: str) -> None:
    code, output = verify(changed(name, (pattern, planted)))
    assert code == ExitCode.DIFFERENT, output
    assert "PT4003" in output
    assert re.search(r"setmaxnreg\.inc \d+ waits for registers, \d+ more are asked for", output), output


NO_DEALLOC = (r"warpgroup_reg_dealloc<num_regs>\(\);", "")
ONE_BLOCK = (r"__launch_bounds__\(NUM_THREADS\)", "__launch_bounds__(NUM_THREADS, 1)")
ALONE = ("--original-only", "--sizes", "default")


@pytest.mark.slow
def test_an_original_whose_setmaxnreg_ptxas_ignores_is_right() -> None:
    """gemm_ws does not say how many blocks share an SM, so on Hopper nobody waits; its port says it."""
    code, output = verify(changed("gemm_ws", NO_DEALLOC), *ALONE)
    assert code == ExitCode.OK, output
    code, output = verify(changed("gemm_ws", NO_DEALLOC, ONE_BLOCK), *ALONE)
    assert code == ExitCode.DIFFERENT, output
    assert "no warp has executed setmaxnreg.dec" in output


def test_a_setmaxnreg_that_ptxas_alone_knows_to_ignore() -> None:
    """A call of a function in another file: ptxas says C7504, and the simulator, which cannot tell, asks it."""
    head = "template <int BM, int BN, int BK, int NUM_THREADS"
    folder = changed(
        "gemm_ws",
        NO_DEALLOC,
        ONE_BLOCK,
        (head, "extern __device__ void elsewhere(int);\n\n" + head),
        (r"    __syncthreads\(\);\n", "    __syncthreads();\n    if (K < 0) elsewhere(K);\n"),
    )
    code, output = verify(folder, *ALONE)
    assert code == ExitCode.OK, output
