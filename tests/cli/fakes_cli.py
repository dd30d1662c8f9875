# SPDX-License-Identifier: Apache-2.0
"""The command line with stand-ins for compiler, simulator and port engine."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from click.testing import CliRunner, Result

from porter.build.nvcc import CompiledPtx
from porter.build.ptxas import Resources
from porter.cli.main import main
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups
from porter.ptx import ast
from porter.report.json import schema
from porter.verify.arguments import MapValue, Scalar
from porter.verify.backends import RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image

CASE = """\
version: 1
kernel: gemm.cu
entry: gemm
constants: {BM: 64, BN: 64}
sizes: {M: 64, N: 128, K: 64}
other_sizes: [{M: 128}]
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
launch: {grid: [N / BN, M / BM, 1], block: [128, 1, 1]}
params: [A, B, C, M, N, K]
reduction: K
reference: "A @ B.T"
"""

KERNEL = """\
#include "mma.cuh"
extern "C" __global__ void gemm(const half* A, const half* B, float* C, int M, int N, int K) { HOPPER_MMA(); }
"""
HEADER = "#define HOPPER_MMA() wait()\n"


def porter(*args: object, code: int | None = 0, env: dict[str, str] | None = None) -> Result:
    """Run a command and check its exit code; nothing may ever escape as an exception."""
    result = CliRunner().invoke(main, [str(a) for a in args], env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    if code is not None:
        assert result.exit_code == code, result.output
    return result


@functools.cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    """Of a shipped schema, which is itself checked once only: that takes longer than a document does."""
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    return jsonschema.Draft202012Validator(schema(kind))


def porter_json(*args: object, code: int = 0) -> dict[str, Any]:
    """The JSON document of a command, checked against its shipped schema."""
    result = porter("--format", "json", *args, code=code)
    document = json.loads(result.stdout)
    _validator(document["kind"]).validate(document)
    assert document["exit_code"] == code
    return document


def project(folder: Path, case: str = CASE) -> Path:
    """A kernel with a header and its case; returns the kernel's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mma.cuh").write_text(HEADER)
    (folder / "gemm.cu").write_text(KERNEL)
    (folder / "case.yaml").write_text(case)
    return folder / "gemm.cu"


@dataclass
class FakePort:
    """What the engine answers: HOPPER becomes BLACKWELL in every file."""

    sources: SourceSet
    files: dict[str, bytes]
    groups: list[EditGroup]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK
    kernels: list[str] = field(default_factory=list)
    build_files: dict[str, bytes] = field(default_factory=dict)


def fake_port_sources(sources: SourceSet, options: Any) -> FakePort:
    old = sources.sources()
    edits = []
    for path, text in old.items():
        at = text.find(b"HOPPER")
        while at >= 0:
            edits.append(Edit(path, Span(at, at + 6), b"BLACKWELL"))
            at = text.find(b"HOPPER", at + 1)
    groups = [EditGroup("PTR900", "rename", Safety.SAFE, tuple(edits), "a test")] if edits else []
    if options.ignore:
        groups = []
    if any(b"UNPORTABLE" in text for text in old.values()):
        left = Diagnostic(Code.WGMMA_FORM, Location(sources.root, 1, 1), {"what": "a test"})
        return FakePort(sources, old, [], [left], ExitCode.UNPORTED)
    return FakePort(sources, apply_groups(old, groups), groups)


Kernel = Callable[[dict[str, np.ndarray]], None]


def right(t: dict[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        t["C"][:] = t["A"].astype("f8") @ t["B"].astype("f8").T


def zero(t: dict[str, np.ndarray]) -> None:
    t["C"][:] = 0


class FakeBuilder:
    """Builds anything; a source that says BROKEN is refused by the compiler."""

    def __init__(self, toolkit: Any = None) -> None:
        pass

    def build(self, problem: Any, source: Path, arch: str) -> BuiltKernel:
        if "BROKEN" in source.read_text():
            where = Location(str(source), 2, 1)
            raise PorterError(Code.NVCC_ERROR, where, path=str(source), arch=arch, text="expected a `;`")
        params = []
        for i, argument in enumerate(problem.arguments):
            size, kind = (128, "b8") if isinstance(argument, MapValue) else (8, "u64")
            size, kind = (4, "u32") if isinstance(argument, Scalar) else (size, kind)
            params.append(ast.Param(f"p{i}", kind, size, min(size, 64)))
        function = ast.Function("gemm", True, tuple(params), (), ())
        return BuiltKernel(arch, "gemm", ast.Module((9, 0), arch, 64, (), (function,)), source.read_text())


class FakeBackend:
    """`kernels` by architecture: a function on tensors, or a run status."""

    name = "sim"
    guard = 0
    arithmetic = "float64"

    def __init__(self, original: Any = right, port: Any = right) -> None:
        self.kernels = {"sm_90a": original, "sm_100a": port}
        self.sources: list[str] = []

    def run(self, kernel: BuiltKernel, problem: Any, launch: Any, images: Any) -> RunResult:
        self.sources.append(kernel.ptx)
        function = self.kernels[kernel.arch]
        if isinstance(function, str):
            return RunResult(function, (), images)  # type: ignore[arg-type]
        arrays = {name: image.elements() for name, image in images.items()}
        function(arrays)
        after = {
            name: Image(image.tensor, 0, np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8))
            for name, image in images.items()
        }
        return RunResult("ok", (), after, warp_instructions=10)


def fake_compiled(arch: str, registers: int) -> CompiledPtx:
    return CompiledPtx("", "gemm", ("gemm",), arch, "", (), Resources(registers, barriers=1))
