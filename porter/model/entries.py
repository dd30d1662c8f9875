# SPDX-License-Identifier: Apache-2.0
"""Kernels that are call operators of classes: a library's kernel makes an object of the class, and calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from porter.model.facts import Entry
from porter.model.functions import Function, Style
from porter.model.names.outside import Verdict
from porter.model.names.resolver import CALL_OPERATOR, Names
from porter.model.recognition import Bound, Vocabulary

_NAMES = ("identifier", "template_function", "qualified_identifier")


def mark_entries(functions: Sequence[Function], names: Names, vocabulary: Vocabulary) -> None:
    """Take call operators for kernels whose class has the constant for the block size that an entry of a library asks
    for. Whoever forwards to one has no such constant of its own."""
    constants = {entry.threads for entry in _asked(functions, names, vocabulary)}
    for function in functions:
        scope = function.owner_class
        if function.style is Style.METHOD and function.name == CALL_OPERATOR and scope is not None:
            own = sorted(constants & scope.values.keys())
            if own:
                function.style, function.block_size = Style.KERNEL, own[0]


def _asked(functions: Sequence[Function], names: Names, vocabulary: Vocabulary) -> Iterator[Entry]:
    """What entries that the sources name ask of a class. Their template arguments are the class's."""
    words = {word: vocabulary.of(word) for word in vocabulary.naming((Entry,))}
    for function in functions:
        for node in function.own_nodes(*_NAMES):
            if node.parent is not None and node.parent.type == "qualified_identifier":
                continue
            for recognizer in (r for word, found in words.items() if word in function.text(node) for r in found):
                if names.outside(function, node, recognizer.head) is Verdict.YES:
                    bound = recognizer.bind("", lambda _: None)
                    if isinstance(bound, Bound) and isinstance(bound.fact, Entry):
                        yield bound.fact
