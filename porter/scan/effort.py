# SPDX-License-Identifier: Apache-2.0
"""How much work a port is, judged by what the port engine itself makes of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, PorterError, Severity, unforeseen
from porter.lang.sources import is_python, load_sources
from porter.lang.text import EditGroup, Safety
from porter.passes.dsl.port import port_python
from porter.passes.embedded import port_cuda_file, port_python_strings
from porter.passes.port import PortOptions
from porter.rules.engine import Selection, pattern_groups
from porter.scan.constructs import library_rules
from porter.scan.levels import Effort

_REASONS = 4
_AS_IT_IS = PortOptions()


def port_effort(path: str, include_dirs: Sequence[Path] = (), options: PortOptions = _AS_IT_IS) -> Effort:
    """What the engine makes of a CUDA file with its local headers, or of a CuTe DSL file."""
    try:
        if is_python(Path(path)):
            strings = port_python_strings(Path(path), options)
            if strings is not None:
                return _judged(strings.diagnostics, strings.groups)
            dsl = port_python(Path(path), options.select, options.ignore, options.rule_directories, include_dirs)
            return _judged(dsl.diagnostics, dsl.groups)
        result = port_cuda_file(load_sources(Path(path), include_dirs), options)
        return _judged(result.diagnostics, result.groups)
    except PorterError as error:
        return _judged([error.diagnostic], ())
    except Exception as error:
        # One file must not end the scan of a tree.
        return _judged([unforeseen(error)], ())


def library_effort(path: str, rules: tuple[str, ...] = ()) -> Effort:
    """The effort of a file whose Hopper-only constructs are those of a library: no kernel needs to be analysed
    to know that they are left."""
    try:
        sources = load_sources(Path(path))
    except PorterError as error:
        return _judged([error.diagnostic], ())
    found = pattern_groups(library_rules(rules), sources, Selection(), False, ())
    return _judged(found.diagnostics, found.groups)


def _judged(diagnostics: Iterable[Diagnostic], groups: Iterable[EditGroup]) -> Effort:
    diagnostics, groups = list(diagnostics), list(groups)
    errors = [d for d in diagnostics if d.severity is Severity.ERROR]
    if errors and all(d.code is Code.INCLUDE_NOT_READ for d in errors):
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
