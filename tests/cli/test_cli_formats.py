# SPDX-License-Identifier: Apache-2.0
"""A format that a command's results cannot have is refused before there is work."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.report import json as report_json
from porter.report.formats import KINDS_OF

_LISTS = {"diagnostics", "findings", "groups", "runs", "rows"}


@pytest.mark.parametrize("form", ["sarif", "github", "markdown", "junit"])
@pytest.mark.parametrize(
    "words",
    [("map", "wgmma.fence"), ("explain", "PT2010"), ("doctor",), ("rules", "list"), ("mutate", "k.cu"),
     ("record", "k.cu", "-o", "x"),
     ("rules", "schema"), ("mcp",)],
    ids=" ".join,
)  # fmt: skip
def test_what_lists_no_findings_has_no_format_of_findings(words: tuple[str, ...], form: str) -> None:
    done = CliRunner().invoke(main, ["--format", form, *words])
    assert done.exit_code == 2
    assert f"--format {form}" in done.stdout
    assert "PT0005" in done.stdout


def test_a_server_has_no_document() -> None:
    done = CliRunner().invoke(main, ["--format", "json", "mcp"])
    assert done.exit_code == 2
    assert "`porter mcp` has no result" in json.loads(done.stdout)["diagnostics"][0]["message"]


def test_json_that_is_no_document_stays() -> None:
    assert CliRunner().invoke(main, ["--format", "json", "rules", "schema"]).exit_code == 0


@pytest.mark.parametrize("form", ["sarif", "github", "markdown"])
def test_the_formats_are_of_kinds_that_list_something(form: str) -> None:
    without = {k for k in report_json.KINDS if not _LISTS & set(report_json.schema(k)["properties"])}
    assert not without & KINDS_OF[form]
    assert {"scan", "check", "verify", "hazards", "port", "review"} <= KINDS_OF[form]
