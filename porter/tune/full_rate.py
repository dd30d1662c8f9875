# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs are given in the roots where a run verified them; others stay at M=64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.sources import is_python
from porter.passes.full_rate.step import wide_rules
from porter.passes.ported import Ported, PortedRoot, sharing_modules

IN_STRINGS = "its kernels stand in strings, and no case runs those alone"
SHARED = "it shares a header with a file that stays at M=64"
SHARED_MODULE = "it shares a module with a file that stays at M=64"

Verify = Callable[[Ported, PortedRoot], Diagnostic]
"""Runs the port of a root, or compares it on PTX, and answers with `proved`, `equal`, or with why it stays at M=64."""
RIGHT = (Code.FULL_RATE_PROVED, Code.FULL_RATE_EQUAL, Code.IDIOM_PROVED, Code.IDIOM_AT_PRACTICE)
"""What is said of M=128 MMAs that are right."""


class Make(Protocol):
    """The same port, with M=64 in some roots."""

    def __call__(self, *, half_rate: frozenset[str]) -> Ported: ...


def given(ported: Ported, make: Make, verify: Verify) -> Ported:
    """The port with M=128 MMAs where they are verified, and M=64 in other roots; both are said."""
    said = {root.path: _said(ported, root, verify) for root in taken(ported)}
    failed = {path for path, one in said.items() if one.code not in RIGHT}
    sharing = sharing_modules(taken(ported), failed)
    said |= {path: unproved(path, SHARED_MODULE) for path in sharing}
    failed |= sharing
    if failed:
        again = make(half_rate=frozenset(failed))
        if any(again.of_root(r) != ported.at(r.path) for r in taken(again)):
            # what is shared became another text, which nobody has run
            again = make(half_rate=frozenset(said))
            said |= {path: unproved(path, SHARED) for path in said if path not in failed}
        ported = again
    ported.diagnostics += said.values()
    return ported


def taken(ported: Ported) -> list[PortedRoot]:
    """The roots with M=128 MMAs, or in SM100's own words."""
    paths = {e.path for g in ported.groups if g.rule in wide_rules() for e in g.edits}
    return [r for r in ported.roots if paths & set(r.files) or r.full_rate or r.idiomatic]


def unproved(path: str, what: str) -> Diagnostic:
    return Diagnostic(Code.FULL_RATE_UNPROVED, Location(path), {"path": path, "what": what})


def proved(path: str, cases: str, sizes: int) -> Diagnostic:
    return Diagnostic(Code.FULL_RATE_PROVED, Location(path), {"path": path, "cases": cases, "sizes": sizes})


def equal(path: str, kernels: str, how: str = "issues M=128 MMAs") -> Diagnostic:
    return Diagnostic(Code.FULL_RATE_EQUAL, Location(path), {"path": path, "how": how, "kernels": kernels})


def own_words(root: PortedRoot) -> str:
    """That a port is in SM100's own words, and its modes."""
    return "is in SM100's own words" + (f" (mode {', '.join(root.modes)})" if root.modes else "")


def in_own_words(root: PortedRoot, cases: str, sizes: int) -> Diagnostic:
    """What verified a port in SM100's own words."""
    path = root.path
    if root.absent:
        names = ", ".join(name.rpartition(".")[2] for name in root.absent)
        values = {"path": path, "cases": cases, "sizes": sizes, "names": names}
        return Diagnostic(Code.IDIOM_AT_PRACTICE, Location(path), values)
    values = {"path": path, "how": own_words(root), "cases": cases, "sizes": sizes}
    return Diagnostic(Code.IDIOM_PROVED, Location(path), values)


def not_in_own_words(path: str, missing: str) -> Diagnostic:
    return Diagnostic(Code.IDIOM_UNPROVED, Location(path), {"path": path, "what": missing})


def _said(ported: Ported, root: PortedRoot, verify: Verify) -> Diagnostic:
    if (is_python(Path(root.path)) and not root.dsl) or not (root.full_rate or root.idiomatic):
        return unproved(root.path, IN_STRINGS)
    return verify(ported, root)
