# SPDX-License-Identifier: Apache-2.0
"""Small kernels of `check_ptx` as setups for mutation."""

from __future__ import annotations

from pathlib import Path

from check_ptx import HEADER

from porter.ptx.parser import parse_module
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.mutant_runs import Setup
from porter.verify.mutation import MutantRow, MutationResult, mutate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

CASE = """version: 1
kernel: kernel.cu
entry: kernel
sizes: {N: 2048, THREADS: 128}
tensors:
  source: {dtype: f16, shape: [N], role: input}
  out: {dtype: u8, shape: [65536], role: output}
launch: {grid: [1, 1, 1], block: [THREADS, 1, 1], dynamic_smem: 8192}
params: [source, out]
reference: "source"
"""


def setup(folder: Path, body: str, threads: int = 128, target: str = "sm_100a") -> Setup:
    """A kernel with 4 KiB of numbers and a 64 KiB output."""
    (folder / "kernel.cu").write_text("")
    (folder / "case.yaml").write_text(CASE)
    problem = bind(load_case(folder / "case.yaml"), {"THREADS": threads})
    inputs = generate(problem, choose(None, problem)[0], 0)
    images = {name: make_image(t, inputs.get(name), 0) for name, t in problem.tensors.items()}
    text = HEADER.format(target=target) + body + "\n}\n"
    kernel = BuiltKernel(target, "kernel", parse_module(text), text)
    return Setup("", kernel, problem, problem.launch, images)


def run(folder: Path, body: str, threads: int = 128) -> MutationResult:
    result = mutate([setup(folder, body, threads)], SimOptions())
    assert result.baseline.status == "ok", result.baseline.findings
    assert not result.baseline.hazards
    return result


def row(result: MutationResult, how: str, opcode: str, nth: int = 1) -> MutantRow:
    (found,) = [
        r for r in result.rows if r.mutant.how == how and r.mutant.instruction.opcode == opcode and r.mutant.nth == nth
    ]
    return found
