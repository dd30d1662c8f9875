# SPDX-License-Identifier: Apache-2.0
"""Two backends held against each other, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from small_case import small_case

from porter.cli.selfcheck import _row as report_row
from porter.diagnostics import ExitCode
from porter.ptx.parser import parse_module
from porter.report import json as report_json
from porter.verify.backends import RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.gpu.selfcheck import BitsRow, compare_bits, read_simulated, simulated
from porter.verify.images import Image, make_image
from porter.verify.outcome import Verdict
from porter.verify.problem import LaunchValues, Problem

PTX = (
    ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 c)\n"
    "{\n  .reg .f32 %%f<3>;\n  %s\n  ret;\n}\n"
)


class Builder:
    def __init__(self, body: str) -> None:
        self.text = PTX % body

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        return BuiltKernel(arch, "k", parse_module(self.text), self.text)


class Copying:
    name, arithmetic = "fake", "exact"

    def __init__(self, guard: int, step: int = 0, status: str = "ok") -> None:
        self.guard, self.step, self.status = guard, step, status

    def run(self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: dict[str, Image]) -> RunResult:
        words = images["A"].elements().view(np.uint32)
        words[3] += self.step
        after = {**images, "C": make_image(images["C"].tensor, words.view(np.float32), self.guard)}
        return RunResult(self.status, (), after)  # type: ignore[arg-type]


def compared(tmp_path: Path, right: Copying, body: str = "") -> BitsRow:
    case = small_case(tmp_path, "A")
    (row,) = compare_bits(case, {}, ["normal"], Builder(body), Copying(0), right)
    return row


def test_equal_bits_are_clean(tmp_path: Path) -> None:
    row = compared(tmp_path, Copying(64))
    assert (row.verdict, row.different, row.elements) == (Verdict.CLEAN, 0, 32)


def test_one_bit_is_an_error_with_its_place(tmp_path: Path) -> None:
    row = compared(tmp_path, Copying(64, step=1))
    assert (row.verdict, row.different) == (Verdict.ERROR, 1)
    assert row.problem.startswith("C[3]: 0x")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [("ex2.approx.ftz.f32 %f1, %f2;", Verdict.REVIEW), ("add.f32 %f1, %f2, %f2;", Verdict.ERROR)],
)
def test_approximate_instructions_are_for_review(tmp_path: Path, body: str, verdict: Verdict) -> None:
    assert compared(tmp_path, Copying(64, step=1), body).verdict is verdict


def test_a_run_that_did_not_end_is_no_agreement(tmp_path: Path) -> None:
    assert compared(tmp_path, Copying(64, status="incomplete")).verdict is Verdict.INCOMPLETE
    assert compared(tmp_path, Copying(64, status="error")).verdict is Verdict.ERROR


def test_rows_say_how_to_repeat_them_and_what_came_out(tmp_path: Path) -> None:
    first, second = compared(tmp_path, Copying(64)), compared(tmp_path, Copying(64, step=1))
    assert first.seed == 0
    assert len(first.outputs["C"]) == 64
    assert first.outputs != second.outputs
    body = {"environment": {}, "rows": [report_row(first)], "diagnostics": []}
    jsonschema.validate(report_json.document("selfcheck", ExitCode.OK, body), report_json.schema("selfcheck"))


class Refusing(Copying):
    def run(self, *args: object) -> RunResult:
        raise AssertionError("the simulator ran again")


def test_what_was_simulated_before_is_not_run_again(tmp_path: Path) -> None:
    case = small_case(tmp_path, "A")
    rows = simulated(case, {}, ["normal"], Builder(""), Copying(0))
    known = read_simulated(json.loads(json.dumps([{**vars(r), "outputs": dict(r.outputs)} for r in rows])))
    (row,) = compare_bits(case, {}, ["normal"], Builder(""), Refusing(0), Copying(64), known=known)
    assert (row.verdict, row.left, row.elements) == (Verdict.CLEAN, "fake (earlier)", 32)
    # Another seed, or other bits on the GPU: only a run says where they differ.
    with pytest.raises(AssertionError, match="ran again"):
        compare_bits(case, {}, ["normal"], Builder(""), Refusing(0), Copying(64), seed=1, known=known)
    (row,) = compare_bits(case, {}, ["normal"], Builder(""), Copying(0), Copying(64, step=1), known=known)
    assert (row.verdict, row.different) == (Verdict.ERROR, 1)


def test_families_that_a_case_leaves_out_are_compared_too(tmp_path: Path) -> None:
    case = small_case(tmp_path, "A", more="families: [normal]\n")
    names = [r.family for r in compare_bits(case, {}, None, Builder(""), Copying(0), Copying(0))]
    assert names == ["integers", "index", "normal", "uniform", "wide", "special", "nonfinite"]


@pytest.mark.parametrize("text", ["red.global.add.f32 [%rd1], %f1;", "atom.add.noftz.bf16x2 %r1, [%rd1], %r2;"])
def test_atomic_sums_are_for_review(text: str, tmp_path: Path) -> None:
    declared = ".reg .b64 %rd<2>; .reg .b32 %r<3>;\n  "
    assert compared(tmp_path, Copying(0, step=1), declared + text).verdict is Verdict.REVIEW
