# SPDX-License-Identifier: Apache-2.0
"""Mutants of the corpus' ports: what a run refuses, by the records of `porter mutate`, the proof refuses too."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from corpus_kernels import CORPUS

from porter.cli.context import current
from porter.cli.making import Ports
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.sync.checked import Verdict, check
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.launching import build_port
from porter.verify.mutants import mutants, mutated
from porter.verify.problem import Problem, bind
from porter.verify.proving import clusters_looked_at

RECORDS = Path(__file__).parents[2] / "docs" / "results" / "mutation"
LARGEST = {"gemm_ws", "gemm_persistent", "gemm_cluster", "gemm_pipelined", "gemm_rs", "attention_fwd"}
OTHERS = {"gemm_tma", "gemm_coop", "gemm_splitk", "gemm_tf32"}
EACH = 12
"""Of the mutants of a kernel each one with such a number is in `make test`."""


def number(text: str) -> int | bool:
    return int(text) if text.isdigit() else text == "True"


@cache
def built(kernel: str) -> tuple[Problem, BuiltKernel, list[dict[str, Any]]]:
    """The port at the size of its record, and the rows of mutants that a run at that size decides about."""
    record = json.loads((RECORDS / f"{kernel}.json").read_text(encoding="utf-8"))
    sizes = {name: number(value) for name, value in (pair.split("=") for pair in record["sizes"].split(", "))}
    case = load_case(CORPUS / kernel / "case.yaml")
    plan, _ = Ports(current()).of_case(case, None)
    assert plan is not None
    port = build_port(bind(case, sizes), plan, ToolkitBuilder())
    return port.problem, port.kernel, [row for row in record["rows"] if "at" not in row]


def refused(row: dict[str, Any]) -> bool:
    """Whether a run refuses a mutant, at the level of practice."""
    return any(row.get(key) for key in ("ended", "errors", "value"))


def left_out(kernel: str, part: int, of: int) -> list[str]:
    """Mutants that a run refuses and the proof calls clean."""
    problem, built_kernel, rows = built(kernel)
    by_name = {(row["how"], row["opcode"], row["nth"]): row for row in rows}
    every = mutants(built_kernel.module, built_kernel.entry)
    assert set(by_name) <= {(m.how, m.instruction.opcode, m.nth) for m in every}, "the record is of another port"
    found = []
    for index, mutant in enumerate(every):
        row = by_name.get((mutant.how, mutant.instruction.opcode, mutant.nth))
        if index % of != part or row is None or not refused(row):
            continue
        module = mutated(built_kernel.module, [mutant])
        flow = Flow(Code(module, module.function(built_kernel.entry)))
        if all(check(of).verdict in (Verdict.CLEAN, Verdict.REVIEW) for of in clusters_looked_at(problem, flow)):
            found.append(f"{mutant.name}, number {mutant.nth}")
    return found


@pytest.mark.parametrize("kernel", ["gemm_ws", "gemm_tma"])
def test_the_port_is_clean(kernel: str) -> None:
    problem, built_kernel, _ = built(kernel)
    assert built_kernel.function is not None
    flow = Flow(Code(built_kernel.module, built_kernel.function))
    assert {check(of).verdict for of in clusters_looked_at(problem, flow)} == {Verdict.CLEAN}


@pytest.mark.parametrize("kernel", [
    pytest.param(kernel, marks=[] if kernel in ("gemm_ws", "gemm_tma") else [pytest.mark.slow])
    for kernel in sorted(LARGEST | OTHERS)
])  # fmt: skip
def test_what_runs_refuse_the_proof_refuses(kernel: str) -> None:
    assert not left_out(kernel, 0, EACH)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, EACH))
@pytest.mark.parametrize("kernel", sorted(LARGEST | OTHERS))
def test_what_runs_refuse_the_proof_refuses_all(kernel: str, part: int) -> None:
    assert not left_out(kernel, part, EACH)
