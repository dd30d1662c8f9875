# SPDX-License-Identifier: Apache-2.0
"""The exit codes that results have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from porter.diagnostics import Diagnostic, ExitCode, exit_code_of, worst_exit
from porter.verify.outcome import Verdict

if TYPE_CHECKING:  # Every command ends here: none should load what the others need.
    from porter.build.gate import Gated
    from porter.verify.capture.write import Written
    from porter.verify.gpu.selfcheck import BitsRow, Simulated
    from porter.verify.hazards import HazardRun
    from porter.verify.kit.record import Held
    from porter.verify.mutation import MutationResult
    from porter.verify.program import ProgramOutcome
    from porter.verify.results import Row, VerifyResult

STATUS_EXIT = {"ok": ExitCode.OK, "incomplete": ExitCode.INCONCLUSIVE, "error": ExitCode.DIFFERENT}
"""Of a run."""

_SIGNALLED = 128
_OF_VERDICT = {
    Verdict.CLEAN: ExitCode.OK,
    Verdict.REVIEW: ExitCode.OK,
    Verdict.INCOMPLETE: ExitCode.INCONCLUSIVE,
    Verdict.ERROR: ExitCode.DIFFERENT,
}


_OF_HELD = {
    "same": ExitCode.OK,
    "different": ExitCode.DIFFERENT,
    "failed": ExitCode.DIFFERENT,
    "missing": ExitCode.INCONCLUSIVE,
    "answered": ExitCode.OK,
}


def row_exit(row: Row) -> ExitCode:
    codes = [d.code.value.exit_code for d in row.diagnostics]
    if row.verdict is Verdict.ERROR and worst_exit(codes) is ExitCode.OK:
        codes.append(ExitCode.DIFFERENT)
    if row.verdict is Verdict.INCOMPLETE:
        codes.append(ExitCode.INCONCLUSIVE)
    return worst_exit(codes)


def verification_exit(result: VerifyResult) -> ExitCode:
    codes = [*map(row_exit, result.rows), *_of(result.errors)]
    codes += [ExitCode.DIFFERENT for p in result.proofs if p.is_wrong]
    if not result.rows and not result.errors and not result.earlier:
        return ExitCode.INCONCLUSIVE
    return worst_exit(codes)


def hazards_exit(runs: Iterable[HazardRun], errors: Iterable[Diagnostic]) -> ExitCode:
    return worst_exit([*(_OF_VERDICT[run.counted] for run in runs), *_of(errors)])


def mutation_exit(results: Iterable[MutationResult], errors: Iterable[Diagnostic], unexplained: bool) -> ExitCode:
    """DIFFERENT if a kernel itself is not clean, FINDINGS if a mutant with wrong values goes unnoticed or one that is
    not noticed stays unexplained."""
    return worst_exit([*map(_mutation_exit, results), *_of(errors), *([ExitCode.FINDINGS] * unexplained)])


def _mutation_exit(result: MutationResult) -> ExitCode:
    if result.baseline.status != "ok":
        return STATUS_EXIT[result.baseline.status]
    if any(h.severity == "error" for h in result.baseline.hazards):
        return ExitCode.DIFFERENT
    return ExitCode.FINDINGS if any(r.by_value for r in result.survivors) else ExitCode.OK


def program_exit(outcome: ProgramOutcome) -> ExitCode:
    """Of a program whose own exit status is one of its results."""
    code = STATUS_EXIT[outcome.status]
    return ExitCode.DIFFERENT if code is ExitCode.OK and outcome.exit_status != 0 else code


def program_status(outcome: ProgramOutcome, checked: HazardRun | None) -> int:
    """The exit status of a command that stands for a program: the program's own where nothing else is to be said."""
    if checked is not None and checked.verdict is Verdict.ERROR and any(h.severity == "error" for h in checked.hazards):
        return ExitCode.DIFFERENT
    return STATUS_EXIT[outcome.status] or own_status(outcome)


def launch_exit(status: str, checked: HazardRun | None, differing: Sequence[Diagnostic]) -> ExitCode:
    """Of one launch: its run, its hazards, and outputs that are not as expected."""
    verdict = ExitCode.OK if checked is None else _OF_VERDICT[checked.verdict]
    return worst_exit([STATUS_EXIT[status], verdict, *_of(differing)])


def own_status(outcome: ProgramOutcome) -> int:
    """As a shell has it: 128 and the number of the signal that ended a program."""
    return outcome.exit_status if outcome.exit_status >= 0 else _SIGNALLED - outcome.exit_status


def bits_exit(rows: Sequence[BitsRow], errors: Sequence[Diagnostic]) -> ExitCode:
    if any(r.verdict is Verdict.ERROR for r in rows):
        return ExitCode.DIFFERENT
    clean = rows and not errors and all(r.verdict is Verdict.CLEAN for r in rows)
    return ExitCode.OK if clean else ExitCode.INCONCLUSIVE


def simulated_exit(rows: Sequence[Simulated], errors: Sequence[Diagnostic]) -> ExitCode:
    done = rows and not errors and all(r.status == "ok" for r in rows)
    return ExitCode.OK if done else ExitCode.INCONCLUSIVE


def port_exit(ported: ExitCode, results: Iterable[Gated], to_find: bool) -> ExitCode:
    """Of a port and of what the gate says; FINDINGS where all is well and `to_find` says that there is something to
    port."""
    return gate_exit(results) or ported or (ExitCode.FINDINGS if to_find else ExitCode.OK)


def clean_exit(to_remove: bool) -> ExitCode:
    """FINDINGS where nothing was to be written and something would be."""
    return ExitCode.FINDINGS if to_remove else ExitCode.OK


def check_exit(findings: Sequence[Diagnostic], problems: Iterable[Diagnostic]) -> ExitCode:
    """FINDINGS for warnings too; a file that could not be read is no all-clear."""
    return worst_exit([*_of(problems), ExitCode.FINDINGS if findings else ExitCode.OK])


def capture_exit(written: Written) -> ExitCode:
    return ExitCode.OK if written.cases else ExitCode.INCONCLUSIVE


def doctor_exit(usable: bool) -> ExitCode:
    return ExitCode.OK if usable else ExitCode.FINDINGS


def kit_exit(held: Iterable[Held]) -> ExitCode:
    """Of what a device computed; no run at all is no verdict."""
    codes = [_OF_HELD[h.verdict] for h in held]
    return worst_exit(codes) if codes else ExitCode.INCONCLUSIVE


def _of(errors: Iterable[Diagnostic]) -> list[ExitCode]:
    return [e.code.value.exit_code for e in errors]


def gate_exit(results: Iterable[Gated]) -> ExitCode:
    """BUILD_FAILED where a compiler refused a port; UNPORTED where tracing showed only what cannot be ported."""
    refused = [exit_code_of(g.diagnostics) for g in results if g.status == "refused"]
    if any(code is not ExitCode.UNPORTED for code in refused):
        return ExitCode.BUILD_FAILED
    return ExitCode.UNPORTED if refused else ExitCode.OK
