# SPDX-License-Identifier: Apache-2.0
"""The sample projects as their owners would go through them: reviews on a terminal, drafts of cases, reports."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from terminal import Terminal

from porter.cli.main import main
from porter.diagnostics import ExitCode

HERE = Path(__file__).parent
SARIF = json.loads((HERE.parent / "report" / "data" / "sarif-2.1.0-rtm.5.json").read_text("utf-8"))


@dataclass(frozen=True)
class Sample:
    """A project: a place where its port asks for the device, as the port has it and as a reviewer edits it; a kernel
    with a line that its port keeps, and what a draft of its case leaves to guess."""

    name: str
    asks: tuple[str, str, str]
    kernel: str
    kept: str
    guesses: int


SAMPLES = [
    Sample("pytorch_extension", ("csrc/op.cpp", "major == 10", "major >= 10"), "csrc/kernel.cu",
           "constexpr int kThreads = 128;", 1),
    Sample("cmake_library", ("src/dispatch.cpp", "major == 10", "major >= 10"), "src/gemm.cu", "namespace gemm {", 1),
    Sample("makefile_program", ("main.cu", "major != 10", "major < 10"), "scores.cu", '#include "wgmma.cuh"', 1),
]  # fmt: skip
samples = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


@pytest.fixture
def project(sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample below the current directory, without its cases."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HERE / sample.name, "project")
    for case in Path("project").rglob("*case.yaml"):
        case.rename(tmp_path / case.name)
    return tmp_path


@pytest.mark.slow
@samples
def test_a_review_of_the_project(sample: Sample, project: Path) -> None:
    """Accept, refuse one with dependents and take it back, quit, resume, edit, port again after edits by hand."""
    path, ported, edited = sample.asks
    script = project / "editor.sh"
    script.write_text(f"#!/bin/sh\nsed -i 's/{ported}/{edited}/' \"$1\"\n")
    script.chmod(0o755)
    first = Terminal(project, "project", "-o", "out")
    while (question := first.next_question()) is not None:
        if question.startswith("Accept PTR100"):
            break
        first.send("y")
    first.send("n")
    assert (first.next_question() or "").startswith("Refuse ")
    assert "these fall too" in first.text
    first.send("n")
    assert first.next_question() == question
    first.send("q")
    assert first.end() == int(ExitCode.UNPORTED)
    assert not (project / "out").exists()

    second = Terminal(project, "--again", "PTR210", editor=str(script))
    asked = []
    while (question := second.next_question()) is not None:
        asked.append(question)
        second.send("e" if "PTR210" in question else "y")
    assert second.end() == 0, second.text
    assert sum("PTR210" in q for q in asked) == 1
    assert edited in (project / "out" / path).read_text()

    out, source = (project / folder / sample.kernel for folder in ("out", "project"))
    assert out.read_text().count(sample.kept) == 1
    out.write_text(out.read_text().replace(sample.kept, f"{sample.kept}  // by hand"))
    source.write_text(f"// new\n{source.read_text()}")
    third = Terminal(project)
    assert third.end() == 0, third.text
    text = out.read_text()
    assert text.startswith("// new\n")
    assert f"{sample.kept}  // by hand" in text
    assert (
        "tcgen05" in text + (project / "out" / "wgmma.cuh").read_text() if sample.name[0] == "m" else "tcgen05" in text
    )
    assert edited in (project / "out" / path).read_text()


def draft(kernel: Path) -> tuple[dict[str, Any], list[str]]:
    done = CliRunner().invoke(main, ["case", "new", str(kernel), "-o", "draft.yaml"])
    assert done.exit_code == 0, done.output
    return yaml.safe_load(Path("draft.yaml").read_text()), [
        line for line in done.output.splitlines() if line.startswith("guess: ")
    ]


@samples
def test_a_draft_says_what_the_case_says(sample: Sample, project: Path) -> None:
    made, guesses = draft(Path("project") / sample.kernel)
    by_hand = next(
        case
        for path in project.glob("*case.yaml")
        for case in [yaml.safe_load(path.read_text())]
        if case["kernel"] == Path(sample.kernel).name
    )
    assert len(guesses) == sample.guesses <= 3
    assert made["entry"] == by_hand["entry"]
    assert made["launch"]["block"] == by_hand["launch"]["block"]
    assert len(made["params"]) == len(by_hand["params"])
    kinds = [sorted(t["role"] for t in case["tensors"].values()) for case in (made, by_hand)]
    assert kinds[0] == kinds[1]
    # tensors and sizes are called by other names in a draft, and each by one
    names: dict[str, str] = {}
    for ours, theirs in zip(made["params"], by_hand["params"], strict=True):
        if isinstance(ours, str) and ours in made["tensors"]:
            shapes = made["tensors"][ours]["shape"], by_hand["tensors"][theirs]["shape"]
            for own, other in zip(*shapes, strict=True):
                assert names.setdefault(own, other) == other
    assert len(set(names.values())) == len(names)


@pytest.mark.slow
@samples
def test_reports_in_every_format(sample: Sample, project: Path) -> None:
    for case in project.glob("*case.yaml"):
        text = yaml.safe_load(case.read_text())
        case.rename(next(Path("project").rglob(text["kernel"])).with_name(case.name))
    kernel = f"project/{sample.kernel}"
    checks = {
        f: CliRunner().invoke(main, ["check", "project", "--format", f])
        for f in ("sarif", "github", "markdown", "json")
    }
    assert {r.exit_code for r in checks.values()} == {1}
    sarif = json.loads(checks["sarif"].output)
    jsonschema.validate(sarif, SARIF)
    (run,) = sarif["runs"]
    places = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]}
    assert places
    assert all((project / place).is_file() and not place.startswith("/") for place in places)
    assert ",file=project/" in checks["github"].output
    assert "::error title=PT7001%3A NAME is Hopper's own,file=" in checks["github"].output
    assert "PT7001" in checks["markdown"].output
    assert json.loads(checks["json"].output)["findings"]

    junit = CliRunner().invoke(
        main, ["verify", "--style", "compat", kernel, "--families", "integers", "--format", "junit"]
    )
    assert junit.exit_code == 0, junit.output
    tree = ElementTree.fromstring(junit.output)
    assert len(list(tree.iter("testcase"))) > 0
    assert not list(tree.iter("failure"))

    page = CliRunner().invoke(main, ["report", "--style", "compat", kernel, "--html", "page.html"])
    assert page.exit_code == 0, page.output
    html = Path("page.html").read_text()
    assert Path(kernel).name in html
    assert "tcgen05.mma" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
