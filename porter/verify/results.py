# SPDX-License-Identifier: Apache-2.0
"""What a verification answers: one row per case, size and input family, each with an honest verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.diagnostics import Diagnostic
from porter.verify.compare import Comparison
from porter.verify.coverage import Coverage
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun
from porter.verify.outcome import RunSummary, Verdict
from porter.verify.proved import CaseProofs


@dataclass(frozen=True)
class Row:
    """Case x size x family. The comparisons hold one entry per output tensor. `schedule` is set where it is not
    that of the whole run, `schedule_seed` is the seed of a random one there. `hazards`: the runs that were checked, one
    per program. `added`: why a size was run that nobody asked for."""

    case: str
    sizes: Mapping[str, Number]
    family: str
    seed: int
    verdict: Verdict
    original: tuple[Comparison, ...] = ()
    port: tuple[Comparison, ...] = ()
    between: tuple[Comparison, ...] = ()
    controls: int = 0
    runs: tuple[RunSummary, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    schedule: str | None = None
    schedule_seed: int | None = None
    hazards: tuple[HazardRun, ...] = ()
    added: str = ""
    digest: str = ""
    """Of all that the row depends on: case, programs, inputs, settings."""

    @property
    def inputs(self) -> str:
        """The family, with the schedule and its seed where they are others, and why the size was added."""
        name = self.family if self.schedule is None else f"{self.family}, {self.schedule} schedule"
        if self.schedule_seed not in (None, self.seed):
            name += f", seed {self.schedule_seed}"
        return f"{name} ({self.added})" if self.added else name


@dataclass(frozen=True)
class VerifyResult:
    """All rows, with what was asked for so that the run can be repeated, and what they leave open of each case."""

    rows: tuple[Row, ...]
    backend: str
    schedule: str
    arithmetic: str
    seed: int
    seconds: float = 0.0
    errors: tuple[Diagnostic, ...] = field(default=())
    coverage: tuple[Coverage, ...] = ()
    earlier: tuple[Mapping[str, Any], ...] = ()
    """Rows of the document of an earlier run that were not made again; all are clean or to review."""
    proofs: tuple[CaseProofs, ...] = ()

    @property
    def verdict(self) -> Verdict:
        order = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.REVIEW, Verdict.CLEAN)
        found = {row.verdict for row in self.rows} | {Verdict(row["verdict"]) for row in self.earlier}
        if any(p.is_wrong for p in self.proofs):
            found.add(Verdict.ERROR)
        if self.errors:
            found.add(Verdict.INCOMPLETE)
        if not found:
            return Verdict.INCOMPLETE
        return next(v for v in order if v in found)
