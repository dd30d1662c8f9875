# SPDX-License-Identifier: Apache-2.0
"""`porter hazards` and `porter mutate`: verdicts, exit codes, text, JSON and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from check_ptx import HEADER, TENSOR, without
from click.testing import CliRunner

from porter.cli.main import main
from porter.report.json import schema

ARGUMENTS = ["--arg", "f16[2048]=ones", "--arg", "u8[65536]", "--block", "128", "--smem", "8192"]


def ptx(folder: Path, body: str) -> str:
    path = folder / "kernel.ptx"
    path.write_text(HEADER.format(target="sm_100a") + body + "\n}\n")
    return str(path)


def run(*args: str, code: int) -> str:
    result = CliRunner().invoke(main, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_clean_kernel(tmp_path: Path) -> None:
    output = run("hazards", ptx(tmp_path, TENSOR), "--level", "strict", *ARGUMENTS, code=0)
    assert "clean, 0 errors, 0 to review" in output


def test_text_names_both_sites_the_edge_and_the_remedy(tmp_path: Path) -> None:
    path = ptx(tmp_path, without(TENSOR, "overwrite_barrier"))
    lines = run("hazards", path, "--level", "strict", *ARGUMENTS, code=5).splitlines()
    at = next(i for i, line in enumerate(lines) if "WAR hazard H3 [PT4101]" in line)
    block = "\n".join(lines[at : at + 10])
    assert all(line.startswith("=========") for line in lines)
    for text in ("first access: tcgen05.ld", "second access: tcgen05.mma", "PTX line", "warp", "Tensor Memory lanes",
                 "missing: synchronization", "add: bar.sync"):  # fmt: skip
        assert text in block


def test_levels_decide_between_error_and_review(tmp_path: Path) -> None:
    path = ptx(tmp_path, without(TENSOR, "after_overwrite"))
    assert "error" in run("hazards", path, "--level", "strict", *ARGUMENTS, code=5)
    assert ": review, 0 errors" in run("hazards", path, *ARGUMENTS, code=0)


def test_a_hang_is_an_error_and_a_budget_is_inconclusive(tmp_path: Path) -> None:
    path = ptx(tmp_path, without(TENSOR, "commit"))
    assert "PT4003" in run("hazards", path, *ARGUMENTS, code=5)
    assert ": incomplete" in run("hazards", ptx(tmp_path, TENSOR), "--budget", "20", *ARGUMENTS, code=6)


def test_random_runs_name_the_seed_that_replays_a_finding(tmp_path: Path) -> None:
    path = ptx(tmp_path, without(TENSOR, "operand_barrier"))
    output = run("hazards", path, "--seeds", "3", "--seed", "7", *ARGUMENTS, code=5)
    assert "replay: --schedule random --seed 7" in output


def test_json_follows_its_schema(tmp_path: Path) -> None:
    path = ptx(tmp_path, without(TENSOR, "proxy_fence"))
    document = json.loads(run("--format", "json", "hazards", path, "--level", "strict", *ARGUMENTS, code=5))
    jsonschema.validate(document, schema("hazards"))
    (found,) = document["runs"]
    assert document["verdict"] == found["verdict"] == "error"
    hazard = next(h for h in found["hazards"] if h["hazard"] == "H16")
    assert hazard["race"] == "RAW"
    assert hazard["first"]["opcode"].startswith("st.shared")
    assert hazard["second"]["opcode"].startswith("tcgen05.mma")
    assert hazard["remedy"] == "fence.proxy.async"


def test_sarif_has_one_result_a_hazard_with_both_sites(tmp_path: Path) -> None:
    path, sarif = ptx(tmp_path, without(TENSOR, "proxy_fence")), tmp_path / "out.sarif"
    run("hazards", path, "--sarif", str(sarif), "--level", "strict", *ARGUMENTS, code=5)
    document = json.loads(sarif.read_text())
    (one,) = document["runs"]
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert document["version"] == "2.1.0"
    assert one["results"]
    for result in one["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
        assert len(flow) == 2
        assert result["message"]["text"]


@pytest.mark.parametrize("args", [["hazards", "nothing.ptx"], ["mutate", "nothing.cu"]])
def test_a_missing_file_is_wrong_usage(args: list[str]) -> None:
    run(*args, code=2)
