# SPDX-License-Identifier: Apache-2.0
"""Mistakes put into the PTX of programs of the corpus, and what a proof says of them then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from corpus_kernels import CORPUS
from edits import Edit, declared

from porter.cli.context import current
from porter.cli.making import Ports
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.machine import Schedule
from porter.ptx.parser import parse_module
from porter.sync.checked import WORST_LAST, Checked, Verdict, check
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.problem import Problem
from porter.verify.proving import Prover, Sizes, clusters_looked_at

RIGHT = (Verdict.CLEAN, Verdict.REVIEW)
TURNS = (1, 2, 3, 4, 8, 9, 12, 13, 16)
"""At which a mistake is looked for that a proof has not come to."""


@cache
def program(kernel: str, name: str) -> Program:
    case = load_case(CORPUS / kernel / "case.yaml")
    plan = Ports(current()).of_case(case, None)[0] if name == "port" else None
    return Program(case, ToolkitBuilder(), plan)


@dataclass(frozen=True)
class Said:
    """What is said of a program: a verdict that refuses it, or `proved`, or `up to` for so many turns. `at`: where, or
    for which sizes. `elsewhere`: what is wrong at sizes that were not looked at."""

    verdict: str
    kinds: tuple[str, ...] = ()
    at: str = ""
    elsewhere: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        return self.verdict in ("error", "strict", "unknown")


class Planted:
    """A program with a mistake in it.

    Raises:
        NotThereError: it has no place for it.
    """

    def __init__(self, kernel: str, name: str, edit: Edit) -> None:
        self._program, self._name, self._edit, self._kernel = program(kernel, name), name, edit, kernel
        self._known: dict[str, BuiltKernel] = {}
        self.at({})

    def at(self, sizes: Sizes) -> tuple[BuiltKernel, Problem]:
        built, problem = self._program.at(sizes)
        if built.ptx not in self._known:
            text = declared(self._edit(built.ptx), built.entry)
            self._known[built.ptx] = replace(built, ptx=text, module=parse_module(text))
        return self._known[built.ptx], problem

    def checked(self, sizes: Sizes, schedule: Schedule | None = None) -> Checked:
        """The worst of its first and last cluster."""
        built, problem = self.at(sizes)
        assert built.function is not None
        flow = Flow(Code(built.module, built.function))
        found = [check(launched, schedule) for launched in clusters_looked_at(problem, flow)]
        return max(found, key=lambda checked: WORST_LAST.index(checked.verdict))

    def said(self, seconds: float, unit: int) -> Said:
        """At its default sizes, and if nothing is wrong there what `porter hazards --prove` says. `unit`: K of one
        turn."""
        one = self.checked({})
        if one.verdict not in RIGHT:
            return Said(one.verdict.value, _kinds(one), "default sizes")
        proof = Prover(self._name, self.at, Budget(seconds)).prove([{}, *self._program.case.other_sizes])
        if proof.status != "proved":
            return Said(proof.checked.verdict.value, _kinds(proof.checked), proof.at)
        counts = [c for c in proof.counts if c.step]
        at = ", ".join(f"{c.name} {c.step}, {'all' if c.is_all else f'to {c.upto}'}" for c in counts)
        others = [self.checked({"K": unit * turns}) for turns in TURNS]
        elsewhere = tuple(sorted({k for other in others if other.verdict not in RIGHT for k in _kinds(other)}))
        return Said("proved" if all(c.is_all for c in counts) else "up to", _kinds(proof.checked), at, elsewhere)

    def is_come_to(self, unit: int) -> bool:
        """Whether a thread comes to the place of the mistake: it would wait there for ever."""

        def stops(text: str) -> str:
            new = self._edit(text)
            differs = next(at for at, (one, other) in enumerate(zip(text, new, strict=False)) if one != other)
            start = max(text.rfind(end, 0, differs) for end in ";\n{") + 1
            return f"{text[:start]} bar.sync 9, 1024;{text[start:]}"

        stopped = Planted(self._kernel, self._name, stops)
        return any(stopped.checked({"K": unit * turns}).verdict not in RIGHT for turns in (1, 5, 9))


def _kinds(checked: Checked) -> tuple[str, ...]:
    if checked.verdict is Verdict.UNKNOWN:
        return (checked.unknown,)
    return tuple(sorted({f.kind for f in checked.findings if f.level == checked.verdict.value}))
