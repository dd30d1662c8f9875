# SPDX-License-Identifier: Apache-2.0
"""`--style full-rate` of CuTe DSL files: the support module with M=128 MMAs where a case verified it in the same run,
else that of the compat port with the reason. Compiling and running is stood in for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes_cli import porter

from porter.build.dsl import DslLeft, DslTraced
from porter.diagnostics import Code, Diagnostic
from porter.passes.dsl.outputs import support_module
from porter.verify import proof
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
        self.releases = True
        self.wanted: list[Any] = []
        self.built: list[tuple[str, bytes]] = []
        monkeypatch.setattr(proof, "verify_cases", self.run)
        monkeypatch.setattr(proof, "build_port", self.build)
        monkeypatch.setattr("porter.cli.full_rate.slower", lambda *compared: None)

    def build(self, problem: Any, plan: Any, builder: Any) -> None:
        name = problem.case.path.name
        module = next(text for path, text in plan.files.items() if path.endswith("porter_dsl.py"))
        self.built.append((name, module))
        source, knows = problem.case.kernel, b"class _Release" in module
        steps = ("release",) if knows and self.releases else ()
        without = (DslLeft("release", str(source), LINE, LOADS),) if knows and not steps else ()
        told = DslTraced("kernel_1", 128, steps=steps, without=without)
        if name in self.narrow:
            told = DslTraced("kernel_1", 64, str(source), LINE, NARROW)
        builder.note(problem, source, (told,))

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
    assert module == support_module(full_rate=True, release=True)
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
