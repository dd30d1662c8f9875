# SPDX-License-Identifier: Apache-2.0
"""What is found of an original, by PTX or by a run, is found once for all ports that are held against it; and a port is
looked at no further than to what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from porter.build.port_plan import PortPlan
from porter.verify import equality, originals, refusals
from porter.verify.backends import RunResult, SimBackend
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.dsl import is_compiled_in
from porter.verify.inputs import choose
from porter.verify.launching import launch_of
from porter.verify.originals import once
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.proof import Claim, prove
from porter.verify.proved import prove_case
from porter.verify.proving import OF_PROGRAM, Proof, Prover
from porter.verify.runs import Runs
from porter.verify.settings import SimOptions
from porter.verify.sweep import Schedule
from porter.verify.thresholds import Thresholds
from porter.verify.trial import Trial

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
"""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    originals.forget()
    yield
    originals.forget()


def written(folder: Path) -> Path:
    (folder / "kernel.cu").write_text(KERNEL.replace("@VALUE@", "in[i] + 1"))
    (folder / "case.yaml").write_text(CASE)
    return folder / "case.yaml"


def plan(folder: Path, value: str) -> PortPlan:
    return PortPlan(files={str(folder / "kernel.cu"): KERNEL.replace("@VALUE@", value).encode()})


@pytest.mark.external
def test_an_original_is_looked_at_once_for_all_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, made = load_case(written(tmp_path)), list[str]()
    left, proved, ran = equality.left_by_clusters, Prover.prove, Thresholds._ran

    def proving(self: Prover, *asked: Any) -> Proof:
        made.append(f"proof of {self._program}")
        return proved(self, *asked)

    def running(self: Thresholds, problem: Problem) -> object:
        made.append("sides of port" if self.program.plan else "sides of original")
        return ran(self, problem)

    monkeypatch.setattr(equality, "left_by_clusters", lambda who, *rest: made.append(who) or left(who, *rest))
    monkeypatch.setattr(Prover, "prove", proving)
    monkeypatch.setattr(Thresholds, "_ran", running)
    counts = []
    for value in ("1 + in[i]", "in[i] - -1"):
        made.clear()
        found = prove_case(case, plan(tmp_path, value), ToolkitBuilder(), case.all_sizes(), 20, False, beyond=True)
        assert found.equality is not None
        assert found.equality.status == "equal", found.equality.why
        assert len(found.equality.looked_at) > 3
        counts.append(Counter(made))
    first, second = counts
    assert [who for who in second if "original" in who] == []
    assert first["original"] == first["port"] == second["port"] > 3
    assert second["proof of port"] > 1


@pytest.mark.external
def test_a_port_that_differs_is_looked_at_at_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, made = load_case(written(tmp_path)), list[str]()
    left = equality.left_by_clusters
    monkeypatch.setattr(equality, "left_by_clusters", lambda who, *rest: made.append(who) or left(who, *rest))
    found = prove_case(case, plan(tmp_path, "in[i] + 2"), ToolkitBuilder(), case.all_sizes(), 20, False, beyond=True)
    assert found.differs
    assert made.count("port") == 1


@pytest.mark.external
def test_no_size_is_looked_for_behind_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, asked = load_case(written(tmp_path)), list[object]()
    monkeypatch.setattr(refusals, "sizes_beyond", lambda *how: asked.append(how) or [])
    sizes, builder = case.all_sizes(), ToolkitBuilder()
    assert not refusals.refusal(case, plan(tmp_path, "1 + in[i]"), builder, sizes, 20, False)
    assert len(asked) == 1
    assert "on PTX at N=32" in refusals.refusal(case, plan(tmp_path, "in[i] + 2"), builder, sizes, 20, False)
    assert len(asked) == 1


@pytest.mark.external
def test_other_schedules_run_the_port_alone_on_the_same_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := written(tmp_path)).write_text(CASE + "families: [integers]\n")
    case, made, given = load_case(path), Counter[tuple[str, str]](), defaultdict[str, set[bytes]](set)
    run = SimBackend.run

    def noted(self: SimBackend, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Any) -> RunResult:
        made[kernel.arch, self.options.schedule] += 1
        given[self.options.schedule].add(images["a"].data.tobytes())
        return run(self, kernel, problem, launch, images)

    monkeypatch.setattr(SimBackend, "run", noted)
    found = prove(Claim(case.kernel, ["kernel"], plan(tmp_path, "1 + in[i]")), ToolkitBuilder())
    assert (found.missing, found.sizes) == ("", 3)
    assert made["sm_90a", "random"] == 0
    # one of the first size, and two of each
    assert made["sm_100a", "random"] == 1 + 2 * 3
    assert given["random"] <= given["late"]


def test_an_original_that_does_not_end_is_run_under_each_schedule() -> None:
    class Inner(SimBackend):
        def run(self, *given: Any) -> RunResult:
            made.append(self.options.schedule)
            return RunResult(**{"status": "ok", "findings": (), "after": {}, **result})

    made, runs = list[str](), Runs()
    schedules: tuple[Schedule, ...] = ("late", "random", "late")
    problem = SimpleNamespace(arguments=(), tensor_maps={})
    kernel: Any = SimpleNamespace(ptx="", entry="kernel", bound=lambda _: problem)
    result: dict[str, Any] = {"status": "error"}
    launch: Any = None
    for schedule in schedules:
        runs.on(Inner(SimOptions(schedule=schedule)), is_judged=False).run(kernel, kernel, launch, {})
    assert made == ["late", "random"]
    made, runs, result = [], Runs(), {}
    for judged in (False, True, False):
        for schedule in schedules:
            runs.on(Inner(SimOptions(schedule=schedule)), is_judged=judged).run(kernel, kernel, launch, {})
    assert made == ["late", "random"]


@pytest.mark.external
def test_runs_are_made_once_but_for_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, made = load_case(written(tmp_path)), list[SimOptions]()
    run = SimBackend.run

    def noted(self: SimBackend, *given: Any) -> RunResult:
        made.append(self.options)
        return run(self, *given)

    monkeypatch.setattr(SimBackend, "run", noted)
    runs = Runs()
    problem = bind(case, case.sizes)
    kernel, _ = Program(case, ToolkitBuilder()).at(case.sizes)
    launch = launch_of(problem, kernel)

    def asked(family: int = 0, **options: Any) -> RunResult:
        images = Trial(problem, choose(None, problem)[family], 0, "float64")._images(0)
        return runs.on(SimBackend(SimOptions(**options))).run(kernel, problem, launch, images)

    first = asked()
    assert asked() is first
    assert len(made) == 1
    others = ({"family": 1}, {"checking": "strict"}, {"resident": 1}, {"schedule": "eager"}, {"seed": 7})
    for other in others:
        assert asked(**other) is not first
        assert asked(**other) is asked(**other)
    assert len(made) == 1 + len(others)


def test_what_weighs_too_much_goes_and_what_is_not_kept_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(originals, "MOST", 10)
    made = list[str]()

    def asked(key: str, weight: int = 4, keeps: bool = True) -> str:
        return once(key, lambda: made.append(key) or key, lambda _: weight, lambda _: keeps)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert asked(key) == key
    # the third took the place of what was not asked for since
    assert made == ["a", "b", "c", "b"]
    assert [asked("d", keeps=False) for _ in range(2)] == ["d", "d"]
    assert made.count("d") == 2


def test_no_kernel_is_compiled_to_learn_that_a_size_is_compiled_in() -> None:
    folder = Path(__file__).parents[2] / "corpus" / "dsl_gemm"
    fixed, dynamic = (bind(case, case.sizes) for case in map(load_case, sorted(folder.glob("*case.yaml"))))
    assert (fixed.case.name, dynamic.case.name) == ("dsl_gemm", "dsl_gemm:dynamic")
    assert [is_compiled_in(fixed, name) for name in ("M", "K", "BM", "nothing")] == [True, True, False, False]
    assert not is_compiled_in(dynamic, "K")
    prover = Prover("port", lambda sizes: pytest.fail("it is compiled"), Budget())
    kernel: Any = None
    assert prover._count((kernel, fixed), "K", 256, [fixed.sizes])[0].why == OF_PROGRAM
