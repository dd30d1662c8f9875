# SPDX-License-Identifier: Apache-2.0
"""What code uses, in the words of rules: families of MMA atoms with their sizes, ways to copy and to synchronize."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from porter.lang.cuda import CudaFile, find, span
from porter.lang.text import Span
from porter.passes.sm100.signs import advice_rules, signs_in
from porter.rules.match import matches
from porter.rules.rule import Rule

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Feature:
    """One use. `size` is that of an atom, and empty for everything else."""

    what: str
    size: str
    where: Span


def features_in(file: CudaFile, rules: Iterable[Rule]) -> list[Feature]:
    """Everything that a file uses, in the order of its text."""
    wanted = [r for r in advice_rules(rules) if r.advice is not None and r.advice.sign == "feature"]
    signs = signs_in(wanted, lambda rule: matches(rule, file)).get("feature", [])
    return [Feature(s.given["what"], s.given.get("size", ""), s.match.span) for s in signs]


def listed(features: Iterable[Feature]) -> tuple[str, ...]:
    """Each thing once, those with sizes first: `SM90_64xNxK_F32F16F16_SS 64x64x16, 64x128x16`."""
    sizes: dict[str, dict[str, None]] = {}
    for feature in features:
        sizes.setdefault(feature.what, {}).update({feature.size: None} if feature.size else {})
    ordered = sorted(sizes, key=lambda what: (not sizes[what], list(sizes).index(what)))
    return tuple(" ".join([what, ", ".join(sorted(sizes[what], key=_numbers))]).strip() for what in ordered)


def _numbers(size: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", size)))


class Reach:
    """Which functions of some files a kernel may come to, by the names that their texts hold."""

    def __init__(self, files: Sequence[CudaFile]) -> None:
        self._functions: dict[str, list[tuple[CudaFile, Span]]] = {}
        self._all: dict[str, list[Span]] = {file.path: [] for file in files}
        for file in files:
            for node in find(file.root, "function_definition"):
                declarator = next(find(node, "function_declarator"), None)
                name = declarator.child_by_field_name("declarator") if declarator is not None else None
                if name is not None:
                    self._functions.setdefault(file.text(name).rpartition("::")[2], []).append((file, span(node)))
                    self._all[file.path].append(span(node))

    def of(self, kernel: str) -> Iterator[tuple[str, Span]]:
        """Functions with their files, the kernel among them."""
        seen, pending = {kernel}, [kernel]
        while pending:
            for file, where in self._functions.get(pending.pop(), ()):
                yield file.path, where
                new = set(_WORD.findall(file.lexed.plain_text, where.start, where.end)) & self._functions.keys() - seen
                seen |= new
                pending += sorted(new)

    def uses(self, kernel: str, features: dict[str, list[Feature]]) -> list[Feature]:
        """What a kernel uses: in functions that it may come to, and outside of all functions, where types stand."""
        reached: dict[str, list[Span]] = {}
        for path, where in self.of(kernel):
            reached.setdefault(path, []).append(where)
        return [
            feature
            for path, found in features.items()
            for feature in found
            if any(s.contains(feature.where) for s in reached.get(path, ()))
            or not any(s.contains(feature.where) for s in self._all.get(path, ()))
        ]
