# SPDX-License-Identifier: Apache-2.0
"""User rules, and broken rule files."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources
from porter.rules.load import load_rules

GOOD = """
schema: 2
library: house rules
rules:
  - id: ACME001
    title: Our trace macro
    recognize: {regex: 'ACME_TRACE_SM90\\b'}
    replace: ACME_TRACE_SM100
    safety: safe
    reason: The macro has a sister for Blackwell.
    becomes: ACME_TRACE_SM100
    examples:
      - {before: "ACME_TRACE_SM90(x);", after: "ACME_TRACE_SM100(x);"}
"""


def test_a_user_rule_in_fifteen_lines(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "house.yaml").write_text(GOOD)
    assert len(GOOD.strip().splitlines()) <= 15
    source = tmp_path / "x.cu"
    source.write_text("void f() { ACME_TRACE_SM90(1); } // ACME_TRACE_SM90\n")
    result = port_sources(load_sources(source), PortOptions(rule_directories=(str(rules),)))
    assert result.files[str(source)] == b"void f() { ACME_TRACE_SM100(1); } // ACME_TRACE_SM90\n"
    assert [g.rule for g in result.groups] == ["ACME001"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [", "node content"),
        ("schema: 2\nlibrary: x\nrules: []\n", "rules"),
        (GOOD.replace("replace:", "replaces:"), "replaces"),
        (GOOD.replace("safety: safe", "safety: sure"), "'sure' is not one of"),
        (GOOD.replace("SM90\\b", "(SM90"), "missing )"),
        (GOOD.replace("replace: ACME_TRACE_SM100", "replace: \\3"), "group reference"),
        (GOOD.replace("    examples:\n", "").rsplit("\n", 2)[0], "examples"),
    ],
)
def test_broken_rule_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(PorterError) as raised:
        load_rules((str(tmp_path),))
    assert raised.value.diagnostic.code.id == "PT6001"
    assert words in str(raised.value)
    assert "bad.yaml" in str(raised.value)


def test_an_id_defined_twice(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD.replace("ACME001", "PTR200"))
    with pytest.raises(PorterError) as raised:
        load_rules((str(tmp_path),))
    assert raised.value.diagnostic.code.id == "PT6002"


def test_missing_directory() -> None:
    with pytest.raises(PorterError) as raised:
        load_rules(("no/such/directory",))
    assert raised.value.diagnostic.code.id == "PT0001"
