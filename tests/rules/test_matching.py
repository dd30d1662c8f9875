# SPDX-License-Identifier: Apache-2.0
"""Searches that are shortened find what the long ones find."""

from __future__ import annotations

import random
import re

import pytest

from porter.lang.text import Span
from porter.rules.engine import touches
from porter.rules.load import load_rules
from porter.rules.match import beginnings, found_in, required


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


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"\bFoo\b", ("Foo",)), (r"\b(?:Foo|Bar)Baz", ("Foo", "Bar")), (r"\bcute::Foo\w*", ("cute::Foo",)),
        (r"\bFoos?\b", ("Foo",)), (r"\bFo{2}\b", ("F",)), (r"\b(?:A_|A::(?:B::)?C)x", ("A_", "A::")),
        (r"\b(?:Foo)?Bar", ("",)), (r"\bFoo|Bar\b", ("Foo", "Bar")), (r"\b(?:Foo|Bar)|Baz", ("",)),
        (r"\b\w+Foo", ("",)), (r"Foo", ("",)), (r"\b(?i:foo)", ("",)), (r"\b(?:Foo|\w)x", ("Foo", "")),
        (r"\b[FG]oo", ("",)), (r"\b(Foo)", ("",)), (r"(?<!\w)Foo", ("",)),
    ],
)  # fmt: skip
def test_what_matches_begin_with(pattern: str, words: tuple[str, ...]) -> None:
    assert beginnings(re.compile(pattern)) == words


TEXT = """GMMA::Major cutlass::PipelineTmaAsync<2> KernelTmaWarpSpecialized xKernelTma SM90_64x64x16_F32F16F16_SS
copy(a, b, c); warpgroup_wait<0>(); warpgroup_arrive(); ClusterBarrierClusterBarrier ClusterBarrier NamedBarrier::sync
SM90_TMA_LOAD_MULTICAST SM90_TMA_LOAD SM90_U32x4_STSM_N __CUDA_ARCH__ == 900 __CUDA_ARCH__<1000 FooFooFoo_Foo FooBarFoo
"""


@pytest.mark.parametrize("cut", [0, 3, 40])
def test_patterns_find_what_they_match_wherever_they_are_tried(cut: int) -> None:
    patterns = [rule.pattern for rule in load_rules() if rule.pattern is not None]
    patterns += [
        re.compile(p) for p in (r"\bFoo", r"\bFoo(?!B)", r"\b(?:Foo|FooFoo)+", r"\b(?:FooFoo|Foo)", r"\bFoo\w*?F")
    ]
    assert sum("" not in beginnings(p) for p in patterns) > 25
    found = 0
    for pattern in patterns:
        plain = [m.span() for m in pattern.finditer(TEXT, cut, len(TEXT) - cut) if m.group()]
        assert [m.span() for m in found_in(pattern, TEXT, cut, len(TEXT) - cut) if m.group()] == plain
        found += len(plain)
    assert found > 10
