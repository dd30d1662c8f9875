# SPDX-License-Identifier: Apache-2.0
"""Apply rules and passes to a source set: select, match, group, resolve conflicts, all or nothing."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cuda import location
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, LineIndex, Span
from porter.rules.match import matches, text_matches
from porter.rules.rule import UNCHANGED, Region, Rule, When


@dataclass(frozen=True)
class Selection:
    """`select`: only rules with these IDs or prefixes, everything if None. `ignore` wins over it."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()

    def takes(self, rule_id: str) -> bool:
        chosen = self.select is None or any(rule_id.startswith(p) for p in self.select)
        return chosen and not any(rule_id.startswith(p) for p in self.ignore)


@dataclass(frozen=True)
class OwnNames:
    """Names that are not to be reported as a library's: those of functions with a body in the sources, and single
    places, as (file, offset), of which it is known what the name means. `libraries`: those whose constructs are
    ported. `parameters`: places of names of template parameters, whose values others choose."""

    defined: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    places: frozenset[tuple[str, int]] = frozenset()
    parameters: frozenset[tuple[str, int]] = frozenset()

    def has(self, path: str, at: int, text: str) -> bool:
        """Whether what a rule found at a place is the sources' own."""
        return _first_word(text) in self.defined or (path, at) in self.places


@dataclass(eq=False)
class Planned:
    """Groups in the order in which they are applied, and what has to be said about them."""

    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def pass_groups(
    rules: Sequence[Rule],
    edits: dict[str, list[Edit]],
    selection: Selection,
    sources: Mapping[str, bytes] | None = None,
) -> Planned:
    """One group for each rule that a pass implements. They need each other: if one is switched off, all go, and the
    place in `sources` where it is needed first is said."""
    planned = Planned()
    by_id = {r.id: r for r in rules}
    missing = [rule_id for rule_id in sorted(edits) if not selection.takes(rule_id)]
    if missing and len(missing) < len(edits):
        planned.diagnostics += [
            Diagnostic(Code.RULE_IGNORED, _first(edits[m], sources or {}), {"rule": m}) for m in missing
        ]
    if missing:
        return planned
    for rule_id in sorted(edits):
        planned.groups.append(rule_group(by_id[rule_id], _each_once(edits[rule_id])))
    return planned


def _first(edits: Sequence[Edit], sources: Mapping[str, bytes]) -> Location | None:
    edit = next((e for e in edits if e.path in sources), None)
    return LineIndex(sources[edit.path]).location(edit.path, edit.span) if edit is not None else None


def _each_once(edits: Sequence[Edit]) -> list[Edit]:
    """Without repeated edits of one text, which may stand for several uses; what is inserted twice stands twice."""
    replacing = dict.fromkeys(e for e in edits if len(e.span))
    return [e for e in edits if not len(e.span) or replacing.pop(e, e) is None]


def pattern_groups(
    rules: Iterable[Rule],
    sources: SourceSet,
    selection: Selection,
    ported: bool,
    taken: Sequence[EditGroup],
    own: OwnNames | None = None,
) -> Planned:
    """One group for each match of a pattern rule. A match inside text that an earlier group edits is dropped:
    that group already decided what becomes of it. A construct of a library is not reported where the name is the
    sources' own, and a library's macro in a condition stays where the sources define it themselves."""
    planned, own = Planned(), own or OwnNames()
    macros = {macro.name for file in sources.files.values() for macro in file.lexed.macros()}
    staying = True
    claimed: dict[str, list[Span]] = defaultdict(list)
    reported: set[tuple[str, str]] = set()
    for group in taken:
        for edit in group.edits:
            claimed[edit.path].append(edit.span)
    for spans in claimed.values():
        spans.sort()
    for rule in rules:
        if rule.pattern is None or not selection.takes(rule.id) or (rule.when is When.PORTED and not ported):
            continue
        if rule.advice is not None:
            continue
        if rule.report is not None and rule.library in own.libraries:
            continue
        for path, file in sources.files.items():
            for match in matches(rule, file):
                name = match.text.strip()
                if rule.report is not None and ((path, name) in reported or own.has(path, match.span.start, name)):
                    continue
                if touches(claimed[path], match.span):
                    continue
                if rule.region is Region.CODE and (path, match.span.start) in own.parameters:
                    continue
                if rule.region is Region.DIRECTIVE and _of_sources(name, macros):
                    continue
                if rule.report is not None:
                    reported.add((path, name))
                    staying = staying and rule.becomes == UNCHANGED
                    values = {"name": name, "library": rule.report}
                    planned.diagnostics.append(Diagnostic(Code.LIBRARY_CONSTRUCT, location(file, match.span), values))
                    continue
                assert match.replacement is not None
                if match.replacement.encode("latin-1") == file.source[match.span.start : match.span.end]:
                    continue
                insort(claimed[path], match.span)
                edit = Edit(path, match.span, match.replacement.encode("latin-1"))
                planned.groups.append(rule_group(rule, [edit]))
    if staying and not ported:
        # layouts of operands without an MMA of Hopper's that would read them
        planned.diagnostics.clear()
    return planned


def _of_sources(text: str, macros: set[str]) -> bool:
    """Whether a text names a macro of the sources: other than those of the compiler, which code for editors defines."""
    return any(word in macros and not word.startswith("__CUDA") for word in re.findall(r"\w+", text))


def touches(claimed: Sequence[Span], span: Span) -> bool:
    """Whether a span overlaps one of the sorted spans, none of which overlaps another."""
    after = bisect_left(claimed, span)
    return any(other.overlaps(span) for other in claimed[max(0, after - 1) : after + 1])


def build_file_groups(rules: Iterable[Rule], files: dict[str, bytes], selection: Selection) -> list[EditGroup]:
    """Groups for build files: one for each rule and file."""
    groups = []
    for path, source in sorted(files.items()):
        claimed: list[Span] = []
        for rule in rules:
            if not selection.takes(rule.id) or rule.replace is None:
                continue
            edits = []
            for match in text_matches(rule, path, source):
                assert match.replacement is not None
                text = match.replacement.encode("latin-1")
                if text != source[match.span.start : match.span.end] and not touches(claimed, match.span):
                    insort(claimed, match.span)
                    edits.append(Edit(path, match.span, text))
            if edits:
                groups.append(rule_group(rule, edits))
    return groups


def _first_word(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def rule_group(rule: Rule, edits: Sequence[Edit]) -> EditGroup:
    """The edits of a rule as one group."""
    return EditGroup(rule.id, rule.title, rule.safety, tuple(edits), rule.reason, rule.references)
