# SPDX-License-Identifier: Apache-2.0
import io
import json

import jsonschema
import numpy as np
import pytest
from rich.console import Console

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, worst_exit
from porter.report import json as report_json
from porter.report import verification
from porter.report.exits import verification_exit
from porter.report.terminal import comparison_text, verdict_tables
from porter.verify.compare import same_bits, same_values, within
from porter.verify.dtypes import DTYPES
from porter.verify.outcome import RunFinding, RunSummary, Verdict
from porter.verify.results import Row, VerifyResult

F32 = DTYPES["f32"]


def comparison(actual):
    expected = np.array([[1.0, 2.0], [3.0, 4.0]])
    values = F32.encode(np.asarray(actual, dtype=np.float64))
    return within("C", F32, expected, values, np.full((2, 2), 1e-3), np.full((2, 2), 10.0), False)


def result(*rows):
    return VerifyResult(tuple(rows), "sim", "late", "float64", 0)


def row(verdict=Verdict.CLEAN, diagnostics=(), comparisons=()):
    run = RunSummary("port", "sm_100a", "sim", "ok", (RunFinding(Code.INTERNAL, "m", block=(0, 1, 2)),))
    return Row("c", {"M": 1}, "normal", 0, verdict, comparisons, comparisons, runs=(run,), diagnostics=diagnostics)


@pytest.mark.parametrize("kind", report_json.KINDS)
def test_schemas_are_schemas(kind):
    jsonschema.Draft202012Validator.check_schema(report_json.schema(kind))
    assert report_json.schema(kind)["properties"]["schema_version"] == {"const": report_json.SCHEMA_VERSION}


def test_a_result_with_everything_in_it_is_valid():
    bad = comparison([[1.0, np.nan], [np.inf, 4.0]])
    where = Location("a.cu", 3, 4)
    diagnostic = Diagnostic(Code.PORT_DIFFERS, where, {"tensor": "C", "count": 2, "total": 4})
    document = verification.document(result(row(Verdict.ERROR, (diagnostic,), (bad,)), row()))
    text = report_json.dumps(document)
    parsed = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(parsed, report_json.schema("verify"))
    assert parsed["exit_code"] == 5
    assert parsed["rows"][0]["port"][0]["first"]["actual"] == "NaN"


def test_the_error_document_is_valid():
    document = report_json.error([Diagnostic(Code.FILE_NOT_FOUND, None, {"path": "x"})], ExitCode.USAGE)
    parsed = json.loads(report_json.dumps(document))
    jsonschema.validate(parsed, report_json.schema("error"))
    assert parsed["exit_code"] == 2
    assert [d["message"] for d in parsed["diagnostics"]] == ["no such file or directory: x"]


def test_messages_stand_together_by_their_cause():
    def left(line, name="wgmma"):
        return Diagnostic(Code.HOPPER_LEFT, Location("a.cu", line), {"name": name, "times": ""})

    note = Diagnostic(Code.NOTHING_TO_PORT, None, {"path": "b.cu"})
    said = [note, left(1), left(2), left(2), left(3, "other")]
    found = report_json.document("check", 1, {"diagnostics": report_json.diagnostics(said)})["causes"]
    assert [(c["id"], c["count"], len(c["locations"])) for c in found] == [
        ("PT7001", 3, 2),
        ("PT7001", 1, 1),
        ("PT0007", 1, 0),
    ]
    assert all(c["next_step"] for c in found)
    many = report_json.document("check", 1, {"findings": report_json.diagnostics([left(n) for n in range(1, 50)])})
    assert many["causes"][0]["count"] == 49
    assert len(many["causes"][0]["locations"]) == 20


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], ExitCode.OK),
        ([ExitCode.OK, ExitCode.INCONCLUSIVE], ExitCode.INCONCLUSIVE),
        ([ExitCode.INCONCLUSIVE, ExitCode.DIFFERENT, ExitCode.USAGE], ExitCode.DIFFERENT),
        ([ExitCode.UNPORTED, ExitCode.BUILD_FAILED], ExitCode.BUILD_FAILED),
        ([ExitCode.USAGE, ExitCode.INCONCLUSIVE], ExitCode.USAGE),
    ],
)
def test_the_worst_exit_code(codes, worst):
    assert worst_exit(codes) is worst


def test_nothing_run_is_never_clean():
    assert result().verdict is Verdict.INCOMPLETE
    assert verification_exit(result()) is ExitCode.INCONCLUSIVE
    assert verification_exit(result(row(), row(Verdict.INCOMPLETE))) is ExitCode.INCONCLUSIVE
    assert result(row(), row(Verdict.INCOMPLETE)).verdict is Verdict.INCOMPLETE
    assert verification_exit(result(row(Verdict.ERROR))) is ExitCode.DIFFERENT
    assert verification_exit(result(row())) is ExitCode.OK


def test_comparisons_in_words():
    assert comparison_text(comparison([[1, 2], [3, 4]])) == "within bound (0.0e+00)"
    assert comparison_text(comparison([[1, 2], [3, 5]])) == "1 of 4 differ, up to 2097152 ulp"
    assert comparison_text(comparison([[np.nan, 2], [3, 4]])) == "1 of 4 differ, 1 NaN"
    assert comparison_text(same_values("C", F32, np.array([np.nan]), F32.encode(np.ones(1)))) == "1 of 1 differ"
    values = F32.encode(np.array([1.0, 2.0]))
    assert comparison_text(same_bits("C", F32, values, values)) == "same bits"
    assert comparison_text(same_values("C", F32, np.array([1.0, 2.0]), values)) == "equal"
    poison = np.frombuffer(b"\xff" * 8, np.float32)
    assert comparison_text(same_values("C", F32, np.array([1.0, 2.0]), poison)) == "2 of 2 differ, 2 unwritten"


def test_a_narrow_terminal_leaves_nothing_out():
    console = Console(width=40, file=io.StringIO(), record=True)
    console.print(*verdict_tables(result(row())))
    text = console.export_text()
    assert "…" not in text
    lines = [line.split() for line in text.splitlines()]
    assert "clean" in "".join(words[-1] for words in lines if words)
