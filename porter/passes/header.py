# SPDX-License-Identifier: Apache-2.0
"""Where a port has its helpers: in a header beside it, or in front of the first use in the order of reading."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, PorterError
from porter.lang.cuda import CudaFile
from porter.lang.preprocessor import conditionals, include_guard, line_end, outermost
from porter.lang.sources import Include, SourceSet
from porter.lang.text import Edit, Span, as_bytes
from porter.passes.claimed import unclaimed
from porter.passes.context import PortContext, namespace
from porter.passes.helpers import NAMESPACE

RULE = "PTR160"
NAME = f"{NAMESPACE}.cuh"
"""Of the header, if nothing else has it."""

_NEEDS = re.compile(
    r"cstdint|stdint\.h|cuda_bf16\.h|cuda_fp16\.h|cuda\.h|cuda_runtime\.h|cuda/(?:std/)?(?:barrier|cstdint)"
)
"""Headers that define `uint32_t`."""
_ONCE = re.compile(rb"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*\n?", re.MULTILINE)


def insert_helpers(context: PortContext) -> None:
    """Add the namespace, or a header with it and its includes."""
    sources = context.program.sources
    home = _place(sources, _uses(context))
    if context.placement.inline:
        text = _helpers(context, integers=not _brings_integers(sources, home))
        return _insert(context, home, text + _includes(context))
    insert_header(context, NAME, _helpers(context, file=True))


def _helpers(context: PortContext, file: bool = False, integers: bool = False) -> str:
    """The text of the helpers, in a namespace and by names that the sources do not have."""
    text = context.helpers.text(file, integers).replace(f"namespace {NAMESPACE}", f"namespace {namespace()}")
    return unclaimed(context, text, namespace())


def insert_header(context: PortContext, wanted: str, text: str) -> None:
    """Add a header, of the name `wanted` if nothing else has it, and its includes."""
    sources, uses = context.program.sources, _uses(context)
    home = _place(sources, uses)
    header = as_bytes(text.replace("\n", sources.files[home.path].newline))
    path = _free(sources, Path(home.path).parent, wanted, header, context.placement.own)
    places = [home]
    if home.path == sources.root:
        places += _beside(sources, uses)
    for place in places:
        directory = os.path.realpath(Path(place.path).parent)
        name = Path(os.path.relpath(os.path.realpath(path.parent), directory), path.name).as_posix()
        _insert(context, place, f'#include "{name}"\n{_includes(context)}', place.behind_include)
    context.added[path.as_posix()] = header


def _uses(context: PortContext) -> dict[str, list[int]]:
    """Where something is written in each file."""
    uses: dict[str, list[int]] = {}
    for edits in context.edits.values():
        for edit in edits:
            if edit.replacement:
                uses.setdefault(edit.path, []).append(edit.span.start)
    return uses


def _includes(context: PortContext) -> str:
    return "".join(f'#include "{name}"\n' for name in context.includes)


def _insert(context: PortContext, place: _Place, text: str, joins: bool = False) -> None:
    """Text between blank lines, or, if it `joins` what is there, right behind that."""
    file = context.program.sources.files[place.path]
    before, after = file.source[: place.at], file.source[place.at : place.at + 2]
    ended = re.search(rb"\n\r?\n\Z", before) is not None or (joins and before.endswith(b"\n"))
    lead = "" if ended or not before else "\n" if before.endswith(b"\n") or joins else "\n\n"
    tail = "" if joins or after.startswith((b"\n", b"\r\n")) else "\n"
    written = (lead + text + tail).replace("\n", file.newline)
    context.edits.setdefault(RULE, []).append(Edit(place.path, Span(place.at, place.at), as_bytes(written)))


def _free(sources: SourceSet, directory: Path, wanted: str, text: bytes, own: str) -> Path:
    """A path in a directory where nothing is, or this very text, and whose name no include of the sources has."""
    stem, (base, kind) = own or Path(sources.root).stem, os.path.splitext(wanted)
    names = [*([] if own else [wanted]), f"{stem}_{wanted}", *(f"{stem}_{base}_{n}{kind}" for n in range(2, 10))]
    for name in names:
        path = directory / name
        file = sources.files.get(path.as_posix())
        if file is None and any(Path(i.name).name.lower() == name.lower() for i in sources.includes):
            continue
        if not os.path.lexists(path) or (path.is_file() and path.read_bytes() == text):
            return path
    raise PorterError(
        Code.WOULD_OVERWRITE,
        path=directory / names[0],
        reason="it is there, and so is every other name for the helpers",
    )


def _beside(sources: SourceSet, uses: dict[str, list[int]]) -> list[_Place]:
    """Places in the headers that use the helpers and that are read outside of any block wherever they are included."""
    found = []
    for path in sorted(set(uses) - {sources.root}):
        lines = [i for p in {path, *_including(sources, path)} for i in sources.includes if i.resolved == p]
        if all(_depth(sources.files[i.path], i.span.start) == 0 for i in lines):
            found.append(_position(sources.files[path], min(uses[path]), max(uses[path])))
    return found


def _including(sources: SourceSet, path: str) -> set[str]:
    """The files that include a file, directly or not."""
    return {other for other in sources.files if other != path and path in _reached(sources, other)}


@dataclass(frozen=True)
class _Place:
    """An offset of a file, right behind an include of it or not."""

    path: str
    at: int
    behind_include: bool = False


def _place(sources: SourceSet, uses: dict[str, list[int]]) -> _Place:
    """The header that every other user includes, so that it stays one that can be included alone; where there is
    none, or it is read more than once or under a condition, the root in front of whatever comes to a use first."""
    home = _home(sources, uses)
    if home is not None and home != sources.root and _stands_first(sources, uses, home):
        file = sources.files[home]
        place = _position(file, min(uses[home]), max(uses[home]))
        if _read_once(sources, home, place.at):
            return place
    root = sources.files[sources.root]
    reach = {path: _reached(sources, path) | {path} for path in sources.files}
    firsts = list(uses.get(sources.root, ()))
    for include in sources.includes:
        if include.path == sources.root and include.resolved and reach[include.resolved] & set(uses):
            firsts.append(include.span.start)
    return _position(root, min(firsts, default=0), max(firsts, default=0))


def _home(sources: SourceSet, uses: dict[str, list[int]]) -> str | None:
    """The file among the users that every other one includes, directly or not."""
    users = sorted(uses)
    for candidate in users:
        if all(candidate == user or candidate in _reached(sources, user) for user in users):
            return candidate
    return None


def _stands_first(sources: SourceSet, uses: dict[str, list[int]], home: str) -> bool:
    """Whether every other user includes the file before it comes to a use."""
    for path, offsets in uses.items():
        lines = [i.span.start for i in sources.includes if i.path == path and i.resolved and (
            i.resolved == home or home in _reached(sources, i.resolved))]  # fmt: skip
        if path != home and min(lines, default=min(offsets)) >= min(offsets):
            return False
    return True


def _reached(sources: SourceSet, path: str) -> set[str]:
    """The files that a file includes, directly or not."""
    seen: set[str] = set()
    work = [path]
    while work:
        current = work.pop()
        for include in sources.includes:
            if include.path == current and include.resolved and include.resolved not in seen:
                seen.add(include.resolved)
                work.append(include.resolved)
    return seen


def _read_once(sources: SourceSet, header: str, at: int) -> bool:
    """Whether what stands at an offset of a header is read exactly once, outside of any block, in front of every
    use: it is included without a condition, and guarded or included in one place only."""
    file = sources.files[header]
    lines = [i for i in sources.includes if i.resolved == header]
    if not all(_plain(sources.files[i.path], i) for i in lines):
        return False
    once = _ONCE.search(file.source)
    if once is not None:
        return True
    guard = include_guard(file)
    if guard is not None and guard.holds(at):
        return True
    return _single(sources, header)


def _single(sources: SourceSet, path: str) -> bool:
    """Whether one line includes a file, in the root or in such a file itself."""
    while path != sources.root:
        lines = [i for i in sources.includes if i.resolved == path]
        if len(lines) != 1:
            return False
        path = lines[0].path
    return True


def _plain(file: CudaFile, include: Include) -> bool:
    return any(at == include.span.start for _, at in _plain_includes(file))


def _plain_includes(file: CudaFile) -> list[tuple[str, int]]:
    """Name and offset of the includes that stand outside of braces and conditions; the file's guard is none."""
    guard = include_guard(file)
    around = [c for c in conditionals(file) if guard is None or c.span != guard.span]
    return [
        (name, span.start)
        for name, _, span in file.lexed.includes()
        if _depth(file, span.start) == 0 and not any(c.holds(span.start) for c in around)
    ]


def _depth(file: CudaFile, at: int) -> int:
    """Braces that are open at an offset."""
    text = file.lexed.plain
    return text.count(b"{", 0, at) - text.count(b"}", 0, at)


def _position(file: CudaFile, first: int, last: int) -> _Place:
    """In front of offset `first`: behind the last include at the file's top, else
    behind `#pragma once` or the line that defines the guard, else behind the leading comments."""
    guard = include_guard(file)
    if guard is not None and not (guard.holds(first) and guard.holds(last)):
        guard = None
    outer = [c for c in conditionals(file) if guard is None or c.span != guard.span]
    top = outermost(outer)
    floor = guard.body if guard is not None else 0
    found = -1
    for _, _, span in file.lexed.includes():
        if span.start < floor:
            continue
        around = next((c for c in top if c.holds(span.start)), None)
        end = line_end(file.source, (span if around is None else around.span).end)
        if end > first or _depth(file, end) != 0:
            break
        found = end
    if found >= 0:
        return _Place(file.path, found, behind_include=True)
    once = _ONCE.search(file.source)
    if guard is not None:
        return _Place(file.path, guard.body)
    if once is not None and once.end() <= first:
        return _Place(file.path, once.end())
    return _Place(file.path, _behind_comments(file, first))


def _behind_comments(file: CudaFile, limit: int) -> int:
    end = 0
    for node in file.root.named_children:
        if node.type != "comment" or node.end_byte >= limit:
            break
        end = line_end(file.source, node.end_byte)
    return end


def _brings_integers(sources: SourceSet, place: _Place) -> bool:
    """Whether the compiler has read a header with the integer types when it comes to the place: one that the file
    includes before it, itself or through others."""
    before = [i for i in sources.includes if i.path == place.path and i.span.start < place.at]
    files = {i.resolved for i in before if i.resolved}
    files |= {other for path in tuple(files) for other in _reached(sources, path)}
    names = [n for n, at in _plain_includes(sources.files[place.path]) if at < place.at]
    names += [n for path in files for n, _ in _plain_includes(sources.files[path])]
    return any(_NEEDS.fullmatch(name) for name in names)
