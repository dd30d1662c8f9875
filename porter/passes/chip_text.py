# SPDX-License-Identifier: Apache-2.0
"""Conditions on the chip that are no condition of a rule, found by what the preprocessor makes of them.

Everything that tells chips apart before C++ begins changes what the preprocessor leaves: directives, macros of any
header, the value of `__CUDA_ARCH__`. So the port is held against itself with its original's conditions. What both come
to, the one for the port's chip and the other for Hopper, has to be the same; where it is not, the port would take
another branch than its original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cuda import parse_cuda
from porter.lang.embedded import device_sources
from porter.lang.known_headers import is_known
from porter.lang.lexical import lexed
from porter.lang.preprocessor import conditionals
from porter.lang.sources import is_python
from porter.lang.text import Edit, EditGroup, LineIndex, apply_groups
from porter.model.constant_expressions import evaluate
from porter.passes.arms import RULE as ARMS_RULE
from porter.passes.partial import RULE as GUARD_RULE
from porter.ptx.arch import PortTarget
from porter.rules.rule import Rule

Files = Mapping[str, bytes]
Line = tuple[str, int, str]
"""A file of a set, one of its lines, from 1, and what the preprocessor makes of it."""
Pass = tuple[Sequence[Line], Sequence[Line]]
"""What one pass of the compiler over a translation unit leaves, for Hopper and for the port's chip."""
Ask = Callable[[str, Files, Files, Sequence[Path]], "Sequence[Pass] | str"]
"""What the preprocessor makes of the files of a root, of the first for Hopper and of the second for the port's chip,
with these directories of headers; or why it cannot be asked."""

_CONDITIONAL = re.compile(rb"^[ \t]*#[ \t]*(?:if|el|endif)", re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?!pragma\b)\w", re.MULTILINE)
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\.?\d(?:[eEpP][+-]|[\w.']|)*|\w+|<<|>>|[<>=!]=|&&|\|\||\S")
_NUMBER = re.compile(r"(?:0[xX][\da-fA-F]+|\d+)[uUlL]*")
_BETWEEN = frozenset(("(", ")", "[", "]", "{", "}", ",", ";", "?", ":", "&&", "||", "return"))
_COMPARED = frozenset(("<", ">", "<=", ">=", "==", "!="))
_CALCULATED = frozenset(("+", "-", "*", "/", "%", "<<", ">>"))
_SHOWN, _AROUND = 90, 3
"""Characters of a text that are shown, and words beside what differs."""


@dataclass(frozen=True)
class PortOfRoot:
    """A port as its parts: the `groups` that stand in its files, and the files that it `added`."""

    root: str
    old: Files
    groups: Sequence[EditGroup]
    added: Files
    include_dirs: Sequence[Path] = ()


def check_chip_text(
    port: PortOfRoot, target: PortTarget, rules: Iterable[Rule], ask: Ask, said: Sequence[Diagnostic]
) -> list[Diagnostic]:
    """The places of the originals at which the port comes to other text than they do, but those that are `said`
    already; or a note that nobody could be asked."""
    first = _asked(port, port.old, port.old, {}, ask)
    if isinstance(first, str):
        return [Diagnostic(Code.CHIP_TEXT_UNKNOWN, Location(port.root), {"path": port.root, "reason": first})]
    own = [g for g in port.groups if g.rule != GUARD_RULE and all(e.path in port.old for e in g.edits)]
    same = _Origins(port.old, port.old, [])
    if not any(_differences(same.own(a), same.own(b)) for a, b in first) and not any(
        _brings_directives(port, g) for g in own
    ):
        return []
    asking = {r.id for r in rules if r.pattern is not None} | {ARMS_RULE}
    kept = [g for g in own if not (g.rule in asking and any(_in_directive(port.old, e) for e in g.edits))]
    hopper, blackwell = (apply_groups(dict(port.old), groups) for groups in (kept, own))
    found = _asked(port, hopper, blackwell, port.added, ask)
    if isinstance(found, str):
        return [Diagnostic(Code.CHIP_TEXT_UNKNOWN, Location(port.root), {"path": port.root, "reason": found})]
    sides = _Origins(port.old, hopper, kept), _Origins(port.old, blackwell, own)
    places = _Places(port.old, said, target)
    for each in found:
        left, right = (side.own(lines) for side, lines in zip(sides, each, strict=True))
        for one, other in _differences(left, right):
            places.add(one, other)
    return places.found


def _asked(port: PortOfRoot, left: Files, right: Files, added: Files, ask: Ask) -> Sequence[Pass] | str:
    """Of all that is compiled of a root: its files, and the sources in its strings."""
    found: list[Pass] = []
    if not is_python(Path(port.root)):
        answer = ask(port.root, {**left, **added}, {**right, **added}, port.include_dirs)
        if isinstance(answer, str):
            return answer
        found += answer
    if is_python(Path(port.root)) or b'R"' in left[port.root]:
        strings = (device_sources(port.root, side[port.root]) for side in (left, right))
        for one, other in zip(*strings, strict=True):
            answer = ask(port.root, {port.root: one}, {port.root: other}, port.include_dirs)
            if isinstance(answer, str):
                return answer
            found += answer
    return found


def _brings_directives(port: PortOfRoot, group: EditGroup) -> bool:
    """Whether edits may change what a condition comes to that is none of theirs."""
    names = {Path(path).name.encode() for path in port.added}
    rest = (line for e in group.edits for line in e.replacement.splitlines() if _DIRECTIVE.match(line))
    return any(not any(name in line for name in names) for line in rest) or any(
        _in_directive(port.old, e) for e in group.edits
    )


def _in_directive(old: Files, edit: Edit) -> bool:
    source = old[edit.path]
    start = source.rfind(b"\n", 0, edit.span.start) + 1
    while source[:start].endswith((b"\\\n", b"\\\r\n")):
        start = source.rfind(b"\n", 0, start - 1) + 1
    return _DIRECTIVE.match(source[start : edit.span.end]) is not None


class _Origins:
    """Where lines of edited files come from. Text of edits that has conditions of its own is Porter's."""

    def __init__(self, old: Files, new: Files, groups: Sequence[EditGroup]) -> None:
        self._old = {path: LineIndex(text) for path, text in old.items()}
        self._new = {path: LineIndex(text) for path, text in new.items()}
        self._moved: dict[str, list[tuple[int, int, int, bool]]] = {path: [] for path in old}
        for path, moved in self._moved.items():
            delta = 0
            edits = [e for g in groups for e in g.edits if e.path == path]
            for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end)):
                own = _CONDITIONAL.search(edit.replacement) is not None
                start = edit.span.start + delta
                moved.append((start, edit.span.start, edit.span.start, own))
                delta += len(edit.replacement) - len(edit.span)
                moved.append((start + len(edit.replacement), edit.span.end, -1, False))

    def own(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that are the project's, by their lines in the original."""
        found = []
        for path, line, text in lines:
            if path not in self._moved:
                found += [] if _is_known(path) else [(path, line, text)]
                continue
            at = self._new[path].line_start(line)
            i = bisect_right(self._moved[path], at, key=lambda m: m[0]) - 1
            if i < 0:
                found.append((path, line, text))
                continue
            start, origin, fixed, own = self._moved[path][i]
            if not own:
                where = fixed if fixed >= 0 else origin + at - start
                found.append((path, self._old[path].line_column(where)[0], text))
        return found


def _is_known(path: str) -> bool:
    """Whether a file beside those that were read is a library's that a project has a copy of."""
    parts = Path(path).parts
    return any(is_known("/".join(parts[i:])) for i in range(1, len(parts)))


class _Places:
    """Places that differ, each once."""

    def __init__(self, old: Files, said: Sequence[Diagnostic], target: PortTarget) -> None:
        self._arch = target.name
        self.found: list[Diagnostic] = []
        self._old = old
        self._said = {(d.where.path, d.where.line) for d in said if d.where is not None}

    def add(self, hopper: Sequence[Line], blackwell: Sequence[Line]) -> None:
        path, line, _ = (hopper or blackwell)[0]
        lines = {line}
        if path in self._old:
            source = lexed(self._old[path])
            at = LineIndex(source.source).line_start(line)
            # a line that only one side has stands in a conditional
            alone = not (hopper and blackwell) or hopper[0][1] != blackwell[0][1]
            around = [c for c in conditionals(parse_cuda(path, source.source)) if c.holds(at)] if alone else []
            if around:
                line = LineIndex(source.source).line_column(around[-1].span.start)[0]
        where = Location(path, line)
        lines.add(line)
        if any((path, one) in self._said for one in lines):
            return
        self._said.add((path, line))
        first, second = _parted(*(" ".join(text for _, _, text in side).split() for side in (hopper, blackwell)))
        values = {"hopper": first or "nothing", "blackwell": second or "nothing", "arch": self._arch}
        self.found.append(Diagnostic(Code.CHIP_TEXT_DIFFERS, where, values))


def _parted(one: list[str], other: list[str]) -> tuple[str, str]:
    """What two texts do not begin and end with alike, shortened."""
    most = min(len(one), len(other))
    head = next((i for i in range(most) if one[i] != other[i]), most)
    tail = next((i for i in range(most - head) if one[-1 - i] != other[-1 - i]), most - head)
    first, second = (" ".join(words[max(head - _AROUND, 0) : len(words) - max(tail - _AROUND, 0)])[:_SHOWN]
                     for words in (one, other))  # fmt: skip
    return first, second


def _differences(left: Sequence[Line], right: Sequence[Line]) -> list[tuple[Sequence[Line], Sequence[Line]]]:
    """The lines of both that are not the same tokens, in stretches."""
    one, other = ([(path, _compared(text)) for path, _, text in side] for side in (left, right))
    if one == other:
        return []
    first = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    found = []
    for tag, i, j, k, m in SequenceMatcher(None, one[first:], other[first:], autojunk=False).get_opcodes():
        mine, theirs = one[first + i : first + j], other[first + k : first + m]
        # what a macro leaves may stand on other lines of its call
        if tag != "equal" and " ".join(t for _, t in mine) != " ".join(t for _, t in theirs):
            found.append((left[first + i : first + j], right[first + k : first + m]))
    return found


def _compared(text: str) -> str:
    """The tokens of a line, comparisons of numbers as what they come to."""
    tokens = _TOKEN.findall(text)
    return " ".join(_decided(tokens) if any(t in _COMPARED for t in tokens) else tokens)


def _decided(tokens: Sequence[str]) -> Iterator[str]:
    held: list[str] = []
    for token in [*tokens, ";"]:
        if token not in _BETWEEN:
            held.append(token)
            continue
        plain = all(t in _COMPARED or t in _CALCULATED or _NUMBER.fullmatch(t) for t in held)
        value = evaluate(" ".join(held), lambda _: None, lambda *_: None) if plain else None
        yield from held if value is None or not any(t in _COMPARED for t in held) else [str(value)]
        held = []
        yield token
