# SPDX-License-Identifier: Apache-2.0
"""The JSON of a clean verification is a summary unless figures are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from documents import verified

from porter.report import verification
from porter.report.formats import render
from porter.report.json import schema
from porter.verify.budget import settled

COMPARED = {"tensor": "C", "ok": True, "mismatches": 0, "elements": 64}


def clean() -> dict[str, Any]:
    return verified("clean", between=[COMPARED], port=[COMPARED], digest="abc")


def test_a_clean_document_has_no_figures() -> None:
    found = verification.summary(clean())
    (row,) = found["rows"]
    assert not found["full"]
    assert not any(row[name] for name in ("original", "port", "between", "runs", "hazards"))
    assert (row["case"], row["family"], row["verdict"]) == ("gemm", "integers", "clean")
    assert len(json.dumps(found)) < len(json.dumps(clean()))
    jsonschema.validate(found, schema("verify"))


@pytest.mark.parametrize("verdict", ["review", "error", "incomplete"])
def test_any_other_document_stays_whole(verdict: str) -> None:
    assert verification.summary(verified(verdict)) == verified(verdict)


def test_an_earlier_summary_serves_a_resumed_run() -> None:
    assert list(settled(verification.summary(clean()))) == ["abc"]


def test_reports_of_a_summary_do_not_say_that_nothing_was_compared() -> None:
    text = render("markdown", [verification.summary(clean())])
    assert "not compared" not in text
    assert "| agrees | agrees | clean |" in text
    assert "not compared" in render("markdown", [verified("clean")])


def test_the_option_is_there(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from porter.cli.main import main

    assert "--full" in CliRunner().invoke(main, ["verify", "--help"]).output
