# SPDX-License-Identifier: Apache-2.0
"""Roots that differ in their instantiations alone (`porter.passes.instances`): one of them is ported, and the others
have the same of the headers that they share.

Shared is only what names neither the root nor a place in it: where a port changes the root itself, or something is
said of a line of it, each root is ported by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.lexical import lexed
from porter.lang.sources import SourceSet
from porter.model.recognition import Vocabulary
from porter.passes.instances import Instances, instances_in, meaning, saying
from porter.passes.port import PortOptions, PortResult
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

Kind = tuple[object, ...]
"""What roots are alike in."""


def shares(options: PortOptions) -> bool:
    """Whether ports with these options ask for nothing but texts: what compilers, launches and traces say is a
    root's own."""
    by_root = (options.half_rate, options.without, options.stages, options.registers, options.chosen)
    asks = options.full_rate or options.native or options.types or options.launches or options.boxes
    return not (asks or any(by_root))


@dataclass
class Kinds:
    """Kinds of source sets, by the rules that say what words are."""

    rule_directories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rules = load_rules(self.rule_directories)
        words: Vocabulary = vocabulary(rules)
        self._say = saying(rules, words)
        self._globs = sorted({glob for rule in rules for glob in rule.files})
        self._read: dict[tuple[bytes, frozenset[bytes]], Instances | None] = {}
        self._named: dict[tuple[bytes, ...], frozenset[bytes]] = {}

    def of(self, sources: SourceSet) -> Kind | None:
        """What a set is alike others in; None for a root that does more than to instantiate."""
        own = self.instances(sources)
        if sources.root not in own:
            return None
        number = {path: i for i, path in enumerate(own)}
        files: list[object] = []
        for path, file in sources.files.items():
            if path not in own:
                files.append((path, file.source))
                continue
            suffix, reads = Path(path).suffix, tuple(g for g in self._globs if Path(path).match(g))
            files.append((number[path], _with_numbers(own[path], path, sources, number), own[path].said, suffix, reads))
        includes = tuple(
            (
                number.get(i.path, i.path), "" if i.resolved in own else i.name, i.quoted,
                number.get(i.resolved or "", i.resolved), "" if i.resolved in own else i.text, i.through,
            )
            for i in sources.includes
        )  # fmt: skip
        macros = tuple(sorted(sources.string_macros.items()))
        return (Path(sources.root).parent, sources.include_dirs, tuple(files), includes, macros)

    def instances(self, sources: SourceSet) -> dict[str, Instances]:
        """The files of a set that only instantiate, in the set's order."""
        paths = [p for p in sources.files if Path(p).suffix.lower() in _COMPILED]
        others = tuple(f.source for p, f in sources.files.items() if p not in paths)
        if others not in self._named:
            self._named[others] = frozenset().union(*map(meaning, others))
        found: dict[str, Instances] = {}
        for path in paths:
            key = sources.files[path].source, self._named[others]
            if key not in self._read:
                self._read[key] = instances_in(*key, self._say)
            one = self._read[key]
            if one is not None:
                found[path] = one
        # a file that does more may mean something by any word
        return found if len(found) == len(paths) else {}


_COMPILED = frozenset({".cu", ".cpp", ".cc", ".cxx"})


def _with_numbers(
    one: Instances, path: str, sources: SourceSet, number: dict[str, int]
) -> tuple[bytes | int | None, ...]:
    """The parts of a file, with numbers for the instances that it includes."""
    parts: list[bytes | int | None] = []
    names = {i.text.encode(): number[i.resolved] for i in sources.includes if i.path == path and i.resolved in number}
    for part in one.parts:
        rest = part
        while rest is not None and (at := _first(rest, names)) is not None:
            start, text = at
            parts += [rest[:start], names[text]]
            rest = rest[start + len(text) :]
        parts.append(rest)
    return tuple(parts)


def _first(text: bytes, names: Iterable[bytes]) -> tuple[int, bytes] | None:
    found = [(text.index(name), name) for name in names if name in text]
    return min(found, default=None)


Wanted = tuple[SourceSet, PortOptions]


def ported_alike(
    wanted: Sequence[Wanted], kinds: Kinds | None, port: Callable[[Sequence[Wanted]], list[PortResult]]
) -> list[PortResult]:
    """The ports of source sets, in order: of those that are alike and have the same options one is made."""
    if kinds is None:
        return port(wanted)
    first: dict[Kind, list[int]] = {}
    like: dict[int, int] = {}
    for i, (sources, options) in enumerate(wanted):
        kind = kinds.of(sources) if shares(options) else None
        for other in first.setdefault(kind, []) if kind is not None else ():
            if wanted[other][1] == options:
                like[i] = other
                break
        else:
            if kind is not None:
                first[kind].append(i)
    own = [i for i in range(len(wanted)) if i not in like]
    made = dict(zip(own, port([wanted[i] for i in own]), strict=True))
    found = {i: of_alike(made[other], wanted[i][0], kinds) for i, other in like.items()}
    alone = [i for i, result in found.items() if result is None]
    made |= {i: result for i, result in found.items() if result is not None}
    made |= dict(zip(alone, port([wanted[i] for i in alone]) if alone else [], strict=True))
    return [made[i] for i in range(len(wanted))]


def of_alike(result: PortResult, sources: SourceSet, kinds: Kinds) -> PortResult | None:
    """The port of a set that is of the kind of a result's; None where that names its root."""
    theirs, ours = list(kinds.instances(result.sources)), list(kinds.instances(sources))
    names = dict(zip(theirs, ours, strict=True))
    edited = {e.path for g in (*result.groups, *result.plain) for e in g.edits}
    if edited & names.keys() or result.left or any(_stem_in(p, names) for p in result.files if p not in theirs):
        return None
    if any(n.path in names for n in result.needs) or any(p.path in names for p in result.plans):
        return None
    diagnostics = [_moved(d, names) for d in result.diagnostics]
    left_over = [_moved(d, names) for d in result.left_over]
    if None in diagnostics or None in left_over:
        return None
    files = {names.get(p, p): text for p, text in result.files.items()}
    files |= {p: sources.files[p].source for p in ours}
    return replace(
        result,
        sources=sources,
        files=files,
        groups=list(result.groups),
        plain=list(result.plain),
        plans=list(result.plans),
        diagnostics=[d for d in diagnostics if d is not None],
        left_over=[d for d in left_over if d is not None],
        common=replace(result.common, words=_words(result, sources, names)),
    )


def _stem_in(path: str, names: Iterable[str]) -> bool:
    return any(Path(name).stem in Path(path).name for name in names)


def _moved(said: Diagnostic, names: dict[str, str]) -> Diagnostic | None:
    """What is said of another root; None if that is said of a place in it."""
    if said.code is Code.SHARED_HEADER:
        # said of all that share it, in the same words
        return said
    where = said.where
    if where is not None and where.path in names:
        if where.line:
            return None
        where = Location(names[where.path])
    values = {key: names.get(value, value) if isinstance(value, str) else value for key, value in said.values.items()}
    if any(name in str(value) for value in values.values() for name in names if names[name] != value):
        return None
    return replace(said, where=where, values=values)


def _words(result: PortResult, sources: SourceSet, names: dict[str, str]) -> frozenset[str]:
    """The names that are taken in the other set."""
    if not result.common.words:
        return result.common.words
    kept = {p: f for p, f in sources.files.items() if p not in names.values()}
    shared = frozenset().union(*(_identifiers(f.source) for f in kept.values()))
    theirs = frozenset().union(*(_identifiers(result.sources.files[p].source) for p in names))
    ours = frozenset().union(*(_identifiers(sources.files[p].source) for p in names.values()))
    return (result.common.words - (theirs - shared)) | ours


def _identifiers(source: bytes) -> frozenset[str]:
    return frozenset(w.decode() for w in _WORDS.findall(lexed(source).source))


_WORDS = re.compile(rb"[A-Za-z_]\w*")
