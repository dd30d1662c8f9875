# SPDX-License-Identifier: Apache-2.0
"""`--resume FILE` of `porter hazards` and `porter mutate`: what was done is not done again, if nothing has changed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_cli import CASE, FakeBuilder, fake_port_sources, porter, porter_json, project

from porter.verify import budget, hazard_cases, mutation_sweep
from porter.verify.hazards import OneRun
from porter.verify.mutation import MutationResult
from porter.verify.mutation_sweep import settled as mutated_before

COMMANDS = ("hazards", "mutate")
RUNS = {"hazards": 2, "mutate": 1}
"""Programs of a case that run: original and port, or the port with its mutants."""


class Engine:
    """Stands for the runs of both commands: `status` is how they end, `ran` counts them."""

    def __init__(self) -> None:
        self.status, self.ran = "ok", 0

    def run_case(self, *given: Any) -> OneRun:
        self.ran += 1
        return OneRun(self.status, (), (), 10, 0.0)

    def mutate(self, setups: Any, *given: Any) -> MutationResult:
        self.ran += 1
        baseline: Any = SimpleNamespace(status=self.status, hazards=(), findings=())
        return MutationResult(setups[0].kernel.entry, baseline, ())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    found = Engine()
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr(hazard_cases, "run_case", found.run_case)
    monkeypatch.setattr(mutation_sweep, "mutate", found.mutate)
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    for command in COMMANDS:
        monkeypatch.setattr(f"porter.cli.{command}.make_builder", FakeBuilder)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, depth in (("one", 64), ("two", 128)):
        project(tmp_path / "kernels" / name, CASE.replace("K: 64", f"K: {depth}"))
    return tmp_path / "kernels"


def saved(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "earlier.json"
    path.write_text(json.dumps(document))
    return path


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = document["runs"] if document["kind"] == "hazards" else document["kernels"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_goes_on_where_an_earlier_one_ended(command, engine, folder, monkeypatch, tmp_path) -> None:
    each = RUNS[command]
    with monkeypatch.context() as patch:
        patch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: 100.0 if engine.ran >= each else 0.0))
        part = porter_json(command, folder, "--seconds", "50", code=6)
    assert engine.ran == each
    assert len(rows(part)) == each
    whole = porter_json(command, folder)
    engine.ran = 0
    rest = porter_json(command, folder, "--resume", saved(tmp_path, part))
    assert engine.ran == each
    assert rows(rest) == rows(whole)
    engine.ran = 0
    again = porter_json(command, folder, "--resume", saved(tmp_path, rest))
    assert engine.ran == 0
    assert rows(again) == rows(whole)
    if command == "hazards":
        assert again["verdict"] == "clean"
    assert "of the earlier run" in porter(command, folder, "--resume", saved(tmp_path, rest)).output


CHANGES = [
    ("gemm.cu", lambda text: text + "\n"),
    ("mma.cuh", lambda text: text.replace("wait()", "wait(1)")),
    ("case.yaml", lambda text: text + "# other\n"),
    ("reference.py", lambda text: "def f(): pass\n"),
]


class WholeText(FakeBuilder):
    """What is compiled has the headers in it."""

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        built = super().build(problem, source, arch)
        object.__setattr__(built, "ptx", built.ptx + (source.parent / "mma.cuh").read_text())
        return built


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_what_has_changed_is_run_again(command, name, change, engine, folder, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(f"porter.cli.{command}.make_builder", WholeText)
    first = saved(tmp_path, porter_json(command, folder / "one"))
    path = folder / "one" / name
    path.write_text(change(path.read_text() if path.exists() else ""))
    engine.ran = 0
    porter_json(command, folder / "one", "--resume", first)
    assert engine.ran == RUNS[command]


OTHER = {
    "hazards": [("--seed", "7"), ("--level", "practice"), ("--seeds", "2"), ("--schedule", "eager"), ("--only", "port"),
                ("--sizes", "M=128"), ("--arithmetic", "exact")],
    "mutate": [("--seed", "7"), ("--original",), ("--schedule", "eager"), ("--sizes", "M=128"),
               ("--arithmetic", "exact")],
}  # fmt: skip


@pytest.mark.parametrize(("command", "words"), [(c, words) for c, many in OTHER.items() for words in many])
def test_other_settings_are_run_again(command, words, engine, folder, tmp_path) -> None:
    first = saved(tmp_path, porter_json(command, folder / "one"))
    engine.ran = 0
    porter_json(command, folder / "one", *words, "--resume", first)
    assert engine.ran


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("status", "code"), [("error", 5), ("incomplete", 6)])
def test_what_was_not_clean_is_run_again(command, status, code, engine, folder, tmp_path) -> None:
    engine.status = status
    first = saved(tmp_path, porter_json(command, folder / "one", code=code))
    ran, engine.ran = engine.ran, 0
    porter_json(command, folder / "one", "--resume", first, code=code)
    assert engine.ran == ran


@pytest.mark.parametrize(
    ("changes", "is_settled"),
    [
        ({}, True),
        ({"status": "incomplete"}, False),
        ({"hazards": [{"severity": "review"}]}, True),
        ({"hazards": [{"severity": "error"}]}, False),
        ({"mutants": [{"by_value": True, "caught": True}, {"by_value": False, "caught": False}]}, True),
        ({"mutants": [{"by_value": True, "caught": False}]}, False),
        ({"digest": None}, False),
    ],
)
def test_which_mutated_kernels_are_settled(changes, is_settled) -> None:
    kernel = {"digest": "d", "status": "ok", "hazards": [], "mutants": []} | changes
    assert bool(mutated_before({"kernels": [kernel]})) is is_settled


@pytest.mark.parametrize(
    ("runs", "is_settled"),
    [
        ([("clean", False, "ok"), ("review", False, "ok")], True),
        ([("error", True, "ok"), ("clean", False, "ok")], True),
        ([("error", True, "error"), ("clean", False, "ok")], False),
        ([("clean", False, "ok"), ("error", False, "ok")], False),
    ],
)
def test_runs_of_a_case_are_settled_together(runs, is_settled) -> None:
    """What an original has itself is no verdict on its port."""
    made = [{"digest": "d", "verdict": v, "baseline": b, "status": s} for v, b, s in runs]
    assert bool(hazard_cases.settled({"runs": made})) is is_settled


@pytest.mark.parametrize("command", COMMANDS)
def test_only_results_of_the_command_are_gone_on_with(command, engine, folder, tmp_path) -> None:
    other = saved(tmp_path, porter_json("explain", "PT0001"))
    assert "it is of `porter explain`" in porter(command, folder, "--resume", other, code=2).output
    porter(command, folder, "--resume", tmp_path / "no.json", code=2)
    assert not engine.ran


def test_results_are_kept_in_one_way(engine, folder, tmp_path) -> None:
    first = saved(tmp_path, porter_json("mutate", folder))
    asked = ("mutate", folder, "--record", tmp_path / "r", "--resume", first)
    assert "--record, --resume: choose one" in porter(*asked, code=2).output


@pytest.mark.parametrize("words", [("k.ptx",), ("main.cu",), ("--ptx", "k.ptx", "--launch", "l.yaml")])
def test_what_has_no_case_is_not_gone_on_with(words, engine, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.ptx").write_text("")
    Path("main.cu").write_text("int main() { return 0; }\n")
    assert "--resume: is for kernels with a case" in porter("hazards", *words, "--resume", "h.json", code=2).output
