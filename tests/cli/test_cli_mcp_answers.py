# SPDX-License-Identifier: Apache-2.0
"""What tools for agents answer: little where all is well, causes where it is not, and whose code runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
from documents import group, hazards, verified

from porter.cli.tools import Tools
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, Severity
from porter.report import json as report_json
from porter.report.answers import answer, edit_groups, schema, source_diffs

CLEAN = 500
PROGRAM = "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n"


def said(document: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = answer(document, **more)
    jsonschema.validate(found, schema())
    return found


def test_a_clean_verification_is_short() -> None:
    document = verified("clean")
    document["rows"] = [dict(document["rows"][0], family=f"family {n}") for n in range(40)]
    assert said(document) == {
        "kind": "verify",
        "exit_code": 0,
        "verdict": "clean",
        "runs": {"clean": 40},
        "coverage": [],
    }
    assert len(json.dumps(said(document))) < CLEAN


def test_hazards_are_told_by_cause_with_both_places_and_what_is_missing() -> None:
    (cause,) = said(hazards("src/a.cu", pairs=9))["causes"]
    assert cause["at"] == ["src/a.cu:1", "src/a.cu:2"]
    assert cause["missing"] == "fence.proxy.async, supplied by fence.proxy.async"
    assert cause["id"] == "H16"


def test_messages_are_told_by_cause_and_notes_are_not() -> None:
    lost = [Diagnostic(Code.FILE_NOT_FOUND, None, {"path": f"{n}.cu"}) for n in range(9)]
    plain = next(c for c in Code if c.value.severity is Severity.NOTE and "{" not in c.value.title)
    note = Diagnostic(plain, None, {})
    found = said(report_json.error([*lost, note], ExitCode.USAGE))
    assert len(found["causes"]) == 6
    assert found["more_causes"] == 3
    assert found["causes"][0]["next"]


def test_a_diff_is_there_on_request_and_has_no_header_of_porters() -> None:
    document = group(b"x", b"x", b"y")
    changed = {"path": "a.cu", "changed": True, "diff": "--- a/a.cu\n+++ b/a.cu\n-x\n+y\n"}
    added = {"path": "tcgen05.cuh", "changed": True, "diff": "--- /dev/null\n+++ b/tcgen05.cuh\n+helpers\n"}
    document["files"] = [changed, added]
    assert "diff" not in said(document)
    assert said(document, diff=True)["diff"] == changed["diff"]
    assert list(source_diffs(document)) == [changed["diff"]]


def test_a_review_lists_rules_and_on_request_the_texts_of_one() -> None:
    document = group(b"x", b"x", b"y")
    assert edit_groups(document, None)["safe"] == ["PTR900 x1"]
    (edit,) = edit_groups(document, "PTR900")["edits"]
    assert (edit["at"], edit["becomes"]) == ("a.cu:1", "y")
    jsonschema.validate(edit_groups(document, "PTR900"), schema())


def answering(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]) -> list[list[str]]:
    asked: list[list[str]] = []

    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append([*words, f"trust={options['env'].get('PORTER_TRUST')}"])
        return subprocess.CompletedProcess(words, 0, json.dumps(document), "")

    monkeypatch.delenv("PORTER_TRUST", raising=False)
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_what_ran_out_of_time_can_be_gone_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spent = Diagnostic(Code.TIME_SPENT, None, {"seconds": 3})
    document = verified("incomplete", diagnostics=report_json.diagnostics([spent]), digest="d")
    document["causes"] = report_json.causes(document)
    asked = answering(monkeypatch, document)
    (tmp_path / "k.cu").write_text("")
    found = Tools(tmp_path, 60).verify("k.cu")
    assert found["rows"] == ["integers M=1: incomplete"]
    assert json.loads((tmp_path / found["resume"]).read_text())["rows"][0]["digest"] == "d"
    Tools(tmp_path, 60).verify("k.cu", resume=found["resume"])
    assert asked[-1][asked[-1].index("--resume") + 1] == found["resume"]


@pytest.mark.parametrize("tool", ["verify", "hazards", "grade"])
def test_a_program_of_the_sources_is_not_run_unasked(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = answering(monkeypatch, verified("clean"))
    (tmp_path / "k.cu").write_text(PROGRAM)
    with pytest.raises(PorterError, match="main"):
        getattr(Tools(tmp_path, 60), tool)("k.cu")
    assert not asked
    getattr(Tools(tmp_path, 60, trusted=True), tool)("k.cu")
    assert asked[-1][-1] == "trust=1"


def test_a_draft_runs_no_program_unasked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = report_json.document("case-new", 0, {"written": ["case.yaml"], "guesses": [], "diagnostics": []})
    asked = answering(monkeypatch, document)
    (tmp_path / "k.cu").write_text(PROGRAM)
    Tools(tmp_path, 60).case_new("k.cu")
    assert "--no-run" in asked[-1]
    assert asked[-1][-1] == "trust=None"
    Tools(tmp_path, 60, trusted=True).case_new("k.cu")
    assert "--no-run" not in asked[-1]
