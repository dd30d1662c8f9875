# SPDX-License-Identifier: Apache-2.0
"""Proof of a port whose text alone does not prove it: the cases beside its original run it at every size, and the
checker looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from porter.build.entry import function_name, kernel_name
from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, Diagnostic, PorterError, Severity
from porter.verify.ahead import compilations, meanwhile
from porter.verify.budget import Budget
from porter.verify.builder import PORT_ARCH, Builder, BuiltKernel, ToolkitBuilder
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.case_program import Program
from porter.verify.expr import Number
from porter.verify.further import OVER, half_tiles, long_loop, many_blocks, many_tiles
from porter.verify.inputs import DEFAULT_FAMILIES
from porter.verify.known import Known
from porter.verify.outcome import Verdict
from porter.verify.problem import Problem
from porter.verify.proving import Sizes
from porter.verify.refusals import refusal, told_by_launch_of
from porter.verify.results import VerifyResult
from porter.verify.runner import ProgressCall
from porter.verify.runs import Runs
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

SPENT = "seconds were over before its case had verified it"
"""What is missing, behind their number, where the time of a proof was over."""
_EXACT = ("integers", "index")
"""The families that run under random schedules too, where a case has one: each element says which tile it was made
of."""
_SEEDS = (1, 2)
_DSL_SEEDS = (2, 3)
"""Of ports of CuTe DSL, whose first size is run under other schedules with the seeds before."""
_JUDGED = 60.0
"""Seconds of processor time for each part of what PTX says of a case, behind its first size."""
_NAMED = 4
"""Instantiations that are named."""


SizesOf = Callable[[Case], Sequence[Sizes]]


@dataclass(frozen=True)
class Claim:
    """A port of the file `source`. `kernels`, by their names in its text, are those that have to be run; headers are
    found in `include_dirs` too. `takes_turns`: it has accumulators that tiles of a block take turns with. `takes_over`:
    its blocks do the work of others that have not begun. `dsl`: it is of CuTe DSL. `halved`: the dimension of the grid
    in which it has half the blocks, rounded up. `is_wide`: its MMAs have M=128; `joined`: they are those of two
    warpgroups. `is_equal`: PTX says that it leaves what its original leaves, at the sizes of the cases and behind."""

    source: Path
    kernels: Sequence[str]
    plan: PortPlan
    include_dirs: tuple[Path, ...] = ()
    takes_turns: bool = False
    takes_over: bool = False
    dsl: bool = False
    halved: int | None = None
    is_wide: bool = False
    joined: bool = False
    is_equal: bool = False


@dataclass(frozen=True)
class Proof:
    """The files of the cases that verified a port, and at how many sizes; or what is `missing` for that. `apart`: what
    is missing are cases of other instantiations."""

    cases: tuple[str, ...] = ()
    sizes: int = 0
    missing: str = ""
    apart: bool = False


@dataclass(frozen=True)
class Judgement:
    """What PTX says of a port: `equal`, with the kernels and sizes in `what`; `refused`, as something else is left or
    the port has hazards of its own; or `unknown`. `what` is the reason of these."""

    status: Literal["equal", "refused", "unknown"]
    what: str


Judge = Callable[[Path, PortPlan, "Sequence[str]", "float | None"], Judgement]
"""Says so of kernels in the port of a file, within so many seconds."""


@dataclass
class _Noting:
    """A builder that remembers which kernels of ports it built, and which stand in the same files."""

    inner: Builder
    entries: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        built = self.inner.build(problem, source, arch)
        if arch == PORT_ARCH:
            self.entries.add(built.entry)
            self.there.update(f.name for f in built.module.entries())
        return built


def prove(
    claim: Claim,
    builder: Builder,
    tell: ProgressCall | None = None,
    budget: Budget | None = None,
    known: Known | None = None,
    runs: Runs | None = None,
) -> Proof:
    """What verified a port, or why nothing did: no case runs a kernel, or another instantiation of it than that which
    the file has, a run ended otherwise than clean, or the time of `budget` was over before. Rows that are made are
    added to `known`, single runs to `runs`."""
    runs = Runs() if runs is None else runs
    noting = _Noting(builder)
    try:
        cases, missing = cases_that_run(claim.source, claim.kernels, claim.dsl)
        if missing:
            return Proof(missing=missing)
        if claim.plan.changes_turns and any(long_loop(c) is None for c in cases):
            return Proof(missing="no size of the case has a loop that goes through all stages more than once")
        if claim.takes_turns and any(many_tiles(c) is None for c in cases):
            return Proof(missing="no size at which a block has so many tiles that its accumulators come round again")
        if claim.takes_over and any(_blocks_of_one(claim, c) is None for c in cases):
            return Proof(missing="no size with so many blocks that the requests of one come round again")
        if claim.halved is not None and any(half_tiles(c, claim.halved) is None for c in cases):
            return Proof(missing="no size of the case at which the last tile is a half, and one at which all are whole")
        if claim.is_wide and (refused := _refused(claim, cases, noting, budget)):
            return Proof(missing=refused)
        with _ahead(claim, cases, builder):
            for wanted in _runs(claim):
                wanted = replace(wanted, budget=budget or Budget(), known=known, runs=runs, until_wrong=True)
                # the first run builds all cases: a kernel that none of them runs is known behind it
                wrong = _wrong(verify_cases(cases, wanted, noting, tell))
                if wrong:
                    return Proof(missing=wrong)
                if not claim.dsl and (others := _left_out(claim, noting)):
                    return Proof(missing=others, apart=True)
    except PorterError as error:
        return Proof(missing=_not_run(error))
    sizes = sum(len(c.all_sizes()) for c in cases)
    return Proof(tuple(c.path.name for c in cases), sizes)


def _refused(claim: Claim, cases: Sequence[Case], builder: Builder, budget: Budget | None) -> str:
    """Why PTX refuses the M=128 MMAs, at the sizes of the cases."""
    for case in cases:
        if claim.is_equal:
            if claim.joined and (what := told_by_launch_of(Program(case, builder), case.sizes)):
                return f"{case.name}: {what}"
            continue
        plan = claim.plan.on(case.template, case.launch.grid, case.map_params)
        left = _JUDGED if budget is None or budget.left is None else min(_JUDGED, budget.left)
        if what := refusal(case, plan, builder, case.all_sizes(), left, claim.joined):
            return f"{case.name}: {what}"
    return ""


def _left_out(claim: Claim, noting: _Noting) -> str:
    """Which instantiations of the kernels were compiled and are not run."""
    others = sorted(kernel_name(n) for n in noting.there - noting.entries if function_name(n) in claim.kernels)
    if not others:
        return ""
    named = ", ".join(f"`{n}`" for n in others[:_NAMED]) + (", and others" if others[_NAMED:] else "")
    return f"each instantiation that the file compiles needs a case, and none runs {named}"


def cases_that_run(source: Path, kernels: Sequence[str], dsl: bool = False) -> tuple[list[Case], str]:
    """The cases beside a file that run kernels, and what is missing of them: a kernel that none runs. Cases of CuTe
    DSL name what launches the kernel, not the kernel.

    Raises:
        PorterError: what loading a case raises.
    """
    beside = [c for c in map(load_case, cases_if_any(source)) if (c.dsl is not None) is dsl]
    cases = [c for c in beside if c.recorded is None]
    recorded = [c for c in beside if c.recorded is not None]
    if dsl:
        return cases, "" if cases else f"no case beside it runs it{_only_recorded(recorded)}"
    run = {_own_name(c) for c in cases}
    missed = next((k for k in kernels if k not in run), None)
    if missed is None:
        return cases, ""
    return cases, f"no case beside it runs `{missed}`{_only_recorded([c for c in recorded if _own_name(c) == missed])}"


def _own_name(case: Case) -> str:
    return function_name(case.entry) if case.entry.startswith("_Z") else case.entry.rsplit("::", 1)[-1]


def _only_recorded(cases: Sequence[Case]) -> str:
    named = ", ".join(c.path.name for c in cases[:_NAMED])
    return f" but as it was recorded, at one size, which proves nothing of others ({named})" if cases else ""


@dataclass(frozen=True)
class Outlook:
    """What can be told of a proof without running anything: what is `missing` for it, and the files with `code` that
    cases bring along for it."""

    missing: str = ""
    code: tuple[str, ...] = ()

    @property
    def asks(self) -> tuple[str, ...]:
        """What else it asks for."""
        return tuple(f"code that its case brings along may run (`--trust`): {name}" for name in self.code)


def outlook(source: Path, kernels: Sequence[str], dsl: bool = False) -> Outlook:
    """That of a proof of these kernels of a file."""
    try:
        cases, missing = cases_that_run(source, kernels, dsl)
    except PorterError as error:
        return Outlook(_not_run(error))
    brought = dict.fromkeys(c.reference_function[0].name for c in cases if c.reference_function is not None)
    return Outlook(missing, tuple(brought))


def _not_run(error: PorterError) -> str:
    return f"it could not be run: {error.diagnostic.message}"


def _runs(claim: Claim) -> Iterator[Wanted]:
    """Every size, each under the late schedule with all families and, on the same inputs, under random ones with those
    that are exact, or with all that a case has where none of them is; the checker looks on at strict level. With other
    stages or CTAs a long loop is run, too, and with several accumulators many tiles of a block: a phase that does not
    turn with them shows when they come round again. Of blocks that do the work of others one does that of all."""

    def port_of(case: Case) -> tuple[PortPlan, list[Diagnostic]]:
        return claim.plan.on(case.template, case.launch.grid, case.map_params), []

    late = Wanted(SimOptions(), sizes=Case.all_sizes, hazards=True, port_of=port_of, include_dirs=claim.include_dirs)
    yield late
    further = _further(claim)
    alone = partial(_alone, claim)
    for sizes in further:
        yield replace(late, sizes=sizes, families=_exact)
    if claim.takes_over:
        yield replace(late, sizes=alone, families=_exact, settings=SimOptions(resident=1))
    for seed in _DSL_SEEDS if claim.dsl else _SEEDS:
        settings = SimOptions(schedule="random", seed=seed)
        random = replace(late, settings=settings, families=_exact, again=not claim.dsl, inputs=0)
        yield random
        for sizes in further:
            yield replace(random, sizes=sizes)
        if claim.takes_over:
            one = SimOptions(schedule="random", seed=seed, resident=1)
            yield replace(random, sizes=alone, settings=one)


def _further(claim: Claim) -> list[SizesOf]:
    """Which other sizes of a case are run, where all that it lists have been."""

    def long(case: Case) -> Sequence[Sizes]:
        return [found] if (found := long_loop(case)) is not None else []

    def turning(case: Case) -> Sequence[Sizes]:
        return [found] if (found := many_tiles(case)) is not None else []

    def halves(case: Case) -> Sequence[Sizes]:
        found = half_tiles(case, claim.halved) if claim.halved is not None else None
        return [s for s in found or () if s not in case.all_sizes()]

    further: list[SizesOf] = [long] if claim.plan.changes_turns else []
    further += [turning] if claim.takes_turns else []
    return further + ([halves] if claim.halved is not None else [])


def _alone(claim: Claim, case: Case) -> Sequence[Sizes]:
    """At which sizes one block does the work of all."""
    return [found] if (found := _blocks_of_one(claim, case)) is not None else []


def _ahead(claim: Claim, cases: Sequence[Case], builder: Builder) -> AbstractContextManager[None]:
    """What runs are going to ask the compiler for, in the order in which they do."""
    if not claim.dsl or not isinstance(builder, ToolkitBuilder):
        return nullcontext()
    these = [replace(case, include_dirs=(*case.include_dirs, *claim.include_dirs)) for case in cases]
    every: list[SizesOf] = [Case.all_sizes, *_further(claim)]
    every += [partial(_alone, claim)] if claim.takes_over else []
    asked = [(case, claim.plan.on(case.template, case.launch.grid, case.map_params), sizes_of(case))
             for sizes_of in every for case in these]  # fmt: skip
    return meanwhile(*compilations(builder, asked))


def _exact(case: Case) -> Sequence[str]:
    named = case.families or DEFAULT_FAMILIES
    return [name for name in _EXACT if name in named] or named


def _blocks_of_one(claim: Claim, case: Case) -> Mapping[str, Number] | None:
    """A size with so many blocks of the port that the requests of one that does the work of all come round again. A
    case of CuTe DSL says no grid: a block has a tile."""
    least = OVER if claim.halved is None else 2 * OVER
    return many_tiles(case, least, lambda problem: 1) if claim.dsl else many_blocks(case, least)


def _wrong(result: VerifyResult) -> str:
    """What a verification found."""
    for row in result.rows:
        if row.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
            errors = [d for d in row.diagnostics if d.severity is Severity.ERROR]
            sizes = " ".join(f"{k}={v}" for k, v in row.sizes.items())
            spent = next((d for d in row.diagnostics if d.code is Code.TIME_SPENT), None)
            if spent is not None:
                return f"{spent.values['seconds']:g} {SPENT}"
            return f"{row.case} {sizes}, {row.inputs}: {errors[0].message if errors else row.verdict.value}"
    if result.errors:
        return result.errors[0].message
    return "" if result.rows else "nothing was run"
