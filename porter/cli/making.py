# SPDX-License-Identifier: Apache-2.0
"""Which port files get, in the style that is asked for: the one that `porter port` writes is what others show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from porter.build.port_plan import PortPlan
from porter.cli.context import Session, styled
from porter.cli.judging import judge
from porter.cli.licence import licence
from porter.cli.porting import plan_in, plan_on, port_paths
from porter.diagnostics import Code, Diagnostic
from porter.passes.ported import Ported
from porter.tune.automatic import SAID, SECONDS, Auto, made, time_for, unrun, untried
from porter.tune.search import searched
from porter.tune.staging import port_plan
from porter.tune.styles import AUTO, COMPAT, FULL_RATE, IDIOMATIC, NATIVE
from porter.tune.verifying import verified
from porter.verify.budget import Budget
from porter.verify.case import Case
from porter.verify.gate import GateOptions
from porter.verify.known import Known
from porter.verify.proved import SECONDS as ON_PTX

_PROVED = (FULL_RATE, IDIOMATIC, NATIVE)
"""Styles of which each port is proved, and that are asked for by their names."""
_LEFT = (*SAID, Code.FULL_RATE_LEFT, Code.NATIVE_LEFT, Code.NATIVE_UNPROVED, Code.FULL_RATE_IS_SLOWER)
"""What a port lacks of its style, and why."""
UNCOMPILED = "with `--no-compile` nothing is run"


def port_in_style(
    session: Session, make: Callable[..., Ported], held: str, seconds: float | None, options: GateOptions,
    proves: float,
) -> Ported:  # fmt: skip
    """The port in the session's style. `held`: why nothing is run. `seconds`: how long runs prove it, None where nobody
    says. `proves`: for how many seconds PTX is looked at, 0 for not at all. `options`: how originals are compiled.

    Raises:
        PorterError: what porting, compiling and running raise.
    """
    compares = licence(session, options, proves)
    auto = session.style == AUTO
    held = held or (unrun(session) if auto else "")
    compat = auto and bool(held)
    with styled(COMPAT) if compat else nullcontext(), session.counting() as counted:
        first = partial(make, tell=partial(counted, "porting") if counted is not None else None)
        ported = made(session, first) if auto else first()
    if compat:
        halved = any(d.code is Code.HALF_RATE for d in ported.diagnostics) or any(r.dsl for r in ported.changed_roots)
        if halved:
            ported.diagnostics.append(untried("all kernels", held))
        return ported
    if auto:
        return Auto(session, Budget.of_work(SECONDS if seconds is None else seconds), compares=compares).choose(
            ported, make
        )
    if session.style in _PROVED:
        return verified(session, ported, make, Budget.of_work(seconds), compares, judge(session, options, proves))
    return ported


@dataclass
class Ports:
    """The ports of one command: of each file the one that `porter port` writes in the session's style, made once.
    `seconds`: how long the command may take in all, None where nobody says; proofs have half of it. `proves`: for how
    many seconds PTX is looked at, 0 for not at all. `asks`: the command needs trust in the code of cases anyway. `runs`
    False: nothing is run, and ports have all that their texts allow."""

    session: Session
    seconds: float | None = None
    proves: float = ON_PTX
    asks: bool = False
    runs: bool = True
    options: GateOptions = field(default_factory=GateOptions)
    """How originals are compiled; directories of headers and the chip are those of a file."""
    known: Known = field(default_factory=Known)
    """Rows of the runs that proved ports."""
    assumed: bool = False
    """Whether a port in the style `auto` has M=128 MMAs that nothing proved."""
    _made: dict[tuple[object, ...], Ported] = field(default_factory=dict, init=False)
    _budget: Budget = field(init=False)
    """As where the port is written: a style that is asked for by its name has all the time that it takes."""

    def __post_init__(self) -> None:
        named = self.session.style in _PROVED and self.seconds is None
        self._budget = Budget.of_work(None) if named else time_for(self.seconds)

    def of_case(
        self, case: Case, port: Path | None = None, target: str | None = None
    ) -> tuple[PortPlan | None, list[Diagnostic]]:
        """The port of a case's kernel. What a case says of a port is said of one that is given: what Porter makes says
        itself what it changes.

        Raises:
            PorterError: what porting, compiling and running raise.
        """
        plan, said = self.of_file(case.to_port, port, case.include_dirs, case.entry, target)
        return None if plan is None else plan_on(case, plan), said

    def of_file(
        self, kernel: Path, port: Path | None = None, include_dirs: Sequence[Path] = (), entry: str = "",
        target: str | None = None,
    ) -> tuple[PortPlan | None, list[Diagnostic]]:  # fmt: skip
        """The port of a kernel file: `port` if it is given. None if constructs were left unported; the diagnostics then
        say which. Kernels that were left do not matter where `entry` is another one.

        Raises:
            PorterError: what porting, compiling and running raise.
        """
        if port is not None:
            return PortPlan(source=port, keeps_hopper=bool(self.session.keep_hopper)), []
        key = kernel, tuple(include_dirs), target, self.session.style
        if key not in self._made:
            self._made[key] = self._of(kernel, tuple(include_dirs), target)
        ported = self._made[key]
        if ported.leaves(entry):
            return None, [Diagnostic(Code.PORT_INCOMPLETE, None, {"path": str(kernel)}), *ported.diagnostics]
        # as it is compiled for its proof, whose runs are not made again
        root = ported.roots[0] if self.session.style == AUTO and len(ported.roots) == 1 else None
        kept = [d for d in ported.diagnostics if d.code is not Code.NOTHING_TO_PORT]
        return port_plan(self.session, ported, root), kept

    def _of(self, kernel: Path, include_dirs: tuple[Path, ...], target: str | None) -> Ported:
        session, style = self.session, self.session.style
        make = partial(port_paths, [kernel], (*include_dirs, *session.include_dirs), target=target)
        options = replace(
            self.options, include_dirs=tuple(dict.fromkeys((*self.options.include_dirs, *include_dirs))),
            toolkit=session.toolkit, target=target or session.target,
        )  # fmt: skip
        compares = licence(session, options, self.proves)
        if style == AUTO:
            auto = Auto(session, self._budget, self.runs, self.asks, compares, self.known)
            found = auto.choose(made(session, make), make)
            self.assumed = self.assumed or auto.assumed
            session.report(d for d in found.diagnostics if d.code in SAID)
            return found
        found = make()
        if style in _PROVED and self.runs:
            judges = judge(session, options, self.proves)
            found = verified(session, found, make, self._budget, compares, judges, noted=self.known)
        elif style == NATIVE:
            search = searched(session, found, make)
            found = search.ported
            search.say(found)
        session.report(d for d in found.diagnostics if d.code in _LEFT)
        return found


def as_launched(session: Session, ported: Ported, case: Case) -> tuple[PortPlan | None, list[Diagnostic]]:
    """A port as a case launches it, with what is said of it; None if the case's kernel was left."""
    plan = plan_in(session, ported, case)
    if plan is None:
        return None, [Diagnostic(Code.PORT_INCOMPLETE, None, {"path": str(case.to_port)}), *ported.diagnostics]
    return plan, [d for d in ported.diagnostics if d.code is not Code.NOTHING_TO_PORT]
