# SPDX-License-Identifier: Apache-2.0
"""A program of a case, original or port, at the sizes that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from porter.build.port_plan import PortPlan
from porter.sync.checked import Rulings
from porter.verify.budget import Budget
from porter.verify.builder import ORIGINAL_ARCH, Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.launching import build_port, port_problem
from porter.verify.originals import SMALL, made_of, once
from porter.verify.problem import Problem, bind
from porter.verify.proving import Proof, Prover, Sizes


@dataclass
class Program:
    """What a program of a case is at some sizes; it is compiled once where its sizes are no constants of it. No
    `plan`: the kernel itself, for the chip `arch`; empty for that of originals."""

    case: Case
    builder: Builder
    plan: PortPlan | None = None
    arch: str = ""

    def __post_init__(self) -> None:
        self.source = self.case.kernel
        self._known: dict[object, BuiltKernel] = {}

    def _bound(self, sizes: Sizes) -> tuple[Problem, Problem, object]:
        """The problem of the case, that of the program, and what the kernel is compiled for."""
        problem = bind(self.case, sizes)
        own = problem if self.plan is None else port_problem(problem, self.plan.section)
        return problem, own, (own.template, tuple(sorted(own.defines.items())))

    def compiled_for(self, sizes: Sizes) -> object:
        """What of sizes is a constant of the kernel. Raises PorterError: what binding raises."""
        return self._bound(sizes)[2]

    def at(self, sizes: Sizes) -> tuple[BuiltKernel, Problem]:
        """Raises PorterError: what binding, porting and compiling raise."""
        problem, own, compiled_for = self._bound(sizes)
        kernel = self._known.get(compiled_for)
        if kernel is None:
            kernel = self._built(problem)
            if kernel.recorded is None:
                # one that its own host code launches is traced for each size
                self._known[compiled_for] = kernel
        return kernel, kernel.bound(own)

    def _built(self, problem: Problem) -> BuiltKernel:
        if self.plan is None:
            own = ORIGINAL_ARCH if self.case.recorded is None else self.case.recorded.arch
            return self.builder.build(problem, self.case.kernel, self.arch or own)
        port = build_port(problem, self.plan, self.builder)
        self.source = port.source
        return port.kernel

    def prove(
        self, chosen: Sequence[Sizes], seconds: float, rulings: Rulings = "strict", turns: bool = True,
        but: Collection[frozenset[str]] = (),
    ) -> Proof:  # fmt: skip
        """As a `Prover` does. Raises PorterError: what `at` raises at the sizes that are asked for."""
        name = "kernel" if self.arch else "original" if self.plan is None else "port"

        def make() -> Proof:
            return Prover(name, self.at, Budget.of_work(seconds), rulings).prove(chosen, turns, but)

        if self.plan is not None or turns:
            return make()
        key = "proof", name, rulings, frozenset(but), tuple(made_of(self.at(sizes)) for sizes in chosen)
        return once(key, make, lambda proof: SMALL, lambda proof: len(proof.sizes) == len(chosen))
