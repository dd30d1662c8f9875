# SPDX-License-Identifier: Apache-2.0
"""The port of a kernel with wider tiles: its text is changed first, and what is ported is that text. Edits of the port
are given as those of the original, so that each rule's changes stand by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cuda import location
from porter.lang.sources import SourceSet, with_text
from porter.lang.text import Edit, EditConflict, EditGroup, Safety, Span, apply_groups
from porter.model.pipeline.facts import HostLaunch
from porter.model.program import build_program
from porter.passes.native import wide
from porter.passes.native.sites import Left
from porter.passes.native.taking import Launches
from porter.rules.engine import rule_group
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class Widened:
    """`sources` with wider tiles; `edits` are those that made them of the `original`, in order. `axis`: the dimension
    of the grid that has half the blocks. `kernel`: its name."""

    original: SourceSet
    sources: SourceSet
    edits: tuple[Edit, ...]
    axis: int
    kernel: str

    def of_original_place(self, said: Diagnostic) -> Diagnostic:
        """What is said of a place of the wider text, of that of the original."""
        where = said.where
        if where is None or where.path != self.original.root or not where.line:
            return said
        span = Span(*sorted((self._back(where.start, False), self._back(where.end, True))))
        return replace(said, where=location(self.original.main, span))

    def of_original(self, groups: Sequence[EditGroup], rule: Rule) -> list[EditGroup] | None:
        """Groups of edits of the wider text as such of the original, behind the group of the step. None where one
        changes a part of what the step wrote, and a part of what it did not.

        An edit of all that an edit of the step wrote takes that one in, and one of a part of it is a part of it.
        """
        placed = dict(self._placed())
        inside = {e: w for g in groups for e in g.edits if (w := self._around(e, placed)) is not None}
        taken: set[Edit] = set()
        found = []
        for group in groups:
            outside = [e for e in group.edits if e not in inside]
            moved = [self._moved(e, placed, taken) for e in outside]
            if None in moved:
                return None
            found.append(replace(group, edits=tuple(e for e in moved if e is not None)))
        own = [self._with(w, placed[w], [e for e in inside if inside[e] is w]) for w in placed if w not in taken]
        whole = [rule_group(rule, own), *(g for g in found if g.edits)]
        try:
            texts = [apply_groups(s.sources(), g) for s, g in ((self.original, whole), (self.sources, groups))]
        except EditConflict:
            return None
        return whole if texts[0] == texts[1] else None

    def _around(self, edit: Edit, placed: Mapping[Edit, Span]) -> Edit | None:
        """The edit of the step of whose text one changes a part, and nothing else."""
        if edit.path != self.original.root:
            return None
        for written, span in placed.items():
            within = span.contains(edit.span) and edit.span != span
            if within and (len(edit.span) or span.start < edit.span.start < span.end):
                return written
        return None

    @staticmethod
    def _with(written: Edit, span: Span, inside: Sequence[Edit]) -> Edit:
        """An edit of the step with others of parts of what it wrote."""
        text = written.replacement
        for edit in sorted(inside, key=lambda e: e.span.start, reverse=True):
            start, end = edit.span.start - span.start, edit.span.end - span.start
            text = text[:start] + edit.replacement + text[end:]
        return replace(written, replacement=text)

    def _moved(self, edit: Edit, placed: Mapping[Edit, Span], taken: set[Edit]) -> Edit | None:
        if edit.path != self.original.root:
            return edit
        inside = {w for w, span in placed.items() if edit.span.contains(span) and len(edit.span)}
        if any(w not in inside and span.overlaps(edit.span) for w, span in placed.items()):
            return None
        taken |= inside
        start, end = self._back(edit.span.start, False), self._back(edit.span.end, True)
        return replace(edit, span=Span(min(start, end), end))

    def _placed(self) -> Iterator[tuple[Edit, Span]]:
        """Each edit, and what it wrote in the wider text."""
        shift = 0
        for edit in self.edits:
            at = edit.span.start + shift
            yield edit, Span(at, at + len(edit.replacement))
            shift += len(edit.replacement) - len(edit.span)

    def _back(self, offset: int, behind: bool) -> int:
        """The place in the original of one in the wider text; `behind`: of the end of something."""
        shift = 0
        for edit, span in self._placed():
            if span.end < offset or (span.end == offset and (behind or len(span))):
                shift = span.end - edit.span.end
        return offset - shift


def widened(sources: SourceSet, rules: Sequence[Rule], launches: Launches | None, keeps_hopper: bool) -> Widened | None:
    """The sources with wider tiles; None where no kernel multiplies.

    Raises:
        Left: a fact is missing.
    """
    program = build_program(sources, vocabulary(rules))
    launch = _launch(sources, launches)
    if keeps_hopper and program.kernels:
        at = program.kernels[0]
        raise Left(at, at.span(at.body), "one launch for one chip: the original's form stands beside the port's")
    found = wide.widened(program, launch)
    if found is None:
        return None
    edits = tuple(sorted(set(found.edits), key=lambda e: (e.span.start, e.span.end)))
    group = EditGroup(wide.RULE, "", Safety.SAFE, edits)
    try:
        text = apply_groups(sources.sources(), [group])[sources.root]
    except EditConflict:
        at = program.kernels[0]
        raise Left(at, at.span(at.body), "that each place becomes one text with wider tiles") from None
    return Widened(sources, with_text(sources, sources.root, text), edits, found.axis, found.kernel)


def why_not(
    sources: SourceSet, rules: Sequence[Rule], launches: Launches | None, keeps_hopper: bool
) -> Diagnostic | None:
    """What keeps sources from wider tiles, as far as their own text says; None if nothing does."""
    try:
        widened(sources, rules, launches, keeps_hopper)
    except Left as error:
        return not_widened(error)
    return None


def _launch(sources: SourceSet, launches: Launches | None) -> HostLaunch | None:
    known = launches(Path(sources.root), sources.include_dirs) if launches is not None else ()
    return known[0].launch if len(known) == 1 else None


def not_widened(error: Left) -> Diagnostic:
    """That a file is without the step."""
    values = {"kernel": error.function.name, "step": wide.NAME, "what": error.what}
    return Diagnostic(Code.NATIVE_LEFT, location(error.function.file, error.span), values)


def not_ported(wider: Widened, what: str) -> Diagnostic:
    """The same, for what the port of its text lacks."""
    values = {"kernel": wider.kernel, "step": wide.NAME, "what": what}
    return Diagnostic(Code.NATIVE_LEFT, Location(wider.original.root), values)
