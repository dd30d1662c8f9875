# SPDX-License-Identifier: Apache-2.0
"""`--style full-rate` of CuTe DSL files: the support module with M=128 MMAs where a case verified it in the same run,
else that of the compat port with the reason. Compiling and running is stood in for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_cli import porter

from porter.build.dsl import DslLeft, DslTraced
from porter.diagnostics import Code, Diagnostic
from porter.passes.dsl.outputs import DSL_STEPS, support_module
from porter.tune.choosing import Chosen
from porter.verify import proof
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

CORPUS = Path(__file__).parents[2] / "corpus"
LINE = 161
LOADS = "its loop does more than to wait for stages and to multiply"
NARROW = "operand B may be another one in the other consumer"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CORPUS / "dsl_gemm", tmp_path / "dsl_gemm")) / "dsl_gemm.py"


class Runs:
    """Stands in for compiler and simulator. Cases whose name is in `narrow` are traced with M=64."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verdict: Verdict = Verdict.CLEAN, *narrow: str) -> None:
        self.verdict, self.narrow = verdict, narrow
        self.releases, self.has = True, ("release",)
        self.wanted: list[Any] = []
        self.built: list[tuple[str, bytes]] = []
        monkeypatch.setattr(proof, "verify_cases", self.run)
        monkeypatch.setattr(proof, "build_port", self.build)
        monkeypatch.setattr("porter.cli.full_rate.slower", lambda *compared: None)
        monkeypatch.setattr("porter.tune.search.shared", lambda session, ported, make: Chosen(ported))
        monkeypatch.setattr("porter.tune.staging._with_step", lambda *asked: None)

    def build(self, problem: Any, plan: Any, builder: Any) -> Any:
        name = problem.case.path.name
        module = next(text for path, text in plan.files.items() if path.endswith("porter_dsl.py"))
        self.built.append((name, module))
        source, knows = problem.case.kernel, b"class _Release" in module
        marks = {"release": b"class _Release", "mma-thread": b"class _Apart", "double-buffer": b"BUFFERS = 2",
                 "pair": b"_LAUNCHER.launch"}  # fmt: skip
        steps = tuple(s for s, mark in marks.items() if mark in module and s in self.has) if self.releases else ()
        without = (DslLeft("release", str(source), LINE, LOADS),) if knows and not steps else ()
        told = DslTraced("kernel_1", 128, steps=steps, without=without)
        if name in self.narrow:
            told = DslTraced("kernel_1", 64, str(source), LINE, NARROW)
        builder.note(problem, source, (told,))
        return SimpleNamespace(kernel=SimpleNamespace(traced=(told,)), launch=SimpleNamespace(grid=(2, 1, 1)))

    def run(self, cases: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        self.wanted.append(wanted)
        errors = [Diagnostic(Code.PORT_DIFFERS, None, {"tensor": "C", "count": 3, "total": 9})]
        said = errors if self.verdict is Verdict.ERROR else []
        row = Row("dsl_gemm", {"M": 128}, "integers", 0, self.verdict, diagnostics=said)
        return VerifyResult((row,), "sim", "late", "exact", 0)


def ported(kernel: Path, *options: str) -> tuple[bytes, str]:
    """The support module of the port, and what was said."""
    out = kernel.parent / "out"
    result = porter("port", *options, "--no-compile", kernel, "-o", out)
    return (out / "porter_dsl.py").read_bytes(), " ".join(result.output.split())


def test_the_module_is_given_where_cases_verified_it(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    module, said = ported(kernel, "--style", "full-rate")
    assert module == support_module(full_rate=True)
    assert "PT2512" in said
    assert "case.yaml, dynamic.case.yaml verified it at 5 sizes" in said
    assert [(w.settings.schedule, w.hazards) for w in runs.wanted] == [
        ("late", True),
        ("random", True),
        ("random", True),
    ]
    assert "PT2510" not in said
    assert "PT2511" not in said


def test_without_the_style_nothing_runs(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    assert ported(kernel, "--style", "compat")[0] == support_module()
    assert not runs.built
    assert not runs.wanted


def test_a_case_that_fails_leaves_the_compat_port(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(monkeypatch, Verdict.ERROR)
    module, said = ported(kernel, "--style", "full-rate")
    assert module == support_module()
    assert "PT2511" in said
    assert "dsl_gemm M=128, integers: " in said


def test_where_no_kernel_has_m128_nothing_runs_and_the_line_is_named(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, Verdict.CLEAN, "case.yaml", "dynamic.case.yaml")
    module, said = ported(kernel, "--style", "full-rate")
    assert module == support_module()
    assert not runs.wanted
    assert f"Gemm of case.yaml stays at M=64: {NARROW}" in said
    assert f"dsl_gemm.py:{LINE}" in said
    assert "PT2511" in said


def test_a_kernel_that_stays_at_m64_beside_another_one_is_named(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, Verdict.CLEAN, "case.yaml")
    module, said = ported(kernel, "--style", "full-rate")
    assert module == support_module(full_rate=True)
    assert len(runs.wanted) == 3
    assert "PT2512" in said
    assert f"Gemm of case.yaml stays at M=64: {NARROW}" in said


def test_without_a_case_the_module_stays(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    for case in kernel.parent.glob("*.yaml"):
        case.unlink()
    module, said = ported(kernel, "--style", "full-rate")
    assert module == support_module()
    assert "no case beside it runs it" in said
    assert not runs.built


def test_files_that_share_the_support_module_have_one_style(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(monkeypatch)
    other = kernel.with_name("other.py")
    other.write_bytes(kernel.read_bytes())
    out = kernel.parent / "out"
    said = " ".join(porter("port", "--style", "full-rate", "--no-compile", kernel, other, "-o", out).output.split())
    assert (out / "porter_dsl.py").read_bytes() == support_module()
    assert "other.py stays at M=64: no case beside it runs it" in said
    assert "dsl_gemm.py stays at M=64: it shares a module with a file that stays at M=64" in said


def test_the_native_style_has_a_step_more(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(monkeypatch)
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True, steps=("release",))
    assert "PT2512" in said
    assert "has the step release; case.yaml, dynamic.case.yaml verified it at 5 sizes" in said


def test_a_step_that_no_kernel_has_is_left_out(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    runs.releases = False
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True)
    assert "PT2512" in said
    assert f"is without the step release: {LOADS}" in said


def test_a_step_that_fails_is_left_out(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Runs(monkeypatch, Verdict.ERROR).run, Runs(monkeypatch).run

    def run(cases: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        return (bad if builder.steps else good)(cases, wanted, builder, tell)

    monkeypatch.setattr(proof, "verify_cases", run)
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True)
    assert "PT2512" in said
    assert "is without the step release: dsl_gemm M=128, integers: " in said


def all_steps(monkeypatch: pytest.MonkeyPatch, verdict: Verdict = Verdict.CLEAN) -> Runs:
    """All kernels have all steps, and a size with many tiles for each block is known."""
    runs = Runs(monkeypatch, verdict)
    runs.has = DSL_STEPS
    monkeypatch.setattr(proof, "many_tiles", lambda case, least, blocks: {**case.sizes, "N": 8192})
    return runs


def test_accumulators_that_take_turns_run_with_many_tiles(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = all_steps(monkeypatch)
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True, steps=DSL_STEPS)
    assert all(f"has the step {step}; case.yaml, dynamic.case.yaml verified it" in said for step in DSL_STEPS)
    case = load_case(kernel.with_name("case.yaml"))
    many = [w for w in runs.wanted if [s["N"] for s in w.sizes(case)] == [8192]]
    assert [w.settings.schedule for w in many] == ["late", "random", "random"]
    assert all(w.hazards for w in many)


def test_without_such_a_size_one_accumulator_is_left(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_steps(monkeypatch)
    monkeypatch.setattr(proof, "many_tiles", lambda case, least, blocks: None)
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True, steps=DSL_STEPS[:2])
    assert "is without the step double-buffer: no size at which a block has so many tiles" in said


@pytest.mark.parametrize("fails", [1, 2])
def test_steps_ahead_of_one_that_fails_stay(kernel: Path, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    bad, good = all_steps(monkeypatch, Verdict.ERROR).run, all_steps(monkeypatch).run

    def run(cases: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        return (bad if DSL_STEPS[fails] in builder.steps else good)(cases, wanted, builder, tell)

    monkeypatch.setattr(proof, "verify_cases", run)
    module, said = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True, steps=DSL_STEPS[:fails])
    for step in DSL_STEPS[fails:]:
        assert f"is without the step {step}: dsl_gemm M=128, integers: " in said
    assert f"has the step {DSL_STEPS[fails - 1]}; " in said


def test_steps_that_no_kernel_has_are_left_out_at_once(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    module, _ = ported(kernel, "--style", "native")
    assert module == support_module(full_rate=True, steps=("release",))
    assert len({text for _, text in runs.built}) == 2


def test_files_that_share_the_module_have_the_steps_that_all_have(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = all_steps(monkeypatch, Verdict.ERROR).run, all_steps(monkeypatch).run
    other = Path(shutil.copytree(kernel.parent, kernel.parent / "other")) / "dsl_gemm.py"
    other = other.rename(kernel.with_name("other.py"))
    for case in (kernel.parent / "other").glob("*.yaml"):
        text = case.read_text().replace("kernel: dsl_gemm.py", "kernel: other.py")
        kernel.with_name(f"other.{case.name}").write_text(text)
    shutil.rmtree(kernel.parent / "other")

    def run(cases: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        wrong = "double-buffer" in builder.steps and cases[0].kernel.name == "other.py"
        return (bad if wrong else good)(cases, wanted, builder, tell)

    monkeypatch.setattr(proof, "verify_cases", run)
    out = kernel.parent / "out"
    said = " ".join(porter("port", "--style", "native", "--no-compile", kernel, other, "-o", out).output.split())
    assert (out / "porter_dsl.py").read_bytes() == support_module(full_rate=True, steps=DSL_STEPS[:2])
    assert "other.py is without the step double-buffer: dsl_gemm M=128" in said
    assert "dsl_gemm.py is without the step double-buffer: it shares a module" in said
    assert "dsl_gemm.py has the step mma-thread; " in said


def test_a_plan_says_what_a_run_has_to_show(kernel: Path) -> None:
    said = porter("plan", "--style", "full-rate", kernel).output
    assert "MMA rows       128" in said
    assert "to be shown" in said
    body = json.loads(porter("--format", "json", "plan", "--style", "full-rate", kernel).output)
    assert len(body["files"][0]["gate"]) == 2
    assert "MMA rows" not in porter("plan", "--style", "compat", kernel).output
    assert "release: " in porter("plan", "--style", "native", kernel).output


def test_a_plan_of_a_kernel_without_a_case_says_m64(kernel: Path) -> None:
    for case in kernel.parent.glob("*.yaml"):
        case.unlink()
    said = " ".join(porter("plan", "--style", "full-rate", kernel).output.split())
    assert "MMA rows" not in said
    assert "stays at M=64: no case beside it runs it" in said
