# SPDX-License-Identifier: Apache-2.0
"""The draft case of a source file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.lang.lexical import lexed
from porter.lang.sources import is_python, load_sources, read_source
from porter.model.program import build_program
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary
from porter.scan.draft import dsl
from porter.scan.draft.classes import template_id
from porter.scan.draft.cuda import NO_SHAPE, CudaDraft, kernels_to_draft
from porter.scan.draft.draft import Draft
from porter.scan.draft.launches import launches_apart


def draft_case(
    path: Path, entry: str | None = None, include_dirs: Sequence[Path] = (), rules: Sequence[str] = ()
) -> Draft:
    """What a source file tells of how to run one of its kernels.

    Raises:
        PorterError: ENTRY_NOT_FOUND, ENTRY_AMBIGUOUS, what reading a source raises, DSL_SYNTAX.
    """
    if is_python(path):
        return _python(path, entry)
    program = build_program(load_sources(path, include_dirs), vocabulary(load_rules(tuple(rules))))
    kernels = kernels_to_draft(program, entry)
    listed = "\n".join(dict.fromkeys(k.name for k in (kernels or program.kernels)))
    if not kernels:
        raise PorterError(Code.ENTRY_NOT_FOUND, path=str(path), entry=entry or "at all", detail=listed)
    if len({k.name for k in kernels}) > 1:
        raise PorterError(Code.ENTRY_AMBIGUOUS, path=str(path), entry=entry or "the file alone", detail=listed)
    return CudaDraft(program, kernels[0]).make()


RESULT = frozenset({"reference", "reduction"})
"""Fields of a case that say what a kernel computes, not how it is launched."""
_ROOM = 1 << 22
"""Elements of a tensor of which nobody knows how many it has."""


def launches_in_text(
    path: Path, include_dirs: Sequence[Path] = (), rules: Sequence[str] = (), instantiate: Sequence[str] = ()
) -> Iterator[Draft]:
    """A draft of each launch that the host code of a CUDA C++ file makes of its kernels, one for each set of template
    arguments, in which nothing is a guess but what the kernel computes. `instantiate`: template-ids of kernels that
    only callers of the host code instantiate.

    Raises:
        PorterError: what reading a source raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(load_rules(tuple(rules))))
    asked = [template_id(text) for text in instantiate]
    for kernel in program.kernels:
        own = [args for name, args in asked if name in (kernel.name, kernel.qualified_name)]
        for known in launches_apart(program, kernel, own):
            draft = CudaDraft(program, kernel, known).make()
            if draft.guesses.keys() <= RESULT:
                _make_room(draft)
                yield draft


def _make_room(draft: Draft) -> None:
    """Nobody says how large a tensor is whose shape is a guess, and no access is outside of it."""
    for name, tensor in draft.fields["tensors"].items():
        if draft.notes.get(f"tensors.{name}") == NO_SHAPE:
            tensor["shape"] = [_ROOM]


def has_main(path: Path, defines: Sequence[str] = ()) -> bool:
    """Whether a CUDA C++ file is a program: it has a `main()` that no macro but those given leaves out."""
    if is_python(path):
        return False
    text = lexed(read_source(path)).plain.decode("utf-8", "replace")
    found = re.search(r"^[ \t]*(?:int|auto)\s+main\s*\(", text, re.MULTILINE)
    if found is None:
        return False
    names = {d.split("=")[0] for d in defines}
    conditions: list[str] = []
    before = read_source(path)[: len(text[: found.start()].encode())].decode("utf-8", "replace")
    for match in re.finditer(r"^[ \t]*#[ \t]*(if\w*|endif)\b([^\n]*)", before, re.MULTILINE):
        if match.group(1) != "endif":
            conditions.append(match.group(2))
        elif conditions:
            conditions.pop()
    return all(names & set(re.findall(r"\w+", c)) for c in conditions)


def _python(path: Path, entry: str | None) -> Draft:
    source = read_source(path).decode("utf-8", "replace")
    try:
        names = dsl.entries(source)
        found = dsl.draft(source, path.as_posix(), entry)
    except SyntaxError as error:
        where = Location(str(path), error.lineno or 0)
        raise PorterError(Code.DSL_UNREADABLE, where, path=str(path), problem=error.msg) from None
    if found is None:
        raise PorterError(
            Code.ENTRY_NOT_FOUND, path=str(path), entry=entry or "that is a jit function", detail="\n".join(names)
        )
    if entry is None and len(names) > 1:
        raise PorterError(Code.ENTRY_AMBIGUOUS, path=str(path), entry="the file alone", detail="\n".join(names))
    return found
