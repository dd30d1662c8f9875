# SPDX-License-Identifier: Apache-2.0
"""The port of CUDA source that stands in string literals: each string is a source set of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, exit_code_of
from porter.lang.cuda import location, parse_cuda
from porter.lang.embedded import Embedded, embedded_in_cuda, embedded_in_python
from porter.lang.forms import without_other_forms
from porter.lang.lexical import blanked, lexed
from porter.lang.sources import Include, SourceSet
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups
from porter.passes.both import keep_hopper
from porter.passes.build_files import notes_of, port_build_text
from porter.passes.chip_checks import check_chips
from porter.passes.partial import LeftKernel, has_stopped, without_text
from porter.passes.plan import KernelPlan
from porter.passes.port import PortOptions, PortResult, left_unread, port_part, port_sources
from porter.passes.targets import retargeted
from porter.rules.engine import Selection, pattern_groups
from porter.rules.load import load_rules
from porter.rules.recognize import spellings

_NO_OPTIONS = PortOptions()


@dataclass(frozen=True)
class EmbeddingFile:
    """A file whose strings hold sources, as a set of sources."""

    root: str
    source: bytes

    def sources(self) -> dict[str, bytes]:
        return {self.root: self.source}


@dataclass(eq=False)
class EmbeddedPortResult:
    """As `porter.passes.port.PortResult`."""

    sources: EmbeddingFile
    files: dict[str, bytes]
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    plans: list[KernelPlan] = field(default_factory=list)
    build_files: dict[str, bytes] = field(default_factory=dict)
    has_tensor_core: bool = False
    left: list[LeftKernel] = field(default_factory=list)
    left_over: list[Diagnostic] = field(default_factory=list)
    """Options beside the strings that are for Hopper and were not understood."""

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


def port_python_strings(path: Path, options: PortOptions = _NO_OPTIONS) -> EmbeddedPortResult | None:
    """Port the CUDA sources in a Python file's strings and the compiler flags beside them; None if it has none.

    Raises:
        PorterError: those of `embedded_in_python` and of `port_sources`.
    """
    source, strings = embedded_in_python(path)
    if not strings:
        return None
    result = _port_strings(path.as_posix(), source, strings, options)
    left = left_unread(path.as_posix(), result.diagnostics, result.has_tensor_core, options)
    if left:
        unchanged = {path.as_posix(): source}
        return EmbeddedPortResult(result.sources, unchanged, [], [*result.diagnostics, *left])
    if result.groups:
        # the flags stand in the same file, whatever its name
        rules, selection = load_rules(options.rule_directories), Selection(options.select or None, options.ignore)
        text, keep = _outside(source, strings).decode("latin-1"), bool(options.keep_hopper)
        flags, left_over = port_build_text(
            path.as_posix(), text, "python", rules, selection, keep, target=options.target
        )
        result.left_over += left_over
        result.groups += flags
        result.files = apply_groups({path.as_posix(): source}, result.groups)
        ported, said = result.files[path.as_posix()], spellings(rules)
        result.diagnostics += notes_of(path.as_posix(), ported, left_over, said, keep, options.target)
    return result


def port_cuda_file(sources: SourceSet, options: PortOptions = _NO_OPTIONS) -> PortResult:
    """Port a CUDA source set, and the CUDA sources in the raw strings of its root.

    Raises:
        PorterError: those of `port_sources`.
    """
    shown = without_other_forms(sources)
    if options.blank:
        shown = without_text(shown, options.blank)
        options = replace(options, blank=())
    if shown is not sources:
        result = port_cuda_file(shown, options)
        own = [g for g in result.groups if all(e.path in sources.files for e in g.edits)]
        files = {**result.files, **apply_groups(sources.sources(), own)}
        return replace(result, sources=sources, files=files)
    strings = embedded_in_cuda(sources.main)
    if not strings:
        return port_sources(sources, options)
    main = sources.main
    host = parse_cuda(main.path, _outside(main.source, strings), main.macros)
    around = replace(sources, files={**sources.files, main.path: host})
    outer = port_part(around, options)
    inner = _port_strings(sources.root, main.source, strings, options)
    diagnostics = outer.diagnostics + [d for d in inner.diagnostics if d not in outer.diagnostics]
    diagnostics.sort(key=lambda d: d.code is not Code.UNRESOLVED_INCLUDE)
    found = outer.has_tensor_core or inner.has_tensor_core
    unread = left_unread(sources.root, diagnostics, found, options)
    diagnostics += unread
    if unread or any(has_stopped(r.diagnostics, r.left) for r in (outer, inner)):
        return PortResult(sources, sources.sources(), [], diagnostics)
    own = [g for g in outer.groups if all(e.path in sources.files for e in g.edits)] + inner.groups
    if inner.groups and not outer.groups:
        rules, selection = load_rules(options.rule_directories), Selection(options.select or None, options.ignore)
        patterns = pattern_groups(rules, around, selection, True, own)
        sure = [g for g in patterns.groups if g.safety is not Safety.SKETCH]
        sure = retargeted(sure, around.sources(), options.target, rules)
        checked = check_chips(around, sure, bool(options.keep_hopper), rules, options.target)
        found_groups, outer.left_over = checked.groups, [] if options.select else checked.left
        diagnostics += [*patterns.diagnostics, *checked.notes]
        if options.keep_hopper:
            both = keep_hopper(around, found_groups, rules, options.target)
            found_groups, diagnostics = both.groups, diagnostics + both.diagnostics
        own += found_groups
    groups = own + [g for g in outer.groups if g not in own]
    files = {**outer.files, **apply_groups(sources.sources(), own)}
    build_files = {**outer.build_files, **inner.build_files}
    plans, left = outer.plans + inner.plans, outer.left + inner.left
    plain = [*outer.plain, *inner.groups]
    return PortResult(
        sources, files, groups, diagnostics, plans, build_files, found, left, outer.needs, outer.common,
        [*outer.left_over, *inner.left_over], plain,
    )  # fmt: skip


def _outside(source: bytes, strings: Sequence[Embedded]) -> bytes:
    """The file without the sources in it, same length."""
    text = bytearray(source)
    for string in strings:
        text[string.span.start : string.span.end] = blanked(source[string.span.start : string.span.end])
    return bytes(text)


def source_set(path: str, string: Embedded) -> SourceSet:
    """The source set of one string. Its headers are what its compiler finds; none of them is read."""
    includes = tuple(
        Include(path, name, quoted, where, None, f'"{name}"' if quoted else f"<{name}>")
        for name, quoted, where in lexed(string.shadow).includes()
    )
    return SourceSet(path, {path: parse_cuda(path, string.shadow)}, includes)


def _port_strings(path: str, source: bytes, strings: Sequence[Embedded], options: PortOptions) -> EmbeddedPortResult:
    # a string's compiler finds no file beside it
    options = replace(options, placement=replace(options.placement, inline=True))
    results = [(string, port_part(source_set(path, string), options)) for string in strings]
    diagnostics: list[Diagnostic] = []
    for _, result in results:
        diagnostics += [d for d in result.diagnostics if d not in diagnostics]
    unchanged = EmbeddedPortResult(EmbeddingFile(path, source), {path: source}, [], diagnostics)
    groups: list[EditGroup] = []
    for string, result in results:
        for group in _own_groups(result, path):
            edits = [_written(string, edit) for edit in group.edits]
            if None in edits:
                where = location(result.sources.main, string.span)
                reason = "its kind of string cannot hold the port's text; use a raw string in triple quotes"
                unchanged.diagnostics.append(Diagnostic(Code.EMBEDDED_SOURCE, where, {"reason": reason}))
                return unchanged
            groups.append(replace(group, edits=tuple(e for e in edits if e is not None)))
    if any(has_stopped(r.diagnostics, r.left) for _, r in results):
        return unchanged
    build_files = {p: text for _, r in results for p, text in r.build_files.items()}
    plans = [plan for _, r in results for plan in r.plans]
    files = apply_groups({path: source}, groups)
    found = any(r.has_tensor_core for _, r in results)
    left = [kernel for _, r in results for kernel in r.left]
    left_over = [d for _, r in results for d in r.left_over]
    return EmbeddedPortResult(
        EmbeddingFile(path, source), files, groups, diagnostics, plans, build_files, found, left, left_over
    )


def _own_groups(result: PortResult, path: str) -> list[EditGroup]:
    """The groups that change the string; those of build files are applied already."""
    return [g for g in result.groups if all(e.path == path for e in g.edits)]


def _written(string: Embedded, edit: Edit) -> Edit | None:
    """An edit of the source as an edit of the literal. What goes to the top of the file goes to the top of the
    string."""
    start, end = (min(max(at, string.span.start), string.span.end) for at in (edit.span.start, edit.span.end))
    text = string.literal(edit.replacement)
    return None if text is None else Edit(edit.path, Span(start, end), text)
