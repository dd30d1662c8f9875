# SPDX-License-Identifier: Apache-2.0
"""The edit groups of a port for review: what falls with which, and the files that what is accepted makes.

Groups of passes are one port of a kernel: refusing one of them leaves all of them out, in all files that are ported
together because they share a header. Replacements that are made beside a ported kernel only, and build files, stand
while some kernel is ported, and so does what mends a port and its original alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from porter.lang.text import Edit, EditGroup, apply_groups
from porter.passes.cluster_end import is_mend
from porter.passes.ported import Ported
from porter.rules.rule import Rule, When


class State(StrEnum):
    """What was decided on a group."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    EDITED = "edited"
    """Accepted, with texts of the reviewer's own."""


@dataclass
class Item:
    """A group with what was decided on it. `unit` is the port that it is a part of, negative for what is of none;
    `core` tells groups without which the unit is no port. `own` are the texts of an edited group, one for each edit."""

    number: int
    key: str
    group: EditGroup
    unit: int
    core: bool
    state: State = State.OPEN
    own: list[bytes] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return self.state in (State.ACCEPTED, State.EDITED)

    @property
    def applied(self) -> EditGroup:
        """The group with the reviewer's texts."""
        if self.state is not State.EDITED:
            return self.group
        edits = zip(self.group.edits, self.own, strict=True)
        return replace(self.group, edits=tuple(replace(e, replacement=text) for e, text in edits))


@dataclass
class Review:
    """The groups of a port in the order in which they are shown."""

    ported: Ported
    items: list[Item]
    added: dict[str, int]
    """Files that the port brings along, with the unit that needs each."""

    def falls_with(self, item: Item) -> list[Item]:
        """The other groups that cannot stand without one."""
        if not item.core:
            return []
        ported = {i.unit for i in self.items if i.core and i.unit != item.unit and i.state is not State.REFUSED}
        return [
            other
            for other in self.items
            if other is not item and (other.unit == item.unit or (other.unit < 0 and not ported))
        ]

    def fallen(self) -> dict[int, Item]:
        """By number, the groups that cannot stand, with the refused one that takes them along."""
        found: dict[int, Item] = {}
        for item in self.items:
            if item.state is State.REFUSED:
                for other in self.falls_with(item):
                    found.setdefault(other.number, item)
        return found

    def standing(self) -> list[Item]:
        """What is accepted and can stand."""
        fallen = self.fallen()
        return [i for i in self.items if i.wanted and i.number not in fallen]

    def refused(self) -> list[Item]:
        return [i for i in self.items if i.state is State.REFUSED]

    def open(self) -> list[Item]:
        """What there still is to decide."""
        fallen = self.fallen()
        return [i for i in self.items if i.state is State.OPEN and i.number not in fallen]

    def files(self) -> dict[str, bytes]:
        """All files with what stands, those that come along with a port only where it does."""
        standing = self.standing()
        units = {i.unit for i in standing if i.core}
        before = {p: text for p, text in self.ported.old.items() if p not in self.added}
        result = apply_groups(before, [_on(i.applied, before) for i in standing])
        return result | {p: self.ported.new[p] for p, unit in self.added.items() if unit in units}

    def result(self) -> Ported:
        """The port of what stands, to be compiled and written."""
        files = self.files()
        old = {p: text for p, text in self.ported.old.items() if p in files}
        keep = [replace(r, added=tuple(p for p in r.added if p in files)) for r in self.ported.roots]
        return replace(self.ported, old=old, new=files, groups=[i.applied for i in self.standing()], roots=keep)


def _on(group: EditGroup, files: Mapping[str, bytes]) -> EditGroup:
    """The group without edits of files that come along."""
    return replace(group, edits=tuple(e for e in group.edits if e.path in files))


def review_of(ported: Ported, rules: Iterable[Rule]) -> Review:
    """The groups of a port, none of them decided."""
    by_id = {r.id: r for r in rules}
    units, added = _units(ported)
    items: list[Item] = []
    seen: dict[str, int] = {}
    for group in ported.groups:
        rule = by_id.get(group.rule)
        unit = next((units[e.path] for e in group.edits if e.path in units), -1)
        core = unit >= 0 and (rule is None or rule.replace is None) and not is_mend(group)
        if not core and (rule is None or rule.when is When.ALWAYS) and rule is not None and not _is_build(group, units):
            unit = -2 - len(items)
        elif is_mend(group):
            unit = -1
        key = _key(group, ported.old, core)
        seen[key] = seen.get(key, 0) + 1
        items.append(Item(len(items), f"{key}:{seen[key]}", group, unit, core))
    return Review(ported, items, added)


def _is_build(group: EditGroup, units: Mapping[str, int]) -> bool:
    return not any(e.path in units for e in group.edits)


def _units(ported: Ported) -> tuple[dict[str, int], dict[str, int]]:
    """Which port each file belongs to: roots that share a file that changes are one."""
    changed = set(ported.changed)
    parts: list[tuple[set[str], set[str]]] = []
    for root in ported.roots:
        files = {root.path, *((set(root.files) | set(root.added)) & changed)}
        together = [p for p in parts if p[0] & files]
        for part in together:
            parts.remove(part)
            files |= part[0]
        all_files = set(root.files).union(*(p[1] for p in together))
        parts.append((files, all_files))
    units = {path: number for number, (files, _) in enumerate(parts) for path in files}
    added = {p: units[p] for root in ported.roots for p in root.added if p in units}
    added |= {p: units.get(r.path, 0) for r in ported.roots for p in r.added if p not in added}
    return units, added


def _key(group: EditGroup, old: Mapping[str, bytes], core: bool) -> str:
    """What tells a group from others in every port of the same sources: its rule, its files, and for single
    replacements the text that they replace."""
    paths = sorted({e.path for e in group.edits})
    if core:
        return f"{group.rule}@{paths[0]}"
    texts = b"\0".join(old.get(e.path, b"")[e.span.start : e.span.end] for e in group.edits)
    return f"{group.rule}@{paths[0]}#{hashlib.sha256(texts).hexdigest()[:12]}"


def split(review: Review, item: Item) -> list[Item] | None:
    """A group whose edits do not need each other, taken apart; None where they do."""
    if item.core or len(item.group.edits) < 2:
        return None
    at = review.items.index(item)
    parts = [
        replace(item, key=f"{item.key}/{n}", group=replace(item.group, edits=(edit,)), own=[])
        for n, edit in enumerate(item.group.edits)
    ]
    review.items[at : at + 1] = parts
    for number, each in enumerate(review.items):
        each.number = number
    return parts


def texts(edits: Sequence[Edit]) -> list[bytes]:
    return [e.replacement for e in edits]
