# SPDX-License-Identifier: Apache-2.0
"""Two ports of a file beside each other by the grade, for each instantiation that its cases compile; those of CuTe DSL
at the size of the case alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.model import percent
from porter.passes.ported import Ported
from porter.tune.candidates import (
    calibration_of,
    candidate,
    cases_of,
    grade_with,
    graded_sizes,
    port_of,
    with_stages_of,
)
from porter.tune.choosing import GAIN
from porter.tune.searching import Searching
from porter.tune.staging import port_plan, problem_of
from porter.verify.builder import Builder
from porter.verify.prepare import prepare


@dataclass(frozen=True)
class Slower:
    """A kernel whose port is slower by the grade than `compat`; both are shares of the nominal rate."""

    kernel: str
    rate: float
    compat: float

    def said(self, code: Code, path: str, what: str) -> Diagnostic:
        """FULL_RATE_SLOWER or FULL_RATE_IS_SLOWER; `what` is what the slower port has."""
        shown = {"rate": percent(self.rate), "compat": percent(self.compat)}
        return Diagnostic(code, Location(path), {"path": path, "kernel": self.kernel, "what": what, **shown})


def slower(
    session: Searching, ported: Ported, compat: Callable[[], Ported], path: str, builder: Builder
) -> Slower | None:
    """The instantiation of a file that loses most against the compat port, which is made for this; None where each is
    as fast, and where a grade is not known."""
    try:
        after = dict(_rates(session, ported, path, builder))
        before = dict(_rates(session, compat(), path, builder)) if after else {}
    except (PorterError, ValueError):
        # what cannot be compiled, the run that proves the port names
        return None
    lost = {key: after[key][1] / rate for key, (_, rate) in before.items() if key in after and rate > 0}
    if not lost or min(lost.values()) >= 1 - GAIN:
        return None
    worst = min(lost, key=lambda key: lost[key])
    return Slower(after[worst][0], after[worst][1], before[worst][1])


def rate_of(session: Searching, ported: Ported, path: str, builder: Builder) -> float | None:
    """The least share of the nominal rate that an instantiation of a file's port has; None where no grade is known."""
    try:
        return min((rate for _, (_, rate) in _rates(session, ported, path, builder)), default=None)
    except (PorterError, ValueError):
        return None


def _rates(session: Searching, ported: Ported, path: str, builder: Builder) -> Iterator[tuple[str, tuple[str, float]]]:
    """By case and size, the name and rate of what is compiled for it. Raises PorterError: what compiling raises;
    ValueError: what grading raises."""
    root = next(r for r in ported.roots if r.path == path)
    using, problem = calibration_of(session, None), problem_of(session)
    for case in cases_of(root):
        made_of, known = port_of(port_plan(session, ported, root)), dict[str, tuple[str, float]]()
        for sizes in graded_sizes(case):
            made, _ = prepare(case, ["original", "port"], builder, sizes, 0, made_of)
            read = [candidate(p.program, p.kernel, p.problem, p.launch) for p in made if p.kernel.function is not None]
            if len(read) != len(made) or len(read) < 2:
                continue
            port = with_stages_of(read[0], read[1])
            if port.reading.shape is None or port.gaps:
                continue
            entry = made[1].kernel.entry
            if entry not in known:
                known[entry] = port.kernel, grade_with(port.reading.shape, problem, using, lifts=False).rate
            yield f"{case.path} {sorted(sizes.items())}", known[entry]
