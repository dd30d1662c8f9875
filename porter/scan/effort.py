# SPDX-License-Identifier: Apache-2.0
"""How much work a port is, judged by what the port engine itself makes of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, PorterError, Severity
from porter.lang.cuda import parse_cuda
from porter.lang.sources import SourceSet, read_source
from porter.lang.text import EditGroup, Safety
from porter.passes.ported import PortedFile
from porter.rules.engine import Selection, pattern_groups
from porter.scan.constructs import library_rules
from porter.scan.levels import Effort

_REASONS = 4


def port_effort(ported: PortedFile) -> Effort:
    """What the engine made of a file with its local headers."""
    if ported.error is not None:
        return judged(ported.error.diagnostics, ())
    assert ported.result is not None
    left = [d for d in getattr(ported.result, "left_over", ()) if d.where and d.where.path == str(ported.root)]
    return judged([*ported.result.diagnostics, *left], ported.result.groups)


def library_effort(path: str, rules: tuple[str, ...] = ()) -> Effort:
    """The effort of a file whose Hopper-only constructs are those of a library: no kernel needs to be analysed, and no
    header read, to know that they are left."""
    try:
        source = read_source(Path(path))
    except PorterError as error:
        return judged([error.diagnostic], ())
    sources = SourceSet(path, {path: parse_cuda(path, source)})
    found = pattern_groups(library_rules(rules), sources, Selection(), False, ())
    return judged(found.diagnostics, found.groups)


def judged(diagnostics: Iterable[Diagnostic], groups: Iterable[EditGroup]) -> Effort:
    """The effort where something is said of a file's port, and edits are made."""
    diagnostics, groups = list(diagnostics), list(groups)
    errors = [d for d in diagnostics if d.severity is Severity.ERROR]
    if errors and all(d.code in (Code.INCLUDE_NOT_READ, Code.MODULE_NOT_READ) for d in errors):
        return Effort("unknown", _counted(f"{d.code.id} {d.message}" for d in errors))
    if errors:
        return Effort("high", _counted(f"{d.code.id} {d.message}" for d in errors))
    review = [f"{g.rule} {g.title}" for g in groups if g.safety is not Safety.SAFE]
    review += [f"{d.code.id} {d.message}" for d in diagnostics if d.severity is Severity.WARNING]
    if review:
        return Effort("medium", _counted(review))
    if groups:
        return Effort("low", ("every edit keeps the meaning by construction",))
    return Effort("none", ())


def _counted(reasons: Iterable[str]) -> tuple[str, ...]:
    """The most frequent reasons first, each once with its count."""
    counts = Counter(reasons)
    shown = [f"{reason} ({n} times)" if n > 1 else reason for reason, n in counts.most_common(_REASONS)]
    left = len(counts) - len(shown)
    return (*shown, f"and {left} more") if left > 0 else tuple(shown)
