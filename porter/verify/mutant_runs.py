# SPDX-License-Identifier: Apache-2.0
"""Running a kernel with some of its mutants' changes, each set once, on several processes if wanted."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code
from porter.diagnostics.spread import spread
from porter.ptx import ast
from porter.ptx.places import keep_places
from porter.sim.check.hazard import Hazard
from porter.sim.results import DRAWN
from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image
from porter.verify.mutants import Mutant, mutants, mutated
from porter.verify.problem import LaunchValues, Problem
from porter.verify.settings import SimOptions

_BUDGET_FACTOR = 4
_LEAST_BUDGET = 50_000

Key = tuple[object, ...]


@dataclass(frozen=True)
class Setup:
    """A kernel at one problem size with its inputs; `sizes` names the size."""

    sizes: str
    kernel: BuiltKernel
    problem: Problem
    launch: LaunchValues
    images: Mapping[str, Image]


@dataclass(frozen=True)
class Outcome:
    """What one run showed. `ended` is the ID of what stopped it, such as a deadlock, empty if it came to its
    end. `errors` and `reviews` are the kinds of hazards that the unmutated kernel has not, as errors and as what
    only the letter of the ISA forbids; `keys` tells them apart by place. `values` is a digest of all tensors."""

    ended: str
    errors: tuple[str, ...]
    reviews: tuple[str, ...]
    keys: frozenset[Key]
    values: str

    @property
    def caught(self) -> bool:
        """Whether the checking run notices without looking at values."""
        return bool(self.ended or self.keys)


class MutantRuns:
    """All mutants of one kernel at one size. A set of mutants is named by their numbers.

    Raises:
        PorterError: what the simulator raises on a kernel that it cannot run at all.
    """

    def __init__(self, setup: Setup, options: SimOptions, jobs: int = 1) -> None:
        self.setup = setup
        # Hazards at one source line are reported once; without the lines every instruction is told apart.
        self._module = without_places(setup.kernel.module)
        self.mutants: Sequence[Mutant] = mutants(setup.kernel.module, setup.kernel.entry)
        # At this level a hazard tells whether it is an error in every reading of the ISA.
        self._options = dataclasses.replace(options, checking="practice")
        drawn = options.schedule in DRAWN
        self.label = f"{options.schedule} schedule, seed {options.seed}" if drawn else setup.sizes
        self._jobs = jobs
        self.baseline = self._run(SimBackend(self._options), self._module)
        # A mutant may poll for ever.
        limit = max(_BUDGET_FACTOR * self.baseline.warp_instructions, _LEAST_BUDGET)
        self._backend = SimBackend(
            dataclasses.replace(self._options, budget=min(limit, options.budget or limit), progress=None)
        )
        self._known = {hazard.identity for hazard in self.baseline.hazards}
        self._values = digest(self.baseline)
        self._outcomes: dict[frozenset[int], Outcome] = {}

    def _run(self, backend: SimBackend, module: ast.Module) -> RunResult:
        s = self.setup
        return backend.run(dataclasses.replace(s.kernel, module=module), s.problem, s.launch, s.images)

    def reached(self, number: int) -> bool:
        """Whether some warp of the unmutated kernel comes to the mutant's instruction."""
        return self.mutants[number].instruction.line in self.baseline.stats.lines

    def idle(self, number: int) -> bool:
        """Whether the mutant's instruction is a wait or an after_thread_sync fence that, in the unmutated kernel,
        never has anything to wait for or to order."""
        ins = self.mutants[number].instruction
        waits = any(w in part for part in ins.parts for w in ("wait", "after_thread_sync"))
        return waits and ins.parts[0] not in ("bar", "barrier") and ins.line not in self.baseline.stats.waits

    def matters(self, number: int) -> bool:
        """Whether the mutant's instruction does something in the unmutated kernel."""
        return self.reached(number) and not self.idle(number)

    def differs(self, outcome: Outcome) -> bool:
        """Whether a run that came to its end left other values than the unmutated kernel."""
        return not outcome.ended and outcome.values != self._values

    def run(self, *numbers: int) -> Outcome:
        """The outcome with these mutants' changes together."""
        (outcome,) = self.run_all([numbers])
        return outcome

    def run_all(
        self, sets: Sequence[Iterable[int]], progress: Callable[[int, int], None] | None = None
    ) -> list[Outcome]:
        """The outcomes of several sets of mutants."""
        wanted = [frozenset(s) for s in sets]
        new = [s for s in dict.fromkeys(wanted) if s not in self._outcomes]
        self._outcomes.update(zip(new, spread(self.outcome, new, self._jobs, progress, chunk=1), strict=True))
        return [self._outcomes[s] for s in wanted]

    def outcome(self, numbers: frozenset[int]) -> Outcome:
        """Run once, here."""
        module = mutated(self._module, [self.mutants[n] for n in numbers])
        result = self._run(self._backend, without_places(module))
        new = [h for h in result.hazards if h.identity not in self._known]
        ended = [f.code for f in result.findings] if result.status != "ok" else []
        return Outcome(
            # What the simulator cannot execute, it has not noticed.
            ended=next((code.id for code in ended if code is not Code.SIM_UNKNOWN_INSTRUCTION), ""),
            errors=_kinds(new, "error"),
            reviews=_kinds(new, "review"),
            keys=frozenset(h.identity for h in new),
            values=digest(result),
        )


def without_places(module: ast.Module) -> ast.Module:
    """The module without source lines."""
    return keep_places(module, lambda _: False)


def _kinds(hazards: Iterable[Hazard], severity: str) -> tuple[str, ...]:
    return tuple(sorted({h.kind.id for h in hazards if h.severity == severity}))


def digest(result: RunResult) -> str:
    """All tensors after a run, as one number."""
    total = hashlib.sha256()
    for name in sorted(result.after):
        total.update(result.after[name].data.tobytes())
    return total.hexdigest()
