# SPDX-License-Identifier: Apache-2.0
"""`porter plan`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.report.json import schema

CORPUS = Path(__file__).parents[2] / "corpus"
SMALL = """#pragma once
__global__ void k(float* out) {
    float d[4] = {0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(0ull), "l"(0ull));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
"""


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


def test_steps_are_those_of_the_port_and_others_say_what_keeps_them_from_it() -> None:
    kernel = str(CORPUS / "gemm_persistent" / "gemm_persistent.cu")
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--style", "native", kernel])
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("plan"))
    (native,) = document["native"]
    found = {s["name"]: s["port"] for s in native["steps"]}
    (plan,) = document["kernels"]
    assert [name for name, port in found.items() if port == "yes"] == ["m128", *plan["native"]]
    asked = {name for name, port in found.items() if port == "where it is faster"}
    assert asked == {"stages", "blocks", "registers"}
    why = {s["name"]: s["why"] for s in native["steps"] if s["port"] == "no"}
    assert all(why.values())
    assert why["tiles"] == ["that a block has one tile: it takes several in a loop"]
    assert "promotion" not in found


def test_two_tiles_of_a_warpgroup_have_a_rule_of_their_own() -> None:
    kernel = str(CORPUS / "gemm_tma" / "gemm_tma.cu")
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--style", "native", kernel])
    (native,) = json.loads(result.stdout)["native"]
    assert [(s["rule"], s["port"]) for s in native["steps"] if s["name"] == "m128"] == [("PTR181", "yes")]


def test_steps_that_change_results_are_there_on_request() -> None:
    kernel = str(CORPUS / "gemm_fp8_ue8m0" / "gemm_fp8_ue8m0.cu")
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--style", "native", kernel])
    (native,) = json.loads(result.stdout)["native"]
    found = {s["name"]: s["port"] for s in native["steps"]}
    assert (found["promotion"], found["scales"]) == ("no", "on request")


@pytest.mark.slow
def test_plan_of_a_tree_shows_a_kernel_once_and_refuses_what_port_refuses(tmp_path: Path) -> None:
    kernel = (CORPUS / "gemm_pipelined" / "gemm_pipelined.cu").read_bytes()
    for header in CORPUS.glob("gemm_pipelined/*.cuh"):
        (tmp_path / header.name).write_bytes(header.read_bytes())
    (tmp_path / "k.cuh").write_bytes(b"#pragma once\n" + kernel)
    for name in ("one.cu", "two.cu"):
        (tmp_path / name).write_text('#include "k.cuh"\n')
    result = CliRunner().invoke(main, ["--format", "json", "plan", str(tmp_path), "--jobs", "1"])
    assert len(json.loads(result.stdout)["kernels"]) == 1, result.stderr
    # one header for two block sizes
    for name, threads in (("one.cu", 128), ("two.cu", 256)):
        launch = f"void f_{threads}(float* p) {{ k<<<1, {threads}>>>(p); }}\n"
        (tmp_path / name).write_text(f'#include "small.cuh"\n{launch}')
    (tmp_path / "k.cuh").unlink()
    (tmp_path / "small.cuh").write_text(SMALL)
    for command in (["plan"], ["port", "--no-compile"]):
        result = CliRunner().invoke(main, [*command, str(tmp_path), "--jobs", "1"])
        assert result.exit_code == ExitCode.UNPORTED
        assert "PT2015" in result.stderr, command
