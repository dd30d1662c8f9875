# SPDX-License-Identifier: Apache-2.0
"""What one source set needs of the headers that other sets may share with it, and what it adds to its port for all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from porter.lang.text import Span, as_bytes
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.passes.helpers import Helpers
from porter.passes.mentions import Mentions, body_of, definition_of
from porter.passes.mirror import Mirror


@dataclass(frozen=True)
class Need:
    """A function that has to do with the tensor core: `body` is what stands in its braces, `whole` its definition.
    `used`: a kernel of the set comes to it, or may. A header's kernel is used if something names it, whatever the root
    itself has is."""

    name: str
    path: str
    body: Span
    whole: Span
    used: bool


@dataclass(frozen=True)
class Common:
    """What the texts of a port depend on beyond the functions that they stand in: with those of all sets that share
    headers, each set is ported as if it stood beside the others. `words` are names that are taken, `barriers` ids of
    named barriers that are, `warpgroups` how many such ids a block needs; `member_moves` and `claimed` as in
    `PortContext`."""

    words: frozenset[str] = frozenset()
    barriers: frozenset[int] = frozenset()
    warpgroups: int = 0
    helpers: Helpers = field(default_factory=Helpers)
    member_moves: tuple[tuple[str, str], ...] = ()
    claimed: frozenset[str] = frozenset()


NOTHING = Common()


def joined(all_of: Iterable[Common]) -> Common:
    """What several sets have in common."""
    found = NOTHING
    for one in all_of:
        found = Common(
            found.words | one.words,
            found.barriers | one.barriers,
            max(found.warpgroups, one.warpgroups),
            with_helpers(found.helpers, one.helpers),
            tuple(sorted({*found.member_moves, *one.member_moves})),
            found.claimed | one.claimed,
        )
    return found


def with_helpers(one: Helpers, other: Helpers) -> Helpers:
    """What two ports ask for; the highest named barrier is the first one's."""
    values: dict[str, Any] = {}
    for each in fields(Helpers):
        a, b = getattr(one, each.name), getattr(other, each.name)
        if isinstance(a, set):
            values[each.name] = a | b
        elif isinstance(a, (bool, str)):
            values[each.name] = a or b
        elif each.name in ("ring", "blocks", "raster"):
            values[each.name] = max(a, b)
        elif each.name == "mirrors":
            values[each.name] = _mirrors(one, other)
    made = replace(one, **values)
    for mirror in made.mirrors.values():
        mirror.beside_floats = made.float_registers
    return made


def _mirrors(one: Helpers, other: Helpers) -> dict[tuple[str, bool], Mirror]:
    found = {key: replace(mirror, sizes=set(mirror.sizes)) for key, mirror in one.mirrors.items()}
    for key, mirror in other.mirrors.items():
        mine = found.get(key)
        if mine is None:
            found[key] = replace(mirror, sizes=set(mirror.sizes))
            continue
        mine.sizes |= mirror.sizes
        for name in ("loads", "stores", "scalar_loads", "scalar_stores", "updates", "tracks", "scalar_tracks"):
            setattr(mine, name, getattr(mine, name) or getattr(mirror, name))
    return found


_STYLES = (Style.KERNEL, Style.DEVICE, Style.METHOD, Style.MACRO)


def needs_of(program: Program) -> tuple[Need, ...]:
    """Every function of the set that has to do with the tensor core; none where it has no headers to share."""
    if len(program.sources.files) == 1:
        return ()
    seeds = [s.function for s in program.statements]
    seeds += [r.function for r in program.refusals if r.function is not None]
    if not seeds:
        return ()
    root = program.sources.root
    if all(f.file.path == root for f in seeds):
        # no header has anything, and all that the root has is used
        own = list({id(f): f for f in seeds if f.style in _STYLES}.values())
        return tuple(Need(f.name, root, body_of(f), definition_of(f), True) for f in own)
    ids = program.reaching(seeds)
    functions = [f for f in program.functions if id(f) in ids and f.style in _STYLES]
    used = program.reached([k for k in program.kernels if id(k) in ids and _counts(program, k)], seeds)
    unused = _nowhere_named(program, [f for f in functions if f.file.path != root and id(f) not in used])
    kept = {id(f) for f in unused}
    return tuple(Need(f.name, f.file.path, body_of(f), definition_of(f), id(f) not in kept) for f in functions)


def _counts(program: Program, kernel: Function) -> bool:
    """Whether a kernel stands in the root, or anything names it."""
    if kernel.file.path == program.sources.root:
        return True
    known = {f.name_span for f in [*program.functions, *program.forward] if f.name == kernel.name}
    starts = {s.start for s in known if s is not None}
    name = re.compile(rb"\b" + as_bytes(kernel.name) + rb"\b")
    return any(
        match.start() not in starts
        for file in program.sources.files.values()
        for match in name.finditer(file.lexed.plain)
    )


def _nowhere_named(program: Program, functions: Sequence[Function]) -> list[Function]:
    """Those of some functions that nothing names but themselves and each other."""
    left = list(functions)
    mentions = Mentions(program, left)
    while True:
        kept = mentions.understood(left)
        if len(kept) == len(left):
            return kept
        left = kept
