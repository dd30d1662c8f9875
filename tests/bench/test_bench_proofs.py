# SPDX-License-Identifier: Apache-2.0
"""How long proofs of synchronization take, and comparisons of originals with ports (docs/benchmarks.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from cProfile import Profile
from functools import cache
from itertools import product
from statistics import median
from typing import Any

import click
import pytest
from corpus_kernels import CORPUS

from porter.build.port_plan import PortPlan
from porter.cli.context import Session, current, install, styled
from porter.cli.making import Ports
from porter.verify import originals
from porter.verify.builder import Builder, ToolkitBuilder
from porter.verify.case import Case, load_case
from porter.verify.case_program import Program
from porter.verify.proved import proofs_of

Record = Callable[[str, float, float, str], None]

pytestmark = pytest.mark.slow

CUTE = sorted(p.parent.name for p in CORPUS.glob("cute_*/case.yaml"))
RAW = sorted(p.parent.name for p in CORPUS.glob("gemm_*/case.yaml"))
ATTENTION = ["attention_fwd"]
LONGEST = 60.0


PROFILED = ["gemm_ws", "cute_gemm_ws"]
STYLES = ("compat", "full-rate")


@cache
def compiled(name: str, style: str = "compat") -> tuple[Case, PortPlan | None, Builder]:
    """A case, the port of its kernel and what builds both: it has done so, and the compiler's time does not count."""
    case, builder = load_case(CORPUS / name / "case.yaml"), ToolkitBuilder()
    with click.Context(click.Command("bench")):
        install(Session(verbosity=-2))
        with styled(style):
            plan = Ports(current(), runs=False).of_case(case)[0]
    for program in (Program(case, builder), Program(case, builder, plan)):
        for sizes in (case.sizes, *case.other_sizes):
            program.at(sizes)
    return case, plan, builder


def proof_seconds(names: Sequence[str]) -> Iterator[float]:
    """Processor time for the proof of each original and each port."""
    for name in names:
        case, plan, builder = compiled(name)
        for one in (None, plan):
            began = time.process_time()
            Program(case, builder, one).prove([case.sizes, *case.other_sizes], LONGEST)
            yield time.process_time() - began


@cache
def comparison_seconds() -> list[float]:
    """Processor time for the comparison of each original with its port of each style, at the sizes of the case."""
    found = []
    for name, style in product([*RAW, *CUTE, *ATTENTION], STYLES):
        case, plan, builder = compiled(name, style)
        originals.forget()
        began = time.process_time()
        equality = proofs_of(case, plan, builder, [case.sizes, *case.other_sizes], LONGEST, "none").equality
        found.append(time.process_time() - began)
        assert equality is None or equality.status != "differs"
    return found


@pytest.mark.target
@pytest.mark.parametrize(("what", "names", "most"), [
    ("proof of raw CUDA, median", RAW, 3.0),
    ("proof of CuTe C++ and attention, median", [*CUTE, *ATTENTION], 15.0),
])  # fmt: skip
def test_proofs(what: str, names: list[str], most: float, benchmark: Any, figure: Record) -> None:
    taken: list[float] = []

    def run() -> None:
        taken.append(median(proof_seconds(names)))

    benchmark.pedantic(run, rounds=1)
    if benchmark.stats is not None:
        figure(what, 60 / min(taken), 60 / most, "a minute")


@pytest.mark.target
@pytest.mark.parametrize(("what", "of_all", "most"), [
    ("comparison of original and port, median", median, 10.0),
    ("comparison of original and port, at most", max, 30.0),
])  # fmt: skip
def test_comparisons(
    what: str, of_all: Callable[[Sequence[float]], float], most: float, benchmark: Any, figure: Record
) -> None:
    taken = benchmark.pedantic(comparison_seconds, rounds=1)
    if benchmark.stats is not None:
        figure(what, 60 / of_all(taken), 60 / most, "a minute")


@pytest.mark.parametrize("name", PROFILED)
def test_profiles(name: str, benchmark: Any, profiled: Callable[[str, Profile], None]) -> None:
    case, plan, builder = compiled(name)
    proof, comparison = Profile(time.process_time), Profile(time.process_time)

    def run() -> None:
        proof.runcall(Program(case, builder, plan).prove, [case.sizes], LONGEST)
        comparison.runcall(proofs_of, case, plan, builder, [case.sizes], LONGEST, "none")

    benchmark.pedantic(run, rounds=1)
    profiled(f"proof of {name}", proof)
    profiled(f"comparison of {name}", comparison)
