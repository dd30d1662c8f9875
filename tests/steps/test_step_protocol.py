# SPDX-License-Identifier: Apache-2.0
"""Steps: found by discovery, in their order, each on top of a state that it does not change; one that others add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from corpus_kernels import CORPUS

import porter.steps
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import current
from porter.cli.judging import judge
from porter.cli.porting import look
from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.native import step as native
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.ported import port_paths
from porter.rules.load import load_rules
from porter.steps import step
from porter.steps.step import Declared, Ring, Step, Trial
from porter.tune.verifying import Proofs
from porter.verify.gate import GateOptions

HERE = Path(__file__).parent
RULES = HERE / "plug_in/rules"


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the step of another package on Python's path."""
    others = porter.steps.others_on([str(HERE / "plug_in"), str(HERE)])
    assert len(others) == 1
    monkeypatch.setattr(porter.steps, "__path__", [*porter.steps.__path__, *others])
    for known in (step.discovered, native.steps_for):
        known.cache_clear()
    yield
    for known in (step.discovered, native.steps_for):
        known.cache_clear()


def ported(folder: Path, without: str = "") -> PortResult:
    """The example of the rule, `without` something in its text."""
    (rule,) = (r for r in load_rules((str(RULES),)) if r.id == "ACME100")
    path = folder / "kernel.cu"
    path.write_text(rule.examples[0].before.replace(without, "", 1))
    return port_sources(load_sources(path), PortOptions(native=("l2-hint",), rule_directories=(str(RULES),)))


def text_of(result: PortResult) -> str:
    return next(t for p, t in result.files.items() if p.endswith("kernel.cu")).decode()


@pytest.mark.usefixtures("plugged_in")
def test_a_step_of_others_is_taken(tmp_path: Path) -> None:
    result = ported(tmp_path)
    assert result.plans[0].native == ("l2-hint",)
    assert "ACME100" in {g.rule for g in result.groups}
    (rule,) = (r for r in load_rules((str(RULES),)) if r.id == "ACME100")
    assert [line for line in rule.examples[0].expect if line not in text_of(result)] == []


@pytest.mark.usefixtures("plugged_in")
def test_a_step_of_others_is_left_out_with_the_fact_that_is_missing(tmp_path: Path) -> None:
    result = ported(tmp_path, ".tensor.2d")
    assert result.plans[0].native == ()
    left = [d.values["what"] for d in result.diagnostics if d.code is Code.NATIVE_LEFT]
    assert left == ["loads by TMA in asm statements of their own"]


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.usefixtures("plugged_in")
def test_what_a_step_of_others_writes_compiles(tmp_path: Path) -> None:
    for path, text in ported(tmp_path).files.items():
        (tmp_path / Path(path).name).write_bytes(text)
    made = compile_ptx(CompileRequest(tmp_path / "kernel.cu", "sm_100a"), find_toolkit())
    assert "complete_tx::bytes.L2::cache_hint" in made.ptx


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.usefixtures("plugged_in")
@pytest.mark.parametrize("planted", [False, True], ids=["right", "other coordinates"])
def test_a_step_of_others_is_judged_as_any_other(planted: bool) -> None:
    path = CORPUS / "gemm_tma" / "gemm_tma.cu"
    options = PortOptions(native=("l2-hint",), rule_directories=(str(RULES),))
    found = port_paths([path], options, (), look)
    (root,) = found.roots
    assert root.native == ("l2-hint",)
    texts = {name: text.replace(b"{%3, %4}", b"{%4, %3}") if planted else text for name, text in found.new.items()}
    assert any(b"complete_tx::bytes.L2::cache_hint" in text for text in texts.values())
    assert any(b"{%4, %3}" in text for text in texts.values()) is planted
    proofs = Proofs(make_builder(None), current(), judge=judge(current(), GateOptions(jobs=1), 20))
    assert bool(proofs.refused(replace(found, new=texts), root)) is planted


def test_steps_have_rules_and_declare_what_they_change() -> None:
    rules = {r.id for r in load_rules()}
    for dialect in ("cuda", "cute"):
        found = native.steps_for(dialect)
        assert {s.rule for s in found} <= rules
        assert all(name in {s.name for s in found} for s in found for name in s.rebuilds)
    rings = {ring for s in native.steps_for("cuda") for ring in s.changes.rings}
    assert Ring("accumulators", "tiles") in rings
    assert [s.name for s in native.steps_for("cuda") if s.changes.level == "bound"] == ["promotion", "scales"]


NAMES = "abcdef"


@pytest.mark.parametrize("seed", range(20))
def test_steps_come_behind_those_that_they_follow(seed: int) -> None:
    chance = Random(seed)
    names = chance.sample(NAMES, len(NAMES))
    ahead = [(a, b) for a in NAMES for b in NAMES if a < b and chance.random() < 0.5]
    steps = [Step(n, "R1", None, follows=tuple(a for a, b in ahead if b == n)) for n in names]
    found = [s.name for s in step._in_order(steps)]
    assert sorted(found) == sorted(names)
    assert all(found.index(a) < found.index(b) for a, b in ahead)


def test_steps_in_a_circle_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="circle: a, b"):
        list(step._in_order([Step("a", "R1", None, follows=("b",)), Step("b", "R1", None, follows=("a",))]))


def test_a_trial_goes_back_to_the_state_ahead_of_what_is_rebuilt() -> None:
    release, thread, buffers = (Step(n, "R1", None, changes=Declared()) for n in ("release", "thread", "buffers"))
    trial = Trial[int]().on_top(release, 0).on_top(thread, 1).on_top(buffers, 2)
    assert trial.ahead_of(("thread", "buffers")) == (1, [thread, buffers])
    assert trial.names == ("release", "thread", "buffers")
    pair = Step("pair", "R1", None, after={"thread": "a thread"}, beside={"tiles": "tiles apart"})
    assert trial.lacks(pair) == ""
    assert Trial[int]().lacks(pair) == "a thread"
    assert trial.on_top(Step("tiles", "R1", None), 3).lacks(pair) == "tiles apart"
