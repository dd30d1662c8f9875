# SPDX-License-Identifier: Apache-2.0
"""Proofs of the synchronization of a case's programs, and what a port has of its original."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from typing import Literal, NamedTuple

from porter.build.port_plan import PortPlan
from porter.diagnostics import PorterError
from porter.facts.code import Code
from porter.sync.findings import Finding
from porter.verify.all_sizes import AllSizes, OtherSizesError
from porter.verify.budget import Budget
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.case_program import Program
from porter.verify.equality import LAST_FIRST, Comparison, Equality, Place, SizeCompared
from porter.verify.further import few_steps
from porter.verify.hazards import usual_level
from porter.verify.line_map import LineMap
from porter.verify.moved import Party, at_any_place
from porter.verify.proving import Proof, Sizes, launched_case
from porter.verify.shown import Shown
from porter.verify.thresholds import UnreachedError, sizes_beyond

_MOST_TELLING = 8
"""Sizes that are looked at where symbols tell both apart."""
SECONDS = 10.0
"""For each program, where a proof stands beside other checks."""


Turns = Literal["both", "port", "none"]
"""Whose other numbers of turns are looked at."""


@dataclass(frozen=True)
class CaseProofs:
    """Proofs of an original and of its port. `introduced`: what is wrong with the port, by the letter of the ISA, and
    was not with the original; `inherited`: what the original has in the same place. `equality`: whether both leave the
    same, *equal* only with proved synchronization."""

    original: Proof | None
    port: Proof | None
    introduced: tuple[Finding, ...] = ()
    inherited: tuple[Finding, ...] = ()
    equality: Equality | None = None
    untried: str = ""
    """Why nothing could be looked at."""

    @property
    def all(self) -> tuple[Proof, ...]:
        return tuple(p for p in (self.original, self.port) if p is not None)

    @property
    def differs(self) -> bool:
        return self.equality is not None and self.equality.status == "differs"

    @property
    def is_wrong(self) -> bool:
        return bool(self.introduced) or self.differs


def prove_case(
    case: Case, plan: PortPlan | None, builder: Builder, chosen: Sequence[Sizes], seconds: float, always: bool = True,
    for_all: bool = False, beyond: bool = False,
) -> CaseProofs:  # fmt: skip
    """As `proofs_of`; what cannot be bound, ported or compiled is told. `beyond`: where they are equal, also at sizes
    at which one of them does what it does at none of those that are chosen."""
    budget = Budget.of_work(seconds) if for_all else None
    try:
        turns: Turns = "both" if always else "none" if beyond else "port"
        if not beyond or plan is None:
            return proofs_of(case, plan, builder, chosen, seconds, turns, budget)
        programs = Program(case, builder), Program(case, builder, plan)
        comparison = Comparison(case.name, *programs, Budget.of_work(seconds))
        if comparison.run(chosen[:1]).status != "equal":
            # nothing that other sizes show makes it equal
            chosen = chosen[:1]
        found = proofs_of(case, plan, builder, chosen, seconds, turns, budget, comparison)
        return _beyond(case, plan, builder, chosen, seconds, found, comparison)
    except PorterError as error:
        return CaseProofs(None, None, untried=error.diagnostic.message)


def _beyond(
    case: Case, plan: PortPlan, builder: Builder, chosen: Sequence[Sizes], seconds: float, found: CaseProofs,
    comparison: Comparison,
) -> CaseProofs:  # fmt: skip
    """The first that is not equal at a size that turns or blocks of either program ask for, else what was `found`, with
    these sizes."""
    if found.equality is None or found.equality.status != "equal":
        return found
    programs = {"original": comparison.original, "port": comparison.port}
    try:
        few = few_steps(case)
        renumbered = plan.relaunch is not None and plan.relaunch.halved is not None
        others = sizes_beyond(programs, [*chosen, *few], seconds, plan.relaunch is not None, renumbered)
    except UnreachedError as error:
        return replace(found, equality=replace(found.equality, status="unknown", why=str(error)))
    equality = found.equality
    for sizes in (s for s in [*few, *others] if s not in chosen):
        try:
            one = proofs_of(case, plan, builder, [sizes], seconds, "none", None, comparison)
        except PorterError:
            # it is no size of the original
            continue
        if one.original is None or one.equality is None:
            continue
        if not one.differs and one.original.status == "hazard":
            # nor is this
            continue
        if one.is_wrong or one.equality.status != "equal":
            return one
        looked_at = (*equality.looked_at, *one.equality.looked_at)
        equality = replace(equality, looked_at=looked_at, bytes=equality.bytes + one.equality.bytes)
    return replace(found, equality=equality)


def proofs_of(
    case: Case, plan: PortPlan | None, builder: Builder, chosen: Sequence[Sizes], seconds: float,
    turns: Turns = "both", for_all: Budget | None = None, begun: Comparison | None = None,
) -> CaseProofs:  # fmt: skip
    """The proofs of a case's original and of the port, and whether they are equal, for `seconds` each. `turns`: whose
    other numbers of turns are looked at; those of an original also where its port is wrong, to tell whose mistake it
    is. `for_all`: the time for comparing both for all of them, where they are equal. `begun`: a comparison that judges
    a port, which goes no further than to what is wrong.

    `chosen` are sizes that the original takes; those that the port does not are left out of its proof.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    original, port = Program(case, builder), Program(case, builder, plan)
    if begun is not None:
        original, port = begun.original, begun.port
    if plan is None:
        return CaseProofs(original.prove(chosen, seconds, usual_level("original")), None)
    taken = _taken(port, chosen)
    of_port = port.prove(taken, seconds, usual_level("port", plan), turns != "none")
    asks = turns == "both" or (turns == "port" and bool(of_port.checked.findings))
    # what is not known of the port for all of a size needs no answer of the original, but to tell whose a mistake is
    unknown = _unknown(of_port) if for_all is not None else set[frozenset[str]]()
    of_original = original.prove(chosen, seconds, usual_level("original"), asks, unknown)
    found = compared(of_original, of_port, LineMap(original.source, port.source), plan.at_practice)
    if unknown and found.introduced:
        of_original = original.prove(chosen, seconds, usual_level("original"), asks)
        found = compared(of_original, of_port, LineMap(original.source, port.source), plan.at_practice)
    proved = [s for s in taken[: len(of_port.sizes)] if s in chosen[: len(of_original.sizes)]]
    comparison = begun or Comparison(case.name, original, port, Budget())
    comparison = replace(comparison, budget=Budget.of_work(seconds))
    reorders = plan.reorders or (plan.source is not None and case.compare == "bound")
    compares = proved or taken[:1]
    if begun is not None and (of_port.status == "unknown" or found.introduced):
        compares = compares[:1]
    first, left = compares[0], comparison.budget.left
    counts: tuple[SizeCompared, ...] = ()
    if for_all is not None and taken[0] == chosen[0]:
        is_known = turns == "both" and taken == list(chosen)
        programs = AllSizes(comparison.original, comparison.port, comparison.flow_of, chosen[0], for_all)
        of_symbols = programs.of_symbols(of_original, of_port) if is_known and not found.introduced else []
        follows = partial(programs.covers, of_symbols)
        equality = with_proofs(replace(comparison, follows=follows, asks_port=True).run([first]), found, reorders)
        if equality.status == "equal":
            proofs = (of_original, of_port) if is_known else _of_turns(comparison, chosen, seconds)
            if not is_known:
                of_symbols = programs.of_symbols(*proofs)
            equality = _for_all(comparison, programs, chosen, equality, of_symbols, *proofs)
            if equality.status != "equal":
                return replace(found, equality=equality)
            counts = equality.counts
            follows = partial(programs.covers, counts)
            comparison = replace(comparison, budget=Budget.of_work(left), follows=follows)
    equality = comparison.run(compares)
    parties = _party(comparison, "original", first), _party(comparison, "port", first)
    equality = at_any_place(equality, *parties, comparison.stays, comparison.depends)
    other = replace(comparison, schedule=LAST_FIRST, show=lambda *_: Shown("nothing"), _answers={})
    equality = with_proofs(equality, found, reorders, partial(other.run, compares))
    return replace(found, equality=replace(equality, counts=counts if equality.status == "equal" else ()))


def _unknown(proof: Proof) -> set[frozenset[str]]:
    """The sizes, alone or two together, of which it is not known for all."""
    alone = {frozenset((count.name,)) for count in proof.counts if not count.is_all}
    together = combinations((count.name for count in proof.counts if count.step), 2)
    return alone | set(map(frozenset, together)).difference(frozenset(p.names) for p in proof.pairs if not p.why)


def _party(comparison: Comparison, program: Literal["original", "port"], sizes: Sizes) -> Party:
    kernel, problem = (comparison.original if program == "original" else comparison.port).at(sizes)
    flow = comparison.flow_of(kernel)
    return Party(program, flow, partial(launched_case, problem, flow))


def _of_turns(comparison: Comparison, chosen: Sequence[Sizes], seconds: float) -> tuple[Proof, Proof]:
    """The proofs of both for other numbers of turns as well."""
    of_original, of_port = (
        program.prove(chosen, seconds, usual_level(name, program.plan))
        for name, program in (("original", comparison.original), ("port", comparison.port))
    )  # fmt: skip
    return of_original, of_port


def _for_all(
    comparison: Comparison, programs: AllSizes, chosen: Sequence[Sizes], equality: Equality,
    of_symbols: list[SizeCompared], of_original: Proof, of_port: Proof,
) -> Equality:  # fmt: skip
    """With what is known of all numbers of turns; a size at which something else is left, and a run shows it, is what
    counts."""
    began = time.perf_counter()
    counts: list[SizeCompared] = []
    other = _shown_by_other_sizes(comparison, programs.telling, programs.budget)
    if other is not None:
        return other
    for name in programs.names(of_original, of_port):
        try:
            counts.append(programs.compared(name, of_original, of_port))
        except OtherSizesError as error:
            other = replace(comparison, budget=Budget()).run([error.sizes])
            if other.status == "differs":
                return other
            counts.append(SizeCompared(name, why=f"at {other.at} {other.why}", place=next(iter(other.places), None)))
    if not counts or not all(count.beside for count in counts):
        of_symbols = programs.of_others(chosen, of_symbols)
    counts = [*of_symbols, *counts]
    return replace(equality, counts=tuple(counts), seconds=equality.seconds + time.perf_counter() - began)


def _shown_by_other_sizes(comparison: Comparison, telling: Iterable[Sizes], budget: Budget) -> Equality | None:
    """That both differ at some sizes, which a run shows."""
    for sizes in islice(telling, _MOST_TELLING):
        if budget.is_spent:
            break
        with suppress(PorterError):  # the kernel or the port does not take these
            other = replace(comparison, budget=Budget()).run([sizes])
            if other.status == "differs":
                return other
    return None


def with_proofs(
    equality: Equality, found: CaseProofs, reorders: bool, again: Callable[[], Equality] | None = None
) -> Equality:
    """What is said of two programs. One schedule stands for all where nothing races, and no other statement is made of
    it. `reorders`: sums may be made in another order, as was asked for. `again`: what another schedule shows."""
    if equality.status == "differs" and reorders:
        return replace(
            equality,
            status="unknown",
            why=f"sums may be in another order, as was asked for: {equality.why}",
            remedy="`porter verify` holds both against their bound",
        )
    if equality.status == "equal":
        return _proved(equality, found, "the schedule that was executed")
    if equality.status == "differs" or found.original is None or not (wrong := _deciding(found.original)):
        return equality
    # what the original leaves is not the same in all schedules
    other = again() if again is not None else equality
    if other.status == "equal" and (told := _proved(other, found, "one schedule, the last warp first")).as_original:
        return told
    return replace(equality, why=f"{equality.why}; {_OWN}: {_kinds(wrong)}", remedy=_MEND)


def _proved(equality: Equality, found: CaseProofs, schedule: str) -> Equality:
    """What is said of two programs that leave the same in a schedule."""
    lack = _lacking(found, equality)
    if lack is not None:
        place = Place(lack.proof.program, lack.proof.flow, lack.at)
        why = f"equal for {schedule}; {lack.why}"
        return replace(equality, status="unknown", why=why, at=lack.proof.at, places=(place,), remedy=lack.remedy,
                       as_original=lack.as_original)  # fmt: skip
    assumed = [p.assumed for p in found.all]
    tolerated = [f"{kinds} of the {p.program}, which docs/rulings.md tolerates" for p in found.all
                 if (kinds := _kinds([f for f in p.checked.findings if not _comes_too_late(p, f)]))]  # fmt: skip
    late = [_LATE for p in found.all if any(_comes_too_late(p, f) for f in p.checked.findings)]
    return replace(equality, assumed=equality.assumed.union(*assumed, tolerated, late))


_OWN = "the original's own hazards"
_MEND = "`porter hazards --prove` has their places; mend the original"
_LATE = "the original's arrivals at mbarriers of blocks that may have ended (H26) come to nothing"


class _Lack(NamedTuple):
    """What a proof lacks, the place, and what to do about it. `as_original`: the port has no hazard that the original
    has not in the same place."""

    proof: Proof
    why: str
    at: int | None
    remedy: str
    as_original: bool = False


def _lacking(found: CaseProofs, equality: Equality) -> _Lack | None:
    """What the proofs lack for the sizes at which both were compared, as published kernels are held to it; None where
    all is proved. What the original itself does wrong comes last."""
    for proof in found.all:
        if proof.status == "unknown":
            why = f"the synchronization of the {proof.program} is not known: {proof.checked.unknown}"
            return _Lack(proof, why, proof.checked.unknown_at, "`porter hazards` looks at runs")
    of_port = _errors(found.port) if found.port is not None else []
    if found.port is not None and (new := [f for f in of_port if f not in found.inherited]):
        return _Lack(found.port, f"the port has hazards: {_kinds(new)}", new[0].second, "`porter hazards --prove`")
    for proof in found.all:
        if missing := [sizes for sizes in equality.looked_at if sizes not in proof.sizes]:
            why = f"no time for the synchronization of the {proof.program} at {missing[0]}"
            return _Lack(proof, why, None, "more `--prove-seconds`")
    own = (_errors if of_port else _deciding)(found.original) if found.original is not None else []
    if found.original is not None and own:
        port_has = f"the port has of these {_kinds(of_port)}, and no other" if of_port else "the port has none"
        return _Lack(found.original, f"{_OWN}: {_kinds(own)}; {port_has}", own[0].second, _MEND, as_original=True)
    return None


def _errors(proof: Proof) -> list[Finding]:
    """What published kernels are held to as well."""
    return [f for f in proof.checked.findings if f.level == "error"]


def _deciding(proof: Proof) -> list[Finding]:
    """Of these what may decide what a program leaves."""
    return [f for f in _errors(proof) if not _comes_too_late(proof, f)]


def _comes_too_late(proof: Proof, finding: Finding) -> bool:
    """Whether a thread arrives at an mbarrier of a block that nobody of that block waits for, and which may have ended:
    wherever that is no fault the program leaves the same."""
    if finding.kind != "H26" or finding.level != "error" or finding.second is None:
        return False
    return proof.flow.code.code[finding.second].parts[:2] == ("mbarrier", "arrive")


def _kinds(findings: Sequence[Finding]) -> str:
    return ", ".join(sorted({f.kind for f in findings}))


def compared(
    original: Proof | None, port: Proof | None, lines: LineMap, at_practice: bool = False
) -> CaseProofs:  # fmt: skip
    """Both, with what is found in the port told apart. `at_practice`: what is tolerated in published kernels is no
    mistake of the port's."""
    found = port.checked.findings if port is not None and port.status != "unknown" else ()
    if port is None or original is None or not found:
        return CaseProofs(original, port, found)
    if at_practice:
        found = wrong_in(port)
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
        return _waits_alike(code, finding, original.flow.code) or any(
            had.kind == finding.kind
            and _stands_for(lines, code, finding.first, original.flow.code, had.first)
            and _stands_for(lines, code, finding.second, original.flow.code, had.second)
            for had in original.checked.findings
        )

    return tuple(f for f in wrong if is_had(f))


def _waits_alike(code: Code, finding: Finding, original: Code) -> bool:
    """Whether a wait on an mbarrier leaves other blocks out by its form, which the original's waits have, where other
    blocks arrive. At how many turns they come round to such an arrival says nothing of their form."""
    if finding.kind != "M1" or finding.second is None:
        return False
    wait = code.code[finding.second]
    arrives = any(ins.parts[:2] == ("mbarrier", "arrive") and "shared::cluster" in ins.parts for ins in original.code)
    return "cluster" not in wait.parts and arrives and any(ins.opcode == wait.opcode for ins in original.code)


def _stands_for(lines: LineMap, code: Code, mine: int | None, original: Code, theirs: int | None) -> bool:
    """Whether an instruction of a port is one of its original: on the same line of the user's, or the product that
    came in place of a wgmma."""
    if mine is None or theirs is None:
        return mine is theirs
    one, other = code.code[mine], original.code[theirs]
    if (one.parts[0], other.parts[0]) == ("tcgen05", "wgmma"):
        return lines.stands_for(one.loc, other.loc)
    return one.parts[0] == other.parts[0] and lines.same(one.loc, other.loc)
