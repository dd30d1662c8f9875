# SPDX-License-Identifier: Apache-2.0
"""Ports of files that share headers: each header is ported once, for all of them.

Every file is ported with its own headers, as a compiler reads it. What a header becomes is then put together: a
function is ported as the files need it whose kernels come to it, and files whose kernels do not have it as these do.
Where two need different texts, both are ported once more as if each stood beside the other; if that does not make them
agree, none of the files that share the header is ported.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, Location
from porter.lang.cuda import location
from porter.lang.lexical import without_mark
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Span, apply_groups, as_bytes
from porter.passes.both import keep_hopper
from porter.passes.helpers import NAMESPACE
from porter.passes.needs import Need, joined
from porter.passes.port import PortOptions, PortResult
from porter.rules.load import load_rules


@dataclass(eq=False)
class RootPort:
    """The port of one file with its headers."""

    sources: SourceSet
    result: PortResult
    options: PortOptions

    @property
    def root(self) -> str:
        return self.sources.root

    @property
    def refused(self) -> bool:
        return ExitCode(self.result.exit_code) is not ExitCode.OK

    def edits(self, path: str) -> list[tuple[EditGroup, Edit]]:
        return [(g, e) for g in self.result.plain for e in g.edits if e.path == path]


Again = Callable[[Sequence[tuple[SourceSet, PortOptions]]], list[PortResult]]
"""Ports source sets, in order."""


def port_together(ports: Sequence[RootPort], again: Again) -> list[RootPort]:
    """The same ports, agreed on the headers that they share."""
    found = _repeat(ports, _blanks(ports), again)
    found = _repeat(found, _beside_refused(found), again)
    found = _agreed(found, again)
    return _repeat(found, _own_headers(found), again, _settle)


def _repeat(
    ports: Sequence[RootPort],
    changes: dict[int, PortOptions],
    again: Again,
    settle: Callable[[Sequence[RootPort]], object] = lambda group: None,
) -> list[RootPort]:
    """The ports, those with other options once more."""
    made = again([(ports[i].sources, options) for i, options in changes.items()]) if changes else []
    found = list(ports)
    for (i, options), result in zip(changes.items(), made, strict=True):
        found[i] = RootPort(ports[i].sources, replace(result, needs=ports[i].result.needs), options)
    if changes:
        for group in _groups(found):
            if set(group) & set(changes):
                settle([found[i] for i in group])
    return found


def _sharing(ports: Sequence[RootPort]) -> dict[str, list[int]]:
    """The files that several sets have, and which."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, port in enumerate(ports):
        for path in port.sources.files:
            found[path].append(i)
    return {path: ids for path, ids in found.items() if len(ids) > 1}


# --- functions that a file does not need


def _blanks(ports: Sequence[RootPort]) -> dict[int, PortOptions]:
    """Options that leave functions to other files: to those whose kernels come to them; and where none comes to
    anything of the tensor core, the whole header to those that do."""
    users = {i for i, port in enumerate(ports) if any(n.used for n in port.result.needs)}
    used = {(n.path, n.body) for port in ports for n in port.result.needs if n.used}
    sharing = _sharing(ports)
    changes: dict[int, PortOptions] = {}
    for i, port in enumerate(ports):
        places = []
        for need in port.result.needs:
            others = users & set(sharing.get(need.path, ())) - {i}
            if not need.used and ((need.path, need.body) in used or (i not in users and others)):
                places.append((need.path, need.body))
        if places:
            changes[i] = replace(port.options, blank=tuple(sorted(places, key=lambda p: (p[0], p[1].start))))
    return changes


# --- files that are refused


def _beside_refused(ports: Sequence[RootPort]) -> dict[int, PortOptions]:
    """Options for files that share headers with one whose kernels are left, in part or all: the headers' functions are
    there in both forms. None where no header that it has is changed for another file."""
    changed = {path for port in ports for path in port.result.changed}
    left = [p for p in ports if p.refused and (p.result.left or not p.result.groups)]
    mine = {path: p for p in left for path in p.sources.files}
    sharing = _sharing(ports)
    shared = frozenset(path for path in mine if path in changed and path in sharing)
    if not shared:
        return {}
    return {
        i: replace(port.options, leave=port in left and not port.result.left, both_forms=shared)
        for i, port in enumerate(ports)
        if shared & set(port.sources.files)
    }


# --- one text for each header


def _groups(ports: Sequence[RootPort]) -> list[list[int]]:
    """Files that share a header which some port changes, directly or through others."""
    changed = {path for port in ports for path in port.result.changed}
    group_of = list(range(len(ports)))
    for path, ids in _sharing(ports).items():
        if path in changed:
            names = {group_of[i] for i in ids}
            group_of = [min(names) if g in names else g for g in group_of]
    found: dict[int, list[int]] = defaultdict(list)
    for i, group in enumerate(group_of):
        found[group].append(i)
    return [ids for ids in found.values() if len(ids) > 1]


def _agreed(ports: Sequence[RootPort], again: Again) -> list[RootPort]:
    found = list(ports)
    for group in _groups(ports):
        if _settle([found[i] for i in group]) is None:
            continue
        common = joined(found[i].result.common for i in group)
        added = Counter(path for i in group for path in _added(found[i]))
        own = Path(found[group[0]].root).stem if len(added) > 1 else ""
        changes = {}
        for i in group:
            placement = replace(found[i].options.placement, own=own)
            changes[i] = replace(found[i].options, common=common, placement=placement)
        found = _repeat(found, changes, again)
        conflict = _settle([found[i] for i in group])
        if conflict is not None:
            for i in group:
                sources = found[i].sources
                found[i].result = PortResult(sources, sources.sources(), [], [conflict])
    return found


def _added(port: RootPort) -> list[str]:
    return [path for path in port.result.files if path not in port.sources.files]


def _settle(ports: Sequence[RootPort]) -> Diagnostic | None:
    """Give all of these files the same headers. What keeps them from it is returned, and nothing is changed then."""
    texts: dict[str, tuple[list[EditGroup], bytes]] = {}
    for path in sorted({path for path, _ in _sharing(ports).items()}):
        merged = _merged(path, [p for p in ports if path in p.sources.files])
        if isinstance(merged, Diagnostic):
            return merged
        file = next(p.sources.files[path] for p in ports if path in p.sources.files)
        options = ports[0].options
        if options.keep_hopper and merged:
            rules = load_rules(options.rule_directories)
            merged = keep_hopper(SourceSet(path, {path: file}), merged, rules, options.target).groups
        texts[path] = merged, apply_groups({path: file.source}, merged)[path]
    conflict = _helpers_differ(ports, {path: text for path, (_, text) in texts.items()})
    if conflict is not None:
        return conflict
    for port in ports:
        had = bool(port.result.groups)
        kept = [replace(g, edits=tuple(e for e in g.edits if e.path not in texts)) for g in port.result.groups]
        kept = [g for g in kept if g.edits]
        for path, (groups, text) in texts.items():
            if path in port.sources.files:
                kept += groups if had else []
                port.result.files[path] = text
        port.result.groups = kept
    return None


def _merged(path: str, ports: Sequence[RootPort]) -> list[EditGroup] | Diagnostic:
    """The edits of a header that all ports of it make together."""
    taken: list[tuple[EditGroup, Edit]] = []
    before: list[RootPort] = []
    for port in ports:
        own = port.edits(path)
        mine, theirs = {e for _, e in own}, {e for _, e in taken}
        missing = [] if port.options.leave else [e for e in theirs if e not in mine]
        new = [(g, e) for g, e in own if e not in theirs]
        for edit in missing:
            if _is_needed(port, edit, before):
                return _differs(path, edit, port, _owner(before, edit))
        for group, edit in new:
            asked = [p for p in before if not p.options.leave and _is_needed(p, edit, [port])]
            if asked:
                return _differs(path, edit, port, asked[0])
            clash = next((e for e in missing if _touch(e, edit)), None)
            there = _function(port, edit)
            if clash is not None and there is None:
                return _differs(path, edit, port, _owner(before, clash))
            # a function that none of them comes to is as the first has it
            if there is None or not any(_inside(e, there.whole) for e in theirs):
                taken.append((group, edit))
        before.append(port)
    groups: dict[int, tuple[EditGroup, list[Edit]]] = {}
    for group, edit in taken:
        groups.setdefault(id(group), (group, []))[1].append(edit)
    return [replace(group, edits=tuple(edits)) for group, edits in groups.values()]


def _touch(one: Edit, other: Edit) -> bool:
    return one.span.overlaps(other.span) or one.span.start == other.span.start


def _inside(edit: Edit, whole: Span) -> bool:
    return whole.start <= edit.span.start and edit.span.end <= whole.end


def _function(port: RootPort, edit: Edit) -> Need | None:
    return next((n for n in port.result.needs if n.path == edit.path and _inside(edit, n.whole)), None)


def _is_needed(port: RootPort, edit: Edit, others: Iterable[RootPort]) -> bool:
    """Whether a file uses the function that another's port changes here. One that does not know it as code of the
    tensor core may still name it."""
    if edit.path == port.root:
        return True
    need = _function(port, edit)
    if need is not None:
        return need.used
    changed = next((n for p in others if (n := _function(p, edit)) is not None), None)
    if changed is None:
        return False
    name = re.compile(rb"\b" + re.escape(as_bytes(changed.name)) + rb"\b")
    return any(path != edit.path and name.search(f.lexed.code) for path, f in port.sources.files.items())


def _owner(ports: Sequence[RootPort], edit: Edit) -> RootPort:
    return next(p for p in ports if any(e == edit for _, e in p.edits(edit.path)))


def _differs(path: str, edit: Edit, one: RootPort, other: RootPort) -> Diagnostic:
    where = location(one.sources.files[path], edit.span)
    return Diagnostic(Code.SHARED_HEADER, where, {"path": path, "one": other.root, "other": one.root})


_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_HELPERS = re.compile(rb"\b\w*%b\w*::" % NAMESPACE.encode())


def _helpers_differ(ports: Sequence[RootPort], shared: dict[str, bytes]) -> Diagnostic | None:
    """Why some file would not have the helpers of all its headers, once."""
    added: dict[str, tuple[bytes, RootPort]] = {}
    for port in ports:
        for path in _added(port):
            text, first = added.setdefault(path, (port.result.files[path], port))
            if text != port.result.files[path]:
                return _two_texts(path, first.root, port.root)
    names = {os.path.realpath(path) for path in added}
    for port in ports:
        included: set[str] = set()
        uses = None
        for path, file in port.sources.files.items():
            text = shared.get(path, port.result.files[path])
            if text == file.source:
                continue
            beside = Path(path).parent
            included |= names & {
                os.path.realpath(beside / os.fsdecode(name)) for name in _INCLUDE.findall(without_mark(text))
            }
            named = set(_HELPERS.findall(text)) - set(_HELPERS.findall(file.source))
            uses = path if named and not port.options.placement.inline else uses
        other = next((p for p in ports if p is not port), port)
        if len(included) > 1 or (uses is not None and not included):
            return _two_texts(uses or min(included), other.root, port.root)
    return None


def _two_texts(path: str, one: str, other: str) -> Diagnostic:
    return Diagnostic(Code.SHARED_HEADER, Location(path), {"path": path, "one": one, "other": other})


# --- helpers of files that share no header


def _own_headers(ports: Sequence[RootPort]) -> dict[int, PortOptions]:
    """Options for files whose helpers would stand in one header and differ: each has its own."""
    texts: dict[str, set[bytes]] = defaultdict(set)
    for port in ports:
        for path in _added(port):
            texts[path].add(port.result.files[path])
    several = {path for path, found in texts.items() if len(found) > 1}
    first = {i: group[0] for group in _groups(ports) for i in group}
    return {
        i: replace(
            port.options,
            placement=replace(port.options.placement, own=Path(ports[first.get(i, i)].root).stem),
        )
        for i, port in enumerate(ports)
        if several & set(_added(ports[i])) or (i in first and several & set(_added(ports[first[i]])))
    }
