# SPDX-License-Identifier: Apache-2.0
"""Verification of one case or many: what is run on which backend, under which schedules, and looked through for
hazards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.sim.results import Schedule
from porter.verify.backends import Backend
from porter.verify.budget import Budget
from porter.verify.builder import Builder
from porter.verify.case import Case, load_case
from porter.verify.checked import Checking
from porter.verify.choose_backend import make_backend
from porter.verify.coverage import Coverage
from porter.verify.expr import Number
from porter.verify.further import further_sizes
from porter.verify.hazards import usual_level
from porter.verify.known import Known
from porter.verify.launching import ported_case
from porter.verify.oracle import require_trusted
from porter.verify.outcome import Verdict
from porter.verify.prepare import PortOf
from porter.verify.proved import CaseProofs, prove_case
from porter.verify.record import ReplayBackend, load
from porter.verify.results import Row, VerifyResult
from porter.verify.runner import Again, ProgressCall, VerifyOptions, verify
from porter.verify.runs import Runs
from porter.verify.settings import SimOptions

_DSL_SEEDS = 2
"""Random schedules under which ports of CuTe DSL kernels run."""


@dataclass(frozen=True)
class Wanted:
    """What is done with every case. `sizes` None: the default ones, and what they cannot show. `hazards` None: looked
    for where there is a port and they can be. `port_of` None: only originals; `finished`: it gives a port that is
    there already, so that also an original which is known as PTX or a binary has one. `source` is that of recorded
    cases; `include_dirs` come behind the case's own. `all_named`: a case that cannot be run is named and does not
    hide the others. `known`: rows that are taken as they are, to which others are added; `runs`: the same of single
    runs. `inputs`: what inputs are drawn from, None for the seed of the settings. `prove_seconds`: how long the
    synchronization of each program is proved on its PTX; 0: not at all. `again`: the first size is run under other
    schedules, too. `until_wrong`: nothing is run behind what is not right."""

    settings: SimOptions
    backend: str = "sim"
    against: Path | None = None
    families: Sequence[str] | Callable[[Case], Sequence[str]] | None = None
    sizes: Callable[[Case], Sequence[Mapping[str, Number]]] | None = None
    hazards: bool | None = None
    port_of: PortOf | None = None
    finished: bool = False
    source: Path | None = None
    include_dirs: tuple[Path, ...] = ()
    all_named: bool = False
    budget: Budget = field(default_factory=Budget)
    known: Known | None = None
    runs: Runs | None = None
    inputs: int | None = None
    prove_seconds: float = 0
    again: bool = True
    until_wrong: bool = False

    def families_of(self, case: Case) -> Sequence[str] | None:
        """None: all that apply."""
        return self.families(case) if callable(self.families) else self.families


def verify_cases(
    items: Sequence[Path | Case], wanted: Wanted, builder: Builder, tell: ProgressCall | None = None
) -> VerifyResult:
    """Every case, given as such or by its file.

    Raises:
        PorterError: BAD_OPTION; unless `all_named`, what loading, porting and verifying a case raise.
    """
    began = time.perf_counter()
    if any(map(_is_recorded, items)):
        # What hardware computed is compared with in its own arithmetic.
        wanted = replace(wanted, settings=replace(wanted.settings, arithmetic="exact"))
    sweep = _Sweep(wanted, builder, tell)
    rows: list[Row] = []
    errors: list[Diagnostic] = []
    coverage: list[Coverage] = []
    earlier: list[Mapping[str, Any]] = []
    proofs: list[CaseProofs] = []
    for item in items:
        try:
            found, left = sweep.case(item if isinstance(item, Case) else load_case(item))
            if found is not None:
                rows += found.rows
                earlier += found.earlier
                coverage += found.coverage
                proofs += found.proofs
            errors += left
            if wanted.until_wrong and not all(row.verdict in (Verdict.CLEAN, Verdict.REVIEW) for row in rows):
                break
        except PorterError as error:
            if not wanted.all_named:
                raise
            errors += [_named(d, item) for d in error.diagnostics]
    return VerifyResult(
        tuple(rows),
        sweep.backend.name,
        wanted.settings.schedule,
        sweep.backend.arithmetic,
        wanted.settings.seed,
        time.perf_counter() - began,
        tuple(errors),
        tuple(coverage),
        tuple(earlier),
        tuple(proofs),
    )


class _Sweep:
    def __init__(self, wanted: Wanted, builder: Builder, tell: ProgressCall | None) -> None:
        self.wanted, self.settings, self.builder, self.tell = wanted, wanted.settings, builder, tell
        backend = make_backend(wanted.backend, self.settings)
        self.on_simulator = backend.name == "sim"
        self.checks = self.on_simulator and wanted.against is None
        if wanted.hazards and not self.checks:
            raise PorterError(Code.BAD_OPTION, option="--hazards", problem="needs --backend sim and no --against")
        if wanted.against is not None:
            backend = ReplayBackend(load(wanted.against), wanted.against, backend)
        self.backend = backend

    def case(self, given: Case) -> tuple[VerifyResult | None, list[Diagnostic]]:
        """One case; no result where its kernel could not be ported, as the diagnostics then say."""
        wanted, case = self.wanted, self._with_source(given)
        require_trusted(case)
        only_original = wanted.port_of is None
        dsl_port = case.dsl is not None and not only_original
        if not wanted.finished and case.recorded is not None and case.source is None:
            only_original = True  # PTX and cubins are not ported.
        plan: PortPlan | None = None
        if not only_original and wanted.port_of is not None:
            plan, notes = wanted.port_of(case)
            if plan is None:
                return None, notes
            if plan.reorders and case.compare is None:
                case = replace(case, compare="bound")
        options = self._options(case if plan is None else ported_case(case, plan.section), dsl_port, plan)
        if plan is None and not wanted.hazards:
            # Hazards that nobody asked for are looked for to judge a port.
            options = replace(options, checking=None)
        return replace(verify(case, plan, self.builder, self.backend, options), proofs=self._proofs(case, plan)), []

    def _proofs(self, case: Case, plan: PortPlan | None) -> tuple[CaseProofs, ...]:
        """None where hazards are not looked for either."""
        wanted = self.wanted
        if not wanted.prove_seconds or wanted.hazards is False or (plan is None and not wanted.hazards):
            return ()
        if self.tell is not None:
            self.tell(f"{case.name}: proving")
        chosen = wanted.sizes(case) if wanted.sizes is not None else [case.sizes, *case.other_sizes]
        return (prove_case(case, plan, self.builder, chosen, wanted.prove_seconds),)

    def _options(self, case: Case, dsl_port: bool, plan: PortPlan | None) -> VerifyOptions:
        """`case` as the port has it, which may not take all sizes."""
        wanted, settings = self.wanted, self.settings
        on_default = wanted.sizes is None and wanted.against is None and wanted.port_of is not None
        options = VerifyOptions(
            wanted.families_of(case),
            wanted.sizes(case) if wanted.sizes is not None else (case.sizes,),
            settings.seed,
            settings.schedule,
            self.tell,
            again=other_schedules(dsl_port, settings) if self.on_simulator and wanted.again else (),
            checking=partial(self._checking, plan) if self.checks and wanted.hazards is not False else None,
            under=partial(_under, settings) if self.checks else None,
            budget=wanted.budget,
            known=wanted.known,
            runs=wanted.runs,
            inputs=wanted.inputs,
            until_wrong=wanted.until_wrong,
        )
        return (
            replace(options, further=further_sizes(case), larger=case if case.recorded is None else None)
            if on_default
            else options
        )

    def _checking(self, plan: PortPlan | None, program: str) -> Checking:
        """The backend that looks for hazards, for original or port."""
        level = usual_level(program, plan)
        settings = replace(self.settings, checking=level)
        lacks_fences = program == "port" and plan is not None and plan.at_practice
        return Checking(make_backend("sim", settings), level, self.settings.schedule, lacks_fences)

    def _with_source(self, case: Case) -> Case:
        source, include_dirs = self.wanted.source, self.wanted.include_dirs
        if case.recorded is None and source is not None:
            raise PorterError(Code.BAD_OPTION, option="--source", problem=f"{case.path} is no recorded case")
        return replace(case, source=source or case.source, include_dirs=(*case.include_dirs, *include_dirs))


def other_schedules(dsl_port: bool, settings: SimOptions) -> tuple[Again, ...]:
    """The other schedules: a random one, or for ports of CuTe DSL kernels all there are, with several seeds."""
    wanted: list[tuple[str, int]] = [("random", settings.seed + n) for n in range(_DSL_SEEDS if dsl_port else 1)]
    if dsl_port:
        wanted = [("late", settings.seed), ("eager", settings.seed), *wanted]
    others = [(schedule, seed) for schedule, seed in wanted if (schedule, seed) != (settings.schedule, settings.seed)]
    return tuple(
        Again(_under(replace(settings, seed=seed), schedule), schedule, seed if schedule == "random" else None)
        for schedule, seed in others
    )


def _under(settings: SimOptions, schedule: str) -> Backend:
    """The simulator with another schedule."""
    return make_backend("sim", replace(settings, schedule=cast(Schedule, schedule)))


def _is_recorded(item: Path | Case) -> bool:
    with suppress(PorterError):  # It is reported when its turn comes.
        return (item if isinstance(item, Case) else load_case(item)).recorded is not None
    return False


def _named(diagnostic: Diagnostic, item: Path | Case) -> Diagnostic:
    if diagnostic.where is not None:
        return diagnostic
    return replace(diagnostic, where=Location(str(item.path if isinstance(item, Case) else item)))
