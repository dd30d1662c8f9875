# SPDX-License-Identifier: Apache-2.0
"""Results as SARIF, GitHub annotations, JUnit and Markdown, from the documents that `--format json` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from documents import checked, group, hazards, left, verified

from porter.diagnostics import Code, Diagnostic, ExitCode
from porter.lang.text import LineIndex, Safety, Span
from porter.report import json as report_json
from porter.report import sarif
from porter.report.formats import FORMATS, KINDS_OF, render

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json").read_text())
"""The schema of SARIF 2.1.0 as schemastore.org publishes it (Apache-2.0)."""


def results(*documents: dict[str, Any], root: Path | None = None) -> list[dict[str, Any]]:
    made = sarif.document(documents, root or Path.cwd())
    jsonschema.validate(made, SCHEMA)
    found: list[dict[str, Any]] = made["runs"][0]["results"]
    return found


def test_a_hazard_has_both_accesses_as_a_flow_and_paths_lead_from_the_checkout(tmp_path: Path) -> None:
    (one,) = results(hazards(str(tmp_path / "src" / "a b.cu"), pairs=2), root=tmp_path)
    assert one["level"] == "error"
    assert len(one["codeFlows"]) == 2
    steps = one["codeFlows"][0]["threadFlows"][0]["locations"]
    places = [s["location"]["physicalLocation"] for s in steps]
    assert [p["region"]["startLine"] for p in places] == [1, 2]
    assert {p["artifactLocation"]["uri"] for p in places} == {"src/a%20b.cu"}
    assert "add fence.proxy.async" in one["message"]["text"]
    # a hazard without line information still has a place
    (bare,) = results(hazards(""))
    assert "physicalLocation" not in bare["locations"][0]
    assert bare["locations"][0]["logicalLocations"][0]["name"] == "tcgen05.mma, PTX line 102"


def test_what_the_original_has_beside_a_port_is_no_error() -> None:
    assert [r["level"] for r in results(hazards("a.cu", baseline=True))] == ["warning"]
    assert [r["level"] for r in results(hazards("a.cu", severity="review"))] == ["warning"]


def test_a_file_of_a_port_that_was_made_for_the_check_has_a_base_of_its_own(tmp_path: Path) -> None:
    base = f"/cache/porter/ports/{'0123456789ab' * 2}/"
    (one,) = results(hazards(f"{base}src/gemm.cu"), root=tmp_path)
    where = one["locations"][0]["physicalLocation"]["artifactLocation"]
    assert where["uri"] == "src/gemm.cu"
    made = sarif.document([hazards(f"{base}src/gemm.cu")], tmp_path)
    assert made["runs"][0]["originalUriBaseIds"][where["uriBaseId"]]["uri"] == f"file://{base}"


def test_a_fingerprint_stays_when_lines_move_and_differs_for_each_finding(tmp_path: Path) -> None:
    source = tmp_path / "a.cu"

    def prints(text: str, *lines: int) -> list[str]:
        source.write_text(text)
        found = results(checked(*(left(str(source), n) for n in lines)), root=tmp_path)
        return [r["partialFingerprints"]["porter/v1"] for r in found]

    before = prints("wgmma();\nother();\nwgmma();\n", 1, 3)
    assert before == prints("\n\n  wgmma();\nother();\n\nwgmma();\n", 3, 6)
    assert len(set(before)) == 2
    assert before[0] != prints("wgmma(1);\n", 1)[0]


def test_the_same_finding_twice_is_one(tmp_path: Path) -> None:
    assert len(results(checked(left("a.cu", 1), left("a.cu", 1)), checked(left("a.cu", 1)))) == 1
    assert len(results(checked(left("a.cu", 1), left("a.cu", 2)))) == 2


def test_no_more_results_than_github_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 3)
    monkeypatch.setattr(sarif, "MOST_STEPS", 5)
    documents = [hazards(f"{n}.cu", severity="review") for n in "acdef"] + [hazards("b.cu", pairs=4)]
    made = sarif.document(documents, Path.cwd())
    jsonschema.validate(made, SCHEMA)
    (run,) = made["runs"]
    assert len(run["results"]) == 3
    assert [r["level"] for r in run["results"]] == ["error", "warning", "warning"]
    assert len(run["results"][0]["codeFlows"]) == 2
    (said,) = run["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"].startswith("3 more findings")


@pytest.mark.parametrize(
    ("old", "before", "region"),
    [
        (b"abc\nwgmma();\n", b"wgmma", (2, 1, 2, 6)),
        ("/* é */ wgmma();\n".encode(), b"wgmma", (1, 9, 1, 14)),
        ("/* \U0001f600 */ wgmma();\n".encode(), b"wgmma", (1, 9, 1, 14)),
        (b"a\r\nwgmma(\r\n);\r\n", b"wgmma(\r\n)", (2, 1, 3, 2)),
        (b"wgmma", b"", (1, 1, 1, 1)),
        (b"first\nwgmma\n", b"wgmma\n", (2, 1, 3, 1)),
    ],
)
def test_an_edit_is_a_fix_at_lines_and_characters(old: bytes, before: bytes, region: tuple[int, ...]) -> None:
    (one,) = results(group(old, before, b"tcgen05"))
    (change,) = one["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    names = ("startLine", "startColumn", "endLine", "endColumn")
    assert tuple(replacement["deletedRegion"][n] for n in names) == region
    assert replacement["insertedContent"]["text"] == "tcgen05"
    assert one["level"] == "note"
    assert one["ruleId"] == "PTR900"


def test_edits_to_review_are_warnings() -> None:
    assert results(group(b"x", b"x", b"y", Safety.REVIEW))[0]["level"] == "warning"


def test_columns_of_diagnostics_count_characters(tmp_path: Path) -> None:
    source = tmp_path / "a.cu"
    source.write_text("/* é */ wgmma();\n")
    (one,) = results(checked(left(str(source), 1, column=10)), root=tmp_path)
    assert one["locations"][0]["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 9}


def test_a_diagnostic_ends_behind_what_it_is_about(tmp_path: Path) -> None:
    text = "/* é */ wgmma(é,\n b);\n".encode()
    (tmp_path / "a.cu").write_bytes(text)
    where = LineIndex(text).location(str(tmp_path / "a.cu"), Span(text.index(b"wgmma"), text.index(b";")))
    said = Diagnostic(Code.HOPPER_LEFT, where, {"name": "wgmma", "times": ""})
    (one,) = results(checked(said), root=tmp_path)
    region = {"startLine": 1, "startColumn": 9, "endLine": 2, "endColumn": 4}
    assert one["locations"][0]["physicalLocation"]["region"] == region


def test_an_annotation_is_one_line_with_its_signs_escaped(tmp_path: Path) -> None:
    finding = left(str(tmp_path / "a,b:c.cu"), 7, name="50%\nwgmma")
    (line,) = render("github", [checked(finding)], tmp_path).splitlines()
    assert line.startswith("::")
    properties, _, message = line[2:].partition("::")
    assert "file=a%2Cb%3Ac.cu,line=7,col=1" in properties
    assert "50%25%0Awgmma" in message


def test_annotations_begin_with_errors() -> None:
    lines = render("github", [hazards("a.cu", severity="review"), hazards("b.cu")]).splitlines()
    assert [line.split()[0] for line in lines] == ["::error", "::warning"]


@pytest.mark.parametrize(
    ("document", "counts", "child"),
    [
        (verified("clean"), ("1", "0", "0"), None),
        (verified("review"), ("1", "0", "0"), None),
        (verified("error"), ("1", "1", "0"), "failure"),
        (verified("incomplete"), ("1", "0", "1"), "error"),
        (hazards("a.cu"), ("1", "1", "0"), "failure"),
        (hazards("a.cu", baseline=True), ("1", "0", "0"), "system-out"),
        (report_json.error([Diagnostic(Code.FILE_NOT_FOUND, None, {"path": "x"})], ExitCode.USAGE),
         ("1", "0", "1"), "error"),
    ],
)  # fmt: skip
def test_junit_counts_what_has_no_verdict_as_an_error(
    document: dict[str, Any], counts: tuple[str, ...], child: str | None
) -> None:
    root = ElementTree.fromstring(render("junit", [document]))
    assert tuple(root.attrib[n] for n in ("tests", "failures", "errors")) == counts
    (case,) = root.iter("testcase")
    assert [c.tag for c in case] == ([child] if child else [])


def test_junit_names_what_differs_and_takes_any_text() -> None:
    bad = {"tensor": "C\x00\x1b<&>", "ok": False, "mismatches": 3, "elements": 9}
    root = ElementTree.fromstring(render("junit", [verified("error", port=[bad])]))
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == "port: C\ufffd\ufffd<&>: 3 of 9 differ"


def test_markdown_keeps_cells_in_their_table() -> None:
    text = render("markdown", [verified("error", case="a|b\nc"), hazards("a.cu"), checked(left("x.cu", 3))])
    assert "| a\\|b c | M=1 | integers | not compared | not compared | error |" in text
    assert "## porter hazards: error" in text
    assert f"| error {Code.HOPPER_LEFT.value.id} | x.cu:3 |" in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "text"])
def test_every_format_takes_an_error(form: str) -> None:
    text = render(form, [report_json.error([Diagnostic(Code.FILE_NOT_FOUND, None, {"path": "x"})], ExitCode.USAGE)])
    assert "no such file or directory" in text
    assert "error" in KINDS_OF[form]
