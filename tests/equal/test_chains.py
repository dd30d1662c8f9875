# SPDX-License-Identifier: Apache-2.0
"""Products that are made when somebody asks for an accumulator: the words that they have one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import porter.equal.chains as chains
from porter.equal.chains import Chain, accumulated, nothing, of_columns, of_rows
from porter.equal.words import Words, element_words, spread, word

SIZE = 4
Products = Sequence[tuple[np.uint64, Words, Words]]


def words(seed: int, *shape: int) -> Words:
    return np.random.default_rng(seed).integers(0, 1 << 64, shape, np.uint64)


def products(*seeds: int) -> Products:
    return [(word(f"kind {seed % 2}"), words(seed, 16), words(seed + 1000, 24)) for seed in seeds]


def one_by_one(some: Products, before: Words | None = None) -> Words:
    for key, rows, columns in some:
        before = accumulated(key, rows[:, None], columns[None, :], before, SIZE)
    assert before is not None
    return before


def at_once(some: Products, base: Words) -> Words:
    chain = Chain(base)
    for key, rows, columns in some:
        chain.add(of_rows(key, rows), of_columns(columns))
    return spread(chain.words(), SIZE)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 8))
def test_a_chain_is_its_products_wherever_somebody_has_asked(seeds: list[int], asked_behind: int) -> None:
    some = products(*seeds)
    early, late = some[: min(asked_behind, len(some) - 1)], some[min(asked_behind, len(some) - 1) :]
    assert (at_once(some, nothing(SIZE)) == one_by_one(some)).all()
    if early:
        between = at_once(early, nothing(SIZE))
        assert (at_once(late, element_words(between)) == one_by_one(some)).all()


def test_of_bytes_that_are_no_value_s_all_count() -> None:
    """What a cut holds, a class for each byte, and numbers."""
    before = words(7, 16, 24, SIZE)
    before[0, 0] = 0
    found = at_once(products(1, 2), element_words(before))
    assert (found == one_by_one(products(1, 2), before)).all()
    for byte in range(SIZE):
        other = before.copy()
        other[3, 5, byte] ^= np.uint64(1)
        differs = (at_once(products(1, 2), element_words(other)) != found).any(axis=-1)
        assert differs[3, 5]
        assert differs.sum() == 1
    assert (element_words(np.zeros((1, SIZE), np.uint64)) == nothing(SIZE)).all()


OTHERS = {
    "another order": products(2, 1, 3),
    "one less": products(1, 2),
    "one twice": products(1, 2, 3, 3),
    "one of another kind": [products(1, 2)[0], products(1, 2)[1], (word("another"), *products(3)[0][1:])],
    "rows of another one": [(key, rows, columns) for (key, _, columns), (_, rows, _) in
                            zip(products(1, 2, 3), products(1, 3, 2), strict=True)],
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_are_other_words(name: str) -> None:
    assert (at_once(products(1, 2, 3), nothing(SIZE)) != at_once(OTHERS[name], nothing(SIZE))).all()


def test_rows_and_columns_are_not_each_other() -> None:
    same = words(5, 16)
    found = at_once([(word("kind"), same, words(6, 16))], nothing(SIZE))
    other = at_once([(word("kind"), words(6, 16), same)], nothing(SIZE))
    assert (found != other.swapaxes(0, 1)).all()


def test_an_order_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_FACTOR", np.uint64(1))
    with pytest.raises(AssertionError):
        test_other_products_are_other_words("another order")
