# SPDX-License-Identifier: Apache-2.0
"""Messages that say the same of several inputs are one, with how often it was met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fakes_verify import CASE, FakeBackend, FakeBuilder, gemm, write_case

from porter.diagnostics import Code, Diagnostic, Location
from porter.report import alike
from porter.report import json as report_json
from porter.report.blocks import block
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import Row
from porter.verify.runner import VerifyOptions, verify


def row(family: str, *diagnostics: Diagnostic) -> Row:
    return Row("gemm", {"M": 1}, family, 0, Verdict.ERROR, diagnostics=diagnostics)


def differs(count: int, total: int = 4096, path: str = "case.yaml") -> Diagnostic:
    values = {"tensor": "C", "count": count, "total": total}
    return Diagnostic(Code.ORIGINAL_DIFFERS, Location(path, 3), values, "first at C[0, 0]")


def test_the_first_is_shown_and_the_others_are_named() -> None:
    (one,) = alike.of_rows([row("integers", differs(7)), row("index", differs(9)), row("wide", differs(9, 64))])
    assert one.message == differs(7).message
    assert one.detail.splitlines() == ["first at C[0, 0]", "2 other inputs of this verification, too: index, wide"]


def test_other_places_and_other_words_stay() -> None:
    other = Diagnostic(Code.PORT_DIFFERS, Location("case.yaml", 3), {"tensor": "C", "count": 7, "total": 4096})
    rows = [row("integers", differs(7)), row("index", differs(7, path="b.yaml")), row("wide", other)]
    assert len(alike.of_rows(rows)) == 3
    assert alike.of_rows([row("integers", differs(7))]) == [differs(7)]


def test_causes_of_documents_count_them_together() -> None:
    body = {"rows": [{"diagnostics": report_json.diagnostics([differs(n)])} for n in (7, 9, 11)]}
    (cause,) = report_json.causes(body)
    assert cause["count"] == 3
    assert cause["message"] == differs(7).message


def test_a_wrong_reference_is_shown_where_it_is_a_guess(tmp_path: Path) -> None:
    """The place of the message is the line of the draft."""
    path = write_case(tmp_path, CASE.replace('"A @ B.T"', '"A @ B.T + 1"  # guess: a matrix product'))
    result = verify(load_case(path), None, FakeBuilder(), FakeBackend(gemm), VerifyOptions(families=["integers"]))
    (one,) = alike.of_rows(result.rows)
    assert one.code is Code.ORIGINAL_DIFFERS
    assert one.where is not None
    assert Path(one.where.path) == path
    assert "# guess: a matrix product" in block(one).plain
    assert np.isfinite(result.rows[0].original[0].max_error)
