# SPDX-License-Identifier: Apache-2.0
"""`porter.toml` and `[tool.porter]`: where they are found, what they say, and what is said of broken ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fakes_cli import porter, porter_json

from porter.cli.config import KEYS, find_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rules"))

import house

RULE = """\
schema: 2
library: house rules
rules:
  - id: ACME001
    title: Our trace macro
    recognize: {regex: 'TRACE_SM90\\b'}
    replace: TRACE_SM100
    safety: safe
    reason: The macro has a sister for Blackwell.
    becomes: TRACE_SM100
    examples:
      - {before: "TRACE_SM90(x);", after: "TRACE_SM100(x);"}
"""
SOURCE = "void f() { TRACE_SM90(1); }\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source two directories below a project with a rule of its own."""
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "mine.yaml").write_text(RULE)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    path = tmp_path / "src" / "deep" / "x.cu"
    path.write_text(SOURCE)
    (tmp_path / ".git").mkdir()
    return path


def ported(source: Path, *options: object) -> bool:
    return "+void f() { TRACE_SM100(1); }" in porter(*options, "port", source).stdout


@pytest.mark.parametrize("name", ["porter.toml", "pyproject.toml"])
def test_rules_of_the_project(source: Path, name: str) -> None:
    root = source.parents[2]
    assert not ported(source)
    header = "[tool.porter]\n" if name == "pyproject.toml" else ""
    (root / name).write_text(header + 'rules = ["house"]\n')
    assert ported(source)
    assert not ported(source, "--no-config")
    (root / name).write_text(header + 'rules = ["house/mine.yaml"]\n')
    assert ported(source)


def test_a_file_that_is_named_is_the_one(source: Path, tmp_path: Path) -> None:
    (tmp_path / "porter.toml").write_text("rules = 1\n")
    (tmp_path / "other.toml").write_text('rules = ["house"]\n')
    assert ported(source, "--config", tmp_path / "other.toml")
    porter("--config", tmp_path / "other.toml", "--no-config", "port", source, code=2)


def test_the_nearest_is_taken_and_none_outside_of_the_repository(source: Path) -> None:
    root = source.parents[2]
    for folder, name in ((root.parent, "porter.toml"), (root, "porter.toml"), (root / "src", "porter.toml")):
        (folder / name).write_text("")
    assert find_config(source) == root / "src" / "porter.toml"
    (root / "src" / "porter.toml").unlink()
    (root / "src" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_config(source) == root / "porter.toml"
    (root / "porter.toml").unlink()
    assert find_config(source) is None
    (root.parent / "porter.toml").unlink()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("\nrulez = []\n", 2, "rulez: there is no such key; rules is near"),
        ("[lint]\nrules = []\n", 1, "lint: there is no such key"),
        ('rules = "house"\n', 1, "rules: has to be a list of texts"),
        ("defines = []\nselect = [1]\n", 2, "select: has to be a list of texts"),
        ("compile = 'no'\n", 1, "compile: has to be true or false"),
        ('include-dirs = ["nowhere"]\n', 1, "include-dirs: no such directory"),
        ('rules = ["nowhere"]\n', 1, "rules: no such file or directory"),
        ("rules = [\n", 2, "invalid value"),
        ("rules = []\nrules = []\n", 2, "cannot overwrite a value"),
    ],
)
@pytest.mark.parametrize("name", ["porter.toml", "pyproject.toml"])
def test_a_broken_file_is_one_sentence_with_its_line(source: Path, name: str, text: str, line: int, words: str) -> None:
    path = source.parents[1] / name
    if name == "pyproject.toml":
        text, line = "[tool.porter]\n" + text.replace("[lint]", "[tool.porter.lint]"), line + 1
    path.write_text(text)
    said = porter("port", source, code=2).stderr
    assert "PT0015" in said
    assert f"{name}:{line}:" in said or f"{name}:{line}\n" in said, said
    assert words in " ".join(said.split())


def test_a_file_that_cannot_be_read(source: Path) -> None:
    (source.parent / "porter.toml").write_bytes(b"\xff\xfe")
    assert "it is not UTF-8" in porter("scan", source, code=2).stderr
    porter("--config", source.parent / "none.toml", "scan", source, code=2)
    (source.parent / "pyproject.toml").write_text("[project]\n")
    said = porter("--config", source.parent / "pyproject.toml", "scan", source, code=2).stderr
    assert "no [tool.porter]" in said


def test_sources_of_two_projects(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "y.cu").write_text(SOURCE)
    (other / "porter.toml").write_text("")
    assert "PT0016" in porter("scan", source, other / "y.cu", code=2).stderr
    porter("--no-config", "scan", source, other / "y.cu")


def test_the_command_line_wins(source: Path) -> None:
    root = source.parents[2]
    (root / "porter.toml").write_text('rules = ["house"]\nignore = ["ACME001"]\n')
    assert not ported(source)
    assert "+void f() { TRACE_SM100(1); }" in porter("port", source, "--ignore", "PTR211").stdout
    (root / "porter.toml").write_text('rules = ["house"]\nselect = ["PTR211"]\n')
    assert not ported(source)
    assert "+void f() { TRACE_SM100(1); }" in porter("port", source, "--select", "ACME001").stdout


def test_directories_and_macros_are_added(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = source.parents[2]
    for name in ("inc", "more"):
        (root / name).mkdir()
    (root / "porter.toml").write_text(
        'include-dirs = ["inc"]\ndefines = ["A=1", "B=1"]\nnvcc-flags = ["-O1"]\ncompile = true\n'
    )
    seen = []
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda ported, options, tell: seen.append(options) or [])
    porter("port", source, "-I", root / "more", "-D", "A=2", "--nvcc-flag=-O3")
    (options,) = seen
    assert options.include_dirs == (root / "more", root / "inc")
    assert options.defines == ("B=1", "A=2")
    assert options.flags == ("-O1", "-O3")
    (root / "porter.toml").write_text("compile = false\n")
    porter("port", source)
    assert len(seen) == 1
    porter("port", source, "--compile")
    assert len(seen) == 2


def test_headers_of_the_project_are_found(source: Path) -> None:
    root = source.parents[2]
    (root / "inc").mkdir()
    (root / "inc" / "house.cuh").write_text("#pragma once\n")
    source.write_text('#include "house.cuh"\n' + SOURCE)
    assert len(porter_json("scan", source)["files"]) == 1
    (root / "porter.toml").write_text('include-dirs = ["inc"]\n')
    assert len(porter_json("scan", source)["files"]) == 2


def test_which_one_is_used_is_told(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = source.parents[2] / "porter.toml"
    path.write_text('rules = ["house"]\n')
    assert str(path) in porter("-v", "scan", source).stderr
    assert str(path) not in porter("scan", source).output
    monkeypatch.chdir(source.parent)
    (probe,) = (p for p in porter_json("doctor")["probes"] if p["name"] == "configuration")
    assert probe["found"]
    assert probe["what"] == f"{path}: rules"
    (probe,) = (p for p in porter_json("--no-config", "doctor")["probes"] if p["name"] == "configuration")
    assert not probe["found"]


def test_keys_stand_for_options_that_there_are() -> None:
    options = {o for name in ("port", "run", "grade") for o in porter(name, "--help").output.split()}
    assert not [key.option for key in KEYS.values() if not any(o.startswith(key.option) for o in options)]


@pytest.mark.spread(3)
@pytest.mark.parametrize("command", ["scan", "plan", "port", "build", "verify", "hazards", "mutate", "explain"])
def test_every_command_that_reads_sources_takes_rules(tmp_path: Path, command: str) -> None:
    broken = tmp_path / "rules"
    broken.mkdir()
    (broken / "mine.yaml").write_text(RULE.replace("safety: safe", "safety: sure"))
    source = tmp_path / "x.cu"
    source.write_text('#include <cstdint>\n__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n')
    (tmp_path / "case.yaml").write_text(
        "version: 1\nkernel: x.cu\nentry: k\nsizes: {M: 64}\nlaunch: {grid: [1, 1, 1], block: [128, 1, 1]}\n"
        "tensors: {C: {dtype: f32, shape: [M], role: output}}\nparams: [C]\nreference: zeros(M)\n"
    )
    asked = "PTR100" if command == "explain" else source
    only = ["--only", "port"] if command == "hazards" else []
    result = porter(command, asked, *only, "--rules", broken, code=None)
    assert result.exit_code == 2
    assert "PT6001" in result.stderr, result.output
    porter(command, asked, "--rules", tmp_path / "none", code=2)
    (broken / "mine.yaml").write_text(RULE)
    assert "PT6001" not in porter(command, asked, *only, "--rules", broken / "mine.yaml", code=None).output


def test_scan_counts_what_a_rule_of_ones_own_names(source: Path) -> None:
    rules = source.parents[2] / "house" / "mine.yaml"
    rules.write_text(
        RULE.replace(
            "replace: TRACE_SM100", "refuse: {code: LIBRARY_CONSTRUCT, what: house library, advice: Leave it.}"
        )
    )
    assert porter_json("scan", source)["files"][0]["constructs"] == []
    (found,) = porter_json("scan", source, "--rules", rules)["files"][0]["constructs"]
    assert found["name"] == "TRACE_SM90"
    (total,) = porter_json("scan", source, "--rules", rules)["totals"]
    assert total["becomes"] == "TRACE_SM100"


def test_scan_judges_what_rules_recognize(tmp_path: Path) -> None:
    """No word of Hopper is in the kernel: its library hides the asm."""
    (tmp_path / "kernel.cu").write_text(house.kernel())
    (tmp_path / "house.cuh").write_text(house.HEADER)
    rules = tmp_path / "rules.yaml"
    rules.write_text(house.RULES)
    effort = {f["path"]: f["effort"]["level"] for f in porter_json("scan", tmp_path / "kernel.cu")["files"]}
    assert set(effort.values()) == {"none"}
    files = porter_json("scan", tmp_path / "kernel.cu", "--rules", rules)["files"]
    assert {Path(f["path"]).name: f["effort"]["level"] for f in files}["kernel.cu"] in ("low", "medium")


def test_explain_a_rule_of_ones_own(source: Path) -> None:
    porter("explain", "ACME001", code=2)
    assert "Our trace macro" in porter("explain", "acme001", "--rules", source.parents[2] / "house").output
