# SPDX-License-Identifier: Apache-2.0
"""`--style full-rate`: M=128 MMAs are given where the cases beside a kernel verify them, in the same run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from porter.build.entry import function_name
from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session
from porter.diagnostics import Code, Diagnostic, Location, PorterError, Severity
from porter.lang.sources import is_python
from porter.passes.full_rate.step import RULE
from porter.passes.ported import Ported, PortedRoot
from porter.verify.builder import PORT_ARCH, Builder, BuiltKernel
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.outcome import Verdict
from porter.verify.problem import Problem
from porter.verify.results import VerifyResult
from porter.verify.runner import ProgressCall
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

_EXACT = ("integers", "index")
"""The families that run under random schedules too: each element says which tile it was made of."""
_SEEDS = (1, 2)


class Make(Protocol):
    """The same port, with M=64 in some roots."""

    def __call__(self, *, half_rate: frozenset[str]) -> Ported: ...


def proved(session: Session, ported: Ported, make: Make) -> Ported:
    """The port with M=128 MMAs where cases verify them, and M=64 in other roots; both are said."""
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    said: dict[str, Diagnostic] = {}
    failed: set[str] = set()
    for root in _taken(ported):
        with session.progress() as tell:
            said[root.path] = _tried(ported, root, builder, tell)
        failed |= {root.path} if said[root.path].code is Code.FULL_RATE_UNPROVED else set()
    if failed:
        again = make(half_rate=frozenset(failed))
        if any(again.of_root(r) != _files(ported, r.path) for r in _taken(again)):
            # what is shared became another text, which nobody has run
            again = make(half_rate=frozenset([*failed, *said]))
            shared = "it shares a header with a file that stays at M=64"
            said |= {path: _unproved(path, shared) for path in said if path not in failed}
        ported = again
    ported.diagnostics += said.values()
    return ported


def _unproved(path: str, what: str) -> Diagnostic:
    return Diagnostic(Code.FULL_RATE_UNPROVED, Location(path), {"path": path, "what": what})


def _proved(path: str, cases: str, sizes: int) -> Diagnostic:
    return Diagnostic(Code.FULL_RATE_PROVED, Location(path), {"path": path, "cases": cases, "sizes": sizes})


def _taken(ported: Ported) -> list[PortedRoot]:
    """The roots with M=128 MMAs."""
    paths = {e.path for g in ported.groups if g.rule == RULE for e in g.edits}
    return [r for r in ported.roots if paths & set(r.files)]


def _files(ported: Ported, path: str) -> dict[str, bytes]:
    return next((ported.of_root(r) for r in ported.roots if r.path == path), {})


@dataclass
class _Noting:
    """A builder that remembers which kernels of ports it built, and which stand in the same files."""

    inner: Builder
    entries: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        built = self.inner.build(problem, source, arch)
        if arch == PORT_ARCH:
            self.entries.add(built.entry)
            self.there.update(f.name for f in built.module.entries())
        return built


def _tried(ported: Ported, root: PortedRoot, builder: Builder, tell: ProgressCall | None) -> Diagnostic:
    """What verified the M=128 MMAs of a root, or why nothing did."""
    if is_python(Path(root.path)) or not root.full_rate:
        return _unproved(root.path, "its kernels stand in strings, and no case runs those alone")
    noting = _Noting(builder)
    try:
        cases = [c for c in map(load_case, cases_if_any(Path(root.path))) if c.recorded is None and c.dsl is None]
        run = {c.entry.rsplit("::", 1)[-1] for c in cases}
        for kernel in root.full_rate:
            if kernel not in run:
                return _unproved(root.path, f"no case beside it runs `{kernel}`")
        plan = PortPlan(files=ported.of_root(root), keeps_hopper=ported.keeps_hopper)
        for wanted in _runs(plan, root):
            what = _wrong(verify_cases(cases, wanted, noting, tell))
            if what:
                return _unproved(root.path, what)
    except PorterError as error:
        return _unproved(root.path, f"it could not be run: {error.diagnostic.message}")
    others = [n for n in noting.there - noting.entries if function_name(n) in root.full_rate]
    if others:
        return _unproved(root.path, f"no case runs `{sorted(others)[0]}`, another instantiation")
    return _proved(root.path, ", ".join(c.path.name for c in cases), sum(len(c.all_sizes()) for c in cases))


def _runs(plan: PortPlan, root: PortedRoot) -> list[Wanted]:
    """Every size, each under the late schedule with all families and under random ones with those that are exact; the
    checker looks on at strict level."""

    def port_of(case: Case) -> tuple[PortPlan, list[Diagnostic]]:
        return plan, []

    late = Wanted(SimOptions(), sizes=Case.all_sizes, hazards=True, port_of=port_of, include_dirs=root.include_dirs)
    return [
        late,
        *(replace(late, settings=SimOptions(schedule="random", seed=seed), families=_EXACT) for seed in _SEEDS),
    ]


def _wrong(result: VerifyResult) -> str:
    """What a verification found."""
    for row in result.rows:
        if row.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
            errors = [d for d in row.diagnostics if d.severity is Severity.ERROR]
            sizes = " ".join(f"{k}={v}" for k, v in row.sizes.items())
            return f"{row.case} {sizes}, {row.inputs}: {errors[0].message if errors else row.verdict.value}"
    if result.errors:
        return result.errors[0].message
    return "" if result.rows else "nothing was run"
