# SPDX-License-Identifier: Apache-2.0
"""User rules, and broken rule files."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources
from porter.ptx.arch import PORT_TARGETS, PortTarget
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


COMPARING = """
schema: 2
library: house rules
rules:
  - id: ACME002
    title: Our check of the chip
    recognize: {regex: 'acme_level\\(\\) == 90\\b'}
    replace: acme_level() == 100
    compares: device
    safety: review
    reason: The function asks the device.
    examples:
      - {before: "bool b = acme_level() == 90;", after: "bool b = acme_level() == 100;"}
"""


@pytest.mark.parametrize("target", PORT_TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("stated", ["    compares: device\n", "    compares: target\n", ""])
def test_a_number_that_a_user_rule_compares_is_that_of_the_port_s_chip(
    tmp_path: Path, stated: str, target: PortTarget
) -> None:
    (tmp_path / "house.yaml").write_text(COMPARING.replace("    compares: device\n", stated))
    source = tmp_path / "x.cu"
    source.write_text("bool f() { return acme_level() == 90; }\n")
    result = port_sources(load_sources(source), PortOptions(rule_directories=(str(tmp_path),), target=target))
    number = target.sm if stated else 100
    assert result.files[str(source)].decode() == f"bool f() {{ return acme_level() == {number}; }}\n"


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
