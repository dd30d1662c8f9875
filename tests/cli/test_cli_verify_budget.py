# SPDX-License-Identifier: Apache-2.0
"""`porter verify --seconds N` and `--resume FILE`: what is left has no verdict, and what was done is not done again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_cli import FakeBackend, FakeBuilder, fake_port_sources, porter, porter_json, project, zero

from porter.verify import budget


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    backend = FakeBackend()
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.verify.sweep.make_backend", lambda name, options: backend)
    monkeypatch.setattr("porter.cli.verify.make_builder", FakeBuilder)
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    return backend


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return project(tmp_path / "kernel")


WORDS = ("--families", "integers,normal,index", "--sizes", "default")


def spent_after(runs: int, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over when so many programs have run."""
    clock = SimpleNamespace(monotonic=lambda: 0.0 if len(backend.sources) < runs else 100.0)
    monkeypatch.setattr(budget, "time", clock)


def saved(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "verify.json"
    path.write_text(json.dumps(document))
    return path


def test_what_is_not_begun_in_time_has_no_verdict(engine, kernel, monkeypatch) -> None:
    spent_after(2, engine, monkeypatch)
    document = porter_json("verify", kernel, *WORDS, "--seconds", "50", code=6)
    verdicts = [(row["family"], row["verdict"]) for row in document["rows"]]
    assert verdicts[0] == ("integers", "clean")
    assert {verdict for _, verdict in verdicts[1:]} == {"incomplete"}
    assert [c["id"] for c in document["causes"]] == ["PT5090"]
    assert len(engine.sources) == 2
    assert "PT5090" in porter("verify", kernel, *WORDS, "--seconds", "0", code=6).output


def test_a_run_goes_on_where_an_earlier_one_ended(engine, kernel, monkeypatch, tmp_path) -> None:
    with monkeypatch.context() as patch:
        spent_after(2, engine, patch)
        first = saved(tmp_path, porter_json("verify", kernel, *WORDS, "--seconds", "50", code=6))
    whole = porter_json("verify", kernel, *WORDS)
    engine.sources.clear()
    document = porter_json("verify", kernel, *WORDS, "--resume", first)
    assert document["verdict"] == "clean"
    names = [(row["family"], row["schedule"]) for row in document["rows"]]
    assert sorted(map(str, names)) == sorted(str((r["family"], r["schedule"])) for r in whole["rows"])
    # two programs for each row but the one that is there
    assert len(engine.sources) == 2 * (len(whole["rows"]) - 1)
    engine.sources.clear()
    again = porter_json("verify", kernel, *WORDS, "--resume", saved(tmp_path, document))
    assert not engine.sources
    assert (again["verdict"], len(again["rows"])) == ("clean", len(whole["rows"]))
    assert "of the earlier run" in porter("verify", kernel, *WORDS, "--resume", saved(tmp_path, document)).output


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gemm.cu", lambda text: text + "\n"),
        ("case.yaml", lambda text: text + "# other\n"),
        ("reference.py", lambda text: "def f(): pass\n"),
    ],
)
def test_what_has_changed_is_run_again(engine, kernel, tmp_path, name, change) -> None:
    first = saved(tmp_path, porter_json("verify", kernel, *WORDS))
    path = kernel.parent / name
    path.write_text(change(path.read_text() if path.exists() else ""))
    engine.sources.clear()
    document = porter_json("verify", kernel, *WORDS, "--resume", first)
    assert len(engine.sources) == 2 * len(document["rows"])


def test_other_settings_are_run_again(engine, kernel, tmp_path) -> None:
    first = saved(tmp_path, porter_json("verify", kernel, *WORDS))
    engine.sources.clear()
    porter_json("verify", kernel, *WORDS, "--seed", "7", "--resume", first)
    assert engine.sources


def test_rows_that_were_wrong_are_run_again(engine, kernel, tmp_path) -> None:
    engine.kernels["sm_100a"] = zero
    first = porter_json("verify", kernel, *WORDS, code=5)
    assert {row["verdict"] for row in first["rows"]} == {"error"}
    engine.sources.clear()
    assert porter_json("verify", kernel, *WORDS, "--resume", saved(tmp_path, first), code=5)["verdict"] == "error"
    assert engine.sources


def test_only_results_of_verify_are_gone_on_with(engine, kernel, tmp_path) -> None:
    other = saved(tmp_path, porter_json("explain", "PT0001"))
    assert "it is of `porter explain`" in porter("verify", kernel, "--resume", other, code=2).output
    porter("verify", kernel, "--resume", tmp_path / "no.json", code=2)


def test_programs_have_no_budget(tmp_path) -> None:
    (tmp_path / "main.cu").write_text("int main() { return 0; }\n")
    assert (
        "--seconds: is for kernels with a case"
        in porter("verify", tmp_path / "main.cu", "--seconds", "5", code=2).output
    )


def test_what_the_machine_does_beside_takes_nothing_of_a_budget_of_work() -> None:
    of_work, of_time = budget.Budget.of_work(0.05), budget.Budget(0.05)
    time.sleep(0.06)
    assert (of_work.is_spent, of_time.is_spent) == (False, True)
    half = of_work.part(2)
    while not half.is_spent:
        sum(range(10_000))
    assert of_work.left is not None
    assert of_work.left < 0.03
