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
