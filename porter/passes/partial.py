# SPDX-License-Identifier: Apache-2.0
"""A kernel that is refused does not hold back the others of its source set.

What stops a port is attributed to the kernels that come to its place. Those are left: the others are ported as if the
bodies of the left ones, and of the functions that only they call, were empty. A left kernel keeps every byte of its
body, for sm_90a; elsewhere it traps. A function that both need is there twice: as it was, for sm_90a, and ported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from porter.diagnostics import Code, Diagnostic, Severity, has_errors
from porter.lang.cuda import CudaFile, location, parse_cuda
from porter.lang.lexical import blanked
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, Span, as_bytes
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.passes.emit import lines
from porter.passes.helpers import NAMESPACE
from porter.passes.mentions import Mentions, body_of, definition_of
from porter.ptx.arch import feature_macro

RULE = "PTR170"
GUARD = feature_macro(90)
"""Defined while nvcc compiles device code for sm_90a (CUDA Programming Guide, feature-specific macros)."""
_PORTED = re.compile(rb"\b\w*%b\w*::Tmem<" % NAMESPACE.encode())
"""What every ported kernel has in it."""
_LAUNCHES_NAMED = 4


@dataclass(frozen=True)
class LeftKernel:
    """A kernel that was not ported: where it is (1-based line), what stopped it, and `path:line` of the host code that
    names it."""

    kernel: str
    path: str
    line: int
    why: tuple[str, ...]
    launches: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Remainder:
    """A source set without what only left kernels need. `sources` has the same offsets as the original."""

    sources: SourceSet
    left: list[LeftKernel]
    diagnostics: list[Diagnostic]
    """What stopped the left kernels."""
    _program: Program
    _kernels: list[Function]
    _emptied: list[Function]

    def guards(self, edits: Iterable[Edit]) -> list[Edit] | None:
        """Edits that keep the left kernels for sm_90a beside `edits`, the port of the others; None if a function that
        both need cannot be there twice."""
        found = [e for f in self._emptied if f.style is not Style.MACRO for e in guarded(f)]
        spans: set[tuple[str, Span]] = set()
        edits = list(edits)
        functions = self._program.functions
        ids = self._program.reached(self._kernels, functions) - {id(f) for f in self._emptied}
        needed = [f for f in functions if id(f) in ids and f.style is not Style.KERNEL]
        names = {f.name for f in needed}
        forward = [d for d in self._program.forward if d.name in names]
        for function in [*needed, *forward]:
            whole = definition_of(function)
            key = (function.file.path, whole)
            if key in spans or not any(_changes(e, function.file.path, whole) for e in edits):
                continue
            if function.style is Style.LAMBDA:
                return None
            spans.add(key)
            found += _twice(function.file, whole)
        return found


def remainder(
    program: Program,
    stopped: Sequence[Diagnostic],
    attempt: Callable[[SourceSet], Sequence[Diagnostic]],
) -> Remainder | None:
    """What is left to port once the kernels that `stopped` stops are out of the way; `attempt` gives what stops a
    smaller set. None if what stops cannot be attributed to kernels, or if it stops all of them."""
    why: dict[int, list[Diagnostic]] = {}
    left: list[Function] = []
    emptied: list[Function] = []
    smaller = program.sources
    users = program.uses_tensor_core()
    if any(_PORTED.search(file.lexed.code) for file in program.sources.files.values()):
        # what was left of an earlier port is there in two forms already
        return None
    errors = [d for d in stopped if d.severity is Severity.ERROR]
    while errors:
        before = len(why)
        for diagnostic in errors:
            kernels = _stopped_by(program, diagnostic)
            if not kernels:
                return None
            for kernel in kernels:
                said = why.setdefault(id(kernel), [])
                if diagnostic not in said:
                    said.append(diagnostic)
        left = [k for k in program.kernels if id(k) in why]
        if len(why) == before or not any(id(k) in users and id(k) not in why for k in program.kernels):
            return None
        only = _only_for(program, left)
        if only is None:
            return None
        emptied = only
        smaller = without_text(program.sources, [(f.file.path, body_of(f)) for f in emptied])
        errors = [d for d in attempt(smaller) if d.severity is Severity.ERROR]
    if not why:
        return None
    named = [_left(program, k, why[id(k)]) for k in left]
    said = list({id(d): d for found in why.values() for d in found}.values())
    said += [_said(k, one) for k, one in zip(left, named, strict=True)]
    return Remainder(smaller, named, said, program, left, emptied)


def left_whole(program: Program, stopped: Sequence[Diagnostic], shared: Collection[str]) -> Remainder | None:
    """All kernels left: another source set ports headers of this one, `shared`. None as for `remainder`."""
    errors = [d for d in stopped if d.severity is Severity.ERROR]
    users = program.uses_tensor_core()
    found = {id(d): _stopped_by(program, d) for d in errors}
    if not errors or not all(found.values()):
        return None
    why = {id(k): [d for d in errors if k in found[id(d)]] for k in program.kernels}
    left = [k for k in program.kernels if id(k) in users or why[id(k)]]
    named = [_left(program, k, why[id(k)] or errors[:1]) for k in left]
    said = [*errors, *(_said(k, one) for k, one in zip(left, named, strict=True))]
    own = [f for f in program.functions if id(f) in users and f.style in (Style.DEVICE, Style.METHOD)]
    emptied = [*left, *(f for f in own if f.file.path not in shared)]
    return Remainder(program.sources, named, said, program, left, emptied)


def in_both_forms(program: Program, edits: Iterable[Edit], paths: Collection[str]) -> list[Edit]:
    """The functions of some files that are changed by `edits`, twice: kernels of another source set that are left need
    them as they were."""
    edits = list(edits)
    found: list[Edit] = []
    for function in [*program.functions, *program.forward]:
        if function.file.path in paths and function.style not in (Style.KERNEL, Style.LAMBDA):
            whole = definition_of(function)
            if any(_changes(e, function.file.path, whole) for e in edits):
                found += _twice(function.file, whole)
    return found


def _stopped_by(program: Program, diagnostic: Diagnostic) -> list[Function]:
    """The kernels that come to the place of a diagnostic."""
    if diagnostic.where is None:
        return []
    around = [
        f
        for f in program.functions
        if f.file.path == diagnostic.where.path
        and definition_of(f).start <= diagnostic.where.start < definition_of(f).end
    ]
    if not around:
        return []
    innermost = min(around, key=lambda f: len(definition_of(f)))
    reaching = program.reaching([innermost])
    return [k for k in program.kernels if id(k) in reaching]


def _only_for(program: Program, left: Sequence[Function]) -> list[Function] | None:
    """The left kernels, and the functions with tensor-core code that no other kernel comes to. None if one of them is
    named in a place that is not understood: another kernel may come to it."""
    ids = {id(k) for k in left}
    users = program.uses_tensor_core() | {id(r.function) for r in program.refusals if r.function is not None}
    seeds = [f for f in program.functions if id(f) in users]
    only = program.reached(left, seeds) - program.reached([k for k in program.kernels if id(k) not in ids], seeds)
    own = [f for f in seeds if id(f) in only - ids and f.style not in (Style.LAMBDA, Style.HOST)]
    found = [*left, *own]
    return found if len(Mentions(program, found).understood(found)) == len(found) else None


def without_text(sources: SourceSet, places: Iterable[tuple[str, Span]]) -> SourceSet:
    """The set with places of its files blank; nothing moves."""
    texts: dict[str, bytearray] = {}
    for path, where in places:
        source = sources.files[path].source
        text = texts.setdefault(path, bytearray(source))
        text[where.start : where.end] = blanked(source[where.start : where.end])
    files = {
        path: parse_cuda(path, bytes(texts[path]), file.known) if path in texts else file
        for path, file in sources.files.items()
    }
    return replace(sources, files=files)


def guarded(function: Function) -> list[Edit]:
    """`#if` around what stands in a function's braces, and a trap in its place."""
    file, inside = function.file, body_of(function)
    source, newline = file.source, file.newline
    head = file.text(Span(definition_of(function).start, inside.start))
    # host code of a function for both does not trap
    value = function.style is not Style.KERNEL and not re.search(r"\bvoid\b", head.split("(", 1)[0])
    other = lines("elsewhere", host="__host__" in head, value=value)
    first = "\n" + lines("hopper_only", guard=GUARD)
    rest = source.find(b"\n", inside.start)
    if source[inside.start : rest if rest >= 0 else None].strip():
        first += "\n"
    line = source.rfind(b"\n", 0, inside.end) + 1
    at = line if line > inside.start and not source[line : inside.end].strip() else inside.end
    last = ("" if at == line else "\n") + other + "\n"
    return [
        Edit(file.path, Span(inside.start, inside.start), first.replace("\n", newline).encode()),
        Edit(file.path, Span(at, at), last.replace("\n", newline).encode()),
    ]


def without_definitions(program: Program, functions: Iterable[Function]) -> Iterator[tuple[Function, Edit]]:
    """Edits that take functions out of the sources, each with the comment above it. One that is declared or named
    besides, that is a member, or that conditional directives cut through stays."""
    declared = {f.name for f in program.forward}
    texts = [e.text for e in program.vocabulary.emitters if e.is_user]
    going = [
        f
        for f in functions
        if f.style is Style.DEVICE
        and f.name not in declared
        and not any(re.search(rf"\b{f.name}\b", text) for text in texts)
        and _is_balanced(f.file.text(definition_of(f)))
    ]
    mentions = Mentions(program, going)
    while len(understood := mentions.understood(going)) < len(going):
        going = understood
    yield from ((f, Edit(f.file.path, with_lines(f.file.source, definition_of(f)), b"")) for f in going)


def _is_balanced(text: str) -> bool:
    """Whether every conditional directive ends in the text that it begins in."""
    words = re.findall(r"(?m)^[ \t]*#[ \t]*(if|endif|el)", text)
    return words.count("if") == words.count("endif") and words[:1] in ([], ["if"])


def with_lines(source: bytes, whole: Span) -> Span:
    """A definition with its lines, those of a comment right above it, and the blank lines behind where there are some
    in front."""
    start, end = source.rfind(b"\n", 0, whole.start) + 1, source.find(b"\n", whole.end) + 1 or len(source)
    if source[start : whole.start].strip() or source[whole.end : end].strip():
        return whole
    while start and source[(above := source.rfind(b"\n", 0, start - 1) + 1) : start].lstrip().startswith(b"//"):
        start = above
    if source[:start].rstrip(b" \t").endswith((b"\n\n", b"\n\r\n")):
        end += len(source[end:]) - len(source[end:].lstrip(b"\r\n"))
    return Span(start, end)


def _twice(file: CudaFile, whole: Span) -> list[Edit]:
    """The original in front of what a definition becomes, each for its architecture."""
    source, newline = file.source, file.newline.encode()
    start = source.rfind(b"\n", 0, whole.start) + 1
    at = start if not source[start : whole.start].strip() else whole.start
    text = source[at : whole.end].rstrip(b"\r\n")
    lead = b"" if at == start else newline
    before = lead + lines("hopper_only", guard=GUARD).encode() + newline + text + newline + b"#else" + newline
    end = whole.end
    behind = newline + b"#endif"
    if source[end : end + 1] not in (b"\n", b"\r", b""):
        behind += newline
    return [Edit(file.path, Span(at, at), before), Edit(file.path, Span(end, end), behind)]


def _changes(edit: Edit, path: str, whole: Span) -> bool:
    inside = whole.start < edit.span.start < whole.end or (len(edit.span) > 0 and edit.span.overlaps(whole))
    return edit.path == path and inside


def _left(program: Program, kernel: Function, why: Sequence[Diagnostic]) -> LeftKernel:
    line = kernel.file.lines.line_column((kernel.name_span or definition_of(kernel)).start)[0]
    texts = [f"{d.where}: {d.message}" if d.where is not None else d.message for d in why]
    return LeftKernel(kernel.name, kernel.file.path, line, tuple(texts), tuple(_launches(program, kernel)))


def _launches(program: Program, kernel: Function) -> list[str]:
    """Where the kernel is named outside of its declarations."""
    known = {f.name_span for f in [*program.functions, *program.forward] if f.name == kernel.name}
    found = []
    for path, file in program.sources.files.items():
        for match in re.finditer(rb"\b" + as_bytes(kernel.name) + rb"\b", file.lexed.plain):
            if not any(s is not None and s.start == match.start() for s in known):
                place = f"{path}:{file.lines.line_column(match.start())[0]}"
                found += [] if place in found else [place]
    return found


def _said(kernel: Function, left: LeftKernel) -> Diagnostic:
    places = ", ".join(left.launches[:_LAUNCHES_NAMED])
    if len(left.launches) > _LAUNCHES_NAMED:
        places += f" and {len(left.launches) - _LAUNCHES_NAMED} more"
    values = {
        "kernel": left.kernel,
        "codes": ", ".join(left.why),
        "launches": f"; host code names it at {places}" if places else "",
    }
    return Diagnostic(Code.KERNEL_LEFT, location(kernel.file, kernel.name_span or definition_of(kernel)), values)


def has_stopped(diagnostics: Iterable[Diagnostic], left: Sequence[LeftKernel]) -> bool:
    """Whether errors stop the whole port; those of left kernels do not."""
    return not left and has_errors(diagnostics)
