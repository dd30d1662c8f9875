# SPDX-License-Identifier: Apache-2.0
"""`--style full-rate` and `native`: the cases beside a kernel verify what a style changes, in the run that gives it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, Diagnostic, PorterError, unforeseen
from porter.lang.sources import is_python
from porter.passes.full_rate.asked import OF_RUNS
from porter.passes.native.step import ON_REQUEST, STEPS, declared
from porter.passes.plan import KernelPlan
from porter.passes.ported import Ported, PortedRoot
from porter.tune import full_rate
from porter.tune import given as native
from porter.tune.full_rate import IN_STRINGS, SHARED, given
from porter.tune.rates import rate_of, slower
from porter.tune.search import Searched, searched
from porter.tune.searching import Make, Pairs, Searching, builder_of
from porter.tune.staging import port_plan, stages_said
from porter.tune.styles import IDIOMATIC, NATIVE
from porter.tune.widening import NOT_SAID, not_followed
from porter.verify.budget import Budget
from porter.verify.builder import Builder
from porter.verify.known import Known
from porter.verify.proof import Claim, Judge, Outlook, Proof, outlook, prove
from porter.verify.runner import ProgressCall
from porter.verify.runs import Runs

M128 = "M=128 MMAs"
OWN_WORDS = "the words of SM100 itself"
UNASKED = "PTX is not asked if it is equal to its original (`--prove-seconds 0`, `--no-compile`)"
_NATIVE = "the steps of the native style"


Compares = Callable[[Ported, PortedRoot, "float | None"], "Diagnostic | str"]
"""Says on PTX, within so many seconds, that a port with M=128 MMAs is right, or why it does not."""


def compared(compares: Compares, ported: Ported, root: PortedRoot, budget: Budget | None) -> Diagnostic | str:
    """What PTX says of a port that no run can be made of. The compat port, which needs no comparison, is there all the
    same."""
    try:
        return compares(ported, root, None if budget is None else budget.left)
    except Exception as error:
        known = error.diagnostic if isinstance(error, PorterError) else unforeseen(error)
        return f"it could not be compared: {known.message}"


@dataclass(frozen=True)
class Attempt:
    """A port of the file `path` with `steps`, which was judged: `by` says who refused it, PTX or a run, and `what` why;
    both are empty where nobody did. `seconds` are of processor time. `rate` is its share of the nominal rate by the
    grade, None where that is not known."""

    path: str
    steps: tuple[str, ...]
    by: Literal["", "PTX", "a run"]
    what: str
    seconds: float
    rate: float | None = None


Texts = tuple[str, frozenset[tuple[str, bytes]]]
"""A port of a root by all its files."""


def texts_of(ported: Ported, root: PortedRoot) -> Texts:
    return root.path, frozenset(ported.of_root(root).items())


def is_of_grid(root: PortedRoot) -> bool:
    """Whether the steps of a root leave what the grid leaves as it is."""
    return all(changes.level == "grid" for changes in declared(root.native))


@dataclass
class Proofs:
    """What the cases beside roots proved of ports; a port with the same texts is run once. `attempts`: those that were
    judged, in their order."""

    builder: Builder
    session: Searching | None = None
    budget: Budget | None = None
    noted: Known | None = None
    compares: Compares | None = None
    judge: Judge | None = None
    attempts: dict[Texts, tuple[Attempt, Ported]] = field(default_factory=dict, init=False)
    _runs: Runs = field(default_factory=Runs, init=False)
    _known: dict[Texts, Proof] = field(default_factory=dict, init=False)
    _refused: dict[Texts, str] = field(default_factory=dict, init=False)

    def of(self, ported: Ported, root: PortedRoot) -> Proof:
        key = texts_of(ported, root)
        if key not in self._known:
            with self.session.progress() if self.session is not None else nullcontext() as tell:
                self._known[key] = self._run(ported, root, tell)
        return self._known[key]

    def _run(self, ported: Ported, root: PortedRoot, tell: ProgressCall | None) -> Proof:
        plan = port_plan(self.session, ported, root)
        if what := unsaid(self.session, plan, root):
            return Proof(missing=what)
        along = {ring.along for changes in declared(root.native) for ring in changes.rings}
        over = "others' tiles" in along
        # blocks that take others' work over come to many tiles at any size of the grid
        turns = "tiles" in along and not over
        asked = bool(root.native) and self.judge is not None and not root.dsl and is_of_grid(root)
        claim = Claim(
            Path(root.path), root.full_rate or root.kernels, plan, root.include_dirs, turns, over, root.dsl,
            root.halved, is_wide=bool(root.full_rate) and not root.dsl, joined=root.joined,
            is_equal=asked and not self.on_ptx(ported, root),
        )  # fmt: skip
        return prove(claim, self.builder, tell, self.budget, self.noted, self._runs)

    def missing(self, ported: Ported, root: PortedRoot) -> str:
        """What PTX, and then the runs, say against a port, or why they do not say enough."""
        began = time.process_time()
        if what := self.refused(ported, root):
            return what
        what = self.of(ported, root).missing
        self._note(ported, root, "a run" if what else "", what, began)
        return what

    def refused(self, ported: Ported, root: PortedRoot) -> str:
        """What PTX alone says."""
        began = time.process_time()
        if what := self.on_ptx(ported, root):
            self._note(ported, root, "PTX", what, began)
        return what

    def _note(self, ported: Ported, root: PortedRoot, by: Literal["", "PTX", "a run"], what: str, began: float) -> None:
        key = texts_of(ported, root)
        if root.native and key not in self.attempts:
            made = Attempt(root.path, tuple(root.native), by, what, time.process_time() - began)
            self.attempts[key] = made, ported

    def on_ptx(self, ported: Ported, root: PortedRoot) -> str:
        """What PTX says against steps of the native style, or why it says nothing for them. Of those by which results
        are meant to differ it has to know nothing."""
        if root.dsl or not root.native:
            return ""
        of_grid, key = is_of_grid(root), texts_of(ported, root)
        if self.judge is None:
            return UNASKED if of_grid else ""
        if key not in self._refused:
            plan = port_plan(self.session, ported, root)
            what = unsaid(self.session, plan, root)
            left = self.budget.left if self.budget else None
            found = None if what else self.judge(Path(root.path), plan, root.kernels, left)
            wanted = ("equal",) if of_grid else ("equal", "unknown")
            self._refused[key] = found.what if found is not None and found.status not in wanted else what
        return self._refused[key]

    def full_rate(self, ported: Ported, root: PortedRoot) -> Diagnostic:
        """What verified the M=128 MMAs of a root, or why nothing did."""
        refused = full_rate.not_in_own_words if root.idiomatic else full_rate.unproved
        if self.compares is not None and not root.dsl and (barred := self._barred(ported, root)):
            found = compared(self.compares, ported, root, self.budget)
            return refused(root.path, f"{barred}; {found}") if isinstance(found, str) else found
        proof = self.of(ported, root)
        if proof.missing:
            return refused(root.path, proof.missing)
        cases = ", ".join(proof.cases)
        if root.idiomatic:
            return full_rate.in_own_words(root, cases, proof.sizes)
        return full_rate.proved(root.path, cases, proof.sizes)

    def _barred(self, ported: Ported, root: PortedRoot) -> str:
        """What keeps cases from running all kernels of a root."""
        if what := outlook(Path(root.path), root.full_rate or root.kernels).missing:
            return what
        proof = self.of(ported, root)
        return proof.missing if proof.apart else ""

    def native(self, ported: Ported, root: PortedRoot) -> list[Diagnostic]:
        """What verified the steps of a root."""
        if not root.native:
            return []
        proof = self.of(ported, root)
        cases = ", ".join(proof.cases)
        return [native.proved(root.path, step, cases, proof.sizes) for step in root.native]


def unsaid(session: Searching | None, plan: PortPlan, root: PortedRoot) -> str:
    """What a port changes of the launch without saying it; empty where there is nothing."""
    if root.stages and plan.relaunch is None:
        return "the shared memory that its host code asks for is no number"
    if root.halved is not None:
        return NOT_SAID if plan.relaunch is None else not_followed(session, plan, root)
    if root.permuted and plan.relaunch is None:
        return "the tensor maps that its host code makes are not known"
    return ""


ON_PTX = "original and port are equal on PTX, at several sizes of each launch that is known, as "
"""What has to be shown where no case runs a kernel, and why none does."""


def _licensed(plan: KernelPlan, missing: str) -> KernelPlan:
    if not plan.has_full_rate and not plan.mode:
        return plan.of_compat()
    return replace(plan, native=(), gate=(*(what for what in plan.gate if what not in OF_RUNS), ON_PTX + missing))


@dataclass
class GivenPlans:
    """The plans of a file as `porter port` gives it, and what is `said` of M=128 MMAs and steps that it leaves out."""

    root: Path
    plans: list[KernelPlan]
    said: list[Diagnostic] = field(default_factory=list)

    def settle(self) -> None:
        """Leave out the steps of kernels that no case runs: their M=128 MMAs have to be equal on PTX. Of the others say
        what else their cases ask for."""
        kernels = [p.kernel for p in self.plans if p.steps]
        if not kernels:
            return
        found = Outlook(IN_STRINGS) if is_python(self.root) else outlook(self.root, kernels)
        if found.missing and is_python(self.root):
            self.leave(found.missing)
        elif found.missing:
            steps = dict.fromkeys(step for p in self.plans for step in p.native)
            self.said += [native.left(str(self.root), step, found.missing) for step in steps]
            self.plans = [_licensed(p, found.missing) if p.steps else p for p in self.plans]
        else:
            self.plans = [replace(p, gate=(*p.gate, *found.asks)) if p.steps else p for p in self.plans]

    def leave(self, what: str) -> None:
        path = str(self.root)
        steps = dict.fromkeys(step for p in self.plans for step in p.native)
        self.said += [full_rate.unproved(path, what)] if any(p.has_full_rate or p.mode for p in self.plans) else []
        self.said += [native.left(path, step, what) for step in steps]
        self.plans = [p.of_compat() for p in self.plans]


def as_given(planned: Sequence[tuple[Path, Sequence[KernelPlan]]]) -> list[GivenPlans]:
    """The plans of files, each with its root, without M=128 MMAs and steps where no case runs their kernels, or where a
    kernel of theirs stands in a header beside such a file."""
    found = [GivenPlans(root, list(plans)) for root, plans in planned]
    for one in found:
        one.settle()
    while True:
        left = {p.path for one in found if one.said for p in one.plans}
        sharing = [one for one in found if not one.said and any(p.steps and p.path in left for p in one.plans)]
        if not sharing:
            return found
        for one in sharing:
            one.leave(SHARED)


def verified(
    session: Searching, ported: Ported, make: Make, budget: Budget | None = None, compares: Compares | None = None,
    judge: Judge | None = None, attempts: list[Attempt] | None = None, noted: Known | None = None,
) -> Ported:  # fmt: skip
    """The port with what cases verify of the session's style, `full-rate`, `idiomatic` or `native`. Where the grade
    finds that slower than the compat port, the native style gives the compat port; M=128 MMAs that are asked for by
    name stay, and that is said. `attempts` gets the ports that were judged for it, `noted` the rows of their runs."""
    proofs = Proofs(builder_of(session), session, budget, noted, compares, judge)
    found = _in_style(session, ported, make, proofs)
    changed = frozenset(r.path for r in found.roots if r.native or r.full_rate or r.idiomatic)
    if not changed or session.style == IDIOMATIC:
        # which is asked for how it reads
        _tell(attempts, session, proofs)
        return found
    if session.style == NATIVE:
        found, make = _faster_without_steps(session, found, make, proofs)
    compat = cache(partial(_of_compat, make, changed))
    every = {path: slower(session, found, compat, path, proofs.builder) for path in sorted(changed)}
    lost = {path: one for path, one in every.items() if one is not None}
    if lost and session.style == NATIVE:
        again = partial(_of_compat, make, frozenset(lost))
        found = _in_style(session, again(), again, proofs)
        steps = (Code.NATIVE_LEFT, Code.NATIVE_UNPROVED)
        found.diagnostics[:] = [d for d in found.diagnostics if d.code not in steps or path_of(d) not in lost]
    _tell(attempts, session, proofs)
    code, what = (Code.FULL_RATE_SLOWER, _NATIVE) if session.style == NATIVE else (Code.FULL_RATE_IS_SLOWER, M128)
    found.diagnostics += [one.said(code, path, what) for path, one in lost.items()]
    return found


def _faster_without_steps(session: Searching, found: Ported, make: Make, proofs: Proofs) -> tuple[Ported, Make]:
    """The port without the steps of roots that the grade finds faster in SM100's own words, and how it is made."""
    paths = frozenset(r.path for r in found.roots if r.native)
    bare = partial(without_steps, make, paths)
    plain = bare() if paths else found
    own = sorted(r.path for r in plain.roots if r.path in paths and r.idiomatic)
    lost = {path for path in own if slower(session, found, lambda: plain, path, proofs.builder) is not None}
    if not lost:
        return found, make
    again = partial(without_steps, make, frozenset(lost))
    return _in_style(session, again(), again, proofs), again


def _tell(attempts: list[Attempt] | None, session: Searching, proofs: Proofs) -> None:
    if attempts is not None:
        graded = partial(rate_of, session, builder=proofs.builder)
        attempts += [replace(a, rate=graded(made, path=a.path)) for a, made in proofs.attempts.values()]


def path_of(said: Diagnostic) -> str:
    return said.where.path if said.where is not None else ""


def _of_compat(make: Make, these: frozenset[str], *, half_rate: frozenset[str] = frozenset(), **asked: Any) -> Ported:
    """The same port, in which some roots are as in the compat style."""
    return without_steps(make, these, half_rate=half_rate | these, **asked)


def without_steps(make: Make, these: frozenset[str], *, without: Pairs = frozenset(), **asked: Any) -> Ported:
    """The same port, in which some roots have no steps of the native style."""
    none = frozenset((path, step) for path in these for step in (*ON_REQUEST, *STEPS))
    of_roots = {
        name: frozenset(one for one in asked[name] if one[0] not in these)
        for name in ("chosen", "stages", "registers") if name in asked
    }  # fmt: skip
    return make(without=without | none, **(asked | of_roots))


def _in_style(session: Searching, ported: Ported, make: Make, proofs: Proofs) -> Ported:
    """The port with what cases verify of the session's style."""
    search = searched(session, ported, make) if session.style == NATIVE else Searched(ported, make)
    ported, make = search.ported, search.make
    steps = native.given(ported, make, proofs.missing, proofs.refused)
    found = given(steps.ported, partial(make, without=steps.without), proofs.full_rate)
    unproved = {(r.path, step) for r in found.roots for step in r.native if proofs.missing(found, r)}
    if unproved:
        # at M=64 a root became another text, whose steps nobody has run
        without = steps.without | unproved
        found = given(make(without=without), partial(make, without=without), proofs.full_rate)
        steps.said += [native.left(path, step, "its MMAs stay at M=64") for path, step in sorted(unproved)]
    found.diagnostics += steps.said
    search.say(found)
    found.diagnostics += [d for d in search.spilling if d not in found.diagnostics]
    for root in found.roots:
        found.diagnostics += [*proofs.native(found, root), *stages_said(session, found, root)]
    return found
