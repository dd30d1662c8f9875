# SPDX-License-Identifier: Apache-2.0
"""Rules on the names of a Python file, on the contents of its strings, on its comments, and on the code between."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from porter.lang.cute_dsl import SUPPORT, Chain, DslFile, Reference
from porter.lang.text import Edit, Span
from porter.model.dsl.names import within
from porter.rules.match import required
from porter.rules.rule import Region, Rule


@dataclass(frozen=True)
class NameRules:
    """Rules on qualified names. `stays` says of a name that the file in question keeps it."""

    rules: tuple[Rule, ...]
    stays: Callable[[str], bool]

    def find(self, name: str) -> tuple[Rule, str] | None:
        """The rule on a name and the new name."""
        if self.stays(name):
            return None
        for rule in self.rules:
            assert rule.pattern is not None
            assert rule.replace is not None
            match = rule.pattern.fullmatch(name)
            if match is not None:
                return rule, match.expand(rule.replace)
        return None


@dataclass(eq=False)
class Renamed:
    """Edits by rule, and chains that would be edited if their place were known."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    misplaced: list[Chain] = field(default_factory=list)
    done: set[ast.expr] = field(default_factory=set)

    def add(self, file: DslFile, rule: str, chain: Chain, text: str) -> None:
        if chain.node in self.done:
            return
        self.done.add(chain.node)
        if file.exact(chain):
            self.edits.setdefault(rule, []).append(Edit(file.path, file.span(chain.node), text.encode()))
        else:
            self.misplaced.append(chain)


def base_name(reference: Reference) -> str:
    """What the first name of a chain stands for."""
    tail = "".join(f".{a}" for a in reference.chain.attributes)
    return reference.name.removesuffix(tail)


def rename(file: DslFile, rules: NameRules, canonical: Callable[[str], str], support: str, renamed: Renamed) -> None:
    """Edit the chains that rules know. Where an import or an alias binds the new name already, its uses stay."""
    for reference in file.all_references:
        found = rules.find(canonical(reference.name))
        if found is None:
            continue
        base = base_name(reference)
        starred = reference.binding is None and canonical(base) == base
        if starred or rules.find(canonical(base)) is None:
            text = found[1]
            if within(text, SUPPORT):
                text = support + text[len(SUPPORT) :]
            renamed.add(file, found[0].id, reference.chain, text)
    methods = [r for r in rules.rules if r.pattern is not None and r.pattern.pattern.startswith(r"\.")]
    if not methods:
        return
    known = {r.chain.node for r in file.all_references}
    for node in ast.walk(file.module):
        if isinstance(node, ast.Attribute) and node not in known:
            found = rules.find("." + node.attr)
            end = file.span(node).end
            span = Span(end - len(node.attr.encode()), end)
            if found is not None and file.source[span.start : span.end] == node.attr.encode():
                edit = Edit(file.path, span, found[1].removeprefix(".").encode())
                renamed.edits.setdefault(found[0].id, []).append(edit)


def reworded(file: DslFile, rules: Iterable[Rule], taken: Sequence[Span]) -> dict[str, list[Edit]]:
    """Edits by rule of texts. A text that the file has in its new form already stays: such a file tells the two
    architectures apart itself."""
    edits: dict[str, list[Edit]] = {}
    claimed, regions = list(taken), None
    for rule in rules:
        assert rule.pattern is not None
        assert rule.replace is not None
        if not any(word.encode() in file.source for word in required(rule.pattern)):
            continue
        regions = regions or dict(zip((Region.STRING, Region.COMMENT, Region.CODE), file.regions, strict=True))
        for span in regions.get(rule.region, ()):
            text = file.source[span.start : span.end].decode("utf-8")
            for match in re.finditer(rule.pattern, text):
                start = span.start + len(text[: match.start()].encode())
                place, new = Span(start, start + len(match.group().encode())), match.expand(rule.replace).encode()
                if new in file.source or any(c.overlaps(place) for c in claimed):
                    continue
                claimed.append(place)
                edits.setdefault(rule.id, []).append(Edit(file.path, place, new))
    return edits
