# SPDX-License-Identifier: Apache-2.0
"""Titles of findings in formats for other programs say the values of the finding, and no placeholder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from documents import checked, left

from porter.diagnostics import Code, Diagnostic, ExitCode
from porter.report import json as report_json
from porter.report import sarif
from porter.report.formats import render

_PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b")


def rules(*documents: dict[str, Any]) -> dict[str, str]:
    run = sarif.document(documents, Path.cwd())["runs"][0]
    return {r["id"]: r["shortDescription"]["text"] for r in run["tool"]["driver"]["rules"]}


def test_an_annotation_is_titled_with_its_own_values(tmp_path: Path) -> None:
    (line,) = render("github", [checked(left(str(tmp_path / "a.cu"), 7, name="wgmma.fence"))], tmp_path).splitlines()
    title = line.partition("title=")[2].partition(",file=")[0]
    assert "wgmma.fence" in title
    assert not _PLACEHOLDER.search(title)


def test_a_rule_of_one_message_has_its_values() -> None:
    (text,) = rules(checked(left("a.cu", 1, name="wgmma.fence"), left("b.cu", 9, name="wgmma.fence"))).values()
    assert "wgmma.fence" in text


def test_a_rule_of_several_messages_says_what_they_have_in_common() -> None:
    (text,) = rules(checked(left("a.cu", 1, name="wgmma.fence"), left("a.cu", 2, name="setmaxnreg"))).values()
    assert "fence" not in text
    assert "…" in text
    assert not _PLACEHOLDER.search(text)


@pytest.mark.parametrize("code", [c for c in Code if "{" in c.value.title], ids=lambda c: c.value.id)
def test_no_code_leaves_a_placeholder(code: Code) -> None:
    names = set(re.findall(r"\{(\w+)[^}]*\}", code.value.title))
    values = ({n: f"{n[0]}1" for n in names}, {n: f"{n[0]}2" for n in names})
    try:
        said = [Diagnostic(code, None, v) for v in values]
        document = report_json.error(said, ExitCode.USAGE)
    except (ValueError, TypeError):
        said = [Diagnostic(code, None, dict.fromkeys(names, n)) for n in (1, 2)]
        document = report_json.error(said, ExitCode.USAGE)
    (text,) = rules(document).values()
    capitals = {n.upper() for n in names}
    assert not capitals & set(re.findall(r"\w+", text)) - set(re.findall(r"\w+", code.value.title))
    lines = render("github", [document]).splitlines()
    assert not any(f" {c} " in f" {line.partition('::')[2]} " for c in capitals - {"PTX"} for line in lines)


def test_a_message_of_many_words_is_no_title() -> None:
    long = "x" * 300
    (line,) = render("github", [checked(left("a.cu", 1, name=long))]).splitlines()
    assert long not in line.partition("::")[2].partition("::")[0].partition("title=")[2].partition(",file=")[0]
