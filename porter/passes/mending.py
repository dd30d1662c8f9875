# SPDX-License-Identifier: Apache-2.0
"""Statements added to an original and to its port alike, as edit groups of safety `review`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.lang.cuda import parse_cuda
from porter.lang.statements import Gap, gap
from porter.lang.text import Edit, EditConflict, EditGroup, Safety, Span, apply_groups
from porter.passes.cluster_end import SETUPS, cluster_end, is_mend
from porter.passes.ported import Ported


@dataclass(frozen=True)
class Place:
    path: str
    gap: Gap


@dataclass
class Additions:
    """A port to which statements are added that its original lacks as well."""

    ported: Ported

    def path(self, file: str) -> str | None:
        """How the port knows a file: a copy of it was compiled."""
        name = Path(file).name
        same = [p for p in self.ported.old if Path(p).resolve() == Path(file).resolve()]
        return next(iter(same or [p for p in self.ported.old if Path(p).name == name]), None)

    def place(self, lines: Sequence[tuple[str, int, int]]) -> Place | None:
        """The one place between the two lines of each (file, line, line)."""
        found = [(path, self._gap(path, first, second)) for f, first, second in lines if (path := self.path(f))]
        places = [(path, place) for path, place in found if place is not None]
        if len(places) < len(lines) or len({(path, p.indent, p.wraps) for path, p in places}) != 1:
            return None
        behind, ahead = max(p.behind for _, p in places), min(p.ahead for _, p in places)
        path, one = places[0]
        return Place(path, replace(one, behind=behind, ahead=ahead)) if one.wraps or behind <= ahead else None

    def _gap(self, path: str, first: int, second: int) -> Gap | None:
        return gap(parse_cuda(path, self.ported.old[path]), first, second)

    def addition(
        self, place: Place, text: str, behind: bool, rule: str, title: str, reason: str, reference: str
    ) -> EditGroup:
        """`text` as a statement `behind` the first line, or ahead of the second one."""
        offset = place.gap.behind if behind else place.gap.ahead
        edit = Edit(place.path, Span(offset, offset), place.gap.indent + text.encode() + b"\n")
        return EditGroup(rule, title, Safety.REVIEW, (edit,), reason, (reference,))

    def cluster_end(self, kernel: str) -> EditGroup | None:
        """A cluster barrier on every way out of a kernel; None where its set-up is not to be found."""
        setups = [e for group in self.ported.groups if group.rule in SETUPS for e in group.edits]
        for path in dict.fromkeys(e.path for e in setups):
            file = parse_cuda(path, self.ported.old[path])
            if found := cluster_end(file, kernel, [e for e in setups if e.path == path]):
                return found
        return None

    def files(self, addition: EditGroup | None = None) -> tuple[dict[str, bytes], dict[str, bytes]] | None:
        """Original and port with all that was taken and an addition; None where edits conflict."""
        added = [] if addition is None else [addition]
        mends = [*(g for g in self.ported.groups if is_mend(g)), *added]
        try:
            return apply_groups(dict(self.ported.old), mends), self._ported(added)
        except EditConflict:
            return None

    def take(self, addition: EditGroup) -> None:
        self.ported.new = self._ported([addition])
        self.ported.groups.insert(0, addition)

    def _ported(self, added: Sequence[EditGroup]) -> dict[str, bytes]:
        if not added:
            return self.ported.new
        # what stands in front of a kernel's set-up comes first there
        changed = apply_groups(dict(self.ported.old), [*added, *self.ported.groups])
        return {path: changed.get(path, data) for path, data in self.ported.new.items()}
