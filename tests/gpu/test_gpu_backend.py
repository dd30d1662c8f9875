# SPDX-License-Identifier: Apache-2.0
"""The GPU backends with a GPU process that has no GPU: what is run where, and what becomes of failures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from porter.build.ptxas import Assembled
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, PorterError
from porter.ptx.parser import parse_module
from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.choose_backend import make_backend
from porter.verify.gpu import backend as module
from porter.verify.gpu import emulation
from porter.verify.gpu.backend import AutoBackend, GpuBackend
from porter.verify.gpu.process import GpuProcess
from porter.verify.images import make_image, stray_write
from porter.verify.problem import Problem, bind
from porter.verify.settings import GpuOptions, SimOptions

CHILD = str(Path(__file__).parent / "fake_gpu_child.py")
CASE = """version: 1
kernel: k.cu
entry: k
sizes: {N: 4}
tensors:
  C: {dtype: s32, shape: [N], role: output}
launch: {grid: [1], block: [32]}
params: [C]
reduction: N
reference: "np.zeros(4)"
accumulate: f32
"""
PTX = """.version 9.0
.target %s
.address_size 64
.visible .entry k(.param .u64 c)
{
  .reg .b32 %%r<4>;
  %s
  ret;
}
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 128;"
Make = Callable[..., GpuBackend]


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "case.yaml").write_text(CASE)
    return bind(load_case(tmp_path / "case.yaml"))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    processes: list[GpuProcess] = []
    done = Assembled({}, (), "", b"cubin")
    monkeypatch.setattr(module, "assemble", lambda *a, **k: done)
    monkeypatch.setattr(emulation, "assemble", lambda *a, **k: done)
    monkeypatch.setattr(emulation, "library_ptx", lambda *a: ".address_size 64\n")
    toolkit = Toolkit(Path(), Path(), Path(), Path(), Path(), (13, 0), "", "")

    def made(behaviour: str = "good", emulate: bool = True, seconds: float = 30.0) -> GpuBackend:
        process = GpuProcess([sys.executable, CHILD, behaviour])
        processes.append(process)
        return GpuBackend(toolkit, process, GpuOptions(seconds=seconds), emulate=emulate)

    yield made
    for process in processes:
        process.__exit__()


def kernel(arch: str, body: str = "") -> BuiltKernel:
    text = PTX % (arch, body)
    return BuiltKernel(arch, "k", parse_module(text), text)


def run(backend: GpuBackend, problem: Problem, built: BuiltKernel) -> RunResult:
    images = {n: make_image(t, None, backend.guard) for n, t in problem.tensors.items()}
    return backend.run(built, problem, problem.launch, images)


def test_the_original_runs_natively(make: Make, problem: Problem) -> None:
    result = run(make(), problem, kernel("sm_90a"))
    assert (result.status, result.where) == ("ok", "Fake, native")
    assert result.stats == {"kernel_ms": 1.25}
    assert (result.after["C"].elements() == 0x07070707).all()


def test_the_port_is_emulated(make: Make, problem: Problem) -> None:
    result = run(make(), problem, kernel("sm_100a", ALLOC))
    assert (result.status, result.where) == ("ok", "Fake, emulated (deferred)")


def test_the_native_backend_says_who_can(make: Make, problem: Problem) -> None:
    with pytest.raises(PorterError) as raised:
        run(make(emulate=False), problem, kernel("sm_100a"))
    assert "--backend hopper" in raised.value.diagnostic.message


def test_a_blackwell_gpu_runs_the_port_and_not_the_original(make: Make, problem: Problem) -> None:
    backend = make("blackwell", emulate=False)
    assert run(backend, problem, kernel("sm_100a", ALLOC)).where == "Fake, native"
    with pytest.raises(PorterError):
        run(backend, problem, kernel("sm_90a"))


def test_auto_leaves_the_original_to_the_simulator_on_blackwell(make: Make, problem: Problem) -> None:
    auto = AutoBackend(make("blackwell"), SimOptions())
    images = {n: make_image(t, None, auto.guard) for n, t in problem.tensors.items()}
    assert auto.run(kernel("sm_90a"), problem, problem.launch, images).where == "sim"
    assert auto.run(kernel("sm_100a"), problem, problem.launch, images).where == "Fake, native"
    assert auto.sim.arithmetic == "exact"


def test_a_write_outside_is_seen_in_the_guard(make: Make, problem: Problem) -> None:
    backend = make("stray")
    before = make_image(problem.tensors["C"], None, backend.guard)
    result = run(backend, problem, kernel("sm_90a"))
    assert stray_write(before, result.after["C"].data) == "16 bytes changed, the first 16 bytes before its start"
    assert np.all(result.after["C"].elements() == -1)


def test_what_cannot_be_emulated_gives_no_verdict(make: Make, problem: Problem) -> None:
    four_bits = "{ .reg .b8 b; .reg .f32 a; mov.f32 a, 0f3F800000; cvt.rn.satfinite.e2m1x2.f32 b, a, a; }"
    result = run(make(), problem, kernel("sm_100a", four_bits))
    assert result.status == "incomplete"
    assert result.findings[0].code is Code.CANNOT_EMULATE
    assert "cvt.rn.satfinite.e2m1x2.f32" in result.findings[0].message


def test_a_trap_is_a_finding_with_its_place(make: Make, problem: Problem) -> None:
    result = run(make("trap"), problem, kernel("sm_100a", ALLOC))
    (finding,) = result.findings
    assert result.status == "error"
    assert finding.code is Code.SIM_TMEM_UNALLOCATED
    assert "32 columns from column 96" in finding.message
    assert "tcgen05.alloc" in finding.message
    assert (finding.block, finding.warp, finding.lane) == ((1, 2, 0), 1, 5)
    assert finding.ptx_line == 7


def test_tensor_memory_that_is_not_given_back(make: Make, problem: Problem) -> None:
    result = run(make("leak"), problem, kernel("sm_100a", ALLOC))
    assert result.status == "error"
    assert result.findings[0].code is Code.SIM_TMEM_LEAK
    assert "128 columns" in result.findings[0].message


@pytest.mark.parametrize(
    ("behaviour", "code", "status"),
    [
        ("hang", Code.GPU_TIMEOUT, "error"),
        ("die", Code.GPU_PROCESS_ENDED, "incomplete"),
        ("fault", Code.GPU_ERROR, "error"),
        ("refuse", Code.GPU_REFUSED, "incomplete"),
    ],
)
def test_failures_of_the_process(make: Make, problem: Problem, behaviour: str, code: Code, status: str) -> None:
    result = run(make(behaviour, seconds=0.5 if behaviour == "hang" else 30), problem, kernel("sm_90a"))
    assert result.status == status
    assert result.findings[0].code is code


def test_auto_is_the_simulator_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = Toolkit(Path(), Path(), Path(), Path(), Path(), (13, 0), "", "")
    monkeypatch.setattr(module, "find_toolkit", lambda path: toolkit)
    monkeypatch.setattr(module, "GpuProcess", lambda: GpuProcess([sys.executable, CHILD, "unavailable"]))
    assert isinstance(make_backend("auto", SimOptions()), SimBackend)
    for name in ("gpu", "hopper"):
        with pytest.raises(PorterError) as raised:
            make_backend(name, SimOptions())
        assert raised.value.diagnostic.code is Code.BACKEND_UNAVAILABLE
        assert "no NVIDIA GPU" in raised.value.diagnostic.message
