# SPDX-License-Identifier: Apache-2.0
"""Conditionals that choose between chips: the port of a Hopper kernel takes Hopper's arm."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources

FENCE = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'


def port(tmp_path: Path, arms: str, before: str = "") -> PortResult:
    path = tmp_path / "kernel.cu"
    path.write_text(f"{before}__device__ int g() {{\n{arms}#endif\n}}\n__device__ void f() {{ {FENCE} }}\n")
    return port_sources(load_sources(path))


def text(result: PortResult) -> str:
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    return next(iter(result.files.values())).decode()


@pytest.mark.parametrize(
    ("arms", "expected"),
    [
        ("#if __CUDA_ARCH__ >= 1000\n#elif __CUDA_ARCH__ >= 900\n", ["#if 0 && (__CUDA_ARCH__ >= 1000)\n"]),
        ("#if __CUDA_ARCH__ >= 1000\n#else\n", ["#if 0 && (__CUDA_ARCH__ >= 1000)\n"]),
        ("#if defined(__CUDA_ARCH__) and __CUDA_ARCH__ >= 1000\n", ["#if 0 && (defined(__CUDA_ARCH__) and"]),
        ("#if __CUDA_ARCH__ == 1000\n#elif __CUDA_ARCH__ == 900\n", ["#if 0 && (__CUDA_ARCH__ == 1000)\n"]),
        (
            "#if __CUDA_ARCH__ >= 1000 // new\n#elif __CUDA_ARCH__ >= 900\n",
            ["#if 0 && (__CUDA_ARCH__ >= 1000) // new\n"],
        ),
        (
            "#if A\n#elif __CUDA_ARCH__ >= 1200\n#elif __CUDA_ARCH__ >= 900\n",
            ["#if A\n", "#elif 0 && (__CUDA_ARCH__ >= 1200)\n"],
        ),
        (
            "#if __CUDA_ARCH__ >= 1200\n#elif __CUDA_ARCH__ >= 1000\n#elif __CUDA_ARCH__ >= 900\n",
            ["#if 0 && (__CUDA_ARCH__ >= 1200)\n", "#elif 0 && (__CUDA_ARCH__ >= 1000)\n"],
        ),
        (
            "#if defined(__CUDA_ARCH_FEAT_SM100_ALL)\n#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)\n",
            ["#if 0 && (defined(__CUDA_ARCH_FEAT_SM100_ALL))\n", "#elif defined(__CUDA_ARCH_FEAT_SM100_ALL)\n"],
        ),
        (
            "#if (defined(__CUDA_ARCH__) and (__CUDA_ARCH__ >= 1000))\n#elif (__CUDA_ARCH__ >= 900)\n",
            ["#if 0 && ((defined(__CUDA_ARCH__) and (__CUDA_ARCH__ >= 1000)))\n", "#elif (__CUDA_ARCH__ >= 1000)\n"],
        ),
        (
            "#if __CUDA_ARCH__ >= 900\n#if __CUDA_ARCH__ >= 1000\n#elif __CUDA_ARCH__ >= 900\n#endif\n",
            ["#if __CUDA_ARCH__ >= 1000\n#if 0 && (__CUDA_ARCH__ >= 1000)\n"],
        ),
        (
            "#  if __CUDA_ARCH__ >= \\\n  1000\n#elif __CUDA_ARCH__ >= 900\n",
            ["#  if 0 && (__CUDA_ARCH__ >= \\\n  1000)\n"],
        ),
    ],
)
def test_arms_in_front_of_hoppers_are_closed(tmp_path: Path, arms: str, expected: list[str]) -> None:
    got = text(port(tmp_path, arms))
    assert not [e for e in expected if e not in got], got


@pytest.mark.parametrize(
    "arms",
    [
        "#if __CUDA_ARCH__ >= 900\n#elif __CUDA_ARCH__ >= 800\n",
        "#if __CUDA_ARCH__ < 1000\n#elif __CUDA_ARCH__ >= 900\n",
        "#if !(__CUDA_ARCH__ >= 1000)\n#elif __CUDA_ARCH__ >= 900\n",
        "#if __CUDA_ARCH__ >= 900\n#elif __CUDA_ARCH__ >= 1000\n",
    ],
)
def test_other_arms_stay(tmp_path: Path, arms: str) -> None:
    assert "0 &&" not in text(port(tmp_path, arms))


def test_arms_that_kernels_for_blackwell_need_are_refused(tmp_path: Path) -> None:
    own = '__global__ void k() { asm volatile("tcgen05.fence::before_thread_sync;"); }\n'
    result = port(tmp_path, "#if __CUDA_ARCH__ >= 1000\n#elif __CUDA_ARCH__ >= 900\n", own)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed
    assert "beside kernels for Blackwell" in "\n".join(d.message for d in result.diagnostics)
