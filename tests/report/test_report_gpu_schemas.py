# SPDX-License-Identifier: Apache-2.0
"""The documents of `record`, `nvcc` and `selfcheck --simulate` are what their schemas say."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli import nvcc as nvcc_command
from porter.cli import record as record_command
from porter.cli import selfcheck as selfcheck_command
from porter.cli.main import main
from porter.report.json import schema
from porter.verify.gpu.nvcc import Built
from porter.verify.gpu.selfcheck import Simulated
from porter.verify.record import Entry

CASE = Path(__file__).parents[2] / "corpus" / "gemm_tma" / "case.yaml"


def document(*command: str) -> dict:
    done = CliRunner().invoke(main, ["--format", "json", *command])
    assert done.exit_code == 0, done.output
    found: dict = json.loads(done.stdout)
    jsonschema.validate(found, schema(found["kind"]))
    return found


def test_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = Entry("k", {"N": 4}, "normal", 7, "0" * 64, "1" * 64, "sim", {"C": b"abc"})
    monkeypatch.setattr(record_command, "record_case", lambda *a: [entry])
    found = document("record", str(CASE), "--backend", "sim", "-o", str(tmp_path / "r"))
    (run,) = found["runs"]
    assert run["seed"] == 7
    assert run["outputs"] == {"C": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    broken = {**found, "runs": [{**run, "outputs": {"C": "abc"}}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema("record"))


def test_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc_command, "build_program", lambda *a: Built(lowered=1))
    monkeypatch.setattr(nvcc_command, "find_toolkit", lambda *a: None)
    assert document("nvcc", "--", "-arch=sm_100a", "x.cu")["modules"] == 1


def test_selfcheck_keeps_what_the_simulator_computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = Simulated("k", {"N": 4}, "wide", 3, "0" * 64, "1" * 64, "ok", {"C": "2" * 64}, 0.5)
    monkeypatch.setattr(selfcheck_command, "simulated", lambda *a: [one])
    monkeypatch.setattr(selfcheck_command, "find_toolkit", lambda *a: None)
    kept = tmp_path / "simulated.json"
    assert document("selfcheck", str(CASE), "--simulate", str(kept))["simulated"][0]["family"] == "wide"
    assert json.loads(kept.read_text())["simulated"][0]["outputs"] == {"C": "2" * 64}


@pytest.mark.parametrize("options", [[], ["--gpu", "--simulate", "x"]])
def test_selfcheck_wants_one_of_two(options: list[str]) -> None:
    assert CliRunner().invoke(main, ["selfcheck", str(CASE), *options]).exit_code == 2


def test_selfcheck_with_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"simulated": [{"case": 1}]}')
    done = CliRunner().invoke(main, ["selfcheck", str(CASE), "--gpu", "--simulated", str(tmp_path / "f")])
    assert done.exit_code == 2
    assert "PT5050" in done.output
