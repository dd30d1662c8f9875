# SPDX-License-Identifier: Apache-2.0
"""Macros of a source set: which words their uses come to, and what they stand for."""

from __future__ import annotations

import pytest

from porter.lang.expansion import TooLong
from porter.lang.lexical import lexed
from porter.lang.macros import Macros

TEXT = b"""
#define ACC d
#define OUT(i) ACC[i]
#define DEEP(i) OUT((i) + 1)
#define CAT(a, b) a##b
#define R(i) CAT(r, i)
#define BOTH(x, ...) x, __VA_ARGS__
#ifdef A
#define KIND 1
#else
#define KIND 2
#endif
#define SELF SELF + 1
#define NAME(x) #x
"""


@pytest.fixture
def macros() -> Macros:
    return Macros.of(lexed(TEXT).macros())


@pytest.mark.parametrize(
    ("text", "expansions"),
    [
        ("ACC[0] += 1", {"d[0] += 1"}),
        ("OUT(3)", {"d[3]"}),
        ("DEEP(k)", {"d[(k) + 1]"}),
        ("R(4) = 0", {"r4 = 0"}),
        ("f(BOTH(1, 2, 3))", {"f(1, 2, 3)"}),
        ("KIND", {"1", "2"}),
        ("SELF", {"SELF + 1"}),
        ("NAME(ACC)", {'"ACC"'}),
        ("OUT + 1", {"OUT + 1"}),
        ('"ACC"', {'"ACC"'}),
    ],
)
def test_expansion(macros: Macros, text: str, expansions: set[str]) -> None:
    assert set(macros.expand(text)) == expansions


def test_words_are_those_of_all_macros_on_the_way(macros: Macros) -> None:
    assert "d" in macros.words("DEEP")
    assert "d" not in macros.words("CAT")
    assert macros.pastes("R")
    assert not macros.pastes("DEEP")


def test_an_expansion_that_grows_without_bound_is_said_so() -> None:
    levels = [f"#define M{i} M{i + 1} M{i + 1}" for i in range(30)]
    grown = Macros.of(lexed("\n".join(levels).encode()).macros())
    with pytest.raises(TooLong):
        grown.expand("M0")
