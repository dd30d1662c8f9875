# SPDX-License-Identifier: Apache-2.0
"""`porter mutate`: table, JSON, and results that are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.report.json import schema
from porter.verify.mutation_record import read_record, write_record

CORPUS = Path(__file__).parents[2] / "corpus"
KERNEL = str(CORPUS / "gemm_coop" / "gemm_coop.cu")
CASE = str(CORPUS / "gemm_coop" / "case.yaml")


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


@pytest.mark.slow
@pytest.mark.external
def test_results_are_kept_and_passed_over(tmp_path: Path) -> None:
    options = ("--record", str(tmp_path), "--sizes", "M=64,N=128,K=64")
    code, text = run("mutate", KERNEL, *options, "--jobs", "2")
    assert code == 1
    assert "gemm_coop: unexplained: drop tcgen05.relinquish_alloc_permit" in text
    record = read_record(tmp_path / "gemm_coop.json")
    assert record is not None
    fence = next(r for r in record.rows if r.opcode.startswith("fence.proxy.async"))
    assert (fence.how, fence.reviews, fence.errors, fence.caught) == ("drop", ("H16",), (), True)
    assert fence.source
    (tmp_path / "reviewed.yaml").write_text("- {mutants: [''], why: Looked at.}\n")
    code, text = run("mutate", CASE, *options)
    assert code == 0
    assert text.startswith("gemm_coop port, kept: ")
    assert "unexplained" not in text
    write_record(tmp_path / "gemm_coop.json", replace(record, port="another text"))
    code, text = run("mutate", CASE, *options)
    assert text.startswith("gemm_coop port, compiled as before: ")
    assert read_record(tmp_path / "gemm_coop.json") == record
    (tmp_path / "reviewed.yaml").write_text("- {mutants: drop}\n")
    assert run("mutate", CASE, *options)[0] == 2


@pytest.mark.external
@pytest.mark.slow
def test_other_code_is_run_again(tmp_path: Path) -> None:
    run("mutate", KERNEL, "--record", str(tmp_path), "--jobs", "2")
    record = read_record(tmp_path / "gemm_coop.json")
    assert record is not None
    write_record(tmp_path / "gemm_coop.json", replace(record, port="another text", ptx="other code", rows=()))
    assert "compiled as before" not in run("mutate", CASE, "--record", str(tmp_path), "--jobs", "2")[1]
    assert read_record(tmp_path / "gemm_coop.json") == record


@pytest.mark.slow
@pytest.mark.external
def test_json_follows_its_schema_and_originals_are_mutated_too() -> None:
    code, text = run("--format", "json", "mutate", KERNEL, "--original", "--sizes", "M=64,N=128,K=128")
    document = json.loads(text)
    jsonschema.validate(document, schema("mutate"))
    (found,) = document["kernels"]
    assert found["program"] == "original"
    opcodes = {m["opcode"] for m in found["mutants"] if m["caught"]}
    assert any(opcode.startswith("wgmma.wait_group") for opcode in opcodes)
    assert code == document["exit_code"]


def test_results_of_originals_are_not_kept(tmp_path: Path) -> None:
    assert run("mutate", CASE, "--original", "--record", str(tmp_path))[0] == 2
