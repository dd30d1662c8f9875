# SPDX-License-Identifier: Apache-2.0
"""The exit codes that results have."""

from __future__ import annotations

from collections.abc import Iterable

from porter.build.gate import Gated
from porter.diagnostics import ExitCode, exit_code_of, worst_exit
from porter.verify.backends import RunResult
from porter.verify.hazards import HazardRun
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

_OF_VERDICT = {
    Verdict.CLEAN: ExitCode.OK,
    Verdict.REVIEW: ExitCode.OK,
    Verdict.INCOMPLETE: ExitCode.INCONCLUSIVE,
    Verdict.ERROR: ExitCode.DIFFERENT,
}


def row_exit(row: Row) -> ExitCode:
    codes = [d.code.value.exit_code for d in row.diagnostics]
    if row.verdict is Verdict.ERROR and worst_exit(codes) is ExitCode.OK:
        codes.append(ExitCode.DIFFERENT)
    if row.verdict is Verdict.INCOMPLETE:
        codes.append(ExitCode.INCONCLUSIVE)
    return worst_exit(codes)


def verification_exit(result: VerifyResult) -> ExitCode:
    codes = [row_exit(row) for row in result.rows] + [d.code.value.exit_code for d in result.errors]
    if not result.rows and not result.errors:
        return ExitCode.INCONCLUSIVE
    return worst_exit(codes)


def hazards_exit(run: HazardRun) -> ExitCode:
    return _OF_VERDICT[run.counted]


def baseline_exit(baseline: RunResult) -> ExitCode:
    """Whether the unmutated kernel is fit for mutation."""
    if baseline.status == "incomplete":
        return ExitCode.INCONCLUSIVE
    if baseline.status == "error" or any(h.severity == "error" for h in baseline.hazards):
        return ExitCode.DIFFERENT
    return ExitCode.OK


def gate_exit(results: Iterable[Gated]) -> ExitCode:
    """BUILD_FAILED where a compiler refused a port; UNPORTED where tracing showed only what cannot be ported."""
    refused = [exit_code_of(g.diagnostics) for g in results if g.status == "refused"]
    if any(code is not ExitCode.UNPORTED for code in refused):
        return ExitCode.BUILD_FAILED
    return ExitCode.UNPORTED if refused else ExitCode.OK
