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
from itertools import groupby
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.lang.cuda import parse_cuda
from porter.lang.embedded import device_sources
from porter.lang.known_headers import is_known
from porter.lang.lexical import lexed
from porter.lang.preprocessor import conditionals
from porter.lang.sources import is_python
from porter.lang.text import Edit, EditGroup, LineIndex, apply_groups
from porter.model.constant_expressions import evaluate
from porter.model.spellings import Spellings
from porter.passes.arms import RULE as ARMS_RULE
from porter.passes.chip_checks import late_architectures
from porter.passes.partial import RULE as GUARD_RULE
from porter.ptx.arch import PortTarget
from porter.rules.recognize import spellings
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
_OPENING = re.compile(rb"^[ \t]*#[ \t]*if", re.MULTILINE)
_CLOSING = re.compile(rb"^[ \t]*#[ \t]*endif", re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?!pragma\b)\w", re.MULTILINE)
_ASKING = re.compile(rb"[ \t]*#[ \t]*(?:if|el|define|undef)")
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\.?\d(?:[eEpP][+-]|[\w.']|)*|\w+|<<|>>|[<>=!]=|&&|\|\||\S")
_NUMBER = re.compile(r"(?:0[xX][\da-fA-F]+|\d+)[uUlL]*")
_BETWEEN = frozenset(("=", "(", ")", "[", "]", "{", "}", ",", ";", "?", ":", "&&", "||", "return"))
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
    port: PortOfRoot, target: PortTarget, rules: Sequence[Rule], ask: Ask, said: Sequence[Diagnostic]
) -> list[Diagnostic]:
    """The places of the originals at which the port comes to other text than they do, but those that are `said`
    already; or a note that nobody could be asked."""
    places = _Places(port.old, said, target)
    own = [g for g in port.groups if g.rule != GUARD_RULE and all(e.path in port.old for e in g.edits)]
    brought = any(_brings_directives(port, g) for g in own)
    try:
        same = None if brought else _asked(port, port.old, port.old, {}, ask)
    except (_UnknownError, PorterError):
        # for the port's chip an original may be an error
        same = None
    if same is not None and not any(_differences(*each) for each in same):
        places.name_late(same, spellings(rules))
        return places.found
    asking = {r.id for r in rules if r.pattern is not None} | {ARMS_RULE}
    kept = [g for g in own if not (g.rule in asking and any(_in(_ASKING, port.old, e) for e in g.edits))]
    sides = [_Side(port.old, groups) for groups in (kept, own)]
    try:
        found = _asked(port, sides[0].new, sides[1].new, port.added, ask)
    except (_UnknownError, PorterError) as error:
        reason = error.diagnostic.message if isinstance(error, PorterError) else str(error)
        return [Diagnostic(Code.CHIP_TEXT_UNKNOWN, Location(port.root), {"path": port.root, "reason": reason})]
    placed: list[Pass] = [(sides[0].placed(left), sides[1].placed(right)) for left, right in found]
    for left, right in placed:
        for one, other in _differences(left, right):
            places.add(one, other)
    places.name_late(placed, spellings(rules))
    return places.found


class _UnknownError(Exception):
    """Why the preprocessor cannot be asked."""


def _asked(port: PortOfRoot, left: Files, right: Files, added: Files, ask: Ask) -> Sequence[Pass]:
    """Of all that is compiled of a root: its files, and the sources in its strings. What the port added is left out,
    and libraries that a project has a copy of."""
    pairs = [] if is_python(Path(port.root)) else [({**left, **added}, {**right, **added})]
    if is_python(Path(port.root)) or b'R"' in left[port.root]:
        strings = (device_sources(port.root, side[port.root]) for side in (left, right))
        pairs += [({port.root: one}, {port.root: other}) for one, other in zip(*strings, strict=True)]
    found = []
    for pair in pairs:
        answer = ask(port.root, *pair, port.include_dirs)
        if isinstance(answer, str):
            raise _UnknownError(answer)
        found += [(_of_project(one, port), _of_project(other, port)) for one, other in answer]
    return found


def _of_project(lines: Sequence[Line], port: PortOfRoot) -> list[Line]:
    paths = {path for path, _, _ in lines}
    paths -= {path for path in paths if path in port.added or (path not in port.old and _is_known(path))}
    return [line for line in lines if line[0] in paths]


def _brings_directives(port: PortOfRoot, group: EditGroup) -> bool:
    """Whether edits may change what a condition comes to that is none of theirs."""
    names = {Path(path).name.encode() for path in port.added}
    rest = (line for e in group.edits for line in e.replacement.splitlines() if _DIRECTIVE.match(line))
    return any(not any(name in line for name in names) for line in rest) or any(
        _in(_DIRECTIVE, port.old, e) for e in group.edits
    )


def _in(directive: re.Pattern[bytes], old: Files, edit: Edit) -> bool:
    """Whether an edit begins in such a directive."""
    source = old[edit.path]
    start = source.rfind(b"\n", 0, edit.span.start) + 1
    while source[:start].endswith((b"\\\n", b"\\\r\n")):
        start = source.rfind(b"\n", 0, start - 1) + 1
    return directive.match(source[start : edit.span.end]) is not None


class _Side:
    """Files with edits, and where their lines come from. Text of an edit that brings conditions is Porter's, and so is
    the choice of the original's text between them."""

    def __init__(self, old: Files, groups: Sequence[EditGroup]) -> None:
        self.new: Files = apply_groups(dict(old), groups)
        self._old = {path: LineIndex(text) for path, text in old.items()}
        self._lines = {path: LineIndex(text) for path, text in self.new.items()}
        self._moved: dict[str, list[_Moved]] = {path: [_Moved(0, 0, True, True)] for path in old}
        for path, moved in self._moved.items():
            shift = depth = 0
            edits = [e for g in groups for e in g.edits if e.path == path]
            for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end)):
                there = old[path][edit.span.start : edit.span.end]
                shown = _CONDITIONAL.search(edit.replacement) is None or _CONDITIONAL.search(there) is not None
                moved.append(_Moved(edit.span.start + shift, edit.span.start, False, shown))
                shift += len(edit.replacement) - len(edit.span)
                if not shown:
                    depth += len(_OPENING.findall(edit.replacement)) - len(_CLOSING.findall(edit.replacement))
                moved.append(_Moved(edit.span.end + shift, edit.span.end, True, depth <= 0))

    def placed(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that are not Porter's, with the numbers that they have in the originals."""
        found = []
        for path, line, text in lines:
            if path in self._moved:
                at = self._lines[path].line_start(line)
                stretch = self._moved[path][bisect_right(self._moved[path], at, key=lambda m: m.start) - 1]
                if not stretch.shown:
                    continue
                origin = stretch.origin + (at - stretch.start if stretch.same else 0)
                line = self._old[path].line_column(origin)[0]
            found.append((path, line, text))
        return found


@dataclass(frozen=True)
class _Moved:
    """A stretch of an edited file from `start`: the `same` bytes as from `origin` on, or what an edit put there."""

    start: int
    origin: int
    same: bool
    shown: bool


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

    def name_late(self, passes: Sequence[Pass], words: Spellings) -> None:
        """Calls of what tells the chip behind the preprocessor, which a macro may hide."""
        for path, line, text in (line for _, right in passes for line in right):
            for where in late_architectures(text, words):
                if (path, line) not in self._said:
                    self._said.add((path, line))
                    said = {"text": text[where.start : where.end]}
                    self.found.append(Diagnostic(Code.CHIP_CHECK_LEFT, Location(path, line), said))

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


def _differences(left: Sequence[Line], right: Sequence[Line]) -> list[Pass]:
    """The lines of both that are not the same tokens, in stretches."""
    if left == right:
        return []
    one, other = _joined(left), _joined(right)
    keys = [[line[:2] for line in side] for side in (one, other)]
    found: list[Pass] = []
    for tag, i, j, k, m in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        pairs: list[Pass] = [(one[i:j], other[k:m])]
        if tag == "equal":
            pairs = [([a], [b]) for a, b in zip(one[i:j], other[k:m], strict=True) if a != b]
        # text that is the same for both may stand in two arms
        found += [pair for pair in pairs if _tokens(pair[0]) != _tokens(pair[1])]
    return found


def _joined(lines: Sequence[Line]) -> list[Line]:
    rows = ((key, " ".join(text for _, _, text in same)) for key, same in groupby(lines, key=lambda one: one[:2]))
    return [(path, line, text) for (path, line), text in rows]


def _tokens(lines: Sequence[Line]) -> list[str]:
    """The tokens of lines, comparisons of numbers as what they come to."""
    tokens = _TOKEN.findall(" ".join(text for _, _, text in lines))
    return list(_decided(tokens)) if any(t in _COMPARED for t in tokens) else tokens


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
