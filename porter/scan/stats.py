# SPDX-License-Identifier: Apache-2.0
"""How much of what there is in sources, and how many edits a port is: counts by construct, rule, safety and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Diagnostic, PorterError
from porter.lang.text import EditGroup
from porter.passes.port import PortOptions
from porter.passes.ported import Look, port_each, roots
from porter.scan.inventory import Tell, take_inventory

BY = ("construct", "rule", "safety", "file")


@dataclass(frozen=True)
class Count:
    """`count` of one thing in `files` files. Constructs are Hopper's own; of rules, safety labels and files it is edits
    that are counted."""

    by: str
    name: str
    count: int
    files: int


@dataclass(frozen=True)
class Statistics:
    """All counts, by what is counted and then the most frequent first, and what could not be read or ported."""

    files: int
    counts: tuple[Count, ...]
    problems: tuple[Diagnostic, ...]

    def of(self, by: str) -> list[Count]:
        return [c for c in self.counts if c.by == by]


def take_statistics(
    paths: Sequence[Path], include_dirs: Sequence[Path], options: PortOptions, look: Look, jobs: int = 1,
    tell: Tell | None = None,
) -> Statistics:  # fmt: skip
    """The statistics of files and trees. A file that the engine fails on is a problem, and does not end the others.

    Raises:
        PorterError: what `take_inventory` raises.
    """
    found = take_inventory(
        paths, jobs=jobs, effort=False, include_dirs=include_dirs, options=options, look=look, tell=tell
    )
    problems = list(found.diagnostics)
    constructs: dict[str, list[tuple[str, int]]] = {}
    for file in found.files:
        for c in file.constructs:
            if c.status == "hopper":
                constructs.setdefault(c.name, []).append((file.path, c.count))
    groups: list[EditGroup] = []
    try:
        chosen = roots(paths, options.rule_directories, include_dirs)
    except PorterError as error:
        chosen, problems = [], [*problems, *error.diagnostics]
    for one in port_each(chosen, options, include_dirs, look, jobs, keep_going=True):
        if one.error is not None:
            problems += one.error.diagnostics
        elif one.result is not None:
            groups += one.result.groups
            problems += [d for d in one.result.diagnostics if d.code.value.exit_code]
    counts = [*_counts("construct", ((n, p, k) for n, found in constructs.items() for p, k in found)), *_edits(groups)]
    each = [d for i, d in enumerate(problems) if d not in problems[:i]]
    return Statistics(len(found.files), tuple(counts), tuple(each))


def _edits(groups: Iterable[EditGroup]) -> list[Count]:
    """Edits of headers that several files share count once."""
    once = dict.fromkeys((g.rule, g.safety.value, edit) for g in groups for edit in g.edits)
    return [
        *_counts("rule", ((rule, edit.path, 1) for rule, _, edit in once)),
        *_counts("safety", ((safety, edit.path, 1) for _, safety, edit in once)),
        *_counts("file", ((edit.path, edit.path, 1) for _, _, edit in once)),
    ]


def _counts(by: str, found: Iterable[tuple[str, str, int]]) -> list[Count]:
    """From (name, file, how many)."""
    total: Counter[str] = Counter()
    files: dict[str, set[str]] = {}
    for name, path, count in found:
        total[name] += count
        files.setdefault(name, set()).add(path)
    return [Count(by, name, total[name], len(files[name])) for name in sorted(total, key=lambda n: (-total[n], n))]
