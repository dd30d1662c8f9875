# SPDX-License-Identifier: Apache-2.0
"""`porter plan`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli import native
from porter.cli.context import Session
from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.grade.shape import Epilogue, Mma, Residency, Shape
from porter.report.json import schema
from porter.report.native import Gain, NativePlan
from porter.scan.native import Step

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


def test_native_steps_without_a_case_have_no_grades(tmp_path: Path) -> None:
    source = tmp_path / "gemm_cluster.cu"
    source.write_text((CORPUS / "gemm_cluster" / "gemm_cluster.cu").read_text())
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--style", "native", str(source)])
    assert result.exit_code == ExitCode.OK
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("plan"))
    (native,) = document["native"]
    assert native["graded"] == "the kernel has no case"
    assert {s["name"]: s["port"] for s in native["steps"] if s["port"]} == {
        "m128": "porter port --style full-rate",
        "release": "porter port --style native",
        "mma-thread": "porter port --style native",
    }
    assert all(s["after"] is None for s in native["steps"])
    text = CliRunner().invoke(main, ["plan", "--style", "native", str(source)]).stdout
    assert "not rewritten" in text
    assert "no grades: the kernel has no case" in text


@pytest.mark.slow
def test_native_steps_are_graded_on_top_of_each_other() -> None:
    kernel = str(CORPUS / "gemm_persistent" / "gemm_persistent.cu")
    result = CliRunner().invoke(main, ["--format", "json", "plan", "--style", "native", kernel])
    (native,) = json.loads(result.stdout)["native"]
    graded = [s for s in native["steps"] if s["after"] is not None and s["port"]]
    assert [s["name"] for s in graded] == ["m128", "release", "double-buffer", "pair", "stages"]
    assert all(a["after"] == b["before"] for a, b in pairwise(graded))
    assert all(s["after"] > s["before"] for s in graded)


SHAPE = Shape("sm_100a", ((Mma(128, 128), 4),), 128, 128, 32768, 3, "specialized", 128, persistent=True,
              epilogue=Epilogue(4, overlapped=True), residency=Residency(100000, 256, 416, 168))  # fmt: skip


def graded(shape: Shape, *steps: tuple[str, str, bool]) -> dict[str, Gain]:
    """Steps of a port of this shape, each with what the grade is asked about it and whether the port has it."""
    gains = tuple(Gain(Step(name, "", True, (), what_if, "", taken)) for name, what_if, taken in steps)
    plan = NativePlan("kernel", "k.cu:1", gains, "")
    found = native._graded(Session(), plan, shape, lambda count: "", lambda name: "")
    return {gain.step.name: gain for gain in found.gains}


def test_steps_that_a_port_lacks_are_not_counted_below_them() -> None:
    most = ("stages", "stages=6", True)
    found = graded(SHAPE, ("pair", "pair", False), most)
    assert found["pair"].after > found["pair"].before == found["stages"].before
    taken = graded(SHAPE, ("pair", "pair", True), most)
    assert taken["stages"].before == taken["pair"].after


def test_tiles_are_wider_where_all_steps_together_are_faster() -> None:
    wide = ("wide", "wide", True)
    alone = graded(SHAPE, wide)["wide"]
    assert alone.step.applies
    assert alone.after > alone.before
    # a step that gives tiles this width whatever they had
    beside = graded(SHAPE, wide, ("pair", "pair,tile=256x256", True))
    assert beside["wide"].step.applies is False
    assert "as fast, with the other steps" in " ".join(beside["wide"].step.why)
    assert beside["pair"].after > alone.after


@pytest.mark.slow
def test_native_steps_are_graded_for_the_problem_that_is_asked_for() -> None:
    rates = []
    for problem in ("1024x1024x1024", "8192x8192x8192"):
        command = ["--format", "json", "plan", "--style", "native", "--problem", problem, str(CORPUS / "gemm_ws")]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == ExitCode.OK, result.output
        (native,) = json.loads(result.stdout)["native"]
        assert problem.replace("x", " x ") in native["graded"]
        rates.append([s["after"] for s in native["steps"] if s["after"] is not None])
    assert rates[0] != rates[1]


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
