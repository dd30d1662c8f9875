# SPDX-License-Identifier: Apache-2.0
"""Proofs of the synchronization of a case's programs, and what a port has of its original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.build.port_plan import PortPlan
from porter.diagnostics import PorterError
from porter.facts.code import Code
from porter.sync.checked import Rulings
from porter.sync.findings import Finding
from porter.verify.budget import Budget
from porter.verify.builder import ORIGINAL_ARCH, Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.hazards import usual_level
from porter.verify.launching import build_port, port_problem
from porter.verify.line_map import LineMap
from porter.verify.problem import Problem, bind
from porter.verify.proving import Proof, Prover, Sizes

SECONDS = 10.0
"""For each program, where a proof stands beside other checks."""


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

    def at(self, sizes: Sizes) -> tuple[BuiltKernel, Problem]:
        """Raises PorterError: what binding, porting and compiling raise."""
        problem = bind(self.case, sizes)
        own = problem if self.plan is None else port_problem(problem, self.plan.section)
        compiled_for = own.template, tuple(sorted(own.defines.items()))
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

    def prove(self, chosen: Sequence[Sizes], seconds: float, rulings: Rulings = "strict") -> Proof:
        """Raises PorterError: what `at` raises at the sizes that are asked for."""
        name = "kernel" if self.arch else "original" if self.plan is None else "port"
        return Prover(name, self.at, Budget(seconds), rulings).prove(chosen)


@dataclass(frozen=True)
class CaseProofs:
    """Proofs of an original and of its port. `introduced`: what is wrong with the port, by the letter of the ISA, and
    was not with the original; `inherited`: what the original has in the same place."""

    original: Proof | None
    port: Proof | None
    introduced: tuple[Finding, ...] = ()
    inherited: tuple[Finding, ...] = ()
    untried: str = ""
    """Why nothing could be looked at."""

    @property
    def all(self) -> tuple[Proof, ...]:
        return tuple(p for p in (self.original, self.port) if p is not None)


def prove_case(
    case: Case, plan: PortPlan | None, builder: Builder, chosen: Sequence[Sizes], seconds: float, always: bool = True
) -> CaseProofs:
    """The proofs of a case's original and of the port, for `seconds` each. Not `always`: the original only where its
    port is wrong, to tell whose mistake it is.

    `chosen` are sizes that the original takes; those that the port does not are left out of its proof.
    """
    original, port = Program(case, builder), Program(case, builder, plan)
    try:
        of_port = port.prove(_taken(port, chosen), seconds, usual_level("port")) if plan is not None else None
        asks = always or of_port is None or of_port.checked.findings
        of_original = original.prove(chosen, seconds, usual_level("original")) if asks else None
    except PorterError as error:
        return CaseProofs(None, None, untried=error.diagnostic.message)
    return compared(of_original, of_port, LineMap(original.source, port.source))


def compared(original: Proof | None, port: Proof | None, lines: LineMap) -> CaseProofs:
    """Both, with what is found in the port told apart."""
    found = port.checked.findings if port is not None and port.status != "unknown" else ()
    if port is None or original is None or not found:
        return CaseProofs(original, port, found)
    if original.status == "unknown":
        # whose they are, nobody knows: what is tolerated in published kernels is no mistake of the port's then
        found = wrong_in(port)
    had = _inherited(found, port.flow.code, original, lines)
    return CaseProofs(original, port, tuple(f for f in found if f not in had), had)


def alone(proof: Proof) -> CaseProofs:
    """A proof of a program that is no port of another one."""
    return CaseProofs(None, proof, wrong_in(proof))


def wrong_in(proof: Proof) -> tuple[Finding, ...]:
    """What is wrong, and tolerated nowhere."""
    return tuple(f for f in proof.checked.findings if f.level != "review")


def _taken(program: Program, chosen: Sequence[Sizes]) -> list[Sizes]:
    found: list[Sizes] = []
    for sizes in chosen:
        try:
            program.at(sizes)
        except PorterError:
            continue
        found.append(sizes)
    return found or list(chosen[:1])


def _inherited(wrong: Sequence[Finding], code: Code, original: Proof, lines: LineMap) -> tuple[Finding, ...]:
    def is_had(finding: Finding) -> bool:
        return any(
            had.kind == finding.kind
            and _stands_for(lines, code, finding.first, original.flow.code, had.first)
            and _stands_for(lines, code, finding.second, original.flow.code, had.second)
            for had in original.checked.findings
        )

    return tuple(f for f in wrong if is_had(f))


def _stands_for(lines: LineMap, code: Code, mine: int | None, original: Code, theirs: int | None) -> bool:
    """Whether an instruction of a port is one of its original: on the same line of the user's, or the product that
    came in place of a wgmma."""
    if mine is None or theirs is None:
        return mine is theirs
    one, other = code.code[mine], original.code[theirs]
    if (one.parts[0], other.parts[0]) == ("tcgen05", "wgmma"):
        return lines.stands_for(one.loc, other.loc)
    return one.parts[0] == other.parts[0] and lines.same(one.loc, other.loc)
