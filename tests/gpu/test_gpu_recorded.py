# SPDX-License-Identifier: Apache-2.0
"""Recorded arguments and memory on a GPU backend: addresses and tensor maps are those of the run."""

from __future__ import annotations

import dataclasses
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from porter.build.ptxas import Assembled
from porter.build.toolchain import Toolkit
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.verify.arguments import MapValue, Pointer, Raw
from porter.verify.bound_maps import BoundMap
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.dsl import RecordedLaunch
from porter.verify.gpu import backend as module
from porter.verify.gpu.backend import GpuBackend
from porter.verify.gpu.process import GpuProcess
from porter.verify.images import make_image, placed, recorded_again
from porter.verify.inputs import generate
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.settings import GpuOptions

CHILD = str(Path(__file__).parent / "fake_gpu_child.py")
RECORDED = 0x7F00_1234_0000
CASE = """version: 1
kernel: k.cubin
entry: k
sizes: {}
tensors:
  T: {dtype: u8, shape: [32], role: input, before: t.bin, contains: [{at: 8, address_of: C, byte_offset: 4}]}
  C: {dtype: s32, shape: [4], role: inout, before: c.bin, after: d.bin}
launch: {grid: [1], block: [32]}
params: [{bytes: "0000341200000000", contains: [{at: 0, address_of: C}]}, T]
reference: {recorded: {arch: sm_90a}}
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    (tmp_path / "k.cubin").write_bytes(b"binary")
    (tmp_path / "t.bin").write_bytes(bytes(8) + struct.pack("<Q", RECORDED + 4) + bytes(16))
    (tmp_path / "c.bin").write_bytes(bytes(16))
    (tmp_path / "d.bin").write_bytes(bytes([7]) * 16)
    (tmp_path / "case.yaml").write_text(CASE)
    return bind(load_case(tmp_path / "case.yaml"))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "assemble", lambda *a, **k: Assembled({}, (), "", b"cubin"))
    toolkit = Toolkit(Path(), Path(), Path(), Path(), Path(), (13, 0), "", "")
    with GpuProcess([sys.executable, CHILD, "good"]) as process:
        yield GpuBackend(toolkit, process, GpuOptions(seconds=30), emulate=True)


def test_a_binary_with_recorded_arguments(backend: GpuBackend, problem: Problem) -> None:
    kernel = BuiltKernel("sm_90a", "k", ast.Module((9, 0), "sm_90a", 64, (), ()), "", cubin=b"binary")
    inputs = generate(problem, None, 0)  # type: ignore[arg-type]
    images = {n: make_image(t, inputs[n], backend.guard) for n, t in problem.tensors.items()}
    result = backend.run(kernel, problem, problem.launch, images)
    assert result.status == "ok", result.findings
    # The fake kernel writes where its first parameter points: that was moved to this run's tensor.
    assert (result.after["C"].elements() == 0x07070707).all()
    assert np.array_equal(result.after["T"].elements(), inputs["T"])


def test_arguments_of_host_code_are_moved(backend: GpuBackend, problem: Problem) -> None:
    text = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .align 64 .b8 m[128], .param .u64 c)\n{\n  ret;\n}\n"
    )
    map_ = TensorMap(TensorMapType.INT32, 0, (4,), (), (4,))
    recorded = RecordedLaunch(
        "k",
        LaunchValues((1, 1, 1), (32, 1, 1)),
        (Raw(bytes(128), ((0, MapValue("m")),)), Raw(struct.pack("<Q", 5), ((0, Pointer("C", 0)),))),
        {"m": BoundMap("m", "C", map_)},
    )
    kernel = BuiltKernel("sm_90a", "k", parse_module(text), text, recorded=recorded)
    plain = dataclasses.replace(problem, arguments=())
    images = {n: make_image(t, None, backend.guard) for n, t in problem.tensors.items()}
    result = backend.run(kernel, plain, recorded.launch, images)
    assert result.status == "ok", result.findings
    # The fake driver's tensor maps begin with their address, so the first parameter leads to C here too.
    assert (result.after["C"].elements() == 0x07070707).all()


def test_memory_is_moved_there_and_back(problem: Problem) -> None:
    data = np.frombuffer((problem.case.path.parent / "t.bin").read_bytes(), np.uint8)
    image = make_image(problem.tensors["T"], data, 64)
    before = placed(image, lambda what: 0x5000 + what.offset, lambda what: b"")  # type: ignore[union-attr]
    assert before[64 + 8 : 64 + 16].tobytes() == struct.pack("<Q", 0x5004)
    assert recorded_again(image, before, before.copy()).tobytes() == image.data.tobytes()
    written = before.copy()
    written[64 + 8] = 0xEE  # What a kernel wrote stays.
    assert recorded_again(image, before, written)[64 + 8] == 0xEE
