# SPDX-License-Identifier: Apache-2.0
"""The mapping table: what constructs of Hopper become, and advice about them that is wrong. `mappings/map/*.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any

import yaml

from porter.diagnostics import Code, PorterError
from porter.rules.load import mappings_directory
from porter.rules.rule import Rule

STATUS = {
    "ported": "`porter port` does it",
    "reported": "named, not ported: exit code 3",
    "refused": "not ported",
    "same": "stays as it is",
    "blackwell": "on Blackwell only",
}


@dataclass(frozen=True)
class Entry:
    """One construct under the names that it has; `*`, `?` and `[]` in a name are as in names of files. `what` it is,
    and what it `becomes`, empty for what only Blackwell has."""

    family: str
    names: tuple[str, ...]
    what: str
    status: str
    becomes: str = ""
    conditions: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Claim:
    """Something that is said about the constructs called `words`, and what is so."""

    id: str
    words: tuple[str, ...]
    said: str
    so: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What the table has on a word, the most specific entry first. `is_family`: the word only begins their names."""

    word: str
    entries: tuple[Entry, ...]
    claims: tuple[Claim, ...]
    is_family: bool = False


@cache
def table() -> tuple[tuple[Entry, ...], tuple[Claim, ...]]:
    """All entries and claims, in the order of the files."""
    entries, claims = [], []
    for path in sorted((mappings_directory() / "map").glob("*.yaml")):
        data = yaml.safe_load(path.read_text("utf-8"))
        for stated in map(_with_tuples, data.get("entries", ())):
            entries.append(Entry(data["family"], what=stated.pop("is"), **stated))
        claims += [Claim(**_with_tuples(stated)) for stated in data.get("claims", ())]
    return tuple(entries), tuple(claims)


def _with_tuples(stated: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in stated.items()}


def look_up(word: str, rules: Sequence[Rule] = ()) -> Answer:
    """What becomes of a construct: an instruction with or without its modifiers, a name of a library in full or its
    end, or what several names begin with. `rules`: those whose names count as well.

    Raises:
        PorterError: MAP_UNKNOWN, with names that are near.
    """
    entries, claims = table()
    entries = (*entries, *_of_rules(rules, entries))
    asked = _plain(word)
    found = sorted(_ranked(asked, entries), key=lambda r: -r[0])
    said = tuple(c for c in claims if any(_rank(asked, _plain(w)) for w in c.words))
    if found or said:
        return Answer(word, tuple(entry for _, entry in found), said)
    members = tuple(e for e in entries if any(_begins(_plain(n), asked) for n in e.names))
    said = tuple(c for c in claims if any(_begins(_plain(w), asked) for w in c.words))
    if members or said:
        return Answer(word, members, said, True)
    raise PorterError(Code.MAP_UNKNOWN, detail=_near(asked, entries, claims), word=word)


def _of_rules(rules: Iterable[Rule], entries: Sequence[Entry]) -> Iterator[Entry]:
    """Names that rules recognize and the table does not have; of Python's those of a user's rules."""
    known = {_plain(name) for entry in entries for name in entry.names}
    for rule in rules:
        heads = ("::".join(r.head) for r in rule.recognizers)
        steps = (".".join(s for s in p.steps if not s.startswith("$")) for p in rule.names if p.origin.is_user)
        names = tuple(dict.fromkeys((*heads, *steps)))
        if names and not all(_plain(name) in known for name in names):
            what, by, sources = rule.title + ".", (rule.id,), rule.references
            if rule.refusal is not None:
                _, refused, advice = rule.refusal
                yield Entry(rule.library, names, f"{what} {refused}", "refused", "", (), by, sources, advice)
            else:
                becomes = rule.becomes or rule.replace or ""
                yield Entry(rule.library, names, what, "ported", becomes, (), by, sources)


_SPACES = re.compile(r"^(?:::)?(?:cutlass::)?(?:cute::)?|^cutlass\.")


@lru_cache(4096)
def _plain(word: str) -> str:
    """A name without the namespace or package that all have, template arguments and arguments."""
    return _SPACES.sub("", re.sub(r"\s*[<(\s;].*$", "", word.strip(), flags=re.DOTALL))


def _ranked(asked: str, entries: Iterable[Entry]) -> Iterator[tuple[int, Entry]]:
    for entry in entries:
        rank = max((_rank(asked, _plain(name)) for name in entry.names), default=0)
        if rank:
            yield rank, entry


def _rank(asked: str, name: str) -> int:
    """How well a name fits, 0 if not at all: more for more letters of it."""
    letters = len(re.sub(r"\[[^]]*\]|[*?]", "", name))
    if asked.lower() == name.lower():
        return 1000 + letters
    if any(c in name for c in "*?["):
        return 100 + letters if fnmatchcase(asked, name) else 0
    if _begins(asked, name):
        return letters
    # the end of a qualified name
    return 1 if re.search(rf"(?:\.|::){re.escape(asked)}$", name) else 0


def _begins(longer: str, shorter: str) -> bool:
    """Whether a name goes on behind another, at a border of its parts."""
    return bool(shorter) and re.match(rf"{re.escape(shorter)}(?:\.|::)", longer) is not None


def _near(asked: str, entries: Iterable[Entry], claims: Iterable[Claim]) -> str:
    names = dict.fromkeys([_plain(n) for e in entries for n in e.names] + [w for c in claims for w in c.words])
    ends: dict[str, str] = {}
    for name in names:
        ends.setdefault(name.lower(), name)
        ends.setdefault(re.split(r"\.|::", name)[-1].lower(), name)
    near = dict.fromkeys(ends[n] for n in get_close_matches(asked.lower(), ends, n=4, cutoff=0.55))
    return f"near: {', '.join(near)}" if near else ""
