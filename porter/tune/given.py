# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style are given in the roots where a run verified them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.sources import is_python
from porter.passes.ported import Ported, PortedRoot
from porter.tune.searching import Make, Pairs

Missing = Callable[[Ported, PortedRoot], str]
"""Runs the port of a root, and answers with what is wrong with it, or nothing."""


@dataclass
class Given:
    """`ported` is the port with the steps that are verified, `without` those that it is made without."""

    ported: Ported
    without: Pairs = frozenset()
    said: list[Diagnostic] = field(default_factory=list)


def given(ported: Ported, make: Make, missing: Missing, on_ptx: Missing | None = None) -> Given:
    """The port with the steps that runs verify: all of a root where that can be, else one on top of the other. Those
    that PTX refuses, as `on_ptx` says without a run, are left out first, so that what is left is run alone."""
    found = Given(ported)
    verified: dict[str, dict[str, bytes]] = {}
    for path in [r.path for r in ported.roots if r.native]:
        root = next(r for r in found.ported.roots if r.path == path)
        if not root.native:
            continue
        if _missing(found.ported, root, missing) and not _left_out(found, root, make, missing, on_ptx):
            # which of them it is shows one by one
            _alone(found, root, make, missing)
        verified[path] = found.ported.at(path)
    for root in ported.roots:
        if root.path in verified and found.ported.at(root.path) != verified[root.path]:
            found.without |= {(r.path, step) for r in ported.roots for step in r.native}
            found.ported = make(without=found.without)
            what = "it shares a header with a file that is without it"
            found.said = [left(r.path, step, what) for r in ported.roots for step in r.native]
            break
    return found


def _left_out(found: Given, root: PortedRoot, make: Make, missing: Missing, on_ptx: Missing | None) -> bool:
    """Whether the port is right without the steps that PTX refuses, which then are left out."""
    if on_ptx is None or not _missing(found.ported, root, on_ptx):
        return False
    trial = Given(found.ported, found.without)
    _alone(trial, root, make, on_ptx)
    taken = next(r for r in trial.ported.roots if r.path == root.path)
    if taken.native and _missing(trial.ported, taken, missing):
        return False
    found.ported, found.without = trial.ported, trial.without
    found.said += trial.said
    return True


def _alone(found: Given, root: PortedRoot, make: Make, missing: Missing) -> None:
    """Each step of a root on top of those that are verified."""
    without = found.without | {(root.path, step) for step in root.native}
    base = make(without=without)
    what = next((_missing(base, r, missing) for r in base.roots if r.path == root.path), "")
    if what:
        found.ported, found.without = base, without
        found.said += [left(root.path, step, f"what it builds on is not verified: {what}") for step in root.native]
        return
    for step in root.native:
        one = make(without=without - {(root.path, step)})
        taken = next((r for r in one.roots if r.path == root.path), root)
        what = _missing(one, taken, missing) if step in taken.native else "it needs a step that is left out"
        if what:
            found.said.append(left(root.path, step, what))
        else:
            without -= {(root.path, step)}
    found.without = without
    found.ported = make(without=without)


def proved(path: str, step: str, cases: str, sizes: int) -> Diagnostic:
    return Diagnostic(
        Code.NATIVE_PROVED, Location(path), {"path": path, "step": step, "cases": cases, "sizes": sizes}
    )  # fmt: skip


def left(path: str, step: str, what: str) -> Diagnostic:
    return Diagnostic(Code.NATIVE_UNPROVED, Location(path), {"path": path, "step": step, "what": what})


def _missing(ported: Ported, root: PortedRoot, missing: Missing) -> str:
    if is_python(Path(root.path)) and not root.dsl:
        return "its kernels stand in strings, and no case runs those alone"
    return missing(ported, root)
