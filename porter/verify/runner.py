# SPDX-License-Identifier: Apache-2.0
"""Verification: build original and port, run both on the same inputs, compare with the reference and each
other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.build.gate import same_code
from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, Severity
from porter.verify.backends import Backend, SimBackend
from porter.verify.beyond import Beyond
from porter.verify.budget import Budget, digest_of
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder
from porter.verify.case import Case
from porter.verify.checked import Checking, checked_run, hazard_diagnostics, judged
from porter.verify.coverage import Coverage, Executed
from porter.verify.depot import depot_of_port
from porter.verify.expr import Number
from porter.verify.further import Plan
from porter.verify.hazards import HazardRun
from porter.verify.inputs import Family, choose
from porter.verify.known import Known
from porter.verify.launching import build_port, launch_of
from porter.verify.line_map import placed_in_original
from porter.verify.outcome import Verdict
from porter.verify.problem import Problem, bind
from porter.verify.results import Row, VerifyResult
from porter.verify.room import room_of_port
from porter.verify.runs import Runs
from porter.verify.second import SECOND, First, Left, hazard_of_second, of_second
from porter.verify.trial import Program, Ran, Trial

ProgressCall = Callable[[str], None]


@dataclass(frozen=True)
class Again:
    """A backend with another schedule; `seed` is that of a random one."""

    backend: Backend
    schedule: str = "random"
    seed: int | None = None


@dataclass(frozen=True)
class VerifyOptions:
    """`families` None: all that apply. `sizes`: one mapping per problem size; names left out keep the case's
    default. `further` are sizes run on one family each, and larger ones of the case `larger`, as the port has it, for
    what no run came to. `schedule` is recorded with the result. `again` are other schedules: the family with exact sums
    is run under each once more, at the first size; ports of CuTe DSL kernels whatever families were asked for.
    `checking` gives, for original or port, a backend that also looks for hazards, which the first family of each size
    is run on. `under` gives a backend with a schedule of that name: an original that is wrong is run on others, to tell
    a race from a wrong result. `budget`: how long new rows are begun, and those that there are. `known`: rows that were
    made before in this process, to which others are added; `runs`: the same of single runs.
    `inputs`: what inputs are drawn from, where that is not `seed`, from which schedules are. `until_wrong`: nothing is
    run behind a row that is not good."""

    families: Sequence[str] | None = None
    sizes: Sequence[Mapping[str, Number]] = ({},)
    seed: int = 0
    schedule: str = "late"
    progress: ProgressCall | None = None
    again: Sequence[Again] = ()
    checking: Callable[[str], Checking] | None = None
    further: Plan = field(default_factory=Plan)
    larger: Case | None = None
    budget: Budget = field(default_factory=Budget)
    under: Callable[[str], Backend] | None = None
    known: Known | None = None
    runs: Runs | None = None
    inputs: int | None = None
    until_wrong: bool = False

    @property
    def of_inputs(self) -> int:
        """What inputs are drawn from."""
        return self.seed if self.inputs is None else self.inputs


_GOOD = (Verdict.CLEAN, Verdict.REVIEW)
_EXACT_FAMILY = "integers"
"""Exact sums show a tile that was read too early or overwritten too soon in every element it reaches."""

_SCHEDULES = ("late", "eager")
"""Without chance: an original that is wrong under one and right under the other has a race."""


def verify(
    case: Case, port: PortPlan | None, builder: Builder, backend: Backend, options: VerifyOptions
) -> VerifyResult:
    """One row per size and family. Without a port only the original is checked against the reference.

    What a compiler refuses becomes the error of the rows of that size.

    Raises:
        PorterError: the case does not fit its sizes or kernel (PT50xx), or there is no compiler.
    """
    began = time.perf_counter()
    problems = [bind(case, sizes) for sizes in options.sizes]
    asked = list(options.families) if options.families else None
    chosen = [choose(asked, p) for p in problems]
    rows: list[Row] = []
    session = _Session(case, port, builder, backend, options)
    for i, (problem, families) in enumerate(zip(problems, chosen, strict=True)):
        rows += session.size(problem, families, first=i == 0)
        if session.is_over(rows):
            break
    further = [] if session.is_over(rows) else _run_further(session, asked, rows)
    left_out = [*options.further.left_out, *further]
    return VerifyResult(
        rows=tuple(rows),
        backend=backend.name,
        schedule=options.schedule,
        arithmetic=backend.arithmetic,
        seed=options.seed,
        seconds=time.perf_counter() - began,
        coverage=(session.coverage(rows, [*left_out, *dict.fromkeys(session.left_out)]),),
        earlier=tuple(session.earlier),
    )


def _run_further(session: _Session, asked: list[str] | None, rows: list[Row]) -> list[tuple[str, str]]:
    """Add the rows of sizes that nobody asked for; returns those that were left out, with the reason."""
    options, left_out = session.options, []
    waiting = list(options.further.sizes)
    while True:
        if not waiting and options.larger is not None and all(r.verdict in _GOOD for r in rows):
            waiting = [larger] if (larger := session.beyond.next()) is not None else []
        if not waiting:
            break
        further = waiting.pop(0)
        problem = bind(session.case, further.sizes)
        families = choose(asked, problem)
        family = next((f for f in families if f.name == _EXACT_FAMILY), families[0])
        found, reason = session.further(problem, family, further.tried)
        rows += [dataclasses.replace(row, added=", ".join(filter(None, (further.why, row.added)))) for row in found]
        waiting = [*(further.instead if reason else ()), *waiting]
        if reason and not further.instead:
            left_out.append((further.why, reason))
    return [*left_out, *(session.beyond.left_out() if options.larger is not None else ())]


class _Session:
    def __init__(
        self, case: Case, port: PortPlan | None, builder: Builder, backend: Backend, options: VerifyOptions
    ) -> None:
        self.case, self.port, self.builder, self.backend, self.options = case, port, builder, backend, options
        self.beyond = Beyond(options.larger or case, port is not None)
        self._executed = Executed(self.beyond)
        self.earlier: list[Mapping[str, Any]] = []
        self.left_out: list[tuple[str, str]] = []
        self._first: First | None = None

    def is_over(self, rows: Sequence[Row]) -> bool:
        """Whether nobody asks for more than these rows."""
        return self.options.until_wrong and not all(row.verdict in _GOOD for row in rows)

    def size(self, problem: Problem, families: Sequence[Family], first: bool = False) -> list[Row]:
        """The rows of one size; the first one's also under other schedules."""
        self._tell(problem, "building")
        try:
            programs = self._programs(problem)
        except PorterError as error:
            return [self._refused(problem, f, error) for f in families]
        rows: list[Row] = []
        for i, one in enumerate(families):
            made = self._family(problem, one, programs, check=i == 0)
            rows += [made] if made is not None else []
            if self.is_over(rows):
                break
        if families:
            rows = self._with_second(rows, problem, families[0], programs)
        family = self._scheduled(families) if first else None
        for other in self.options.again if family is not None else ():
            # Where a schedule already shows an error, another one has nothing to add.
            if family is not None and all(r.verdict in _GOOD for r in rows):
                again = self._again(problem, family, programs, other)
                rows += [again] if again is not None else []
        return rows

    def _scheduled(self, families: Sequence[Family]) -> Family | None:
        """The family to run under other schedules. A mistake in the order of a CuTe DSL port's warps may show under
        one of them only, so that it has to run there."""
        must = self.case.dsl is not None and self.port is not None
        return next((f for f in families if f.name == _EXACT_FAMILY), families[0] if must and families else None)

    def further(self, problem: Problem, family: Family, tried: bool) -> tuple[list[Row], str]:
        """The row of a size that was added, or why there is none: if `tried`, an original that is not right on it
        shows that it is not legal."""
        if not tried:
            return self.size(problem, [family]), ""
        if self.options.budget.is_spent:
            return [self._left(problem, family)], ""
        self._tell(problem, "building")
        try:
            original = self._original(problem)
            trial = self._trial(problem, family)
        except PorterError as error:
            return [], error.diagnostic.message
        if trial.failed:
            return [], trial.failed[0].message
        ran = self._run(trial, original, self.backend, check=True)
        if not ran[0].right:
            return [], ran[0].diagnostics[0].message
        try:
            programs = [original, *self._ports(problem)]
        except PorterError as error:
            return [self._refused(problem, family, error)], ""
        row = self._family(problem, family, programs, check=True, first=(trial, ran))
        return self._with_second([row] if row is not None else [], problem, family, programs), ""

    def coverage(self, rows: Sequence[Row], left_out: Sequence[tuple[str, str]]) -> Coverage:
        """What the rows leave open."""
        checked = any(row.hazards for row in rows)
        scheduled = self.port is None or bool(self.options.again)
        return self._executed.coverage(self.case, [row.sizes for row in rows], left_out, checked, scheduled)

    # Programs -----------------------------------------------------------------------------------------

    def _original(self, problem: Problem) -> Program:
        arch = ORIGINAL_ARCH if self.case.recorded is None else self.case.recorded.arch
        kernel = self.builder.build(problem, self.case.kernel, arch)
        return Program("original", arch, self.case.kernel, kernel, problem, launch_of(problem, kernel))

    def _ports(self, problem: Problem) -> list[Program]:
        if self.port is None:
            return []
        original = self.case.source or self.case.kernel
        source = materialize(self.port, original)
        try:
            built = build_port(problem, self.port, self.builder)
            if self.port.keeps_hopper:
                self._require_original(problem, source)
        except PorterError as error:
            raise placed_in_original(error, original, source, self.case.include_dirs) from None
        return [Program("port", PORT_ARCH, source, built.kernel, built.problem, built.launch)]

    def _require_original(self, problem: Problem, port: Path) -> None:
        """Of a port for both chips, what is compiled for Hopper has to be the original's code."""
        sides = [self.builder.build(problem, source, ORIGINAL_ARCH) for source in (self.case.kernel, port)]
        if not same_code(sides[0].ptx, sides[1].ptx):
            raise PorterError(Code.HOPPER_FORM_CHANGED, Location(str(port)), path=port)

    def _programs(self, problem: Problem) -> list[Program]:
        return [self._original(problem), *self._ports(problem)]

    def _refused(self, problem: Problem, family: Family, error: PorterError) -> Row:
        if error.exit_code is not ExitCode.BUILD_FAILED:
            raise error
        return Row(self.case.name, problem.sizes, family.name, self.options.seed, Verdict.ERROR,
                   diagnostics=error.diagnostics)  # fmt: skip

    def _left(self, problem: Problem, family: Family) -> Row:
        """For what is not begun, as the time is over."""
        said = (Diagnostic(Code.TIME_SPENT, None, {"seconds": self.options.budget.seconds}),)
        settings = self.case.name, problem.sizes, family.name, self.options.seed
        return Row(*settings, Verdict.INCOMPLETE, diagnostics=said)

    # Runs ---------------------------------------------------------------------------------------------

    def _trial(self, problem: Problem, family: Family) -> Trial:
        seed, arithmetic, runs = self.options.of_inputs, self.backend.arithmetic, self.options.runs

        def make() -> Trial:
            return Trial(problem, family, seed, arithmetic)

        case, sizes = problem.case, sorted(problem.sizes.items())
        return make() if runs is None else runs.trial(
            f"{case.path} {case.compare} {sizes} {family.name} {seed} {arithmetic}", make)  # fmt: skip

    def _run(
        self, trial: Trial, program: Program, backend: Backend, check: bool, left: Left | None = None,
        is_judged: bool = False,
    ) -> tuple[Ran, list[HazardRun]]:  # fmt: skip
        """One run, in the checking simulator where hazards are looked for; `left` is what a launch before it left.
        `is_judged`: it says something of an original, beside what it says of ports that are held against it."""
        self._tell(trial.problem, f"{trial.family.name}: {program.name}")
        checking = self.options.checking(program.name) if check and self.options.checking else None
        runs_on = checking.backend if checking else backend
        if left is not None and isinstance(runs_on, SimBackend):
            runs_on = runs_on.on(left.variables)
        if self.options.runs is not None and isinstance(runs_on, SimBackend):
            runs_on = self.options.runs.on(runs_on, is_judged or program.name != "original")
        ran = trial.run(program, runs_on, backend.name, left.scratch if left is not None else None)
        self._executed.add(program, ran.result.stats)
        if checking is None:
            return ran, []
        return ran, [checked_run(self.case, program.name, program.kernel, checking, self.options.seed, ran.result)]

    def _family(
        self,
        problem: Problem,
        family: Family,
        programs: Sequence[Program],
        check: bool = False,
        first: tuple[Trial, tuple[Ran, list[HazardRun]]] | None = None,
    ) -> Row | None:
        """One row; `first` is the original's run, where it was made before. None for one that there is."""
        digest = self._digest(problem, family, programs, f"hazards {check}")
        if check:
            self._first = None
        if self._is_there(digest):
            return None
        if (row := self._known(digest, programs)) is not None:
            return row
        if self.options.budget.is_spent and first is None:
            return self._left(problem, family)
        trial, done = first or (self._trial(problem, family), None)
        diagnostics = list(trial.failed)
        runs: list[Ran] = []
        hazards: list[HazardRun] = []
        race: Diagnostic | None = None
        for program in programs:
            ran, found = done if done and not runs else self._run(trial, program, self.backend, check)
            runs.append(ran)
            hazards += found
            if program.name == "original" and not ran.right:
                race = self._race(trial, program, ran)
                if race is not None:
                    diagnostics.append(race)
                    continue
            # Of a wrong original nothing can be said about its port.
            wrong = program.name == "port" and (race is not None or not all(c.ok for c in runs[0].comparisons))
            diagnostics += [d for d in ran.diagnostics if not (wrong and d.code is Code.PORT_DIFFERS)]
        checked = judged(hazards, [p.source for p in programs])
        diagnostics += hazard_diagnostics(self.case.kernel, checked)
        self._first = First(trial, runs) if check and isinstance(self.backend, SimBackend) else self._first
        return self._noted(dataclasses.replace(self._row(trial, runs, checked, diagnostics), digest=digest), runs)

    def _with_second(self, rows: list[Row], problem: Problem, family: Family, programs: Sequence[Program]) -> list[Row]:
        """The rows of one launch of which the first is of `family`, and the row of a second one where they are good."""
        if not all(r.verdict in _GOOD for r in rows):
            return rows
        second = self._second(problem, family, programs)
        if rows and not all(r.verdict in _GOOD for r in second):
            # who goes on with this has nothing of the first launch but by launching it again
            rows = [dataclasses.replace(rows[0], digest=""), *rows[1:]]
        return [*rows, *second]

    def _second(self, problem: Problem, family: Family, programs: Sequence[Program]) -> list[Row]:
        """The row of a second launch on what the first left behind, where it left anything that outlives it."""
        first, self._first = self._first, None
        digest = self._digest(problem, family, programs, "second launch")
        if self._is_there(digest):
            return []
        if (known := self._known(digest, programs)) is not None:
            return [dataclasses.replace(known, added=SECOND)]
        if first is None or not first.leaves:
            return []
        if self.options.budget.is_spent:
            return [dataclasses.replace(self._left(problem, family), added=SECOND)]
        original, wrong = self._original_again(first, programs[0])
        if original is None:
            self.left_out.append((SECOND, f"the original is not right in one: {wrong}"))
            return []
        (ran, hazards), scratch = original
        runs, diagnostics = [ran], []
        for program, before in zip(programs[1:], first.runs[1:], strict=True):
            ran, found = self._run(first.trial, program, self.backend, True, first.left(before, scratch))
            runs.append(ran)
            hazards += found
            diagnostics += [of_second(d) for d in ran.diagnostics]
        checked = judged(hazards, [p.source for p in programs])
        diagnostics += [d for h in hazard_diagnostics(self.case.kernel, checked) for d in hazard_of_second(h)]
        row = self._row(first.trial, runs, checked, diagnostics)
        return [self._noted(dataclasses.replace(row, digest=digest, added=SECOND), runs)]

    def _original_again(
        self, first: First, program: Program
    ) -> tuple[tuple[tuple[Ran, list[HazardRun]], bool] | None, str]:
        """The second launch of the original, and whether scratch tensors stayed in it as the first left them: where it
        is not right so, its host code sets them anew. Else why it is not right."""
        wrong = ""
        for scratch in (True, False):
            again = self._run(first.trial, program, self.backend, True, first.left(first.runs[0], scratch))
            if again[0].right:
                return (again, scratch), ""
            wrong = again[0].diagnostics[0].message
        return None, wrong

    def _known(self, digest: str, programs: Sequence[Program]) -> Row | None:
        """A row that this process made before."""
        known = self.options.known
        return known.row(digest, programs, self._executed.add) if known is not None else None

    def _noted(self, row: Row, runs: Sequence[Ran]) -> Row:
        if self.options.known is not None and row.verdict in _GOOD:
            self.options.known.note(row, {ran.program.name: ran.result.stats for ran in runs})
        return row

    def _is_there(self, digest: str) -> bool:
        found = self.options.budget.done.get(digest)
        self.earlier += [found] if found is not None else []
        return found is not None

    def _digest(self, problem: Problem, family: Family, programs: Sequence[Program], how: str) -> str:
        """Of all that a row depends on."""
        settings = [self.backend.name, self.backend.arithmetic, self.options.schedule, str(self.options.seed), how]
        inputs = [problem.case.name, sorted(problem.sizes.items()), family.name, self.options.of_inputs]
        given = [(p.launch, p.problem.tensor_maps, p.problem.arguments) for p in programs if p.problem.case.as_port]
        return digest_of(problem.case, [p.kernel for p in programs], [*settings, *map(repr, [*inputs, *given])])

    def _again(self, problem: Problem, family: Family, programs: Sequence[Program], other: Again) -> Row | None:
        """The same inputs under another schedule, on which both were right under the usual one. None for a row that
        there is."""
        digest = self._digest(problem, family, programs, f"{other.schedule} {other.seed}")
        if self._is_there(digest):
            return None
        if (known := self._known(digest, programs)) is not None:
            return known
        if self.options.budget.is_spent:
            row = self._left(problem, family)
            return dataclasses.replace(row, schedule=other.schedule, schedule_seed=other.seed)
        trial = self._trial(problem, family)
        runs = [self._run(trial, program, other.backend, check=False)[0] for program in programs]
        diagnostics = list(trial.failed)
        if runs[0].right or runs[0].result.status == "incomplete":
            diagnostics += [d for ran in runs for d in ran.diagnostics]
        else:
            diagnostics.append(_races(self.case, runs[0], other.schedule))
        row = self._row(trial, runs, (), diagnostics)
        if row.verdict is Verdict.INCOMPLETE and any(d.code is Code.ORIGINAL_RACES for d in diagnostics):
            # The usual schedule has told all that there is to tell of the port.
            row = dataclasses.replace(row, verdict=Verdict.REVIEW)
        row = dataclasses.replace(row, schedule=other.schedule, schedule_seed=other.seed, digest=digest)
        return self._noted(row, runs)

    def _row(
        self, trial: Trial, runs: Sequence[Ran], checked: tuple[HazardRun, ...], diagnostics: list[Diagnostic]
    ) -> Row:
        between = trial.between(*runs) if len(runs) == 2 else ()
        if len(runs) == 2:
            diagnostics = [*diagnostics, *trial.bits(runs[0], runs[1], between)]
            kernels = runs[0].program.kernel, runs[1].program.kernel
            diagnostics += depot_of_port(*kernels, self.case.kernel)
            diagnostics += room_of_port(*kernels, [run.program.launch for run in runs], self.case.kernel)
        verdict = _verdict(diagnostics, any(r.result.status == "incomplete" for r in runs))
        if verdict is Verdict.CLEAN and any(run.counted is Verdict.REVIEW for run in checked):
            verdict = Verdict.REVIEW
        return Row(
            case=self.case.name,
            sizes=trial.problem.sizes,
            family=trial.family.name,
            seed=self.options.seed,
            verdict=verdict,
            original=runs[0].comparisons,
            port=runs[1].comparisons if len(runs) == 2 else (),
            between=between,
            controls=trial.controls,
            runs=tuple(r.summary for r in runs),
            diagnostics=tuple(diagnostics),
            hazards=checked,
        )

    def _race(self, trial: Trial, original: Program, wrong: Ran) -> Diagnostic | None:
        """Whether an original that is wrong is right under another schedule, on the same inputs."""
        if self.options.under is None or wrong.result.status == "incomplete":
            return None
        others = [s for s in _SCHEDULES if s != self.options.schedule]
        again = (self._run(trial, original, self.options.under(s), check=False, is_judged=True)[0] for s in others)
        if any(ran.right for ran in again):
            return _races(self.case, wrong, self.options.schedule)
        return None

    def _tell(self, problem: Problem, what: str) -> None:
        if self.options.progress is not None:
            sizes = ", ".join(f"{k}={v}" for k, v in problem.sizes.items())
            self.options.progress(f"{self.case.name} ({sizes}) {what}")


def _races(case: Case, ran: Ran, schedule: str) -> Diagnostic:
    """What a schedule makes of an original that is right under another one."""
    found = ran.diagnostics[0]
    values = {"reason": found.message, "schedule": schedule}
    return Diagnostic(Code.ORIGINAL_RACES, Location(str(case.kernel)), values, found.detail)


def _verdict(diagnostics: Sequence[Diagnostic], incomplete: bool) -> Verdict:
    if any(d.severity is Severity.ERROR and d.code is not Code.RUN_INCOMPLETE for d in diagnostics):
        return Verdict.ERROR
    # Of a racing original nothing can be compared.
    incomplete |= any(d.code is Code.ORIGINAL_RACES for d in diagnostics)
    return Verdict.INCOMPLETE if incomplete else Verdict.CLEAN
