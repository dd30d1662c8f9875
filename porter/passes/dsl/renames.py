# SPDX-License-Identifier: Apache-2.0
"""Rules on the names of a Python file, on the contents of its strings, on its comments, and on the code between."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from porter.lang.cute_dsl import SUPPORT, Chain, DslFile, within
from porter.lang.text import Edit, Span
from porter.rules.match import python_matches
from porter.rules.rule import Rule

RuleEdit = tuple[str, Edit]
"""An edit with the ID of the rule that it is of."""


@dataclass(frozen=True)
class NameRules:
    """Rules on qualified names. Names within those that are `kept` stay."""

    rules: tuple[Rule, ...]
    kept: tuple[str, ...]

    def find(self, name: str) -> tuple[str, str] | None:
        """The ID of the rule on a name, and the new name."""
        if any(within(name, k) for k in self.kept):
            return None
        return next(((r.id, new) for r in self.rules if (new := r.rewritten(name)) is not None), None)


def renamed(
    file: DslFile, rules: NameRules, canonical: Callable[[str], str], support: str
) -> Iterator[tuple[str, Chain, str]]:
    """The chains that rules know, each once, with the rule's ID and the new text. Where an import or an alias binds the
    new name already, its uses stay."""
    done: set[ast.expr] = set()
    for reference in file.all_references:
        found = rules.find(canonical(reference.name))
        if found is None or reference.chain.node in done:
            continue
        base = canonical(reference.base)
        starred = reference.binding is None and base == reference.base
        if starred or rules.find(base) is None:
            rule, text = found
            done.add(reference.chain.node)
            yield rule, reference.chain, support + text.removeprefix(SUPPORT) if within(text, SUPPORT) else text


def renamed_methods(file: DslFile, rules: NameRules) -> Iterator[RuleEdit]:
    """Edits of the attributes of other values that rules know as `.method`."""
    if not any(r.pattern is not None and r.pattern.pattern.startswith(r"\.") for r in rules.rules):
        return
    known = {r.chain.node for r in file.all_references}
    for node in ast.walk(file.module):
        if isinstance(node, ast.Attribute) and node not in known:
            found, word, end = rules.find("." + node.attr), node.attr.encode(), file.span(node).end
            # inside f-strings Python may say another place
            if found is not None and file.source[:end].endswith(word):
                yield found[0], Edit(file.path, Span(end - len(word), end), found[1].removeprefix(".").encode())


def reworded(file: DslFile, rules: Iterable[Rule], taken: Sequence[Span]) -> Iterator[RuleEdit]:
    """Edits of texts outside the spans `taken`. A text that the file has in its new form already stays: such a file
    tells the two architectures apart itself."""
    claimed = list(taken)
    for rule in rules:
        for match in python_matches(rule, file):
            assert match.replacement is not None
            new = match.replacement.encode()
            if new not in file.source and not any(c.overlaps(match.span) for c in claimed):
                claimed.append(match.span)
                yield rule.id, Edit(file.path, match.span, new)
