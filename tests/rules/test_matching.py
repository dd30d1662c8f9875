# SPDX-License-Identifier: Apache-2.0
"""Searches that are shortened find what the long ones find."""

from __future__ import annotations

import random
import re

import pytest

from porter.lang.text import Span
from porter.rules.engine import touches
from porter.rules.load import load_rules
from porter.rules.match import required


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\bSM90_64x\d+x\d+_\w+", ("SM90_64x",)),
        (r"\b(?:cutlass::)?arch::Sm90\b|\bKernelTma\w*", ("arch::Sm90", "KernelTma")),
        (r"ab?cd*efg", ("efg",)),
        (r"ab{0,2}c{2}d+", ("a",)),
        (r"(one|two)\x41three\.(?=four)", ("three",)),
        (r"[abc]|\(x\)", ("", "x")),
        (r"(?i)hopper", ("",)),
    ],
)
def test_texts_that_every_match_holds(pattern: str, texts: tuple[str, ...]) -> None:
    assert required(re.compile(pattern)) == texts


def test_examples_of_rules_hold_them() -> None:
    seen = 0
    for rule in load_rules():
        if rule.pattern is None:
            continue
        for example in rule.examples:
            for match in rule.pattern.finditer(example.before):
                assert any(text in match.group() for text in required(rule.pattern)), rule.id
                seen += 1
    assert seen > 20


def test_touching_is_overlap_with_any() -> None:
    rng = random.Random(0)
    hits = 0
    for _ in range(2000):
        # spans that do not overlap, among them insertions, some at the ends of others
        claimed, at = [], 0
        for _ in range(rng.randrange(6)):
            at += rng.randrange(3)
            claimed.append(Span(at, at := at + rng.randrange(3)))
        claimed.sort()
        start = rng.randrange(14)
        span = Span(start, start + 1 + rng.randrange(4))
        expected = any(other.overlaps(span) for other in claimed)
        assert touches(claimed, span) == expected, (claimed, span)
        hits += expected
    assert 200 < hits < 1800
