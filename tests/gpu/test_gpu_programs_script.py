# SPDX-License-Identifier: Apache-2.0
"""What `scripts/gpu_programs.py` makes of programs and of what they print."""

from __future__ import annotations

import pytest
from scripts_loaded import script

programs = script("scripts/gpu_programs.py")

PRINTED = """KERNEL 2
Average elapsed time: (0.004) s, performance: (  250.0) TFLOPS. size: (8192).
KERNEL 3
Divergence! Should -0.26, Is 12.00 (Diff 12.26) at 7
~~~~ Failed to pass the correctness verification against cuBLAS. ~~~~
Average elapsed time: (0.004) s, performance: (  250.0) TFLOPS. size: (8192).
KERNEL 4
[CUDA ERROR] at file matmul.cu:200:
"""


def test_a_kernel_passed_that_was_timed_and_said_nothing() -> None:
    assert programs.checks(PRINTED.splitlines()) == ({2, 3}, {3})


def test_main_runs_the_kernels_that_are_asked_for() -> None:
    main = """  int repeat_times = 8;
  for (int kernel_num : {0, 1, 12}) {
    // for (int kernel_num : {0, 11}) {
    run(kernel_num);
"""
    text = programs.edited(main, programs.CHECKS)
    assert "repeat_times = 0" in text
    assert "for (int kernel_num : chosen) {\n    // for (int kernel_num : {0, 11}) {\n    run(kernel_num);" in text
    with pytest.raises(ValueError, match="nothing like"):
        programs.edited("int main() {}\n", programs.CHECKS)


def test_another_kernel_of_simplegemm() -> None:
    text = programs.edited(
        '#include "pingpong.cu"\nint main() { run_pingpong(A); run_pingpong(B); }\n',
        programs.other_gemm("gemm.cu", "run_gemm"),
    )
    assert text == '#include "gemm.cu"\nint main() { run_gemm(A); run_gemm(B); }\n'


def test_each_kernel_is_planned_in_both_modes() -> None:
    plan = [(program.name, mode) for program, mode in programs.planned(())]
    assert plan[-2:] == [("fast.cu", "deferred"), ("fast.cu-checks", "eager")]
    assert {(name, mode) for name, mode in plan if "simple" in name} == {
        (f"simplegemm-{kernel}", mode) for kernel in ("pingpong", "gemm", "stmatrix") for mode in programs.MODES
    }
    chosen = programs.planned(["fast.cu:eager", "simplegemm-gemm"])
    assert [(p.name, mode) for p, mode in chosen] == [
        ("fast.cu", "eager"),
        ("simplegemm-gemm", "deferred"),
        ("simplegemm-gemm", "eager"),
    ]


@pytest.mark.parametrize("line", ["   -0.25   1.00  ...", "...", "Cref:", "A:", "     nan   0.00 ..."])
def test_slabs_of_matrices_are_left_out(line: str) -> None:
    assert programs._SLAB.match(line)


@pytest.mark.parametrize("line", ["about to run gemm", "CUDA error at main.cu:1: x", "Failed tolerance check at idx"])
def test_what_a_program_says_is_not(line: str) -> None:
    assert not programs._SLAB.match(line)
