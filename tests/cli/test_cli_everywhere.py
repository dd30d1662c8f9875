# SPDX-License-Identifier: Apache-2.0
"""Options of all commands stand before the command or after it; formats that a command lacks are refused first."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from fakes_cli import porter

SCHEMA = Path(__file__).parent.parent / "report" / "data" / "sarif-2.1.0-rtm.5.json"
HOPPER = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text(HOPPER)
    return Path("k.cu")


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "json", "check", "k.cu"),
        ("check", "--format", "json", "k.cu"),
        ("check", "k.cu", "--format=json"),
        ("--format", "text", "check", "k.cu", "--format", "json"),
        ("check", "k.cu", "-v", "--format", "json", "--no-config", "--color", "never"),
    ],
)
def test_a_format_may_stand_on_either_side(kernel: Path, words: tuple[str, ...]) -> None:
    assert json.loads(porter(*words, code=1).stdout)["kind"] == "check"


def test_quiet_and_verbose_count_on_both_sides(kernel: Path) -> None:
    assert "checked" not in porter("-q", "explain", "PT0001").output
    assert porter("explain", "PT0001", "-q").output == ""
    assert porter("-q", "explain", "PT0001", "-v").output


def test_config_and_no_config_exclude_each_other_on_either_side(kernel: Path) -> None:
    Path("porter.toml").write_text("")
    for words in (("--no-config", "check", "k.cu", "--config", "porter.toml"),
                  ("--no-config", "--config", "porter.toml", "check", "k.cu")):  # fmt: skip
        assert "exclude each other" in porter(*words, code=2).output


def test_commands_of_a_group_have_them_too() -> None:
    document = json.loads(porter("rules", "list", "--format", "json").stdout)
    assert document["kind"] == "rules-list"


def test_nvcc_keeps_its_own_options() -> None:
    help_text = porter("nvcc", "--help").output
    assert "may stand here" not in help_text


def test_help_says_where_the_others_are() -> None:
    assert "Options of all commands" in porter("scan", "--help").output
    assert "--no-config" not in porter("scan", "--help").output


def test_findings_are_sarif_with_places_in_the_checkout(kernel: Path) -> None:
    document = json.loads(porter("check", kernel, "--format", "sarif", code=1).stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    (result, *_) = document["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"] == {"uri": "k.cu", "uriBaseId": "SRCROOT"}
    assert where["region"]["startLine"] == 1


def test_findings_are_annotations(kernel: Path) -> None:
    lines = porter("check", kernel, "--format", "github", code=1).stdout.splitlines()
    assert lines
    assert all(line.startswith("::error title=") and "file=k.cu,line=1" in line for line in lines)


def test_errors_of_usage_have_the_format_too(tmp_path: Path) -> None:
    assert porter("check", tmp_path / "no.cu", "--format", "github", code=2).stdout.startswith("::error")
    root = ElementTree.fromstring(porter("verify", tmp_path / "no.cu", "--format", "junit", code=2).stdout)
    assert root.attrib["errors"] == "1"


@pytest.mark.parametrize("command", ["check", "port", "scan", "plan"])
def test_a_format_that_a_command_lacks_is_refused_before_any_work(kernel: Path, command: str) -> None:
    output = porter(command, kernel, "--format", "junit", code=2).output
    assert "PT0005" in output
    assert "only `porter hazards` and `porter verify` have it" in output
