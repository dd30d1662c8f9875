# SPDX-License-Identifier: Apache-2.0
"""The line of the grade in results of other commands: text, JSON, Markdown and the page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from grade.kernels import kernel
from grade.published import ladders

from porter.cli.main import main
from porter.grade.model import grade
from porter.grade.reading import Reading
from porter.report import json as report_json
from porter.report import markdown, page
from porter.report.grade import Brief
from porter.tune.candidates import Candidate, with_stages_of

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
RUNGS = {rung.name: rung.shape for ladder in ladders() for rung in ladder.rungs}
SLOW, FAST = RUNGS["v1: serial, rows of 16 bytes"], RUNGS["v4: warp specialized, 7 stages"]


def brief(**more: Any) -> Brief:
    rows = [
        ("", Candidate(label, "gemm", "sm_100a", Reading(shape, ())), grade(shape, lifts=False))
        for label, shape in (("original", SLOW), ("port", FAST))
    ]
    return Brief("case", rows, **more)


def document(one: Brief) -> dict[str, Any]:
    made = report_json.document("grade", 0, one.body() | {"diagnostics": []})
    jsonschema.validate(made, report_json.schema("grade"))
    return made


@pytest.mark.parametrize(
    ("other", "stages"),
    [({}, 7), ({"load_bytes": 100}, None), ({"roles": "serial"}, None), ({"stages": 3}, 3)],
    ids=str,
)
def test_a_port_has_the_stages_of_its_original(other: dict[str, Any], stages: int | None) -> None:
    """Where its own text does not say them, and it loads as the original does."""
    original = Candidate("original", "gemm", "sm_90a", Reading(FAST, ()))
    port = Candidate("port", "gemm", "sm_100a", Reading(replace(FAST, **{"stages": None, **other}), ()))
    found = with_stages_of(original, port).reading.shape
    assert found is not None
    assert found.stages == stages
    assert bool(found.assumed) is (stages == 7)


def test_a_line_has_original_beside_port() -> None:
    line = brief().line
    assert line.startswith("grade of case at 4096 x 4096 x 4096: original 13.8 % of B200's nominal rate, limited by ")
    assert "; port 54.4 % of B200's nominal rate, limited by TMA fill" in line
    assert "\n" not in line


def test_a_line_says_what_is_not_graded() -> None:
    assert brief(unknown=["port gemm: not known: the number of stages"]).line.endswith(
        "not known: the number of stages"
    )
    assert Brief("case", [], ["a.cu was not ported"]).line == "grade of case: a.cu was not ported"


@pytest.mark.parametrize("render", [lambda d: markdown.text([d]), lambda d: page.html(page.Subject("gemm", [d]))],
                         ids=["Markdown", "page"])  # fmt: skip
def test_reports_have_the_line_and_the_table(render: Any) -> None:
    text = render(document(brief()))
    assert "port 54.4 % of B200" in text
    assert "13.8" in text
    assert "TMA fill" in text
    assert "rates cannot" in text


def test_reports_take_a_document_of_the_command(tmp_path: Path) -> None:
    """`porter --format json grade` has no case and no line."""
    (tmp_path / "k.ptx").write_text(kernel(FAST))
    made = CliRunner().invoke(main, ["--no-config", "--format", "json", "grade", str(tmp_path / "k.ptx")])
    (tmp_path / "grade.json").write_text(made.output)
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["--no-config", "report", str(tmp_path / "grade.json"), "--html", str(out)])
    assert done.exit_code == 0, done.output
    assert '<a href="#grade">' in out.read_text()
    assert f"{json.loads(made.output)['kernels'][0]['percent_of_nominal']:.1f}" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--style", "full-rate"], True), (["--style", "native"], True), (["--style", "compat"], False), ([], False),
     (["--style", "native", "--port", str(CORPUS / "gemm_ws/gemm_ws.cu")], False)],
    ids=str,
)  # fmt: skip
def test_a_port_that_no_run_proved_is_said_to_be_one(
    arguments: list[str], says: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = [what for _, what, _ in brief().rows]
    monkeypatch.setattr("porter.cli.grade.of_case", lambda *given: (made, []))
    command = ["grade", str(CORPUS / "gemm_ws/gemm_ws.cu"), *arguments]
    text = CliRunner().invoke(main, ["--no-config", *command]).output
    (tmp_path / "grade.json").write_text(CliRunner().invoke(main, ["--no-config", "--format", "json", *command]).output)
    found = json.loads((tmp_path / "grade.json").read_text())
    jsonschema.validate(found, report_json.schema("grade"))
    out = tmp_path / "out"
    for form in ("--markdown", "--html"):
        CliRunner().invoke(main, ["--no-config", "report", str(tmp_path / "grade.json"), form, str(out)])
        text += out.read_text()
    assert text.count("not proved by a run") == (3 if says else 0)
    assert ("not proved by a run" in found.get("unproved", "")) == says


def test_a_kernel_without_a_case_has_no_grade(tmp_path: Path) -> None:
    shutil.copy(CORPUS / "gemm_ws/gemm_ws.cu", tmp_path)
    done = CliRunner().invoke(
        main, ["--no-config", "--format", "json", "port", str(tmp_path / "gemm_ws.cu"), "--no-compile", "--grade"]
    )
    assert done.exit_code == 2
    assert "--grade" in json.loads(done.output)["diagnostics"][0]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("port", CORPUS / "gemm_ws/gemm_ws.cu", "--no-compile", "--grade"),
        (
            "verify",
            CORPUS / "gemm_ws/gemm_ws.cu",
            "--families",
            "integers",
            "--sizes",
            "default",
            "--no-hazards",
            "--grade",
        ),
    ],
    ids=["port", "verify"],
)
def test_commands_say_it_of_what_they_made(arguments: tuple[Any, ...]) -> None:
    done = CliRunner().invoke(main, ["--no-config", "--format", "json", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    made = json.loads(done.output)
    jsonschema.validate(made, report_json.schema(str(arguments[0])))
    (one,) = made["grades"]
    assert [(k["program"], k["chip"]) for k in one["kernels"]] == [("original", "H100"), ("port", "B200")]
    assert not one["unknown"]


@pytest.mark.slow
def test_the_report_of_a_kernel_has_its_grade(tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    words = ["--no-config", "report", "--style", "compat", str(CORPUS / "gemm_tma/gemm_tma.cu"), "--markdown", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "grade of gemm_tma at 4096 x 4096 x 4096: original" in out.read_text()
