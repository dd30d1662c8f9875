# SPDX-License-Identifier: Apache-2.0
"""The port of a kernel with wider tiles: its text is changed first, and what is ported is that text. Edits of the port
are given as those of the original, so that each rule's changes stand by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from porter.passes.native.step import Launches
from porter.rules.engine import rule_group
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class Widened:
    """`sources` with wider tiles; `edits` are those that made them of the `original`, in order. `axis`: the dimension of
    the grid that has half the blocks. `kernel`: its name."""

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
        changes a part of what the step wrote.

        An edit of all that an edit of the step wrote takes that one in.
        """
        taken: set[Edit] = set()
        found = []
        for group in groups:
            edits = []
            for edit in group.edits:
                moved = self._moved(edit, taken)
                if moved is None:
                    return None
                edits.append(moved)
            found.append(replace(group, edits=tuple(edits)))
        own = [e for e in self.edits if e not in taken]
        whole = [rule_group(rule, own), *found]
        try:
            texts = [apply_groups(s.sources(), g) for s, g in ((self.original, whole), (self.sources, groups))]
        except EditConflict:
            return None
        return whole if texts[0] == texts[1] else None

    def _moved(self, edit: Edit, taken: set[Edit]) -> Edit | None:
        if edit.path != self.original.root:
            return edit
        start, end = edit.span.start, edit.span.end
        inside = [e for e, span in self._placed() if edit.span.contains(span) and (len(span) or len(edit.span))]
        for written, span in self._placed():
            if written not in inside and span.start < end and start < span.end:
                return None
            if written not in inside and len(edit.span) == 0 and span.start < start < span.end:
                return None
        taken |= set(inside)
        return Edit(edit.path, Span(self._back(start, False), self._back(end, True)), edit.replacement)

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
