# SPDX-License-Identifier: Apache-2.0
"""Command lines that cannot be carried out: one message, and a document where a document is asked for."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import _COMMANDS, main
from porter.cli.tools import Tools
from porter.report.json import schema

WRONG = [
    ("scan",), ("port", "-o", "x"), ("plan",), ("verify", "--seconds", "-5", "k.cu"), ("scan", "--bogus", "k.cu"),
    ("port", "k.cu", "--to", "sm_120"), ("rules", "test", "nowhere"), ("rules",), ("nosuch",), ("--bogus", "scan", "."),
    ("verify", "k.cu", "--schedule", "never"), ("mutate", "k.cu", "--seed", "x"), ("scan", ".", "--jobs", "many"),
    ("--config",), ("case", "new"), ("explain", "--list", "--bogus"),
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
@pytest.mark.parametrize("place", ["in front", "behind", "joined"])
def test_a_document_says_what_is_wrong(words: tuple[str, ...], place: str) -> None:
    asked = ["--format=json"] if place == "joined" else ["--format", "json"]
    line = [*words, *asked] if place == "behind" and words != ("--config",) else [*asked, *words]
    outcome = CliRunner().invoke(main, line)
    assert outcome.exit_code == 2
    document = json.loads(outcome.stdout)
    assert (document["kind"], document["exit_code"]) == ("error", 2)
    (said,) = document["diagnostics"]
    assert said["id"] == "PT0005"
    assert said["message"].removeprefix("command line: ").strip()
    assert outcome.stderr == ""
    assert document.keys() >= set(schema("error")["required"])


def test_other_formats_and_text() -> None:
    run = json.loads(CliRunner().invoke(main, ["--format", "sarif", "scan"]).stdout)["runs"][0]
    assert [r["ruleId"] for r in run["results"]] == ["PT0005"]
    assert ElementTree.fromstring(CliRunner().invoke(main, ["--format", "junit", "verify"]).stdout) is not None
    assert "::error" in CliRunner().invoke(main, ["--format", "github", "scan"]).stdout
    plain = CliRunner().invoke(main, ["scan"])
    assert (plain.stdout, plain.exit_code) == ("", 2)
    assert "Missing argument" in plain.stderr
    # what stands behind `--` is a program's
    assert CliRunner().invoke(main, ["verify", "--bogus", "--", "--format", "json"]).stdout == ""
    assert CliRunner().invoke(main, ["--format", "xml", "scan"]).stdout == ""


LONG = "a" * 5000
TAKES_PATHS = sorted(set(_COMMANDS) - {"map", "explain", "doctor", "mcp", "nvcc", "capture", "selfcheck", "record"})
FIRST = {"rules": ["test"], "case": ["new"], "kit": ["-o", "kit.tar"]}


@pytest.mark.parametrize("command", TAKES_PATHS)
@pytest.mark.parametrize("name", [LONG, "b/" + "c" * 256 + "/k.cu", "d/" * 3000 + "k.cu"], ids=["long", "part", "deep"])
def test_names_that_no_file_can_have_are_named_in_one_message(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(main, ["--format", "json", command, *FIRST.get(command, []), name])
    assert outcome.exit_code == 2, outcome.output[:300]
    document = json.loads(outcome.stdout)
    assert {d["id"] for d in document["diagnostics"]} <= {"PT0001", "PT0005"}, outcome.output[:300]


def test_tools_refuse_what_is_no_argument(tmp_path: Path) -> None:
    tools = Tools(tmp_path, 60)
    named = {tool.__name__: tool for tool in tools.all}
    for found in (
        named["scan"](paths=["\0"]),
        named["explain"](id="\0"),
        named["map"](word="a" * 10_000_000),
        named["scan"](paths=[]),
        named["scan"](paths=[LONG]),
        named["hazards"](path=LONG),
        named["port"](paths=["."], output="\0"),
    ):
        assert found["exit_code"] == 2, str(found)[:300]
        assert found["diagnostics"]
