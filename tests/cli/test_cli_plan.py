# SPDX-License-Identifier: Apache-2.0
"""`porter plan`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.report.json import schema

CORPUS = Path(__file__).parents[2] / "corpus"


def test_plan_of_a_pipelined_kernel() -> None:
    result = CliRunner().invoke(
        main, ["--format", "json", "plan", str(CORPUS / "gemm_pipelined" / "gemm_pipelined.cu")]
    )
    assert result.exit_code == ExitCode.OK
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("plan"))
    (kernel,) = document["kernels"]
    assert kernel["in_flight"] == 2
    assert kernel["warpgroups"] == "2"
    (accumulator,) = kernel["accumulators"]
    assert (accumulator["name"], accumulator["columns"], accumulator["stored"]) == ("acc", 96, [])
    assert len(accumulator["loaded"]) == 1


def test_plan_says_where_an_accumulator_goes_back() -> None:
    result = CliRunner().invoke(main, ["plan", str(CORPUS / "attention_fwd" / "attention_fwd.cu")])
    assert result.exit_code == ExitCode.OK
    assert "threads change it between MMAs" in result.stdout


def test_plan_names_what_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("__device__ void f() { cute::warpgroup_arrive(); }\n")
    result = CliRunner().invoke(main, ["plan", str(source)])
    assert result.exit_code == ExitCode.UNPORTED
    assert "PT2003" in result.stderr


def test_plan_of_a_dsl_kernel() -> None:
    result = CliRunner().invoke(main, ["--format", "json", "plan", str(CORPUS / "dsl_gemm" / "dsl_gemm.py")])
    assert result.exit_code == ExitCode.OK
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("plan"))
    assert document["files"][0]["rules"]


def test_plan_of_a_pipeline() -> None:
    kernel = str(CORPUS / "gemm_persistent" / "gemm_persistent.cu")
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--pipeline", kernel])
    assert result.exit_code == ExitCode.OK
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("plan"))
    (found,) = document["pipelines"]
    full, empty = found["barriers"]
    assert (full["name"], full["agrees"], full["bytes_expected"], full["bytes_copied"]) == (
        "s.full[]",
        True,
        32768,
        32768,
    )
    assert (empty["arriving"], empty["waits"][0]["by_parity"]) == (256, True)
    assert [r["stages"]["value"] for r in found["rings"]] == [3, 3]
    assert found["launch"]["block"] == ["384", "1", "1"]
    assert [m["box"] for m in found["launch"]["maps"]] == [["64", "128"], ["64", "128"], ["64", "64"]]
    assert found["unknown"] == []


def test_a_pipeline_as_text_names_what_is_unknown() -> None:
    result = CliRunner().invoke(main, ["plan", "--pipeline", str(CORPUS / "gemm_struct" / "gemm_struct.cu")])
    assert result.exit_code == ExitCode.OK
    assert "unknown" in result.stdout
    assert "begins, and with what count" in " ".join(result.stdout.split())
    assert "producer" in result.stdout
