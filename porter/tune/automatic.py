# SPDX-License-Identifier: Apache-2.0
"""`--style auto`: M=128 MMAs where a case verifies them in this run and the grade finds them no slower, else M=64. It
asks nobody, runs no code that is not trusted, and begins nothing when its time is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from porter.build.toolchain import find_toolkit
from porter.build.trust import is_granted
from porter.diagnostics import Code, Diagnostic, Location, PorterError, unforeseen
from porter.passes.full_rate.two_consumers import ALONE
from porter.passes.ported import Ported, PortedRoot
from porter.tune import given as native
from porter.tune.full_rate import IN_STRINGS, given, not_in_own_words, taken, unproved
from porter.tune.rates import slower
from porter.tune.searching import Make, Searching, adding, builder_of
from porter.tune.styles import COMPAT
from porter.tune.verifying import M128, OWN_WORDS, Compares, Proofs, compared, path_of, without_steps
from porter.verify.budget import Budget
from porter.verify.known import Known
from porter.verify.proof import SPENT, outlook

SECONDS = 300.0
"""How long ports are proved where nobody says."""
_OF_STYLE = (Code.SHARED_HEADER, Code.INTERNAL, Code.TOO_LARGE)
"""What may keep files from M=128 MMAs alone; other errors are those of every style."""
_NAMED = 4
"""Files that a note names."""
SAID = (Code.FULL_RATE_LEFT, Code.FULL_RATE_UNPROVED, Code.FULL_RATE_SLOWER, Code.FULL_RATE_UNTRIED,
        Code.IDIOM_LEFT, Code.IDIOM_UNPROVED)  # fmt: skip
"""Why a port is that of the compat style."""


def time_for(seconds: float | None) -> Budget:
    """For proofs of a command that may take so long in all: what follows them has as much again."""
    return Budget.of_work(SECONDS if seconds is None else min(SECONDS, seconds / 2))


def unrun(session: Searching) -> str:
    """What keeps this machine from running anything; empty where nothing does.

    Raises:
        PorterError: BAD_TOOLKIT.
    """
    try:
        find_toolkit(session.toolkit)
    except PorterError as error:
        if error.diagnostic.code is not Code.NO_TOOLKIT:
            raise
        return "no CUDA compiler was found"
    return ""


def untried(files: str, why: str, at: str = "") -> Diagnostic:
    """What is said of files that nothing was run of, or of the one file `at`."""
    return Diagnostic(Code.FULL_RATE_UNTRIED, Location(at) if at else None, {"files": files, "why": why})


def of_file(said: Diagnostic) -> Diagnostic:
    """What keeps a file at M=64 without a run that found it is no warning."""
    path, why = str(said.values["path"]), str(said.values["what"])
    return untried(path, why, path)


def made(session: Searching, make: Callable[[], Ported]) -> Ported:
    """The port with M=128 MMAs as far as texts go, or the compat port where files can be ported as that alone.

    Raises:
        PorterError: what making the compat port raises.
    """
    try:
        return make()
    except Exception as error:
        if isinstance(error, PorterError) and error.diagnostic.code not in _OF_STYLE:
            raise
    with session.in_style(COMPAT):
        return make()


@dataclass
class Auto:
    """Chooses between M=128 and M=64 for the ports of one command. `proves` False: nothing is run, and what only a run
    can show is taken for granted. `asks`: the command needs trust in the code of cases anyway."""

    session: Searching
    budget: Budget = field(default_factory=lambda: Budget.of_work(SECONDS))
    proves: bool = True
    asks: bool = False
    compares: Compares | None = None
    """Where no run can be made."""
    known: Known = field(default_factory=Known)
    """Rows of the runs that proved ports."""
    assumed: bool = False
    """Whether a port has M=128 MMAs that no run proved."""
    _proofs: Proofs | None = None
    _refused: set[str] = field(default_factory=set)
    """What runs said against steps."""

    def choose(self, ported: Ported, make: Make) -> Ported:
        """The port with M=128 MMAs where that is known to be right and no slower; one note a kernel says why not."""
        steps = native.given(ported, make, lambda made, root: self._against_steps(made, root, make))
        ported, make = steps.ported, adding(make, without=steps.without)
        paths = frozenset(r.path for r in taken(ported))
        half = cache(partial(make, half_rate=paths))

        def with_m64(*, half_rate: frozenset[str]) -> Ported:
            return half() if half_rate == paths else make(half_rate=half_rate)

        found = given(ported, with_m64, lambda made, root: self._said(made, root, half))
        found.diagnostics[:] = _together(found.diagnostics, self.budget)
        found.diagnostics[:] = one_each(found.diagnostics, found.roots, self.session.verbosity > 0)
        found.diagnostics[:] = [d for d in found.diagnostics if d.code is not Code.NATIVE_LEFT]
        own = {r.path for r in found.roots if r.idiomatic}
        found.diagnostics += [d for d in steps.said if path_of(d) in own and d.values["what"] in self._refused]
        if self.proves:
            found.diagnostics += [d for root in found.roots for d in self.proofs.native(found, root)]
        return found

    def _against_steps(self, ported: Ported, root: PortedRoot, make: Make) -> str:
        """What grade and runs say against steps that a root has."""
        if not root.native:
            return ""
        if not (self.asks or is_granted()) or self.budget.is_spent:
            return "nothing could be run"
        bare = partial(without_steps, make, frozenset({root.path}))
        try:
            lost = slower(self.session, ported, bare, root.path, self.proofs.builder)
            if lost is None and self.proves:
                what = self.proofs.missing(ported, root)
                self._refused.add(what)
                return what
        except Exception as error:
            known = error.diagnostic if isinstance(error, PorterError) else unforeseen(error)
            return f"it could not be run: {known.message}"
        return "" if lost is None else "it is slower by the grade"

    @property
    def proofs(self) -> Proofs:
        if self._proofs is None:
            self._proofs = Proofs(builder_of(self.session), self.session, self.budget, self.known, self.compares)
        return self._proofs

    def _said(self, ported: Ported, root: PortedRoot, half: Callable[[], Ported]) -> Diagnostic:
        """What verified the M=128 MMAs of a root, or why nothing did. `half`: the port with M=64 everywhere, which is
        made when it is asked for."""
        found = outlook(Path(root.path), root.full_rate or root.kernels, root.dsl)
        barred = found.missing or ("" if self.asks or is_granted() else _untrusted(root, found.code))
        if barred:
            return self._compared(ported, root, barred)
        if self.budget.is_spent:
            return untried(root.path, "")
        try:
            return self._tried(ported, root, half)
        except Exception as error:
            # the compat port, which needs no run, is there all the same
            known = error.diagnostic if isinstance(error, PorterError) else unforeseen(error)
            refused = not_in_own_words if root.idiomatic else unproved
            return refused(root.path, f"it could not be run: {known.message}")

    def _compared(self, ported: Ported, root: PortedRoot, barred: str) -> Diagnostic:
        """What PTX says where no run can be made, as is said by `barred`."""
        if self.compares is None or root.dsl or self.budget.is_spent:
            return untried(root.path, barred, root.path)
        found = compared(self.compares, ported, root, self.budget)
        return untried(root.path, f"{barred}; {found}", root.path) if isinstance(found, str) else found

    def _tried(self, ported: Ported, root: PortedRoot, half: Callable[[], Ported]) -> Diagnostic:
        lost = slower(self.session, ported, half, root.path, self.proofs.builder)
        if lost is not None:
            what = OWN_WORDS if root.idiomatic else M128
            return lost.said(Code.FULL_RATE_SLOWER, root.path, what)
        if not self.proves:
            self.assumed = True
            return Diagnostic(Code.FULL_RATE_PROVED, None, {"path": root.path, "cases": "", "sizes": 0})
        found = self.proofs.full_rate(ported, root)
        return of_file(found) if str(found.values.get("what", "")).endswith(SPENT) else found


def _untrusted(root: PortedRoot, code: Sequence[str]) -> str:
    """What of a proof would run code that the sources bring along."""
    if root.dsl:
        return "to run its case, it is imported, which needs `--trust`"
    return (
        f"to run its case, code that it brings along may run, which needs `--trust`: {', '.join(code)}" if code else ""
    )


def _together(said: list[Diagnostic], budget: Budget) -> list[Diagnostic]:
    """With one note of all files whose turn did not come; what a run would have proved is not said of others."""
    late, others = list[str](), list[Diagnostic]()
    for one in said:
        if one.code is Code.FULL_RATE_UNTRIED and one.where is None:
            late.append(str(one.values["files"]))
        elif one.code is Code.FULL_RATE_UNPROVED and one.values["what"] == IN_STRINGS:
            others.append(of_file(one))
        elif one.code is not Code.FULL_RATE_PROVED or one.where is not None:
            others.append(one)
    if not late:
        return others
    named = ", ".join(late[:_NAMED]) + (f" and {len(late) - _NAMED} other files" if late[_NAMED:] else "")
    return [*others, untried(named, f"{budget.seconds:g} seconds were over before their turn came")]


def one_each(said: Sequence[Diagnostic], roots: Sequence[PortedRoot], all_facts: bool) -> list[Diagnostic]:
    """What is said of the ports of roots, with one note for each kernel at M=64: the first fact that is missing, or,
    where it has one tile, that its rate is half. `all_facts`: each that is missing."""
    of_kernels = (Code.IDIOM_LEFT, Code.FULL_RATE_LEFT)
    whole = {path_of(d) for d in said if d.code in SAID and d.code not in of_kernels}
    left = [d for d in said if d.code is Code.IDIOM_LEFT]
    own = {(path, k) for d in left for r in roots if path_of(d) in r.files for k in _names(d) for path in r.files}
    explained = {(path, k) for r in roots if r.path in whole for k in r.kernels for path in r.files} | own
    facts: dict[tuple[str, str], list[Diagnostic]] = {}
    for one in said:
        if one.code is Code.FULL_RATE_LEFT and one.values["what"] != ALONE:
            root = next((r for r in roots if path_of(one) in r.files), None)
            if not all_facts and own.issuperset((path_of(one), k) for k in _names(one)):
                continue
            facts.setdefault((root.path if root else "", str(one.values["kernel"])), []).append(one)
            explained |= {(path, k) for k in _names(one) for path in (root.files if root else ())}
    shown = {id(d): 0 for group in facts.values() for d in group[: None if all_facts else 1]}
    if not all_facts:
        shown |= {id(group[0]): len(group) - 1 for group in facts.values()}
    found = []
    for one in said:
        if one.code is Code.HALF_RATE:
            found += [] if (path_of(one), one.values["kernel"]) in explained else [one]
        elif one.code is not Code.FULL_RATE_LEFT:
            found.append(one)
        elif id(one) in shown:
            found.append(_with_more(one, shown[id(one)]))
    return found


def _with_more(said: Diagnostic, count: int) -> Diagnostic:
    what = f"{said.values['what']} (and {count} more: `porter plan -v`)" if count else said.values["what"]
    return replace(said, values={**said.values, "what": what})


def _names(said: Diagnostic) -> list[str]:
    return str(said.values["kernel"]).split(", ")
