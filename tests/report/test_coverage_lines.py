# SPDX-License-Identifier: Apache-2.0
"""What a verification has not run stands in every form of its report."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from documents import verified

from porter.report import coverage, page
from porter.report.formats import render

LEFT: dict[str, Any] = {
    "case": "gemm", "sizes": [{"M": 128, "K": 64}], "instantiations": [], "program": "port",
    "left_out": [{"size": "a second phase of 1 of the port's mbarriers", "reason": "empty[0]"}], "instructions": 200,
    "missed": 7, "hazards": False, "schedules": False,
    "places": [{"path": "src/gemm.cu", "line": 12, "missed": 3, "instructions": 4},
               {"path": "src/gemm.cu", "line": 9, "missed": 4, "instructions": 4}],
}  # fmt: skip
ALL = LEFT | {"sizes": [], "left_out": [], "missed": 0, "places": []}
LINE = ("not run: 1 size of the case (M=128 K=64; --sizes all); "
        "a second phase of 1 of the port's mbarriers (empty[0]); "
        "7 of 200 instructions of the port (gemm.cu:9, 12)")  # fmt: skip
WHOLE = ("run: all sizes and instantiations of the case, all 200 instructions of the port, "
         "with hazards and several schedules")  # fmt: skip


def document(*left: dict[str, Any]) -> dict[str, Any]:
    return verified("clean") | {"not_run": list(left)}


def test_one_line_for_each_case() -> None:
    assert coverage.lines(document(LEFT)) == [LINE]
    assert coverage.lines(document(ALL)) == [WHOLE]
    assert [line[:14] for line in coverage.lines(document(LEFT, ALL | {"case": "b"}))] == [
        "not run: gemm:",
        "run: b: all si",
    ]
    assert coverage.lines(verified("clean")) == []


@pytest.mark.parametrize("form", ["github", "markdown", "sarif", "junit"])
def test_every_format_says_it(form: str) -> None:
    text = render(form, [document(LEFT)]).replace("\\", "")
    assert "a second phase of 1 of the port" in text
    assert "7 of 200 instructions of the port" in text


def test_a_suite_has_it_as_a_property() -> None:
    root = ElementTree.fromstring(render("junit", [document(LEFT)]))
    (found,) = root.iter("property")
    assert (found.attrib["name"], found.attrib["value"]) == ("coverage", LINE)
    assert root.attrib["tests"] == "1"


def test_the_page_says_it() -> None:
    assert "7 of 200 instructions of the port" in page.html(page.Subject("gemm", [document(LEFT)]))
