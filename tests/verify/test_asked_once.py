# SPDX-License-Identifier: Apache-2.0
"""What a port is judged by is compiled, run and executed once, and no further than to what refuses it."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from porter.build import dsl
from porter.build.cache import Cache
from porter.build.dsl import DslRequest, compile_dsl
from porter.build.gate import Gated
from porter.build.port_plan import PortPlan, materialize
from porter.cli import comparing
from porter.cli.comparing import Subject, compared_ports
from porter.cli.context import Session
from porter.cli.porting import port_paths
from porter.equal.contents import Contents
from porter.equal.outcome import Outcome
from porter.facts.launched import Triple
from porter.tune.staging import port_plan
from porter.verify.ahead import meanwhile
from porter.verify.backends import SimBackend
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.equality import Equality, Side, UnknownError, difference_between
from porter.verify.gate import GateOptions
from porter.verify.moved import at_any_place
from porter.verify.proof import Claim, prove

CORPUS = Path(__file__).parents[2] / "corpus"
KERNEL = """\
__global__ void kernel(float* out, const float* in, int n) {
    for (int i = threadIdx.x; i < n; i += 32) out[i] = @VALUE@;
}
"""
CASE = """\
version: 1
kernel: kernel.cu
entry: kernel
sizes: {N: 32}
other_sizes: [{N: 64}, {N: 96}]
tensors:
  a: {dtype: f32, shape: [N], role: input}
  out: {dtype: f32, shape: [N], role: output}
launch: {grid: [1, 1, 1], block: [32, 1, 1]}
params: [out, a, N]
reference: "a + 1"
families: [integers]
"""
COPY = """\
import cutlass
import cutlass.cute as cute

@cute.kernel
def kernel(a: cute.Tensor, c: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    for k in cutlass.range_constexpr(cute.size(a) // 32):
        c[i + 32 * k] = a[i + 32 * k]

@cute.jit
def run(a: cute.Tensor, c: cute.Tensor, stream):
    kernel(a, c).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)
"""
COPY_CASE = """\
version: 1
kernel: copy.py
entry: run
sizes: {N: 32}
other_sizes: [{N: 64}]
dsl: {call: [A, C, stream]}
families: [integers]
tensors:
  A: {dtype: f32, shape: [N], role: input}
  C: {dtype: f32, shape: [N], role: output}
reference: "A"
"""


# --- compiled once


def made(request: DslRequest, body: Any) -> dict[str, Any]:
    """What a compiler process answers."""
    launch = {"kernel": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "cluster": [1, 1, 1], "dynamic_smem": 0}
    told = {"ptx": "", "host": {}, "calls": [], "absent": [], "launches": [{**launch, "params": []}]}
    return {**told, "files": [str(request.source)], "directories": {}}


def test_who_asks_for_what_is_being_compiled_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, begun = list[str](), threading.Event()

    def run(request: DslRequest, body: Any) -> dict[str, Any]:
        ran.append(request.arch)
        begun.set()
        time.sleep(0.2)
        return made(request, body)

    monkeypatch.setenv("PORTER_TRUST", "1")
    monkeypatch.setattr(dsl, "_version", lambda: "any")
    monkeypatch.setattr(dsl, "_run", run)
    (tmp_path / "copy.py").write_text(COPY)
    cache = Cache(tmp_path / "cache")
    request = DslRequest(tmp_path / "copy.py", "run", "sm_90a", [])
    with meanwhile([lambda: compile_dsl(request, cache)], [lambda: compile_dsl(replace(request, arch="x"), cache)]):
        assert begun.wait(10)
        assert compile_dsl(request, cache).launches[0].kernel == "k"
    assert sorted(ran) == ["sm_90a", "x"]


def test_what_nobody_asks_for_any_more_is_not_begun() -> None:
    done, threads = list[int](), threading.active_count()

    def task(number: int) -> None:
        done.append(number)
        time.sleep(0.1)
        raise ValueError

    with meanwhile([lambda: task(1), lambda: task(2), lambda: task(3)], []):
        while not done:
            time.sleep(0.01)
    assert done == [1]
    assert threading.active_count() == threads


@pytest.mark.external
def test_programs_in_cute_dsl_are_compiled_once_and_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "copy.py").write_text(COPY)
    (tmp_path / "case.yaml").write_text(COPY_CASE)
    compiled, in_thread, ran = Counter[tuple[str, int]](), set[str](), Counter[object]()
    compile_, run = dsl._run, SimBackend.run

    def compiling(request: DslRequest, body: Any) -> dict[str, Any]:
        compiled[request.arch, body["call"][0]["shape"][0]] += 1
        in_thread.add(threading.current_thread().name)
        return compile_(request, body)

    def running(self: SimBackend, kernel: BuiltKernel, problem: Any, launch: Any, images: Any) -> Any:
        options = self.options
        given = tuple(image.data.tobytes() for image in images.values())
        ran[kernel.arch, options.schedule, options.seed, options.checking, given] += 1
        return run(self, kernel, problem, launch, images)

    monkeypatch.setattr(dsl, "_run", compiling)
    monkeypatch.setattr(SimBackend, "run", running)
    plan = PortPlan(files={str(tmp_path / "copy.py"): COPY.encode()})
    found = prove(Claim(tmp_path / "copy.py", ["kernel"], plan, dsl=True), ToolkitBuilder())
    assert (found.missing, found.sizes) == ("", 2)
    assert compiled == Counter((arch, n) for arch in ("sm_90a", "sm_100a") for n in (32, 64))
    assert in_thread - {threading.main_thread().name}
    assert ran
    assert set(ran.values()) == {1}


# --- run no further


@pytest.mark.external
@pytest.mark.parametrize(("value", "runs"), [("in[i] + 2", 1), ("n > 32 ? in[i] : in[i] + 1", 0)])
def test_a_port_is_run_no_further_than_to_what_refuses_it(
    value: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.cu").write_text(KERNEL.replace("@VALUE@", "in[i] + 1"))
    for name in ("case.yaml", "other.case.yaml"):
        (tmp_path / name).write_text(CASE)
    ran, run = list[tuple[str, int]](), SimBackend.run

    def running(self: SimBackend, kernel: BuiltKernel, problem: Any, launch: Any, images: Any) -> Any:
        ran.append((kernel.arch, int(problem.sizes["N"])))
        return run(self, kernel, problem, launch, images)

    monkeypatch.setattr(SimBackend, "run", running)
    plan = PortPlan(files={str(tmp_path / "kernel.cu"): KERNEL.replace("@VALUE@", value).encode()})
    found = prove(Claim(load_case(tmp_path / "case.yaml").kernel, ["kernel"], plan), ToolkitBuilder())
    assert found.missing
    of_port = [n for arch, n in ran if arch == "sm_100a"]
    if runs:
        assert of_port == [32]
    else:
        assert of_port.count(64) == 1
        assert 96 not in of_port


# --- compared once


def test_what_is_known_of_a_port_that_was_judged_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gemm_tma.cu", "case.yaml"):
        shutil.copy(CORPUS / "gemm_tma" / name, tmp_path)
    for header in (CORPUS / "gemm_tma").glob("*.cuh"):
        shutil.copy(header, tmp_path)
    (tmp_path / "Makefile").write_text("all:\n\tnvcc -arch=sm_90a gemm_tma.cu\n")
    kernel, seen = tmp_path / "gemm_tma.cu", list[Subject]()
    session, ported = Session(), port_paths([tmp_path], compiles=False)
    assert str(tmp_path / "Makefile") in ported.elsewhere()
    monkeypatch.setattr(comparing.Comparing, "compare", lambda self, subjects: seen.extend(subjects) or [])
    compared_ports(session, ported, [Gated(str(kernel), "compiled")], GateOptions(), 1)
    judged = port_plan(session, ported, ported.changed_roots[0])
    plan = seen[0].plan_of(load_case(tmp_path / "case.yaml"))
    assert plan is not None
    assert materialize(plan, kernel) == materialize(judged, kernel)


# --- executed no more than needed


@pytest.mark.parametrize(("blocks", "is_known"), [(1024, True), (1025, False)])
def test_all_clusters_of_a_grid_of_another_shape_are_executed(blocks: int, is_known: bool) -> None:
    nothing = Outcome(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))
    looked_at, flow = list[int](), cast(Any, None)

    def left(firsts: Sequence[Triple], knows_tables: bool) -> Outcome:
        looked_at.append(len(firsts))
        return nothing

    def side(grid: Triple, cluster: Triple) -> Side:
        return Side(grid, cluster, flow, left)

    both = side((blocks, 1, 1), (1, 1, 1)), side((blocks + blocks % 2, 1, 1), (2, 1, 1))
    if is_known:
        assert difference_between(*both) == (None, 0)
        assert looked_at == [1024, 512]
    else:
        with pytest.raises(UnknownError, match="1024 clusters"):
            difference_between(*both)


def test_a_cluster_without_work_asks_for_no_memory() -> None:
    machine: Any = SimpleNamespace(blocks=[0, 1], launched=SimpleNamespace(moved=128))
    contents = Contents(machine)
    assert not {"shared", "_tensor"} & vars(contents).keys()
    shapes = contents.shared.shape, contents.tensor.shape
    assert shapes[0][0] == shapes[1][0] == 2
    assert bool((contents.shared == contents.undefined).all())
    contents.shared[1, 3] = 7
    assert contents.shared[1, 3] == 7


def test_an_original_that_depends_on_where_memory_begins_is_asked_first_at_other_sizes() -> None:
    asked, why = list[str](), {"original": "it leaves something else", "port": "it leaves something else"}

    def party(program: str) -> Any:
        def depends(moved: int) -> tuple[str, int | None]:
            asked.append(program)
            return why[program], None

        return SimpleNamespace(program=program, flow=None, launched_at=lambda first: launched, depends=depends)

    launched = SimpleNamespace(dynamic_alignment=16)
    equal, known = Equality("kernel", "equal", ("all",), 128, 0.0), set[int]()
    both = party("original"), party("port")
    assert at_any_place(equal, *both, (), known) is equal
    assert at_any_place(equal, *both, (), known) is equal
    assert asked == ["port", "original", "original"]
    why["original"] = ""
    assert at_any_place(equal, *both, (), known).status == "unknown"
    assert asked[3:] == ["original", "port"]
