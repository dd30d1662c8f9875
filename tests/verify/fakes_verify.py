# SPDX-License-Identifier: Apache-2.0
"""A backend whose kernels are NumPy functions, and a builder that only declares their parameters."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.verify.arguments import MapValue, Scalar
from porter.verify.backends import RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image, element_offsets
from porter.verify.outcome import RunFinding
from porter.verify.problem import LaunchValues, Problem

Kernel = Callable[[dict[str, np.ndarray]], None]

CASE = """
    version: 1
    kernel: gemm.cu
    entry: gemm
    constants: {BM: 64, BN: 64}
    sizes: {M: 64, N: 128, K: 64}
    other_sizes:
      - {M: 128}
    tensors:
      A: {dtype: bf16, shape: [M, K], role: input}
      B: {dtype: bf16, shape: [N, K], role: input}
      C: {dtype: f32, shape: [M, N], role: output}
    tensor_maps:
      map_a: {tensor: A, box: [BM, 64], swizzle: 128B}
    launch:
      grid: [N / BN, M / BM, 1]
      block: [128, 1, 1]
    params: [map_a, B, C, M, N, K]
    reduction: K
    reference: "A @ B.T"
"""


def write_case(folder: Path, text: str = CASE, kernel: str = "gemm.cu") -> Path:
    """A case file with an (empty) kernel beside it; returns the case's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / kernel).write_text('extern "C" __global__ void gemm() {}\n')
    path = folder / "case.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def module_for(problem: Problem, arch: str) -> ast.Module:
    """A module whose entry takes what the problem's arguments are."""
    params = []
    for i, argument in enumerate(problem.arguments):
        size, kind = (128, "b8") if isinstance(argument, MapValue) else (8, "u64")
        if isinstance(argument, Scalar):
            size, kind = 4, "f32" if isinstance(argument.value, float) else "u32"
        params.append(ast.Param(f"p{i}", kind, size, size if size < 64 else 64))
    function = ast.Function("gemm", True, tuple(params), (), ())
    return ast.Module((9, 0), arch, 64, (), (function,))


class FakeBuilder:
    """`refuse`: the architecture whose build fails."""

    def __init__(self, refuse: str | None = None) -> None:
        self.refuse, self.built = refuse, []

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        self.built.append((source, arch))
        if arch == self.refuse:
            raise PorterError(Code.NVCC_ERROR, path=str(source), arch=arch, text="refused")
        return BuiltKernel(arch, "gemm", module_for(problem, arch), "")


class FakeBackend:
    """Runs `original` on sm_90a and `port` on sm_100a: functions that change a dict of tensors in place.
    A function may also be the name of a run status."""

    name = "fake"
    guard = 64

    def __init__(self, original: Any, port: Any = None, arithmetic: str = "float64") -> None:
        self.functions = {"sm_90a": original, "sm_100a": port}
        self.arithmetic = arithmetic

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        function = self.functions[kernel.arch]
        after = {n: Image(i.tensor, i.guard, i.data.copy()) for n, i in images.items()}
        if isinstance(function, str):
            return RunResult(function, (RunFinding(Code.INTERNAL, "stand-in finding"),), after)
        arrays = {name: image.elements() for name, image in images.items()}
        function(arrays, after) if function.__code__.co_argcount == 2 else function(arrays)
        for name, image in after.items():
            inner = image.data[image.guard : image.guard + image.tensor.nbytes]
            inner.view(image.tensor.dtype.container)[element_offsets(image.tensor.shape, image.tensor.strides)] = (
                arrays[name]
            )
        return RunResult("ok", (), after, warp_instructions=10)


def gemm(t: dict[str, np.ndarray]) -> None:
    """The right kernel for CASE."""
    with np.errstate(all="ignore"):
        t["C"][:] = t["A"].astype("f8") @ t["B"].astype("f8").T
